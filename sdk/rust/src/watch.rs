//! Watches that heal themselves: they reconnect, resume, and tell what happened.

mod message;
mod tracker;

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bindery_proto::v1alpha2::{BindableResourcesRequest, ErrorReason, Export, Removed};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use tokio::time::{Instant, timeout};
use tonic::{Code, Streaming};
use tracing::debug;

use crate::client::{Client, TokenMemory};
use crate::error::Error;
use crate::error::transport::{TransportError, TransportFault};
use crate::method::Method;
use crate::retry::RetryPolicy;
use message::WatchAnswer;
pub(crate) use message::WatchRequest;
use tracker::Tracker;

/// A server sends something every 30 s; after this long it is given up.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// Longest time until a stream that is asked for begins.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// A stream that lived this long was a good one: the next wait starts from the shortest.
const GOOD_AFTER: Duration = Duration::from_secs(10);

/// Random waits between attempts, for when a server ends, all its clients come at once.
const RECONNECT: RetryPolicy = RetryPolicy {
    attempts: u32::MAX,
    base: Duration::from_secs(1),
    cap: Duration::from_secs(30),
};

/// An event of [`Client::watch_exports`].
pub type ExportEvent = WatchEvent<Export>;

/// An event of [`Client::watch_bindable_resources_requests`].
pub type RequestEvent = WatchEvent<BindableResourcesRequest>;

/// What a watch tells.
#[derive(Debug)]
pub enum WatchEvent<T> {
    /// The stream is open. Where it resumed, changes follow; else a snapshot.
    Connected {
        /// It goes on where the last one ended.
        resumed: bool,
    },
    /// A snapshot begins. What an unfinished one before it brought is true, but nothing may be concluded from what it
    /// did not bring.
    SnapshotBegin {
        /// Why the server would not resume, where it was asked to.
        refused: Option<String>,
    },
    /// An object is there, or changed. Another UID under the name means that the old object is gone.
    Applied(T),
    /// An object is gone.
    Removed(Removed),
    /// The snapshot is complete, and its count agrees: whatever it did not bring is gone.
    SnapshotComplete,
    /// The stream ended and another one will be opened.
    Disconnected {
        /// Why; None where the server ended it in good order.
        error: Option<Error>,
        /// When the next attempt is made.
        retry_in: Duration,
    },
}

/// A stream of events that does not end by itself: it reconnects with a resume token and random waits. It yields an
/// error, and then ends, where trying again is of no use: the token is refused, a right is missing, or the contract
/// does not exist.
///
/// An event counts as acted upon when the next one is asked for; [`Watch::resume_token`] and reconnects go by that.
pub struct Watch<T> {
    events: BoxStream<'static, (Result<WatchEvent<T>, Error>, String)>,
    /// The token of the last event that was acted upon.
    acted: String,
    /// The token of the event that was handed out last.
    handed: Option<String>,
}

impl<T: Send + 'static> Watch<T> {
    pub(crate) fn new<Q, A>(client: Client, method: Method<Q, A>, request: Q) -> Self
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

    /// Where another watch with the same filter can go on, also one of a client with other credentials. Empty until a
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

/// The watch at work.
struct Run<Q, A> {
    client: Client,
    method: Method<Q, A>,
    request: Q,
    tracker: Tracker,
    tokens: TokenMemory,
    /// Streams in a row that failed early.
    failures: u32,
    state: State<A>,
}

enum State<A> {
    /// Opens a stream after this time.
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
                    let answer = match timeout(SILENCE_MAX, receiving).await {
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

    /// Opens a stream; tells whether it resumes.
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

    /// A stream failed: either another one may do better, or the watch ends.
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
        let retry_in = RECONNECT.delay(self.failures, least.min(RETRY_AFTER_MAX), rand::random());
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

/// A server may ask for patience, but not for ever.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);

/// Whether only somebody else can mend it.
fn is_final(error: &Error) -> bool {
    matches!(
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
