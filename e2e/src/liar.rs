//! A proxy for an API server that answers some requests wrongly: with refusals, empty lists, and lists that break off.
//! It listens with TLS, because kubeconfigs without are refused.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::{IntoResponse as _, Response},
    serve::Listener,
};
use futures::StreamExt as _;
use http::{StatusCode, Uri};
use kube::Client;
use parking_lot::Mutex;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::aws_lc_rs},
    server::TlsStream,
};

use crate::{ControlPlane, gate};

/// The longest list that is emptied, in bytes.
const LIST_MAX: usize = 4 << 20;

/// A proxy that forwards requests to an API server with the credentials of their sender, except those for which it has a
/// wrong answer. It listens on loopback with a certificate of the control plane's authority, and ends on drop.
pub struct Liar {
    address: SocketAddr,
    shared: Arc<Shared>,
    tasks: [JoinHandle<()>; 2],
}

/// A wrong answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// A refusal or an error with this code.
    Status(u16),
    /// A list without objects.
    Empty,
    /// One object, and a token for a further page, which then cannot be had.
    Partial,
    /// The true answer, which breaks off after this many bytes.
    Cut(usize),
    /// A list without end: each page promises more, and one without pages goes on and on.
    Endless,
    /// The true list, in which each object comes once more under this name.
    Renamed(&'static str),
}

struct Shared {
    upstream: Client,
    lie: Mutex<Told>,
}

/// Decides which wrong answer a request gets, by its method and its path with the query.
type Told = Box<dyn Fn(&str, &Uri) -> Option<Lie> + Send>;

/// Connections whose handshake is done: one that is slow holds up no other.
struct Accepted {
    address: SocketAddr,
    connections: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

// === impl Liar ===

impl Liar {
    /// Starts a proxy that forwards all requests.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("no free loopback port")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream: gate::upstream(plane).await?,
            lie: Mutex::new(Box::new(|_, _| None)),
        });
        let (sender, connections) = mpsc::channel(16);
        let accepting = tokio::spawn(accept(listener, acceptor(plane)?, sender));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let accepted = Accepted { address, connections };
        let serving = tokio::spawn(async move {
            // It ends with the liar alone.
            let _ = axum::serve(accepted, router).await;
        });
        Ok(Self {
            address,
            shared,
            tasks: [accepting, serving],
        })
    }

    /// The address at which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests by `lie` from now on. Open watches go on.
    pub fn lie(&self, about: impl Fn(&str, &Uri) -> Option<Lie> + Send + 'static) {
        *self.shared.lie.lock() = Box::new(about);
    }

    /// Answers lists of a resource wrongly from now on, or lists and watches, and forwards all other requests.
    pub fn lie_about(&self, plural: &'static str, lie: Lie) {
        self.lie(move |method, uri| {
            let is_list = method == "GET" && uri.path().ends_with(&format!("/{plural}"));
            is_list.then_some(lie)
        });
    }

    /// Forwards all requests again.
    pub fn repent(&self) {
        self.lie(|_, _| None);
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl fmt::Debug for Liar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Liar")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

// === impl Accepted ===

impl Listener for Accepted {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.connections.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(self.address)
    }
}

fn acceptor(plane: &ControlPlane) -> Result<TlsAcceptor> {
    let identity = plane.authority().server(&["127.0.0.1", "localhost"])?;
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    connections: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    while let Ok((stream, from)) = listener.accept().await {
        let (acceptor, connections) = (acceptor.clone(), connections.clone());
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            // Whoever does not trust the certificate goes, and a liar that is gone needs no connection.
            if let Ok(stream) = acceptor.accept(stream).await {
                let _ = connections.send((stream, from)).await;
            }
        });
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let told = (shared.lie.lock())(request.method().as_str(), request.uri());
    match told {
        None => gate::forward(&shared.upstream, request).await,
        Some(Lie::Status(code)) => refusal(code, request.uri().path()),
        Some(Lie::Empty) => empty(&shared.upstream, request).await,
        Some(Lie::Partial) => partial(&shared.upstream, request).await,
        Some(Lie::Endless) => endless(request.uri()),
        Some(Lie::Renamed(name)) => renamed(&shared.upstream, request, name).await,
        Some(Lie::Cut(after)) => {
            let answer = gate::forward(&shared.upstream, request).await;
            answer.map(|body| cut(body, after))
        }
    }
}

/// An API server's refusal. A namespace that does not exist it names.
fn refusal(code: u16, path: &str) -> Response {
    match (code, path.strip_prefix("/api/v1/namespaces/")) {
        (404, Some(name)) if !name.contains('/') => failure(code, &json!({"kind": "namespaces", "name": name})),
        _ => status(code),
    }
}

fn status(code: u16) -> Response {
    failure(code, &json!({}))
}

fn failure(code: u16, details: &Value) -> Response {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        410 => "Expired",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "code": code,
        "message": format!("{reason}, as the test wants it"), "details": details,
    });
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    said(code, &status)
}

/// Answers a list with no objects at the current resource version, and forwards a watch.
async fn empty(upstream: &Client, request: Request) -> Response {
    changed(upstream, request, |list| {
        list["items"] = json!([]);
        list["metadata"]["continue"] = json!("");
    })
    .await
}

/// Answers a list with all objects and a namesake of each, and forwards a watch.
async fn renamed(upstream: &Client, request: Request, name: &str) -> Response {
    changed(upstream, request, |list| {
        let mut more = list["items"].as_array().cloned().unwrap_or_default();
        for object in &mut more {
            object["metadata"]["name"] = json!(name);
        }
        if let Some(items) = list["items"].as_array_mut() {
            items.extend(more);
        }
    })
    .await
}

/// Objects without end, in pages where pages are asked for.
fn endless(uri: &Uri) -> Response {
    /// Objects per chunk of an answer without pages.
    const CHUNK: usize = 100;

    let query = uri.query().unwrap_or_default();
    let limit = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("limit=")?.parse().ok());
    let parts: Vec<_> = uri.path().split('/').collect();
    let namespace = match parts[..] {
        [.., "namespaces", namespace, _] => namespace.to_owned(),
        _ => String::new(),
    };
    let object = move || {
        let id = format!("{:016x}", rand::random::<u64>());
        let name = format!("endless-{id}");
        json!({"metadata": {"name": name, "namespace": namespace, "uid": id, "resourceVersion": "1"}, "spec": {}})
            .to_string()
    };
    let head = |more: &str| format!(r#"{{"metadata":{{"resourceVersion":"1","continue":"{more}"}},"items":["#);
    if let Some(limit) = limit.filter(|limit: &usize| *limit > 0) {
        let items: Vec<_> = std::iter::repeat_with(object).take(limit).collect();
        let page = format!("{}{}]}}", head("more"), items.join(","));
        return (StatusCode::OK, page).into_response();
    }
    let begin = format!("{}{}", head(""), object());
    let chunks = std::iter::repeat_with(move || {
        let objects = std::iter::repeat_with(&object).take(CHUNK);
        format!(",{}", objects.collect::<Vec<_>>().join(","))
    });
    let all = futures::stream::iter(std::iter::once(begin).chain(chunks).map(Ok::<_, std::io::Error>));
    (StatusCode::OK, Body::from_stream(all)).into_response()
}

/// Answers a list that was changed, and forwards a watch.
async fn changed(upstream: &Client, request: Request, change: impl FnOnce(&mut Value)) -> Response {
    let is_watch = is_watch(request.uri());
    let answer = gate::forward(upstream, request).await;
    if is_watch || !answer.status().is_success() {
        return answer;
    }
    let changed = async {
        let list = to_bytes(answer.into_body(), LIST_MAX).await?;
        let mut list: Value = serde_json::from_slice(&list)?;
        change(&mut list);
        anyhow::Ok(list)
    };
    match changed.await {
        Ok(list) => said(StatusCode::OK, &list),
        Err(_) => status(500),
    }
}

fn said(code: StatusCode, content: &Value) -> Response {
    let kind = [(http::header::CONTENT_TYPE, "application/json")];
    (code, kind, content.to_string()).into_response()
}

/// The first object with the promise of more; what comes next fails, and so does a watch.
async fn partial(upstream: &Client, mut request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default();
    if is_watch(request.uri()) || query.contains("continue=") {
        return status(500);
    }
    let kept = query.split('&').filter(|pair| !pair.starts_with("limit="));
    let query = kept
        .filter(|pair| !pair.is_empty())
        .chain(["limit=1"])
        .collect::<Vec<_>>()
        .join("&");
    let path = request.uri().path();
    match format!("{path}?{query}").parse() {
        Ok(uri) => *request.uri_mut() = uri,
        Err(_) => return status(500),
    }
    gate::forward(upstream, request).await
}

fn is_watch(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query.split('&').any(|pair| pair == "watch=1" || pair == "watch=true")
}

/// A body that fails after `after` bytes.
fn cut(body: Body, after: usize) -> Body {
    let mut left = after;
    let chunks = body.into_data_stream().map(move |chunk| {
        let chunk = chunk.map_err(std::io::Error::other)?;
        if left == 0 {
            return Err(std::io::Error::other("cut"));
        }
        let taken = chunk.len().min(left);
        left -= taken;
        Ok(chunk.slice(..taken))
    });
    // A body of one chunk ends in its middle all the same.
    let end = futures::stream::once(async { Err(std::io::Error::other("cut")) });
    Body::from_stream(chunks.chain(end))
}
