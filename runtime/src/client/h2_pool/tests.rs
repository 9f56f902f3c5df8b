use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::atomic::AtomicUsize,
    task::{Context, Poll},
};

use futures::{FutureExt as _, future::BoxFuture};
use http_body_util::BodyExt as _;
use hyper::{body::Bytes, server::conn::http2 as server, service::service_fn};
use hyper_util::{client::legacy::connect::Connected, rt::TokioIo};
use parking_lot::Mutex as Lock;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    sync::Notify,
    task::AbortHandle,
};

use super::*;

/// An API server that answers every request with a watch without events, and allows this many streams on a connection.
#[derive(Clone, Default)]
struct FakeServer {
    allowed: u32,
    speaks_h2: bool,
    connections: Arc<AtomicUsize>,
    /// Tasks that serve the connections. A stopped one leaves its end open and silent.
    serving: Arc<Lock<Vec<AbortHandle>>>,
    silent: Arc<Lock<Vec<Arc<Lock<DuplexStream>>>>>,
    /// Notified to take the connections out of use in good order.
    leaving: Arc<Lock<Vec<Arc<Notify>>>>,
}

/// A client's end of a connection.
struct End(DuplexStream, bool);

/// The other end of a connection, which the server keeps open too.
struct Kept(Arc<Lock<DuplexStream>>);

impl FakeServer {
    fn new(allowed: u32) -> Self {
        Self {
            allowed,
            speaks_h2: true,
            ..Self::default()
        }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Makes the server unreachable: connections stay open, and nothing answers.
    fn vanish(&self) {
        for serving in self.serving.lock().drain(..) {
            serving.abort();
        }
    }

    /// Ends as an API server that shuts down: running requests go on, and no new ones are taken.
    fn leave(&self) {
        for leaving in self.leaving.lock().drain(..) {
            leaving.notify_one();
        }
    }

    /// Closes all connections.
    fn close(&self) {
        self.vanish();
        self.silent.lock().clear();
    }
}

impl Service<Uri> for FakeServer {
    type Response = TokioIo<End>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<TokioIo<End>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        self.connections.fetch_add(1, Ordering::SeqCst);
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let theirs = Arc::new(Lock::new(theirs));
        self.silent.lock().push(Arc::clone(&theirs));
        let allowed = self.allowed;
        let leaving = Arc::new(Notify::new());
        self.leaving.lock().push(Arc::clone(&leaving));
        let serving = tokio::spawn(async move {
            let watch = service_fn(|_| async {
                let silence = futures::stream::pending::<Result<Bytes, io::Error>>();
                Ok::<_, Infallible>(Response::new(axum::body::Body::from_stream(silence)))
            });
            let connection = server::Builder::new(TokioExecutor::new())
                .max_concurrent_streams(allowed)
                .serve_connection(TokioIo::new(Kept(theirs)), watch);
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                _ = &mut connection => {}
                () = leaving.notified() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
        });
        self.serving.lock().push(serving.abort_handle());
        std::future::ready(Ok(TokioIo::new(End(ours, self.speaks_h2)))).boxed()
    }
}

impl Connection for End {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if self.1 { connected.negotiated_h2() } else { connected }
    }
}

impl AsyncRead for End {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for End {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl AsyncRead for Kept {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_read(context, buffer)
    }
}

impl AsyncWrite for Kept {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.lock()).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_shutdown(context)
    }
}

fn request() -> Request<Body> {
    let request = Request::get("https://server/api/v1/things?watch=1");
    request.body(Body::empty()).unwrap()
}

async fn watch(pool: &H2Pool<FakeServer>) -> Response<PermitBody> {
    match pool.send(request()).await.unwrap() {
        PoolAnswer::Answered(answer) => answer,
        PoolAnswer::NotSpoken(_) => panic!("it was not sent"),
    }
}

#[tokio::test(start_paused = true)]
async fn no_connection_carries_more_streams_than_the_server_allows() {
    let fake = FakeServer::new(3);
    let pool = H2Pool::new(fake.clone());
    let seven = futures::future::join_all((0..7).map(|_| watch(&pool))).await;
    assert_eq!((seven.len(), fake.connections()), (7, 3));
    // Not all streams are used, since the server may still count one that was cancelled.
    let fake = FakeServer::new(20);
    let pool = H2Pool::new(fake.clone());
    let held = futures::future::join_all((0..19).map(|_| watch(&pool))).await;
    assert_eq!((held.len(), fake.connections()), (19, 2));
}

#[tokio::test(start_paused = true)]
async fn streams_of_a_connection_are_limited_whatever_the_server_allows() {
    let fake = FakeServer::new(100_000);
    let pool = H2Pool::new(fake.clone());
    let mut held = futures::future::join_all((0..STREAMS_MAX).map(|_| watch(&pool))).await;
    assert_eq!(fake.connections(), 1);
    held.push(watch(&pool).await);
    assert_eq!(fake.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_permit_of_a_watch_that_ended_is_free_again() {
    let fake = FakeServer::new(2);
    let pool = H2Pool::new(fake.clone());
    let mut held = vec![watch(&pool).await, watch(&pool).await];
    for _ in 0..20 {
        held.remove(0);
        held.push(watch(&pool).await);
    }
    assert_eq!(fake.connections(), 1);
    // A request that was dropped before its answer holds no permit either.
    held.pop();
    for _ in 0..20 {
        assert!(pool.send(request()).now_or_never().is_none());
    }
    held.push(watch(&pool).await);
    assert_eq!(fake.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_vanished_is_noticed_and_left() {
    let fake = FakeServer::new(100);
    let pool = H2Pool::new(fake.clone());
    let mut body = watch(&pool).await.into_body();
    // The connection lives, though the watch is silent.
    let silence = timeout(10 * (PING_AFTER + PONG_WITHIN), body.frame()).await;
    assert!(silence.is_err(), "{silence:?}");

    fake.vanish();
    let end = timeout(2 * (PING_AFTER + PONG_WITHIN), body.frame()).await;
    assert!(matches!(end, Ok(Some(Err(_)))), "{end:?}");
    let _other = watch(&pool).await;
    assert_eq!(fake.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_closed_is_replaced() {
    let fake = FakeServer::new(100);
    let pool = H2Pool::new(fake.clone());
    drop(watch(&pool).await);
    fake.close();
    // The pool sees that after a moment.
    sleep(SETTINGS_PAUSE).await;
    let _other = watch(&pool).await;
    assert_eq!(fake.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn however_many_connections_end_in_good_order_they_are_replaced() {
    let fake = FakeServer::new(2);
    let pool = H2Pool::new(fake.clone());
    let count = 4 * CONNECTIONS_PER_REQUEST_MAX;
    let mut held = futures::future::join_all((0..count).map(|_| watch(&pool))).await;
    assert_eq!(fake.connections(), count / 2);
    // Each connection has a free permit, and a watch that keeps it open.
    let mut number = 0;
    held.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    fake.leave();
    sleep(SETTINGS_PAUSE).await;
    let _one = watch(&pool).await;
    assert_eq!(fake.connections(), count / 2 + 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_speaks_only_http_1_is_asked_once() {
    let fake = FakeServer {
        speaks_h2: false,
        ..FakeServer::new(100)
    };
    let pool = H2Pool::new(fake.clone());
    let asked = futures::future::join_all((0..5).map(|_| pool.send(request()))).await;
    for sent in asked {
        assert!(matches!(sent, Ok(PoolAnswer::NotSpoken(_))), "{sent:?}");
    }
    assert_eq!(fake.connections(), 1);
}
