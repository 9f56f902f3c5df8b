//! How a watcher lists all objects: the first time in one request, later in pages.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{EXCEEDED, Watcher};
use crate::{
    errors,
    guard::Verdict,
    watch::{
        Decode, Event, ObjectName,
        items::ItemReader,
        read::{ApiServer, PAGE_BYTES_MAX, get_list, io_error, read_all, read_on, utf8, within_limit},
    },
};

/// Objects per page of a list. A watcher halves its own number whenever a page exceeds the size limit.
pub(super) const PAGE_OBJECTS: usize = 500;

/// A list, or one page of it.
#[derive(Deserialize)]
pub(super) struct Page<'a> {
    pub(super) metadata: PageMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMeta {
    pub(super) resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
}

/// The part of an object that every object has.
#[derive(Deserialize)]
struct AnyObject {
    metadata: ObjectName,
}

impl<C, D, H> Watcher<C, D, H>
where
    C: ApiServer,
    D: Decode,
    H: FnMut(Event<D::Object>) + Send,
{
    /// Lists once; returns the resource version of the list.
    pub(super) async fn list(&mut self) -> Result<String, kube::Error> {
        // If a list is older than what the handler saw, the handler must learn it (`Rewound`) before the first object.
        // Only a page is read whole, and so its version known, before its objects are handed over.
        if self.is_whole && self.seen == 0 {
            self.list_whole().await
        } else {
            self.list_pages().await
        }
    }

    /// Lists with one request, which the API server answers from memory, unlike requests for later pages. Objects are handed
    /// over as they arrive.
    async fn list_whole(&mut self) -> Result<String, kube::Error> {
        let request = self.source.request(&[("limit", "0")])?;
        let body = get_list(&self.api, request).await;
        // A watcher lists in one request only once: if it fails, the list may be too large for the API server or the
        // connection. It tries again only if the API server was never reached.
        self.is_whole = body.as_ref().is_err_and(errors::is_unsent);
        let mut body = body?;
        self.reset();
        let mut items = ItemReader::default();
        while within_limit(read_on(&mut body, |text| items.read(text, |item| self.listed(item)))).await? {}
        let page: Page<'_> = serde_json::from_str(utf8(items.rest())?).map_err(kube::Error::SerdeError)?;
        if !page.metadata.next.is_empty() {
            return Err(io_error("the list is cut into pages; they are asked for"));
        }
        self.begin(&page.metadata.resource_version);
        Ok(self.complete(page.metadata.resource_version))
    }

    /// Lists page by page. If a page is too long, the page size is halved and the list fails, so that the caller starts
    /// again.
    async fn list_pages(&mut self) -> Result<String, kube::Error> {
        let limit = self.page.to_string();
        let mut next = String::new();
        // One buffer for all pages, freed with the list.
        let mut text = Vec::new();
        loop {
            let is_first = next.is_empty();
            let mut pairs = vec![("limit", limit.as_str())];
            if !is_first {
                pairs.push(("continue", &next));
            }
            let mut body = get_list(&self.api, self.source.request(&pairs)?).await?;
            text.clear();
            if !read_all(&mut body, &mut text, self.reader.as_mut()).await? {
                if let Some(reader) = self.reader.as_mut().filter(|_| self.page == 1) {
                    reader.exceed_answer(PAGE_BYTES_MAX);
                    return Err(io_error(EXCEEDED));
                }
                self.page = (self.page / 2).max(1);
                return Err(io_error("a page of the list is too long; smaller ones are asked for"));
            }
            let page: Page<'_> = serde_json::from_str(utf8(&text)?).map_err(kube::Error::SerdeError)?;
            if is_first {
                self.begin(&page.metadata.resource_version);
                self.reset();
            }
            for item in page.items.into_iter().flatten() {
                self.listed(item.get()).map_err(io_error)?;
            }
            if page.metadata.next.is_empty() {
                return Ok(self.complete(page.metadata.resource_version));
            }
            next = page.metadata.next;
        }
    }

    /// Hands over an object of a list. A list with an object whose name cannot be read fails: the object would count as gone.
    fn listed(&mut self, item: &str) -> Result<(), &'static str> {
        if let Some(mut object) = self.decode(item) {
            if let Some(reader) = &mut self.reader {
                let (namespace, name) = D::name(&object);
                match reader.listed(namespace, name) {
                    Verdict::Take => D::hold(&mut object, reader.hold(D::COUNTS_OBJECTS.into(), item.len())),
                    Verdict::Skip => return Ok(()),
                    Verdict::Exceeded => return Err(EXCEEDED),
                }
            }
            (self.handler)(Event::Listed(object));
            return Ok(());
        }
        let object: AnyObject =
            serde_json::from_str(item).map_err(|_| "an object of the list has no name that can be read")?;
        let ObjectName { namespace, name } = &object.metadata;
        let verdict = self.reader.as_mut().map(|reader| reader.listed(namespace, name));
        match verdict {
            None | Some(Verdict::Take) => (self.handler)(Event::Unreadable(object.metadata)),
            Some(Verdict::Skip) => {}
            Some(Verdict::Exceeded) => return Err(EXCEEDED),
        }
        Ok(())
    }

    /// Tells the handler that a list begins.
    fn reset(&mut self) {
        if let Some(reader) = &mut self.reader {
            reader.begin();
        }
        (self.handler)(Event::Reset);
    }

    /// Notes the version of a list. If it is older than the latest version seen, the API server was restored from a
    /// backup.
    fn begin(&mut self, version: &str) {
        let Ok(version) = version.parse() else {
            return;
        };
        if version < self.seen {
            tracing::info!(path = %self.source.path, "the API server has gone back in time");
            (self.handler)(Event::Rewound);
        }
        self.seen = version;
    }

    /// Tells the handler that the list is complete; returns its version.
    fn complete(&mut self, version: String) -> String {
        (self.handler)(Event::Complete(version.clone()));
        version
    }
}
