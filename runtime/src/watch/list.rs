//! Lists: the first of a watch as a whole, later ones in pages.

use serde::Deserialize;

use super::{
    Decode, Event, Name, PAGE_BYTES_MAX, Page, Pump,
    items::Items,
    read::{answer, answer_in_turn, io_error, read_chunk, read_on, utf8},
};
use crate::errors;

#[derive(Deserialize)]
struct Named {
    metadata: Name,
}

impl<D, S> Pump<D, S>
where
    D: Decode,
    S: FnMut(Event<D::Object>) + Send,
{
    /// Lists once.
    pub(super) async fn list(&mut self) -> Result<String, kube::Error> {
        // A list that may be older than what was told before has to say so before it shows anything: a page does, for it is
        // read to its end first.
        if self.whole && self.seen == 0 {
            self.list_whole().await
        } else {
            self.list_pages().await
        }
    }

    /// Lists with one request, which API servers of today answer from memory, unlike those for later pages. Objects are handed
    /// over as they arrive.
    async fn list_whole(&mut self) -> Result<String, kube::Error> {
        let request = self.source.request(&[("limit", "0")])?;
        let body = answer_in_turn(&self.client, request).await;
        // What fails may be too much at a time, for the API server or for a slow line, and is asked for in pages from then on;
        // but not because nobody was there to ask.
        self.whole = body.as_ref().is_err_and(errors::is_unsent);
        let mut body = std::pin::pin!(body?);
        (self.sink)(Event::Reset);
        let mut items = Items::default();
        while answer(read_on(&mut body, |text| items.feed(text, |item| self.listed(item)))).await? {}
        let page: Page<'_> = serde_json::from_str(utf8(items.rest())?).map_err(kube::Error::SerdeError)?;
        if !page.metadata.next.is_empty() {
            return Err(io_error("the list is cut into pages; they are asked for"));
        }
        self.rewind(&page.metadata.resource_version);
        (self.sink)(Event::Complete(page.metadata.resource_version.clone()));
        Ok(page.metadata.resource_version)
    }

    async fn list_pages(&mut self) -> Result<String, kube::Error> {
        let limit = self.page.to_string();
        let mut next = String::new();
        let mut first = true;
        // One for all pages, and gone with the list.
        let mut text = Vec::new();
        loop {
            let mut pairs = vec![("limit", limit.as_str())];
            if !next.is_empty() {
                pairs.push(("continue", &next));
            }
            let mut body = std::pin::pin!(answer_in_turn(&self.client, self.source.request(&pairs)?).await?);
            text.clear();
            while answer(read_chunk(&mut body, &mut text)).await? {
                if text.len() > PAGE_BYTES_MAX {
                    self.page = (self.page / 2).max(1);
                    return Err(io_error("a page of the list is too long; smaller ones are asked for"));
                }
            }
            let page: Page<'_> = serde_json::from_str(utf8(&text)?).map_err(kube::Error::SerdeError)?;
            if std::mem::take(&mut first) {
                self.rewind(&page.metadata.resource_version);
                (self.sink)(Event::Reset);
            }
            for item in page.items.into_iter().flatten() {
                self.listed(item.get()).map_err(io_error)?;
            }
            if page.metadata.next.is_empty() {
                (self.sink)(Event::Complete(page.metadata.resource_version.clone()));
                return Ok(page.metadata.resource_version);
            }
            next = page.metadata.next;
        }
    }

    /// Hands over an object of a list. One that has no name, even, would count as gone: such a list says nothing.
    fn listed(&mut self, item: &str) -> Result<(), &'static str> {
        if let Some(object) = self.decode(item) {
            (self.sink)(Event::Listed(object));
            return Ok(());
        }
        let named: Named =
            serde_json::from_str(item).map_err(|_| "an object of the list has no name that can be read")?;
        (self.sink)(Event::Unreadable(named.metadata));
        Ok(())
    }

    /// Takes the version of a list that begins. One that is older than what was told before is the truth all the same.
    fn rewind(&mut self, version: &str) {
        let Ok(version) = version.parse() else {
            return;
        };
        if version < self.seen {
            tracing::info!(path = %self.source.path, "the API server has gone back in time");
            (self.sink)(Event::Rewound);
        }
        self.seen = version;
    }
}
