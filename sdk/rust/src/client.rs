//! The client, and the steps of one call.

pub(crate) mod binding;
pub(crate) mod catalog;
pub(crate) mod contract;
pub(crate) mod credential;
pub(crate) mod export;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bindery_proto::address::Address;
use bindery_proto::v1alpha2::ErrorReason;
use futures::FutureExt as _;
use http::uri::PathAndQuery;
use prost::Message;
use secrecy::SecretString;
use tokio::time::{Instant, timeout_at};
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tracing::debug;

use crate::error::Error;
use crate::method::Method;
use crate::retry::RetryPolicy;
use crate::token::{self, TokenSource};
use crate::transport::{LongLived, Protocol, Route, Transport};
use crate::watch::WatchTiming;

/// Size limit of a response, in bytes.
pub const MESSAGE_RECEIVE_MAX: usize = 4 * 1024 * 1024;

/// Size limit of a request, in bytes; servers refuse larger ones.
pub const MESSAGE_SEND_MAX: usize = 256 * 1024;

/// A client of one backend. Cheap to clone; clones share the connection.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    limits: Limits,
}

/// State that the clones of a client share.
pub(crate) struct Shared {
    pub(crate) address: Address,
    pub(crate) channel: Channel,
    pub(crate) route: Arc<Route>,
    pub(crate) tokens: Option<Arc<dyn TokenSource>>,
    pub(crate) retry: RetryPolicy,
    pub(crate) watch: WatchTiming,
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

    /// Sets the time limit of calls, all attempts included.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.limits.total = Some(timeout);
        self
    }

    /// Makes a unary call with token, request id, deadline and retries. All typed methods use this one.
    pub async fn call<Q, A>(&self, method: Method<Q, A>, message: Q) -> Result<A, Error>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.call_waiting(method, message, Duration::ZERO).await
    }

    /// Makes a call for which the server may wait for `wait` before it responds.
    pub(crate) async fn call_waiting<Q, A>(&self, method: Method<Q, A>, message: Q, wait: Duration) -> Result<A, Error>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let times = self.limits.times(wait);
        let request_id = request_id();
        let start = Instant::now();
        let deadline = start + times.total;
        let mut tokens = TokenMemory::default();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let until = deadline.min(Instant::now() + times.attempt);
            let attempt = self.attempt(method, message.clone(), &request_id, until, &mut tokens);
            let error = match timeout_at(until, attempt).await {
                Ok(Ok(answer)) => return Ok(answer),
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
                "call is tried again"
            );
            tokio::time::sleep(delay).await;
        }
    }

    async fn attempt<Q, A>(
        &self,
        method: Method<Q, A>,
        message: Q,
        request_id: &str,
        until: Instant,
        tokens: &mut TokenMemory,
    ) -> Result<A, Error>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut request = self.request(message, method.is_open(), request_id, tokens).await?;
        request.set_timeout(until.saturating_duration_since(Instant::now()));
        if let Some(timeout) = request.metadata_mut().get_mut("grpc-timeout") {
            timeout.set_sensitive(true);
        }
        let mut grpc = self.grpc(request_id).await?;
        let path = PathAndQuery::from_static(method.path());
        let answer = grpc.unary(request, path, ProstCodec::<Q, A>::default());
        self.receive(answer, request_id).await.map(Response::into_inner)
    }

    /// Opens a stream without retries. A stream has no deadline: its reader notices missing heartbeats.
    pub(crate) async fn open<Q, A>(
        &self,
        method: Method<Q, A>,
        message: Q,
        tokens: &mut TokenMemory,
    ) -> Result<Streaming<A>, Error>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let request_id = request_id();
        let mut request = self.request(message, method.is_open(), &request_id, tokens).await?;
        request.extensions_mut().insert(LongLived);
        let mut grpc = self.grpc(&request_id).await?;
        let path = PathAndQuery::from_static(method.path());
        let answer = grpc.server_streaming(request, path, ProstCodec::<Q, A>::default());
        self.receive(answer, &request_id).await.map(Response::into_inner)
    }

    /// Waits for a message of the server. tonic panics on error details that are not base64: that panic becomes an error.
    pub(crate) async fn receive<T>(
        &self,
        answer: impl Future<Output = Result<T, Status>>,
        request_id: &str,
    ) -> Result<T, Error> {
        match AssertUnwindSafe(answer).catch_unwind().await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(status)) => Err(Error::from_status(&status, self.address(), request_id)),
            Err(_) => Err(Error::protocol(self.address(), "its answer cannot be decoded")),
        }
    }

    async fn grpc(&self, request_id: &str) -> Result<Grpc<Transport>, Error> {
        let channel = self.shared.channel.clone();
        let mut grpc = self
            .shared
            .route
            .over(channel)
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

    async fn request<Q: Message>(
        &self,
        message: Q,
        open: bool,
        request_id: &str,
        tokens: &mut TokenMemory,
    ) -> Result<Request<Q>, Error> {
        // Checked here, because tonic would close the connection over it.
        if message.encoded_len() > MESSAGE_SEND_MAX {
            return Err(Error::too_large(message.encoded_len(), MESSAGE_SEND_MAX, request_id));
        }
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        // An id has only digits and letters; without one, the server makes its own.
        if let Ok(mut id) = request_id.parse::<MetadataValue<Ascii>>() {
            // Like the timeout, it differs in each call: it must not enter the header tables that both ends keep.
            id.set_sensitive(true);
            metadata.insert("x-request-id", id);
        }
        if let Some(source) = self.shared.tokens.as_ref().filter(|_| !open) {
            let token = source.token().await?;
            metadata.insert("authorization", token::bearer(&token)?);
            tokens.send(token)?;
        }
        Ok(request)
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
        source.refused(sent);
        tokens.refreshed = true;
        tokens.rejected = Some(error);
        Ok(None)
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
        let attempt = self.attempt.unwrap_or(Self::ATTEMPT + wait);
        let total = self.total.unwrap_or(Self::TOTAL + wait);
        Times {
            total,
            attempt: attempt.min(total),
        }
    }
}

/// Makes the id under which the server logs a call.
fn request_id() -> String {
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
