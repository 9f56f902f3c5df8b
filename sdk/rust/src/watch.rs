//! Watches that reconnect and resume by themselves.

mod message;
mod tracker;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bindery_proto::v1alpha2::{
    BindableResourcesRequest, Contract, ErrorReason, Export, Removed, WatchBindableResourcesRequestsRequest,
    WatchContractsRequest, WatchExportsRequest,
};
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, Stream, StreamExt as _};
use tokio::time::{Instant, timeout};
use tonic::{Code, Streaming};
use tracing::debug;

use crate::client::connections::WatchConnection;
use crate::client::message::EncodedRequest;
use crate::client::{Client, TokenMemory, request_id};
use crate::error::Error;
use crate::error::transport::{TransportError, TransportFault};
use crate::method::{Method, all as methods};
use crate::retry::RetryPolicy;
use crate::token::TokenError;
use message::{WatchRequest, WatchResponse};
use tracker::Tracker;

/// A stream without a message for this long is closed; servers send one every 30 s.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// Time limit on opening a stream.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// After a stream that lasted this long, the delay before the next one is the shortest.
const GOOD_AFTER: Duration = Duration::from_secs(10);

/// How soon watches reconnect, and which silence ends a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchTiming {
    /// Random delays between attempts: when a server ends, all its clients reconnect.
    pub(crate) reconnect: RetryPolicy,
    /// A stream without a message for this long is closed.
    pub(crate) silence: Duration,
}

impl Default for WatchTiming {
    fn default() -> Self {
        Self {
            reconnect: RetryPolicy {
                attempts: u32::MAX,
                base: Duration::from_secs(1),
                cap: Duration::from_secs(30),
            },
            silence: SILENCE_MAX,
        }
    }
}

/// An event of [`Client::watch_exports`].
pub type ExportEvent = WatchEvent<Export>;

/// An event of [`Client::watch_bindable_resources_requests`].
pub type RequestEvent = WatchEvent<BindableResourcesRequest>;

/// An event of [`Client::watch_contracts`].
pub type ContractEvent = WatchEvent<Contract>;

/// An event of a watch.
#[derive(Debug)]
pub enum WatchEvent<T> {
    /// The stream is open. If it resumed, changes follow, otherwise a snapshot.
    Connected {
        /// Whether the stream goes on where the last one ended.
        resumed: bool,
    },
    /// A snapshot begins. The objects of an unfinished snapshot before it exist, but objects that it lacks may exist too.
    SnapshotBegin {
        /// Why the server refused to resume; `None` if it was not asked to.
        refused: Option<String>,
    },
    /// An object exists or has changed. A new UID under the same name means that the former object is gone.
    Applied(T),
    /// An object is gone.
    Removed(Removed),
    /// The snapshot is complete, and its count agrees: objects that it lacks are gone.
    SnapshotComplete,
    /// The stream ended; the watch will open another one.
    Disconnected {
        /// Why the stream ended; `None` if the server ended it in good order.
        error: Option<Error>,
        /// Delay before the next attempt.
        retry_in: Duration,
    },
}

/// A stream of events that reconnects with a resume token after random delays. It yields an error and ends only where a retry
/// cannot help: the token is refused, a right is missing, or the contract does not exist.
///
/// An event counts as processed when the next one is polled; [`Watch::resume_token`] and reconnects rely on that.
pub struct Watch<T> {
    events: BoxStream<'static, (Result<WatchEvent<T>, Error>, String)>,
    /// Resume token of the last event that was processed.
    processed: String,
    /// Resume token of the event that was yielded last.
    yielded: Option<String>,
}

impl Client {
    /// Watches exports across disconnects; see [`Watch`], which must be polled within a Tokio runtime.
    pub fn watch_exports(&self, request: WatchExportsRequest) -> Watch<Export> {
        Watch::new(self.clone(), methods::WATCH_EXPORTS, request)
    }

    /// Watches the contracts that the caller may see across disconnects; see [`Watch`], which must be polled within a Tokio runtime.
    pub fn watch_contracts(&self, request: WatchContractsRequest) -> Watch<Contract> {
        Watch::new(self.clone(), methods::WATCH_CONTRACTS, request)
    }

    /// Watches the caller's requests across disconnects; see [`Watch`], which must be polled within a Tokio runtime.
    pub fn watch_bindable_resources_requests(
        &self,
        request: WatchBindableResourcesRequestsRequest,
    ) -> Watch<BindableResourcesRequest> {
        Watch::new(self.clone(), methods::WATCH_BINDABLE_RESOURCES_REQUESTS, request)
    }
}

impl<T: Send + 'static> Watch<T> {
    fn new<Q, R>(client: Client, method: Method<Q, R>, request: Q) -> Self
    where
        Q: WatchRequest,
        R: WatchResponse<Object = T>,
    {
        let processed = request.resume_token().to_owned();
        let run = WatchRun {
            client,
            method,
            tracker: Tracker::new(processed.clone()),
            request,
            tokens: TokenMemory::default(),
            failures: 0,
            connection: None,
            state: WatchState::Waiting(Duration::ZERO),
        };
        let events = stream::unfold(run, |mut run| async move {
            let event = run.next().await?;
            Some(((event, run.tracker.token().to_owned()), run))
        });
        Self {
            events: events.boxed(),
            processed,
            yielded: None,
        }
    }

    /// Returns the token with which another watch with the same filter can resume, also with other credentials. Empty until a
    /// snapshot is complete.
    pub fn resume_token(&self) -> &str {
        &self.processed
    }
}

impl<T> Watch<T> {
    /// Returns the next event; `None` after an error, which ends the watch.
    pub async fn next(&mut self) -> Option<Result<WatchEvent<T>, Error>> {
        futures::StreamExt::next(self).await
    }
}

impl<T> Stream for Watch<T> {
    type Item = Result<WatchEvent<T>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(token) = self.yielded.take() {
            self.processed = token;
        }
        let next = ready!(self.events.poll_next_unpin(cx));
        Poll::Ready(next.map(|(event, token)| {
            self.yielded = Some(token);
            event
        }))
    }
}

impl<T> fmt::Debug for Watch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("resume_token", &self.processed)
            .finish_non_exhaustive()
    }
}

/// A running watch, over all its streams.
struct WatchRun<Q, R> {
    client: Client,
    method: Method<Q, R>,
    request: Q,
    tracker: Tracker,
    tokens: TokenMemory,
    /// Number of streams in a row that failed early.
    failures: u32,
    /// The connection of its streams, which other watches share; made with the first stream.
    connection: Option<Arc<WatchConnection>>,
    state: WatchState<R>,
}

enum WatchState<R> {
    /// Opens a stream after this delay.
    Waiting(Duration),
    Streaming {
        stream: Box<Streaming<R>>,
        /// The id of the stream in the server's log.
        request_id: String,
        since: Instant,
    },
    Ended,
}

impl<Q: WatchRequest, R: WatchResponse> WatchRun<Q, R> {
    async fn next(&mut self) -> Option<Result<WatchEvent<R::Object>, Error>> {
        loop {
            match &mut self.state {
                WatchState::Ended => return None,
                WatchState::Waiting(delay) => {
                    let delay = *delay;
                    // In a box of its own, as it is only needed for a moment, and large beside all that an open stream needs.
                    let opening = async {
                        tokio::time::sleep(delay).await;
                        self.open().await
                    };
                    return Some(opening.boxed().await);
                }
                WatchState::Streaming { stream, request_id, .. } => {
                    let receiving = self.client.receive(stream.message(), request_id);
                    let response = match timeout(self.client.shared.watch.silence, receiving).await {
                        Ok(Ok(Some(response))) => response,
                        Ok(Ok(None)) => return Some(Ok(self.disconnect(None))),
                        Ok(Err(error)) => return Some(self.fail(error)),
                        Err(_) => {
                            let error = self.silent();
                            return Some(self.fail(error));
                        }
                    };
                    let (event, token) = response.split();
                    match self.tracker.step(event, token) {
                        Ok(Some(event)) => return Some(Ok(event)),
                        Ok(None) => {}
                        Err(fault) => {
                            let error = Error::protocol(self.client.address(), fault);
                            return Some(self.fail(error));
                        }
                    }
                }
            }
        }
    }

    /// Opens a stream.
    async fn open(&mut self) -> Result<WatchEvent<R::Object>, Error> {
        let resumed = self.tracker.connect();
        let request = self.request.clone().with_resume_token(self.tracker.token().to_owned());
        let request_id = request_id();
        let message = match EncodedRequest::new(&request, &request_id) {
            Ok(message) => message,
            Err(error) => return self.end(error),
        };
        let connections = &self.client.shared.connections;
        let connection = self.connection.get_or_insert_with(|| connections.for_watch());
        let opened = self.client.open(
            self.method,
            message,
            &connection.channel,
            &request_id,
            OPEN_TIMEOUT,
            &mut self.tokens,
        );
        let stream = match opened.await {
            Ok(stream) => Box::new(stream),
            Err(error) => return self.fail(error),
        };
        self.tokens.accepted();
        self.state = WatchState::Streaming {
            stream,
            request_id,
            since: Instant::now(),
        };
        Ok(WatchEvent::Connected { resumed })
    }

    /// Decides after a failed stream whether to open another one or to end the watch.
    fn fail(&mut self, error: Error) -> Result<WatchEvent<R::Object>, Error> {
        if error.reason() == Some(ErrorReason::ResumeTokenInvalid) && !self.tracker.token().is_empty() {
            self.tracker.forget();
            return Ok(self.disconnect(Some(error)));
        }
        match self.client.refresh(&mut self.tokens, error) {
            Ok(None) => Ok(self.disconnect(None)),
            Ok(Some(error)) if !is_final(&error) => Ok(self.disconnect(Some(error))),
            Ok(Some(error)) | Err(error) => self.end(error),
        }
    }

    fn end(&mut self, error: Error) -> Result<WatchEvent<R::Object>, Error> {
        self.state = WatchState::Ended;
        self.connection = None;
        Err(error)
    }

    fn disconnect(&mut self, error: Option<Error>) -> WatchEvent<R::Object> {
        let good = matches!(&self.state, WatchState::Streaming { since, .. } if since.elapsed() >= GOOD_AFTER);
        self.failures = if good { 1 } else { self.failures.saturating_add(1) };
        let least = match &error {
            Some(Error::Status(status)) => status.retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        let retry_in =
            self.client
                .shared
                .watch
                .reconnect
                .delay(self.failures, least.min(RETRY_AFTER_MAX), rand::random());
        self.state = WatchState::Waiting(retry_in);
        let reason = error.as_ref().map_or("Ended", Error::reason_str);
        debug!(method = self.method.path(), reason, ?retry_in, "watch is opened again");
        WatchEvent::Disconnected { error, retry_in }
    }

    fn silent(&self) -> Error {
        Error::Transport(Box::new(TransportError {
            address: self.client.address().to_string(),
            fault: TransportFault::Silent,
            detail: String::new(),
            unprocessed: false,
        }))
    }
}

/// Limit on the delay that a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);

/// Whether a retry cannot help.
fn is_final(error: &Error) -> bool {
    let logged_out = matches!(error, Error::Token(TokenError::LoggedOut(_)));
    logged_out
        || matches!(
            error.code(),
            Some(
                Code::Unauthenticated
                    | Code::PermissionDenied
                    | Code::NotFound
                    | Code::InvalidArgument
                    | Code::FailedPrecondition
                    | Code::Unimplemented
            )
        )
}
