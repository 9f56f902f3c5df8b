//! Lists, whose pages are read one after the other.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bindery_proto::v1alpha2::{
    ListBindableResourcesRequestsRequest, ListCollectionsRequest, ListContractsRequest, ListExportsRequest,
    ListTemplatesRequest,
};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, Stream, StreamExt as _, TryStreamExt as _, stream};
use prost::Message;

use crate::client::Client;
use crate::error::Error;
use crate::method::Method;

/// Limit on the pages of one list: half a million objects at the default page size.
const PAGES_MAX: usize = 10_000;

/// Number of page tokens that are remembered, to notice a server whose pages go round.
const TOKENS_REMEMBERED: usize = 16;

/// The objects of a list, read page by page while the stream is polled, from the request's `page_token` on.
///
/// As a stream, or by [`ListStream::next`], it yields the objects one by one, and ends after an error. Awaited, it returns the
/// objects of all pages in a `Vec`. The first call is made when it is first polled, within a Tokio runtime.
#[must_use = "a list makes no call until it is awaited or polled"]
pub struct ListStream<T> {
    items: BoxStream<'static, Result<T, Error>>,
}

/// A request for a page of a list.
pub(crate) trait PageRequest: Message + Clone + 'static {
    fn page_token(&mut self) -> &mut String;
}

macro_rules! page_requests {
    ($($request:ty),+ $(,)?) => {$(
        impl PageRequest for $request {
            fn page_token(&mut self) -> &mut String {
                &mut self.page_token
            }
        }
    )+};
}

page_requests!(
    ListBindableResourcesRequestsRequest,
    ListCollectionsRequest,
    ListContractsRequest,
    ListExportsRequest,
    ListTemplatesRequest,
);

impl Client {
    /// Lists by a method whose response `split` takes apart into objects and the token of the next page.
    pub(crate) fn list<Q, R, T>(
        &self,
        method: Method<Q, R>,
        mut request: Q,
        split: fn(R) -> (Vec<T>, String),
    ) -> ListStream<T>
    where
        Q: PageRequest,
        R: Message + Default + 'static,
        T: Send + 'static,
    {
        let client = self.clone();
        let first = request.page_token().clone();
        let address = self.address().to_string();
        ListStream::new(address, first, move |page_token| {
            let (client, mut request) = (client.clone(), request.clone());
            *request.page_token() = page_token;
            async move { client.call(method, request).await.map(split) }
        })
    }
}

impl<T: Send + 'static> ListStream<T> {
    /// Reads pages until one has no token for a next page. An empty page with a token is not the last one.
    fn new<P, F>(address: String, first: String, read_page: P) -> Self
    where
        P: Fn(String) -> F + Send + 'static,
        F: Future<Output = Result<(Vec<T>, String), Error>> + Send + 'static,
    {
        let start = PageCursor {
            address,
            next: Some(first),
            seen: VecDeque::new(),
            count: 0,
        };
        let pages = stream::try_unfold((start, read_page), |(mut cursor, read_page)| async move {
            let Some(token) = cursor.next.take() else {
                return Ok::<_, Error>(None);
            };
            let (items, next) = read_page(token.clone()).await?;
            // Objects of a page are yielded before the fault of its token is.
            let items: Vec<_> = match cursor.advance(token, next) {
                Ok(()) => items.into_iter().map(Ok).collect(),
                Err(error) => items.into_iter().map(Ok).chain([Err(error)]).collect(),
            };
            Ok(Some((stream::iter(items), (cursor, read_page))))
        });
        Self {
            items: pages.try_flatten().boxed(),
        }
    }
}

impl<T> ListStream<T> {
    /// Returns the next object; `None` after the last one and after an error.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        self.items.next().await
    }
}

/// Where the reader of a list is.
struct PageCursor {
    address: String,
    /// The token of the next page; `None` after the last one.
    next: Option<String>,
    /// The tokens of the last pages.
    seen: VecDeque<String>,
    count: usize,
}

impl PageCursor {
    /// Notes the token of the page that was read and that of the next one.
    fn advance(&mut self, token: String, next: String) -> Result<(), Error> {
        if next.is_empty() {
            return Ok(());
        }
        self.count += 1;
        if self.count >= PAGES_MAX {
            return Err(self.fault(format!("a list has more than {PAGES_MAX} pages")));
        }
        if self.seen.len() == TOKENS_REMEMBERED {
            self.seen.pop_front();
        }
        self.seen.push_back(token);
        if self.seen.contains(&next) {
            return Err(self.fault("the pages of a list go round: the next page is one that was read already"));
        }
        self.next = Some(next);
        Ok(())
    }

    fn fault(&self, fault: impl Into<String>) -> Error {
        Error::Protocol {
            address: self.address.clone(),
            fault: fault.into(),
        }
    }
}

impl<T> Stream for ListStream<T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.items.poll_next_unpin(cx)
    }
}

impl<T: Send + 'static> IntoFuture for ListStream<T> {
    type Output = Result<Vec<T>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.items.try_collect().boxed()
    }
}

impl<T> fmt::Debug for ListStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListStream").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    type Page = (Vec<u32>, String);

    /// Lists pages, and counts the calls.
    fn list(page: impl Fn(&str) -> Page + Send + 'static) -> (ListStream<u32>, Arc<AtomicUsize>) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let list = ListStream::new(
            "https://bind.example.com".to_owned(),
            String::new(),
            move |token: String| {
                counted.fetch_add(1, Ordering::Relaxed);
                std::future::ready(Ok(page(&token)))
            },
        );
        (list, calls)
    }

    /// Serves pages by number: the token is the index of the page.
    fn numbered(pages: &'static [(&'static [u32], &'static str)]) -> (ListStream<u32>, Arc<AtomicUsize>) {
        list(|token| {
            let (items, next) = pages[token.parse::<usize>().unwrap_or(0)];
            (items.to_vec(), next.to_owned())
        })
    }

    #[tokio::test]
    async fn a_list_goes_on_over_empty_pages() {
        assert_eq!(numbered(&[(&[1, 2], "")]).0.await.unwrap(), [1, 2]);
        assert_eq!(numbered(&[(&[], "1"), (&[], "2"), (&[7], "")]).0.await.unwrap(), [7]);
        assert_eq!(numbered(&[(&[], "")]).0.await.unwrap(), [0; 0]);
    }

    #[tokio::test]
    async fn a_page_is_read_when_it_is_needed() {
        let (mut list, calls) = numbered(&[(&[1, 2], "1"), (&[3], "")]);
        let calls = || calls.load(Ordering::Relaxed);
        assert_eq!(calls(), 0);
        assert_eq!(list.next().await.unwrap().unwrap(), 1);
        assert_eq!(list.next().await.unwrap().unwrap(), 2);
        assert_eq!(calls(), 1);
        assert_eq!(list.next().await.unwrap().unwrap(), 3);
        assert!(list.next().await.is_none());
        assert_eq!(calls(), 2);
    }

    #[tokio::test]
    async fn pages_that_go_round_or_never_end_are_an_error() {
        #[track_caller]
        fn check(error: &Error, expect: &str) {
            assert_eq!(error.reason_str(), "ProtocolViolation");
            assert!(error.to_string().contains(expect), "{error}");
        }
        let (itself, calls) = numbered(&[(&[1], "1"), (&[2], "1")]);
        check(&itself.await.unwrap_err(), "go round");
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        let (mut round, calls) = numbered(&[(&[], "1"), (&[], "2"), (&[9], "1")]);
        assert_eq!(round.next().await.unwrap().unwrap(), 9);
        check(&round.next().await.unwrap().unwrap_err(), "go round");
        assert!(round.next().await.is_none());
        assert_eq!(calls.load(Ordering::Relaxed), 3);
        let (endless, calls) = list(|token| (vec![], (token.parse().unwrap_or(0) + 1).to_string()));
        check(&endless.await.unwrap_err(), "more than 10000 pages");
        assert_eq!(calls.load(Ordering::Relaxed), PAGES_MAX);
    }
}
