//! Over loopback: which connections are made, and which broken calls are retried.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bindery_proto::v1alpha2::{
    GetProviderResponse, Kubeconfig, Provider, RenewKubeconfigResponse, WatchExportsRequest,
};
use bindery_sdk::{Client, Error, RetryPolicy, TransportFault, WatchEvent};
use futures::StreamExt as _;
use h2::Reason;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

use crate::server::{Script, Step, frame, message};

/// Watches per connection; the server allows somewhat more streams.
const WATCHES: usize = 200;

fn client(address: SocketAddr) -> Client {
    let builder = Client::builder(format!("http://{address}")).allow_plaintext(true);
    let quick = RetryPolicy {
        base: Duration::from_millis(10),
        ..RetryPolicy::default()
    };
    builder.retry(quick).build().expect("settings")
}

#[tokio::test]
async fn watches_do_not_take_the_streams_of_calls() {
    let hang = || vec![Step::Sleep(Duration::from_hours(1))];
    let provider = vec![message(&GetProviderResponse {
        provider: Some(Provider::default()),
    })];
    let script = Script::new((0..=WATCHES).map(|_| hang()).chain([provider]));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let client = client(listener.local_addr().expect("bound"));
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let incoming = TcpListenerStream::new(listener).inspect(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let limit = u32::try_from(WATCHES).expect("a small number");
    let server = script.add_to(Server::builder().max_concurrent_streams(limit));
    tokio::spawn(server.serve_with_incoming(incoming));

    let mut watches = Vec::new();
    for number in 0..=WATCHES {
        let mut watch = client.watch_exports(WatchExportsRequest::default());
        let event = watch.next().await.expect("an event").expect("no error");
        assert!(matches!(event, WatchEvent::Connected { resumed: false }), "{event:?}");
        watches.push(watch);
        let expect = 1 + number / WATCHES;
        assert_eq!(
            connections.load(Ordering::Relaxed),
            expect,
            "with {} watches",
            number + 1
        );
    }
    client
        .get_provider()
        .await
        .expect("the streams of watches are elsewhere");
    assert_eq!(connections.load(Ordering::Relaxed), 3);
}

/// A server that resets the first streams with this reason, and gives a kubeconfig to the next one. Counts the streams.
async fn resetting(reason: Reason, resets: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let (listener, address, streams) = listening().await;
    let counted = Arc::clone(&streams);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket, Arc::clone(&counted), reason, resets));
        }
    });
    (address, streams)
}

/// A server that shuts its first connection down when the first stream arrives, and gives a kubeconfig to the streams of later
/// connections, which it counts.
async fn shutting_down() -> (SocketAddr, Arc<AtomicUsize>) {
    let (listener, address, streams) = listening().await;
    let counted = Arc::clone(&streams);
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.expect("a connection");
        go_away(socket).await.expect("a stream");
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket, Arc::clone(&counted), Reason::NO_ERROR, 0));
        }
    });
    (address, streams)
}

async fn listening() -> (TcpListener, SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    (listener, address, Arc::default())
}

/// Reads frames until the headers of a stream, and then sends a GOAWAY with 0 as the last stream that it processed.
async fn go_away(mut socket: TcpStream) -> io::Result<()> {
    const HEADERS: u8 = 1;
    let mut preface = [0; 24];
    socket.read_exact(&mut preface).await?;
    socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await?;
    let mut head = [0; 9];
    while head[3] != HEADERS {
        socket.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).expect("a short frame")];
        socket.read_exact(&mut payload).await?;
    }
    let frame = [0, 0, 8, 7, 0, 0, 0, 0, 0];
    socket.write_all(&[&frame[..], &[0; 8]].concat()).await
}

/// Answers the streams of a connection: resets those before number `resets` of all connections, and gives the others a kubeconfig.
async fn serve(socket: TcpStream, streams: Arc<AtomicUsize>, reason: Reason, resets: usize) {
    let mut connection = h2::server::handshake(socket).await.expect("HTTP/2");
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        if streams.fetch_add(1, Ordering::Relaxed) < resets {
            respond.send_reset(reason);
            continue;
        }
        let response = http::Response::builder().header("content-type", "application/grpc");
        let mut body = respond
            .send_response(response.body(()).expect("headers"), false)
            .expect("a stream");
        let renewed = frame(&RenewKubeconfigResponse {
            contract: "c".to_owned(),
            kubeconfig: Some(Kubeconfig::default()),
        });
        body.send_data(renewed, false).expect("a stream");
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
        body.send_trailers(trailers).expect("a stream");
    }
}

#[tokio::test]
async fn a_stream_that_was_refused_unprocessed_is_retried_whatever_the_method_does() {
    let (address, streams) = resetting(Reason::REFUSED_STREAM, 2).await;
    client(address).renew_kubeconfig("c").await.expect("the third stream");
    assert_eq!(streams.load(Ordering::Relaxed), 3);

    let (address, streams) = resetting(Reason::INTERNAL_ERROR, 1).await;
    let error = client(address)
        .renew_kubeconfig("c")
        .await
        .expect_err("it may have been processed");
    let Error::Transport(error) = error else {
        panic!("{error:?}")
    };
    assert_eq!((error.fault, error.unprocessed), (TransportFault::Broken, false));
    assert_eq!(streams.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_stream_that_came_after_the_shutdown_is_retried_whatever_the_method_does() {
    let (address, streams) = shutting_down().await;
    client(address)
        .renew_kubeconfig("c")
        .await
        .expect("the second connection");
    assert_eq!(streams.load(Ordering::Relaxed), 1);
}
