//! Watches that reconnect and resume by themselves.

mod message;
mod tracker;

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bindery_proto::v1alpha2::{
    BindableResourcesRequest, Contract, ErrorReason, Export, Removed, WatchBindableResourcesRequestsRequest,
    WatchContractsRequest, WatchExportsRequest,
};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use tokio::time::{Instant, timeout};
use tonic::{Code, Streaming};
use tracing::debug;

use crate::client::{Client, TokenMemory};
use crate::error::Error;
use crate::error::transport::{TransportError, TransportFault};
use crate::method::{Method, all as methods};
use crate::retry::RetryPolicy;
use crate::token::TokenError;
use message::{WatchAnswer, WatchRequest};
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
    acted: String,
    /// Resume token of the event that was yielded last.
    handed: Option<String>,
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
    fn new<Q, A>(client: Client, method: Method<Q, A>, request: Q) -> Self
    where
        Q: WatchRequest,
        A: WatchAnswer<Object = T>,
    {
        let acted = request.resume_token().to_owned();
        let run = Run {
            client,
            method,
            tracker: Tracker::new(acted.clone()),
            request,
            tokens: TokenMemory::default(),
            failures: 0,
            state: State::Waiting(Duration::ZERO),
        };
        let events = stream::unfold(run, |mut run| async move {
            let event = run.next().await?;
            Some(((event, run.tracker.token().to_owned()), run))
        });
        Self {
            events: events.boxed(),
            acted,
            handed: None,
        }
    }

    /// Returns the token with which another watch with the same filter can resume, also with other credentials. Empty until a
    /// snapshot is complete.
    pub fn resume_token(&self) -> &str {
        &self.acted
    }
}

impl<T> Stream for Watch<T> {
    type Item = Result<WatchEvent<T>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(token) = self.handed.take() {
            self.acted = token;
        }
        let next = ready!(self.events.poll_next_unpin(cx));
        Poll::Ready(next.map(|(event, token)| {
            self.handed = Some(token);
            event
        }))
    }
}

impl<T> fmt::Debug for Watch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("resume_token", &self.acted)
            .finish_non_exhaustive()
    }
}

/// The state of a running watch.
struct Run<Q, A> {
    client: Client,
    method: Method<Q, A>,
    request: Q,
    tracker: Tracker,
    tokens: TokenMemory,
    /// Number of streams in a row that failed early.
    failures: u32,
    state: State<A>,
}

enum State<A> {
    /// Opens a stream after this delay.
    Waiting(Duration),
    Streaming {
        stream: Box<Streaming<A>>,
        since: Instant,
    },
    Ended,
}

impl<Q: WatchRequest, A: WatchAnswer> Run<Q, A> {
    async fn next(&mut self) -> Option<Result<WatchEvent<A::Object>, Error>> {
        loop {
            match &mut self.state {
                State::Ended => return None,
                State::Waiting(delay) => {
                    tokio::time::sleep(*delay).await;
                    return Some(match self.open().await {
                        Ok(resumed) => Ok(WatchEvent::Connected { resumed }),
                        Err(error) => self.fail(error),
                    });
                }
                State::Streaming { stream, .. } => {
                    let receiving = self.client.receive(stream.message(), "");
                    let answer = match timeout(self.client.shared.watch.silence, receiving).await {
                        Ok(Ok(Some(answer))) => answer,
                        Ok(Ok(None)) => return Some(Ok(self.disconnect(None))),
                        Ok(Err(error)) => return Some(self.fail(error)),
                        Err(_) => {
                            let error = self.silent();
                            return Some(self.fail(error));
                        }
                    };
                    let (event, token) = answer.split();
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

    /// Opens a stream; returns whether it resumes.
    async fn open(&mut self) -> Result<bool, Error> {
        let resumed = self.tracker.connect();
        let request = self.request.clone().with_resume_token(self.tracker.token().to_owned());
        let opening = self.client.open(self.method, request, &mut self.tokens);
        let Ok(stream) = timeout(OPEN_TIMEOUT, opening).await else {
            return Err(Error::deadline(self.client.address(), OPEN_TIMEOUT, ""));
        };
        let stream = Box::new(stream?);
        self.tokens.accepted();
        self.state = State::Streaming {
            stream,
            since: Instant::now(),
        };
        Ok(resumed)
    }

    /// Decides after a failed stream whether to open another one or to end the watch.
    fn fail(&mut self, error: Error) -> Result<WatchEvent<A::Object>, Error> {
        if error.reason() == Some(ErrorReason::ResumeTokenInvalid) && !self.tracker.token().is_empty() {
            self.tracker.forget();
            return Ok(self.disconnect(Some(error)));
        }
        match self.client.refresh(&mut self.tokens, error) {
            Ok(None) => Ok(self.disconnect(None)),
            Ok(Some(error)) if !is_final(&error) => Ok(self.disconnect(Some(error))),
            Ok(Some(error)) | Err(error) => {
                self.state = State::Ended;
                Err(error)
            }
        }
    }

    fn disconnect(&mut self, error: Option<Error>) -> WatchEvent<A::Object> {
        let good = matches!(&self.state, State::Streaming { since, .. } if since.elapsed() >= GOOD_AFTER);
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
        self.state = State::Waiting(retry_in);
        let reason = error.as_ref().map_or("Ended", Error::reason_str);
        debug!(method = self.method.path(), reason, ?retry_in, "watch is opened again");
        WatchEvent::Disconnected { error, retry_in }
    }

    fn silent(&self) -> Error {
        Error::Transport(Box::new(TransportError {
            address: self.client.address().to_string(),
            fault: TransportFault::Silent,
            detail: String::new(),
            connecting: false,
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
