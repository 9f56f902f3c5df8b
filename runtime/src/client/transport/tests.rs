use std::{convert::Infallible, net::SocketAddr};

use futures::future::join_all;
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use kube::Client;
use rcgen::{CertifiedKey, KeyPair};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::client::{Clients, ClusterTraffic};

/// The only name in the server's certificate, which does not have its address.
const NAME: &str = "kubernetes";

/// An answer whose body does not end.
async fn answer(_: Request<Incoming>) -> Result<Response<axum::body::Body>, Infallible> {
    let silence = futures::stream::pending::<Result<axum::body::Bytes, Infallible>>();
    Ok(Response::new(axum::body::Body::from_stream(silence)))
}

/// An API server with TLS that speaks these protocols.
async fn serve(key: &CertifiedKey<KeyPair>, protocols: &[&[u8]]) -> SocketAddr {
    let private = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], private)
        .unwrap();
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that finds that HTTP/2 is not spoken may go without a word.
                let stream = acceptor.accept(stream).await.unwrap();
                let speaks_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let (stream, service) = (TokioIo::new(stream), service_fn(answer));
                if speaks_h2 {
                    let builder = http2::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(stream, service).await;
                } else {
                    let _ = http1::Builder::new().serve_connection(stream, service).await;
                }
            });
        }
    });
    address
}

/// How many connections ten watches and ten lists take each.
async fn connections(protocols: &[&[u8]]) -> (u64, u64) {
    // Another test may have installed one already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let key = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let address = serve(&key, protocols).await;
    let mut config = Config::new(format!("https://{address}/").parse().unwrap());
    config.root_cert = Some(vec![key.cert.der().to_vec()]);
    config.tls_server_name = Some(NAME.to_owned());
    let traffic = ClusterTraffic::default();
    let watch = Clients::counted(&config, None, 8, &traffic).unwrap().watch;
    let _watches = join_all((0..10).map(|_| get(&watch, Some(RequestKind::Watch)))).await;
    let of_watches = traffic.totals().connections;
    let _lists = join_all((0..10).map(|_| get(&watch, Some(list())))).await;
    (of_watches, traffic.totals().connections - of_watches)
}

fn request(kind: Option<RequestKind>) -> Request<Body> {
    let mut request = Request::get("/api/v1/pods").body(Body::empty()).unwrap();
    if let Some(kind) = kind {
        request.extensions_mut().insert(kind);
    }
    request
}

fn list() -> RequestKind {
    RequestKind::List(ResponseTimer::new())
}

async fn get(client: &Client, kind: Option<RequestKind>) -> Response<Body> {
    client.send(request(kind)).await.unwrap()
}

#[tokio::test]
async fn watches_share_a_connection_where_http_2_is_spoken_and_lists_share_none() {
    assert_eq!(connections(&[b"h2", b"http/1.1"]).await, (1, 10));
}

#[tokio::test]
async fn where_it_is_not_each_watch_has_a_connection() {
    assert_eq!(connections(&[b"http/1.1"]).await, (10, 10));
    // A server without ALPN negotiates nothing.
    assert_eq!(connections(&[]).await, (10, 10));
}

#[tokio::test]
async fn lists_wait_for_a_permit_with_their_timer_stopped() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
    let watch = Clients::new(&Config::new(url.parse().unwrap()), 8).unwrap().watch;
    let mut lists = join_all((0..LISTS_MAX).map(|_| get(&watch, Some(list())))).await;
    let timer = ResponseTimer::new();
    let mut one_more = std::pin::pin!(watch.send(request(Some(RequestKind::List(timer.clone())))));
    // Once a watch that is requested later was answered, nothing else is still to come.
    assert!(futures::poll!(&mut one_more).is_pending());
    let _watch = get(&watch, Some(RequestKind::Watch)).await;
    assert!(futures::poll!(&mut one_more).is_pending());
    assert_eq!(timer.started(), None, "it waits for a permit, not for the API server");
    let _probe = get(&watch, None).await;
    lists.pop();
    one_more.await.unwrap();
    assert!(timer.started().is_some());
}
