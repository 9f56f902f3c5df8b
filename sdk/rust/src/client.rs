//! The client, and the steps of one call.

pub(crate) mod binding;
pub(crate) mod catalog;
pub(crate) mod connections;
pub(crate) mod contract;
pub(crate) mod credential;
pub(crate) mod export;
pub(crate) mod message;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bindery_proto::address::Address;
use bindery_proto::v1alpha2::ErrorReason;
use futures::FutureExt as _;
use http::uri::PathAndQuery;
use prost::Message;
use prost::bytes::Bytes;
use secrecy::SecretString;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::debug;

use self::connections::Connections;
use self::message::{EncodedRequest, RequestCodec};
use crate::builder::{BuildError, TIMEOUT_MAX, check_timeout};
use crate::error::Error;
use crate::method::Method;
use crate::retry::RetryPolicy;
use crate::token::{self, TokenError, TokenSource};
use crate::trace::{CallTracer, TracedCall};
use crate::transport::{LongLived, Protocol, Route, Transport};
use crate::watch::WatchTiming;

/// Size limit of a response, in bytes.
pub const MESSAGE_RECEIVE_MAX: usize = 4 * 1024 * 1024;

/// Size limit of a request, in bytes; servers refuse larger ones.
pub const MESSAGE_SEND_MAX: usize = 256 * 1024;

/// A client of one backend. Cheap to clone; clones share the connections: one for calls, and one more for every 200 watches.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    limits: Limits,
}

/// State that the clones of a client share.
pub(crate) struct Shared {
    pub(crate) address: Address,
    pub(crate) connections: Connections,
    pub(crate) route: Arc<Route>,
    pub(crate) tokens: Option<Arc<dyn TokenSource>>,
    pub(crate) retry: RetryPolicy,
    pub(crate) watch: WatchTiming,
    pub(crate) tracer: Option<Arc<dyn CallTracer>>,
}

/// Time limits that the user set; each method has defaults of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) total: Option<Duration>,
    pub(crate) attempt: Option<Duration>,
}

/// Time limits of a call and of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    total: Duration,
    attempt: Duration,
}

/// The token that was last sent, and the server's error that called it expired or invalid, if any.
#[derive(Default)]
pub(crate) struct TokenMemory {
    last: Option<SecretString>,
    rejected: Option<Error>,
    refreshed: bool,
}

/// A call that may be traced.
struct CallTrace {
    call: Option<Box<dyn TracedCall>>,
    /// The trace context that each attempt is sent with.
    header: Option<MetadataValue<Ascii>>,
}

impl Client {
    pub(crate) fn new(shared: Shared, limits: Limits) -> Self {
        Self {
            shared: Arc::new(shared),
            limits,
        }
    }

    /// Returns the address of the backend.
    pub fn address(&self) -> &Address {
        &self.shared.address
    }

    /// Returns the audience that tokens must have. It follows from the address alone, never from a response.
    pub fn audience(&self) -> String {
        self.shared.address.to_string()
    }

    /// Returns the protocol that the next call uses first: [`Protocol::Grpc`] or [`Protocol::GrpcWeb`].
    pub fn protocol(&self) -> Protocol {
        self.shared.route.protocol()
    }

    /// Sets the time limit of calls, all attempts and the token included. Zero is an error; above 24 h, the limit is 24 h.
    pub fn with_timeout(mut self, timeout: Duration) -> Result<Self, BuildError> {
        self.limits.total = Some(check_timeout("the time limit of a call", timeout)?);
        Ok(self)
    }

    /// Makes a unary call with token, request id, deadline and retries. All typed methods use this one.
    pub async fn call<Q, R>(&self, method: Method<Q, R>, message: Q) -> Result<R, Error>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        self.call_waiting(method, message, Duration::ZERO).await
    }

    /// Makes a call for which the server may wait for `wait` before it responds.
    pub(crate) async fn call_waiting<Q, R>(&self, method: Method<Q, R>, message: Q, wait: Duration) -> Result<R, Error>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        let trace = self.trace(method.path());
        let outcome = self.call_in(&trace, method, message, wait).await;
        trace.end(&outcome);
        outcome
    }

    /// Begins to trace a call, if it is traced.
    fn trace(&self, method: &'static str) -> CallTrace {
        let call = self.shared.tracer.as_ref().and_then(|tracer| tracer.begin(method));
        CallTrace {
            header: call.as_ref().and_then(|call| call.traceparent().parse().ok()),
            call,
        }
    }

    async fn call_in<Q, R>(
        &self,
        trace: &CallTrace,
        method: Method<Q, R>,
        message: Q,
        wait: Duration,
    ) -> Result<R, Error>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        let times = self.limits.times(wait);
        let request_id = request_id();
        let start = Instant::now();
        let deadline = start + times.total;
        let message = EncodedRequest::new(&message, &request_id)?;
        let mut tokens = TokenMemory::default();
        let mut attempts = 0;
        loop {
            // Fetched within the time of the call: a login may take longer than an attempt.
            let token = self.token(method.is_open(), start, deadline, &mut tokens).await?;
            attempts += 1;
            let until = deadline.min(Instant::now() + times.attempt);
            let headers = (token, trace.header.clone());
            let attempt = self.attempt(method, message.clone(), headers, &request_id, until);
            let error = match timeout_at(until, attempt).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) => error,
                Err(_) => Error::deadline(self.address(), start.elapsed(), &request_id),
            };
            let Some(error) = self.refresh(&mut tokens, error)? else {
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let idempotent = method.is_idempotent();
            let Some(delay) = self
                .shared
                .retry
                .next(&error, idempotent, attempts, left, rand::random())
            else {
                return Err(error);
            };
            debug!(
                method = method.path(),
                request_id,
                attempts,
                ?delay,
                reason = error.reason_str(),
                "call is retried"
            );
            tokio::time::sleep(delay).await;
        }
    }

    async fn attempt<Q, R>(
        &self,
        method: Method<Q, R>,
        message: EncodedRequest,
        headers: (Option<MetadataValue<Ascii>>, Option<MetadataValue<Ascii>>),
        request_id: &str,
        until: Instant,
    ) -> Result<R, Error>
    where
        R: Message + Default + 'static,
    {
        let mut request = request(message, headers, request_id);
        request.set_timeout(until.saturating_duration_since(Instant::now()));
        if let Some(timeout) = request.metadata_mut().get_mut("grpc-timeout") {
            timeout.set_sensitive(true);
        }
        let mut grpc = self.grpc(self.shared.connections.calls(), request_id).await?;
        let path = PathAndQuery::from_static(method.path());
        let response = grpc.unary(request, path, RequestCodec::<R>::new());
        self.receive(response, request_id).await.map(Response::into_inner)
    }

    /// Opens a stream on a connection without retries, once the token is there. A stream has no deadline: its reader notices
    /// missing heartbeats.
    pub(crate) async fn open<Q, R>(
        &self,
        method: Method<Q, R>,
        message: EncodedRequest,
        channel: &Channel,
        request_id: &str,
        open_timeout: Duration,
        tokens: &mut TokenMemory,
    ) -> Result<Streaming<R>, Error>
    where
        R: Message + Default + 'static,
    {
        let start = Instant::now();
        let deadline = start + self.limits.times(Duration::ZERO).total;
        let token = self.token(method.is_open(), start, deadline, tokens).await?;
        let trace = self.trace(method.path());
        let headers = (token, trace.header.clone());
        let opening = async {
            let mut grpc = self.grpc(channel, request_id).await?;
            let path = PathAndQuery::from_static(method.path());
            let mut request = request(message, headers, request_id);
            request.extensions_mut().insert(LongLived);
            let response = grpc.server_streaming(request, path, RequestCodec::<R>::new());
            self.receive(response, request_id).await.map(Response::into_inner)
        };
        let opened = timeout(open_timeout, opening).await;
        let opened = opened.unwrap_or_else(|_| Err(Error::deadline(self.address(), open_timeout, request_id)));
        trace.end(&opened);
        opened
    }

    /// Waits for a message of the server. tonic panics on error details that are not base64: that panic becomes an error.
    pub(crate) async fn receive<T>(
        &self,
        response: impl Future<Output = Result<T, Status>>,
        request_id: &str,
    ) -> Result<T, Error> {
        match AssertUnwindSafe(response).catch_unwind().await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(status)) => Err(Error::from_status(&status, self.address(), request_id)),
            Err(_) => Err(Error::protocol(self.address(), "its response cannot be decoded")),
        }
    }

    async fn grpc(&self, channel: &Channel, request_id: &str) -> Result<Grpc<Transport>, Error> {
        let mut grpc = self
            .shared
            .route
            .over(channel.clone())
            .max_decoding_message_size(MESSAGE_RECEIVE_MAX)
            .max_encoding_message_size(MESSAGE_SEND_MAX);
        match grpc.ready().await {
            Ok(()) => Ok(grpc),
            Err(error) => {
                let status = Status::from_error(error);
                Err(Error::from_status(&status, self.address(), request_id))
            }
        }
    }

    /// Gets the token of the next attempt, before the deadline of the call; `None` if the call has none.
    async fn token(
        &self,
        open: bool,
        start: Instant,
        deadline: Instant,
        tokens: &mut TokenMemory,
    ) -> Result<Option<MetadataValue<Ascii>>, Error> {
        let Some(source) = self.shared.tokens.as_ref().filter(|_| !open) else {
            return Ok(None);
        };
        let Ok(token) = timeout_at(deadline, source.token()).await else {
            let waited = start.elapsed();
            return Err(TokenError::Timeout { waited }.into());
        };
        let token = token?;
        let header = token::bearer(&token)?;
        tokens.send(token)?;
        Ok(Some(header))
    }

    /// Makes the token source forget a token that the server called expired or invalid, once per token. `None` means to retry at
    /// once. A token also becomes invalid before its time when its issuer changes its keys.
    pub(crate) fn refresh(&self, tokens: &mut TokenMemory, error: Error) -> Result<Option<Error>, Error> {
        let (Some(source), Some(sent)) = (&self.shared.tokens, &tokens.last) else {
            return Ok(Some(error));
        };
        let Some(ErrorReason::TokenExpired | ErrorReason::TokenInvalid) = error.reason() else {
            return Ok(Some(error));
        };
        if tokens.refreshed {
            return Err(error);
        }
        source.forget(sent);
        tokens.refreshed = true;
        tokens.rejected = Some(error);
        Ok(None)
    }
}

/// Makes the request of one attempt, with its token and its trace context.
fn request(
    message: EncodedRequest,
    (token, traceparent): (Option<MetadataValue<Ascii>>, Option<MetadataValue<Ascii>>),
    request_id: &str,
) -> Request<Bytes> {
    let mut request = Request::new(message.0);
    let metadata = request.metadata_mut();
    // An id has only digits and letters; without one, the server makes its own.
    if let Ok(mut id) = request_id.parse::<MetadataValue<Ascii>>() {
        // Like the timeout, it differs in each call: it must not enter the header tables that both ends keep.
        id.set_sensitive(true);
        metadata.insert("x-request-id", id);
    }
    if let Some(token) = token {
        metadata.insert("authorization", token);
    }
    if let Some(mut traceparent) = traceparent {
        traceparent.set_sensitive(true);
        metadata.insert("traceparent", traceparent);
    }
    request
}

impl CallTrace {
    /// Ends the trace of a call.
    fn end<T>(self, outcome: &Result<T, Error>) {
        if let Some(call) = self.call {
            call.end(outcome.as_ref().map_or_else(Error::code, |_| Some(Code::Ok)));
        }
    }
}

impl TokenMemory {
    /// Notes the token to send. Fails if it is the one that the server just refused.
    fn send(&mut self, token: SecretString) -> Result<(), Error> {
        let last = self.last.replace(token);
        match (self.rejected.take(), last, &self.last) {
            (Some(error), Some(last), Some(token)) if token::same(&last, token) => Err(error),
            _ => Ok(()),
        }
    }

    /// Notes that the server accepted the token, so that its expiry causes another refresh.
    pub(crate) fn accepted(&mut self) {
        self.refreshed = false;
    }
}

impl Limits {
    const TOTAL: Duration = Duration::from_secs(30);
    const ATTEMPT: Duration = Duration::from_secs(10);

    fn times(self, wait: Duration) -> Times {
        let with_wait = |limit: Duration| limit.saturating_add(wait).min(TIMEOUT_MAX);
        let attempt = self.attempt.unwrap_or_else(|| with_wait(Self::ATTEMPT));
        let total = self.total.unwrap_or_else(|| with_wait(Self::TOTAL));
        Times {
            total,
            attempt: attempt.min(total),
        }
    }
}

/// Makes the id under which the server logs a call.
pub(crate) fn request_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("address", &format_args!("{}", self.shared.address))
            .field("limits", &self.limits)
            .field("retry", &self.shared.retry)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn times_follow_the_wait_unless_they_are_set() {
        let check = |total, attempt, wait, expect: (u64, u64)| {
            let limits = Limits { total, attempt };
            let times = limits.times(seconds(wait));
            assert_eq!(
                times,
                Times {
                    total: seconds(expect.0),
                    attempt: seconds(expect.1)
                }
            );
        };
        check(None, None, 0, (30, 10));
        check(None, None, 60, (90, 70));
        check(Some(seconds(5)), None, 60, (5, 5));
        check(Some(seconds(50)), Some(seconds(7)), 60, (50, 7));
        check(None, None, u64::MAX, (24 * 60 * 60, 24 * 60 * 60));
    }

    #[test]
    fn request_ids_are_ones_that_a_server_keeps() {
        let id = request_id();
        assert!(
            id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
            "{id}"
        );
        assert_ne!(id, request_id());
    }
}
