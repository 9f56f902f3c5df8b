//! Serves HTTP on accepted connections: HTTP/2, and HTTP/1.1 for gRPC-Web. Each connection is a task, which ends it when it
//! outlives a limit.
//!
//! The server of tonic is not used: it knows neither the first request nor idle time, and closes old connections without GOAWAY
//! if their grace is limited.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use bindery_runtime::held_body::HeldBody;
use futures::{Stream, StreamExt as _};
use http::{Request, Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::body::Body;
use tower::{Service, ServiceExt as _};

use crate::{
    front::{
        limits::{HEADER_BYTES_MAX, STREAM_AGE_MAX, STREAMS_PER_CONNECTION},
        transport::{
            connection::Connection,
            metrics::Metrics,
            places::{ConnectionEnd, Place},
        },
    },
    settings::ConnectionLimits,
};

/// A connection that takes no more calls is closed at the latest after this time. Its streams have ended by then.
const GRACE: Duration = STREAM_AGE_MAX.saturating_add(Duration::from_mins(1));
/// A connection that takes no more calls, and has none under way, is closed after this time if the client does not do it.
const LINGER: Duration = Duration::from_secs(10);

/// Serves connections, each in a task of its own, until `stop` is cancelled. Then waits for the calls that are under way.
pub(crate) async fn serve<S>(
    services: S,
    connections: impl Stream<Item = Connection>,
    limits: ConnectionLimits,
    metrics: Metrics,
    stop: CancellationToken,
) where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    let tasks = TaskTracker::new();
    let server = Server {
        http: Arc::new(http()),
        services,
        limits,
        metrics,
        stop,
    };
    {
        // Dropped as soon as no more are taken, which closes the port.
        let mut connections = pin!(connections.take_until(server.stop.cancelled()));
        while let Some(connection) = connections.next().await {
            tasks.spawn(server.clone().serve(connection));
        }
    }
    tasks.close();
    tasks.wait().await;
}

/// What the tasks of all connections share.
#[derive(Clone)]
struct Server<S> {
    http: Arc<Builder<TokioExecutor>>,
    services: S,
    limits: ConnectionLimits,
    metrics: Metrics,
    stop: CancellationToken,
}

/// The protocols. Over HTTP/1.1, hyper closes a connection whose next request has not sent its headers within 30 s.
fn http() -> Builder<TokioExecutor> {
    let mut http = Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new());
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_stream_window_size(64 * 1024)
        .initial_connection_window_size(256 * 1024)
        .max_concurrent_streams(STREAMS_PER_CONNECTION);
    http
}

impl<S> Server<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    async fn serve(self, connection: Connection) {
        let (stream, peer, place) = connection.into_parts();
        let (begun, mut calls) = watch::channel(0);
        let (begun, services) = (Arc::new(begun), self.services);
        let service = service_fn({
            let place = place.clone();
            move |request: Request<Incoming>| {
                let call = CallUnderWay::begin(&begun);
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(peer);
                if let Some(place) = &place {
                    request.extensions_mut().insert(Arc::clone(place));
                }
                let answer = services.clone().oneshot(request);
                // On the heap until the answer begins: the task of a stream would keep the place of it as long as the stream lives.
                Box::pin(async move {
                    let Ok(response) = answer.await;
                    Ok::<_, Infallible>(response.map(|body| Body::new(HeldBody::new(body, call))))
                })
            }
        });
        let mut serving = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        let end = tokio::select! {
            biased;
            served = &mut serving => {
                if let Err(error) = served {
                    tracing::debug!(peer = %peer.0, %error, "a connection failed");
                }
                return;
            }
            end = closed(place.as_deref()) => Some(end),
            end = outlived(&self.limits, &mut calls) => Some(end),
            () = self.stop.cancelled() => None,
        };
        if let Some(end) = end {
            self.metrics.connection_end(end);
            tracing::debug!(peer = %peer.0, end = end.label(), "connection ends");
            if !matches!(end, ConnectionEnd::Idle | ConnectionEnd::Age) {
                return;
            }
        }
        // GOAWAY over HTTP/2, so that no call is lost that the client begins at this moment.
        serving.as_mut().graceful_shutdown();
        tokio::select! {
            biased;
            // If it fails, the client has closed it, which is what it was asked for.
            _ = &mut serving => {}
            _ = closed(place.as_deref()) => {}
            () = idle(&mut calls, LINGER) => {}
            () = sleep(GRACE) => {}
        }
    }
}

/// Waits until the place of the connection is taken away.
async fn closed(place: Option<&Place>) -> ConnectionEnd {
    match place {
        Some(place) => place.closed().await,
        None => std::future::pending().await,
    }
}

/// Waits until the connection outlives a limit. `calls` tells how many calls are under way.
async fn outlived(limits: &ConnectionLimits, calls: &mut watch::Receiver<usize>) -> ConnectionEnd {
    // Clients that began together do not connect again together.
    let age = limits.age.mul_f64(0.9 + rand::random::<f64>() * 0.1);
    let mut age = pin!(sleep(age));
    if timeout(limits.first_request, calls.changed()).await.is_err() {
        return ConnectionEnd::FirstRequest;
    }
    tokio::select! {
        () = &mut age => ConnectionEnd::Age,
        () = idle(calls, limits.idle) => ConnectionEnd::Idle,
    }
}

/// Waits until no call was under way for this time.
async fn idle(calls: &mut watch::Receiver<usize>, time: Duration) {
    // The sender lives as long as the connection.
    while calls.wait_for(|calls| *calls == 0).await.is_ok() && timeout(time, calls.changed()).await.is_ok() {}
}

/// Counts a call as under way until its answer has ended.
struct CallUnderWay(Arc<watch::Sender<usize>>);

impl CallUnderWay {
    fn begin(calls: &Arc<watch::Sender<usize>>) -> Self {
        calls.send_modify(|calls| *calls += 1);
        Self(Arc::clone(calls))
    }
}

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls -= 1);
    }
}

#[cfg(test)]
mod tests;
