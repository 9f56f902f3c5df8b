//! A pool of HTTP/2 connections for watches: one connection carries many of them, where HTTP/1.1 needs one for each.
//!
//! A client with a single connection would not do: a stream beyond what the API server allows waits in silence until another
//! ends, and a watch does not end for minutes. So each connection has a permit for each stream that it may carry, a watch holds
//! a permit until its answer was read or dropped, and the pool opens another connection when no permit is free.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, Uri};
use hyper::{
    body::Incoming,
    client::conn::http2,
    rt::{Read, Write},
};
use hyper_util::{
    client::legacy::connect::Connection,
    rt::{TokioExecutor, TokioTimer},
};
use kube::client::Body;
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tower::{BoxError, Service, ServiceExt as _};

use crate::held_body::HeldBody;

/// Streams of one connection at most, and no more than nine tenths of what the API server allows: API servers allow a hundred,
/// and count a stream that was cancelled a little longer than the client does.
const STREAMS_MAX: usize = 90;
/// A connection that carries nothing for this long is pinged.
const PING_AFTER: Duration = Duration::from_secs(20);
/// A connection that does not answer a ping within this time is closed, and all its streams fail.
const PONG_WITHIN: Duration = Duration::from_secs(10);
/// Limit on the time from the first packet of a connection until it takes requests.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause between two looks at a new connection, until the API server has said how many streams it allows.
const SETTINGS_PAUSE: Duration = Duration::from_millis(1);
/// New connections that are opened for one request at most.
const CONNECTIONS_PER_REQUEST_MAX: usize = 3;

/// HTTP/2 connections to one API server. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct H2Pool<C> {
    connector: C,
    state: Arc<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    /// Locked while a connection is opened, so that requests that need a new one wait for the same.
    connections: Mutex<Vec<PooledConnection>>,
    /// The API server does not speak HTTP/2.
    is_h1_only: AtomicBool,
}

#[derive(Clone, Debug)]
struct PooledConnection {
    sender: http2::SendRequest<Body>,
    permits: Arc<Semaphore>,
}

/// The right to send one request on a connection.
struct StreamPermit {
    sender: http2::SendRequest<Body>,
    permit: OwnedSemaphorePermit,
    /// The connection was opened for this request.
    is_new: bool,
}

/// What the pool did with a request.
#[derive(Debug)]
pub(super) enum PoolAnswer {
    /// The API server answered it.
    Answered(Response<PermitBody>),
    /// The request was not sent: the API server does not speak HTTP/2.
    NotSpoken(Request<Body>),
}

/// The body of an answer, which holds the permit of a stream if it came over HTTP/2.
pub(super) type PermitBody = HeldBody<Incoming, Option<OwnedSemaphorePermit>>;

// === impl H2Pool ===

impl<C> H2Pool<C> {
    /// Makes a pool without connections.
    pub(super) fn new(connector: C) -> Self {
        let state = Arc::default();
        Self { connector, state }
    }
}

impl<C> H2Pool<C>
where
    C: Service<Uri, Error: Into<BoxError>> + Clone,
    C::Response: Connection + Read + Write + Unpin + Send + 'static,
{
    /// Sends a request on a connection that has a permit for it.
    pub(super) async fn send(&self, mut request: Request<Body>) -> Result<PoolAnswer, BoxError> {
        let mut opened = 0;
        loop {
            let Some(StreamPermit {
                mut sender,
                permit,
                is_new,
            }) = self.permit(request.uri()).await?
            else {
                return Ok(PoolAnswer::NotSpoken(request));
            };
            opened += usize::from(is_new);
            match sender.try_send_request(request).await {
                Ok(answer) => {
                    return Ok(PoolAnswer::Answered(
                        answer.map(|body| PermitBody::new(body, Some(permit))),
                    ));
                }
                Err(mut failure) => match failure.take_message() {
                    Some(unsent) if opened < CONNECTIONS_PER_REQUEST_MAX => {
                        // The API server closed this connection in good order, which may show only when it is used. Each
                        // retry leaves one connection fewer.
                        let mut connections = self.state.connections.lock().await;
                        connections.retain(|connection| !Arc::ptr_eq(&connection.permits, permit.semaphore()));
                        request = unsent;
                    }
                    _ => return Err(failure.into_error().into()),
                },
            }
        }
    }

    /// Returns a permit, on a new connection if no other has one. `None` where the API server does not speak HTTP/2.
    async fn permit(&self, uri: &Uri) -> Result<Option<StreamPermit>, BoxError> {
        if self.state.is_h1_only.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut connections = self.state.connections.lock().await;
        connections.retain(|connection| !connection.sender.is_closed());
        if let Some(found) = connections.iter().find_map(PooledConnection::permit) {
            return Ok(Some(found));
        }
        // Another request may have found it out while this one waited for the lock.
        if self.state.is_h1_only.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let connected = timeout(CONNECT_TIMEOUT, self.connect(uri.clone())).await;
        let Some(connection) = connected.map_err(|_| BoxError::from("no connection in time"))?? else {
            self.state.is_h1_only.store(true, Ordering::Relaxed);
            return Ok(None);
        };
        let permit = connection.permit();
        connections.push(connection);
        Ok(permit.map(|permit| StreamPermit { is_new: true, ..permit }))
    }

    async fn connect(&self, uri: Uri) -> Result<Option<PooledConnection>, BoxError> {
        let stream = self.connector.clone().oneshot(uri).await.map_err(Into::into)?;
        if !stream.connected().is_negotiated_h2() {
            return Ok(None);
        }
        let (sender, mut connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PONG_WITHIN)
            .initial_max_send_streams(0)
            .handshake(stream)
            .await?;
        // The first frame of the API server says how many streams it allows. hyper does not tell when it has come.
        let allowed = loop {
            match connection.current_max_send_streams() {
                0 => {}
                allowed => break allowed,
            }
            tokio::select! {
                ended = &mut connection => {
                    ended?;
                    return Err("the connection was closed at once".into());
                }
                () = sleep(SETTINGS_PAUSE) => {}
            }
        };
        // The task ends with the last stream once the pool is dropped. Each stream reports a failure of the connection.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Some(PooledConnection {
            sender,
            permits: Arc::new(Semaphore::new(STREAMS_MAX.min(allowed - allowed / 10))),
        }))
    }
}

// === impl PooledConnection ===

impl PooledConnection {
    fn permit(&self) -> Option<StreamPermit> {
        Some(StreamPermit {
            permit: Arc::clone(&self.permits).try_acquire_owned().ok()?,
            sender: self.sender.clone(),
            is_new: false,
        })
    }
}

#[cfg(test)]
mod tests;
