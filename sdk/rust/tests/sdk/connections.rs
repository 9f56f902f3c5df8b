//! Over loopback: which connections are made, and which broken calls are retried.

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
use tokio::net::TcpListener;
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
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let streams = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&streams);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let streams = Arc::clone(&counted);
            tokio::spawn(async move {
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
            });
        }
    });
    (address, streams)
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
