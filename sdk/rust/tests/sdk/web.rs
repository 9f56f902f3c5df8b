//! Through proxies that do not pass HTTP/2 on: the client falls back to gRPC-Web by itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bindery_proto::v1alpha2::watch_exports_response::Event;
use bindery_proto::v1alpha2::{
    ErrorReason, Export, GetExportResponse, Kubeconfig, ObjectMeta, RenewKubeconfigResponse, SnapshotBegin,
    SnapshotComplete, WatchExportsRequest, WatchExportsResponse,
};
use bindery_sdk::{Client, ClientBuilder, Code, Error, Protocol, RetryPolicy, TransportFault, WatchEvent};
use futures::future::join_all;
use http::{Request, Response, StatusCode, Version};
use rcgen::{CertifiedKey, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, crypto::aws_lc_rs};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::transport::Server;
use tonic_web::GrpcWebLayer;

use crate::server::{Answer, Script, Step, fail, message};

/// How a proxy keeps HTTP/2 from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It ends TLS and negotiates HTTP/1.1.
    TlsOfHttp1,
    /// It takes HTTP/2 and passes calls on over HTTP/1.1, so that gRPC is refused with this status.
    RefusesGrpc(u16),
}

const WAYS: [Way; 3] = [Way::TlsOfHttp1, Way::RefusesGrpc(400), Way::RefusesGrpc(464)];

/// A proxy on loopback.
struct Proxy {
    address: SocketAddr,
    way: Way,
    certificate: CertifiedKey<KeyPair>,
    /// How many connections it has taken.
    connections: Arc<AtomicUsize>,
}

impl Proxy {
    /// Serves a script behind a proxy.
    async fn start(script: &Script, way: Way) -> Self {
        let server = Self::server(script, way).await;
        Self::before(server, way).await
    }

    async fn server(script: &Script, way: Way) -> SocketAddr {
        let (listener, address) = listen().await;
        let refuse = tower::layer::layer_fn(move |inner| Refusing { inner, way });
        let server = Server::builder()
            .accept_http1(true)
            .layer(refuse)
            .layer(GrpcWebLayer::new());
        let router = script.add_to(server);
        tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
        address
    }

    async fn before(server: SocketAddr, way: Way) -> Self {
        let (listener, address) = listen().await;
        let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        let acceptor = acceptor(&certificate);
        let connections = Arc::new(AtomicUsize::new(0));
        let taken = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                taken.fetch_add(1, Ordering::Relaxed);
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    match way {
                        Way::TlsOfHttp1 => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                pass(stream, server).await;
                            }
                        }
                        Way::RefusesGrpc(_) => pass(stream, server).await,
                    }
                });
            }
        });
        Self {
            address,
            way,
            certificate,
            connections,
        }
    }

    fn client(&self, set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
        let once = RetryPolicy {
            attempts: 1,
            ..RetryPolicy::default()
        };
        let builder = if self.way == Way::TlsOfHttp1 {
            Client::builder(format!("https://{}", self.address)).ca_pem(self.certificate.cert.pem())
        } else {
            Client::builder(format!("http://{}", self.address)).allow_plaintext(true)
        };
        set(builder.retry(once)).build().expect("settings that could work")
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Refuses HTTP/2 with a status if the proxy does.
#[derive(Clone)]
struct Refusing<S> {
    inner: S,
    way: Way,
}

impl<S> tower::Service<Request<Body>> for Refusing<S>
where
    S: tower::Service<Request<Body>, Response = Response<Body>, Future: Send + 'static>,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = futures::future::BoxFuture<'static, Result<Response<Body>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self.way {
            Way::RefusesGrpc(status) if request.version() == Version::HTTP_2 => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::from_u16(status).expect("a status");
                Box::pin(async { Ok(response) })
            }
            _ => Box::pin(self.inner.call(request)),
        }
    }
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

fn acceptor(certificate: &CertifiedKey<KeyPair>) -> TlsAcceptor {
    let key = PrivateKeyDer::try_from(certificate.signing_key.serialize_der()).expect("a key");
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], key)
        .expect("a certificate and its key");
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config).into()
}

async fn pass(mut stream: impl AsyncRead + AsyncWrite + Unpin, server: SocketAddr) {
    let mut onward = TcpStream::connect(server).await.expect("the server");
    // Ends when either end does.
    let _ = copy_bidirectional(&mut stream, &mut onward).await;
}

fn export(name: &str) -> Step {
    let metadata = ObjectMeta {
        name: name.to_owned(),
        ..ObjectMeta::default()
    };
    message(&GetExportResponse {
        export: Some(Export {
            metadata: Some(metadata),
            ..Export::default()
        }),
    })
}

fn renewed() -> Answer {
    vec![message(&RenewKubeconfigResponse {
        contract: "c".to_owned(),
        kubeconfig: Some(Kubeconfig::default()),
    })]
}

#[tokio::test]
async fn calls_fall_back_and_go_on_so() {
    for way in WAYS {
        let script = Script::new([
            vec![export("a")],
            vec![export("b")],
            vec![fail(ErrorReason::ExportNotFound, None)],
        ]);
        let proxy = Proxy::start(&script, way).await;
        let client = proxy.client(|builder| builder.token("hunter2"));
        assert_eq!(client.protocol(), Protocol::Grpc);
        for name in ["a", "b"] {
            let export = client
                .get_export("", name)
                .await
                .unwrap_or_else(|error| panic!("{way:?}: {error}"));
            assert_eq!(export.metadata.unwrap_or_default().name, name, "{way:?}");
        }
        assert_eq!(client.protocol(), Protocol::GrpcWeb, "{way:?}");
        let error = client.get_export("", "c").await.expect_err("the script fails");
        assert_eq!(error.reason(), Some(ErrorReason::ExportNotFound), "{way:?}: {error}");
        assert_eq!(proxy.connections(), 2, "{way:?}: one by HTTP/2, one that is kept");
        for seen in script.seen() {
            assert_eq!(seen.path, "/kubebind.v1alpha2.ExportService/GetExport");
            assert_eq!(seen.headers["authorization"], "Bearer hunter2");
            assert!(seen.headers.contains_key("grpc-timeout") && seen.headers.contains_key("x-request-id"));
            let agent = seen.headers["user-agent"].to_str().expect("text");
            assert!(agent.starts_with("bindery-sdk-rust/"), "{agent}");
        }
    }
}

#[tokio::test]
async fn a_call_that_may_not_be_repeated_is_sent_once() {
    for way in WAYS {
        let script = Script::new([renewed(), renewed()]);
        let proxy = Proxy::start(&script, way).await;
        let client = proxy.client(|builder| builder);
        client
            .renew_kubeconfig("")
            .await
            .unwrap_or_else(|error| panic!("{way:?}: {error}"));
        assert_eq!(script.seen().len(), 1, "{way:?}");
    }
}

#[tokio::test]
async fn a_watch_resumes_by_grpc_web() {
    let step = |event, token: &str| {
        message(&WatchExportsResponse {
            event: Some(event),
            resume_token: token.to_owned(),
        })
    };
    let begin = || step(Event::SnapshotBegin(SnapshotBegin::default()), "");
    let complete = || step(Event::SnapshotComplete(SnapshotComplete::default()), "r1");
    for way in WAYS {
        let script = Script::new([
            vec![begin(), complete(), Step::Break],
            vec![
                step(Event::Applied(Export::default()), "r2"),
                Step::Sleep(Duration::from_mins(10)),
            ],
        ]);
        let proxy = Proxy::start(&script, way).await;
        let soon = RetryPolicy {
            attempts: u32::MAX,
            base: Duration::from_millis(1),
            cap: Duration::from_millis(1),
        };
        let client = proxy.client(|builder| builder.watch_timing(soon, Duration::from_secs(30)));
        let mut watch = client.watch_exports(WatchExportsRequest::default());
        let mut words = Vec::new();
        for _ in 0..6 {
            words.push(match watch.next().await.expect("an event").expect("no end") {
                WatchEvent::Connected { resumed } => format!("connected {resumed}"),
                WatchEvent::Disconnected { error, .. } => match error {
                    Some(Error::Transport(error)) => format!("disconnected {:?}", error.fault),
                    other => format!("disconnected {other:?}"),
                },
                WatchEvent::SnapshotBegin { .. } => "begin".to_owned(),
                WatchEvent::SnapshotComplete => "complete".to_owned(),
                WatchEvent::Applied(_) => "applied".to_owned(),
                WatchEvent::Removed(_) => "removed".to_owned(),
            });
        }
        let expect = [
            "connected false",
            "begin",
            "complete",
            "disconnected Broken",
            "connected true",
            "applied",
        ];
        assert_eq!(words, expect, "{way:?}");
        assert_eq!(client.protocol(), Protocol::GrpcWeb, "{way:?}");
    }
}

#[tokio::test]
async fn many_calls_share_few_connections_and_watches_have_their_own() {
    const CALLS: usize = 100;
    let slow = || vec![Step::Sleep(Duration::from_millis(100)), export("a")];
    let script = Script::new((0..CALLS).map(|_| slow()));
    let proxy = Proxy::start(&script, Way::TlsOfHttp1).await;
    let client = proxy.client(|builder| builder.protocol(Protocol::GrpcWeb));
    let calls = join_all((0..CALLS).map(|_| client.get_export("", "a"))).await;
    assert!(
        calls.iter().all(Result::is_ok),
        "{:?}",
        calls.iter().find(|call| call.is_err())
    );
    // A connection comes back a moment after its call has ended, so that another one may be opened meanwhile.
    assert!(proxy.connections() <= 64, "{} connections", proxy.connections());

    let open = vec![
        message(&WatchExportsResponse {
            event: Some(Event::SnapshotBegin(SnapshotBegin::default())),
            resume_token: String::new(),
        }),
        Step::Sleep(Duration::from_mins(10)),
    ];
    let script = Script::new((0..40).map(|_| open.clone()).chain([vec![export("a")]]));
    let proxy = Proxy::start(&script, Way::TlsOfHttp1).await;
    let client = proxy.client(|builder| builder.protocol(Protocol::GrpcWeb));
    let mut watches: Vec<_> = (0..40)
        .map(|_| client.watch_exports(WatchExportsRequest::default()))
        .collect();
    for watch in &mut watches {
        assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Connected { .. }))));
    }
    client.get_export("", "a").await.expect("a call beside the watches");
}

#[tokio::test]
async fn a_response_that_is_too_large_is_refused() {
    let huge = message(&RenewKubeconfigResponse {
        contract: "c".repeat(5 << 20),
        ..RenewKubeconfigResponse::default()
    });
    let script = Script::new([vec![huge]]);
    let proxy = Proxy::start(&script, Way::TlsOfHttp1).await;
    let client = proxy.client(|builder| builder.protocol(Protocol::GrpcWeb));
    let error = client.renew_kubeconfig("").await.expect_err("too large");
    assert_eq!(
        (error.code(), error.reason()),
        (Some(Code::ResourceExhausted), Some(ErrorReason::MessageTooLarge)),
        "{error}"
    );
}

/// Answers each request by HTTP/1.1 with this text.
async fn web_server(answer: &'static str) -> SocketAddr {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn a_server_that_speaks_neither_is_told_by_what_http_2_lacked() {
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\nConnection: close\r\n\r\n<p/>";
    let server = web_server(page).await;
    let proxy = Proxy::before(server, Way::TlsOfHttp1).await;
    for protocol in [Protocol::Auto, Protocol::Grpc] {
        let client = proxy.client(|builder| builder.protocol(protocol));
        match client.get_export("", "a").await {
            Err(Error::Transport(error)) if error.fault == TransportFault::NoHttp2 => {
                assert!(error.to_string().contains("neither HTTP/2 nor gRPC-Web"), "{error}");
            }
            other => panic!("{protocol:?}: {other:?}"),
        }
        assert_eq!(client.protocol(), Protocol::Grpc);
    }
}

#[tokio::test]
async fn a_proxy_whose_server_is_away_is_tried_again() {
    let away =
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 4\r\nConnection: close\r\n\r\n<p/>";
    let server = web_server(away).await;
    let proxy = Proxy::before(server, Way::TlsOfHttp1).await;
    let quick = RetryPolicy {
        attempts: 3,
        base: Duration::from_millis(1),
        cap: Duration::from_millis(1),
    };
    let client = proxy.client(|builder| builder.retry(quick));
    let error = client.get_export("", "a").await.expect_err("nothing is there");
    assert_eq!(error.code(), Some(Code::Unavailable), "{error}");
    assert_eq!(proxy.connections(), 6, "three attempts, each by both protocols");
}

#[tokio::test]
async fn the_page_of_a_proxy_is_an_error_by_its_status() {
    let script = Script::new([]);
    let proxy = Proxy::start(&script, Way::RefusesGrpc(503)).await;
    let client = proxy.client(|builder| builder);
    let error = client.get_export("", "a").await.expect_err("the proxy refuses");
    assert_eq!(error.code(), Some(Code::Unavailable), "{error}");
    let mut watch = client.watch_exports(WatchExportsRequest::default());
    match watch.next().await {
        Some(Ok(WatchEvent::Disconnected { error: Some(error), .. })) => {
            assert_eq!(error.code(), Some(Code::Unavailable), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(client.protocol(), Protocol::Grpc);
}

#[tokio::test]
async fn a_response_without_a_status_is_a_broken_connection() {
    let ended = "HTTP/1.1 200 OK\r\nContent-Type: application/grpc-web+proto\r\nContent-Length: 5\r\n\r\n\0\0\0\0\0";
    let cut = "HTTP/1.1 200 OK\r\nContent-Type: application/grpc-web+proto\r\nContent-Length: 50\r\n\r\n\0\0\0\0\0";
    for answer in [ended, cut] {
        let server = web_server(answer).await;
        let proxy = Proxy::before(server, Way::TlsOfHttp1).await;
        let client = proxy.client(|builder| builder.protocol(Protocol::GrpcWeb));
        match client.get_export("", "a").await {
            Err(Error::Transport(error)) if error.fault == TransportFault::Broken && !error.unprocessed => {}
            other => panic!("{answer:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn failures_to_connect_are_told_as_by_grpc() {
    let script = Script::new([]);
    let proxy = Proxy::start(&script, Way::TlsOfHttp1).await;
    let web = |builder: ClientBuilder| builder.protocol(Protocol::GrpcWeb);
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let fault = async |client: Client| match client.get_export("", "a").await {
        Err(Error::Transport(error)) => (error.fault, error.unprocessed),
        other => panic!("{other:?}"),
    };
    let untrusted = proxy.client(|builder| web(builder).ca_pem(other.cert.pem()));
    assert_eq!(fault(untrusted).await, (TransportFault::CertificateUntrusted, true));
    let named = proxy.client(|builder| web(builder).server_name("bind.example.com"));
    assert_eq!(fault(named).await, (TransportFault::CertificateName, true));
    let (listener, address) = listen().await;
    drop(listener);
    let refused = web(Client::builder(format!("https://{address}")).ca_pem(other.cert.pem()));
    let refused = refused.retry(RetryPolicy {
        attempts: 1,
        ..RetryPolicy::default()
    });
    assert_eq!(
        fault(refused.build().expect("a client")).await,
        (TransportFault::Refused, true)
    );
    // It accepts, and never speaks.
    let (_silent, address) = listen().await;
    let silent = web(Client::builder(format!("https://{address}")).ca_pem(other.cert.pem()));
    let silent = silent.connect_timeout(Duration::from_millis(200)).retry(RetryPolicy {
        attempts: 1,
        ..RetryPolicy::default()
    });
    assert_eq!(
        fault(silent.build().expect("a client")).await,
        (TransportFault::ConnectTimeout, true)
    );
}

#[tokio::test]
async fn calls_go_below_the_prefix_of_the_address() {
    for protocol in [Protocol::Grpc, Protocol::GrpcWeb] {
        let (paths, address) = paths().await;
        let client = Client::builder(format!("http://{address}/a/bindery/"))
            .allow_plaintext(true)
            .protocol(protocol)
            .build()
            .expect("a client");
        assert_eq!(client.audience(), format!("http://{address}/a/bindery"));
        let _ = client.get_export("", "a").await;
        let seen = paths.lock().clone();
        assert!(!seen.is_empty());
        for path in seen {
            assert_eq!(
                path, "/a/bindery/kubebind.v1alpha2.ExportService/GetExport",
                "{protocol:?}"
            );
        }
    }
}

/// A server of both protocols that notes the paths of calls and refuses them.
async fn paths() -> (Arc<parking_lot::Mutex<Vec<String>>>, SocketAddr) {
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let (listener, address) = listen().await;
    let service = tower::service_fn(move |request: Request<Body>| {
        noted.lock().push(request.uri().path().to_owned());
        std::future::ready(Ok::<_, std::convert::Infallible>(
            tonic::Status::unimplemented("by script").into_http::<Body>(),
        ))
    });
    let serving = Server::builder()
        .accept_http1(true)
        .layer(GrpcWebLayer::new())
        .serve_with_incoming(service, TcpListenerStream::new(listener));
    tokio::spawn(serving);
    (seen, address)
}
