//! Watches share connections: a connection of HTTP/2 carries many of them, where HTTP/1.1 needs one for each.
//!
//! A stream beyond what the other side allows would wait in silence until another ends, which a watch does not do for
//! minutes. So each connection has a place for each stream that it may have, a watch holds one until its answer was read
//! or dropped, and where no place is free another connection is made.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, Uri};
use hyper::{
    body::{Bytes, Frame, Incoming, SizeHint},
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

/// Streams of one connection, at most, and no more than nine of ten that the other side allows: API servers allow a hundred, and
/// count one that was given up a little longer.
const PLACES: usize = 90;
/// A connection that carries nothing for so long is asked for a sign of life,
const PING_AFTER: Duration = Duration::from_secs(20);
/// and without one within this time it is dead, and all that it carried has failed.
const PONG_WITHIN: Duration = Duration::from_secs(10);
/// From the first packet until requests can be sent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// How often a new connection is looked at until the other side has said what it allows.
const SETTINGS_PAUSE: Duration = Duration::from_millis(1);
/// So many new connections are made for a request that none of them takes.
const TRIES: usize = 3;

/// Connections of HTTP/2 to one API server. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Streams<C> {
    connector: C,
    open: Arc<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// Locked while a connection is made, so that all who need one wait for the same.
    connections: Mutex<Vec<Shared>>,
    /// The other side does not speak HTTP/2.
    is_refused: AtomicBool,
}

#[derive(Clone, Debug)]
struct Shared {
    sender: http2::SendRequest<Body>,
    places: Arc<Semaphore>,
}

/// A place on a connection.
struct Place {
    sender: http2::SendRequest<Body>,
    held: OwnedSemaphorePermit,
    /// The connection was made for it.
    is_new: bool,
}

/// What became of a request.
#[derive(Debug)]
pub(super) enum Sent {
    /// It was answered.
    Answered(Response<Held>),
    /// It was not sent: the other side does not speak HTTP/2.
    Refused(Request<Body>),
}

/// The body of an answer, which holds a place until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    // Before the place: a stream that is given up is told of before its place is.
    body: Incoming,
    _place: Option<OwnedSemaphorePermit>,
}

// === impl Streams ===

impl<C> Streams<C> {
    /// No connection yet.
    pub(super) fn new(connector: C) -> Self {
        let open = Arc::default();
        Self { connector, open }
    }
}

impl<C> Streams<C>
where
    C: Service<Uri, Error: Into<BoxError>> + Clone,
    C::Response: Connection + Read + Write + Unpin + Send + 'static,
{
    /// Sends a request on a connection with a place for it.
    pub(super) async fn send(&self, mut request: Request<Body>) -> Result<Sent, BoxError> {
        let mut made = 0;
        loop {
            let Some(Place {
                mut sender,
                held,
                is_new,
            }) = self.place(request.uri()).await?
            else {
                return Ok(Sent::Refused(request));
            };
            made += usize::from(is_new);
            match sender.try_send_request(request).await {
                Ok(answer) => return Ok(Sent::Answered(answer.map(|body| Held::new(body, Some(held))))),
                Err(mut failure) => match failure.take_message() {
                    Some(unsent) if made < TRIES => {
                        // It was closed in good order, which may show only when it is used. Those that are left are fewer.
                        let mut connections = self.open.connections.lock().await;
                        connections.retain(|shared| !Arc::ptr_eq(&shared.places, held.semaphore()));
                        request = unsent;
                    }
                    _ => return Err(failure.into_error().into()),
                },
            }
        }
    }

    /// A place, on a new connection if need be. `None` where the other side does not speak HTTP/2.
    async fn place(&self, uri: &Uri) -> Result<Option<Place>, BoxError> {
        if self.open.is_refused.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut connections = self.open.connections.lock().await;
        connections.retain(|shared| !shared.sender.is_closed());
        if let Some(found) = connections.iter().find_map(Shared::place) {
            return Ok(Some(found));
        }
        // Somebody who waited meanwhile may know it by now.
        if self.open.is_refused.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let connected = timeout(CONNECT_TIMEOUT, self.connect(uri.clone())).await;
        let Some(shared) = connected.map_err(|_| BoxError::from("no connection in time"))?? else {
            self.open.is_refused.store(true, Ordering::Relaxed);
            return Ok(None);
        };
        let place = shared.place();
        connections.push(shared);
        Ok(place.map(|place| Place { is_new: true, ..place }))
    }

    async fn connect(&self, uri: Uri) -> Result<Option<Shared>, BoxError> {
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
        // The first that the other side says is how many streams it allows. Nobody is told when it has said so.
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
        // Ends with the last stream, once the pool is gone. Its failure is that of each stream.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Some(Shared {
            sender,
            places: Arc::new(Semaphore::new(PLACES.min(allowed - allowed / 10))),
        }))
    }
}

// === impl Shared ===

impl Shared {
    fn place(&self) -> Option<Place> {
        Some(Place {
            held: Arc::clone(&self.places).try_acquire_owned().ok()?,
            sender: self.sender.clone(),
            is_new: false,
        })
    }
}

// === impl Held ===

impl Held {
    pub(super) fn new(body: Incoming, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { body, _place: place }
    }
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
