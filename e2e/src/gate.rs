//! A proxy between a program and its API server that stops right after a given write: either all requests for good, so that a
//! program that is killed then has written without knowing it, or further writes until the proxy is opened again.

use std::{
    fmt,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use http::{Method, StatusCode};
use kube::{
    Client, Config,
    config::{AuthInfo, KubeConfigOptions},
};
use parking_lot::Mutex;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use crate::ControlPlane;

/// Paths of requests that are not counted as writes, as dry runs are not: reviews, Leases and events.
const UNCOUNTED: [&str; 4] = [
    "/apis/authentication.k8s.io/",
    "/apis/authorization.k8s.io/",
    "/apis/coordination.k8s.io/",
    "/apis/events.k8s.io/",
];

/// The longest body of a request, in bytes.
const BODY_MAX: usize = 4 << 20;

/// A proxy that forwards requests to an API server with the credentials of their sender, until it shuts. It listens without
/// TLS, on loopback, and ends on drop.
pub struct Gate {
    url: String,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    upstream: Client,
    door: watch::Sender<Door>,
    counts: Mutex<Counts>,
    writes: Mutex<Vec<String>>,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
}

/// Whether a write, such as `POST /api/v1/namespaces`, counts.
type Counts = Box<dyn Fn(&str) -> bool + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// All requests pass.
    Open,
    /// This many more counted writes pass. The answer to the last one is held back.
    Closing(usize),
    /// No request passes; the last write is in flight.
    Shut,
    /// No request passes, and the API server has answered the last write.
    Silent,
    /// This many more counted writes pass. Then the door is half open.
    Narrowing(usize),
    /// Counted writes wait until the door is open. Other requests pass.
    HalfOpen,
}

/// How a request is handled.
enum Verdict {
    Pass,
    /// The request passes, and its answer is held back.
    Last,
    /// The request waits until the door is open, and then passes.
    Wait,
    Hold,
}

impl Gate {
    /// Starts a proxy to a control plane that forwards all requests.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("no free loopback port")?;
        let url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            upstream: upstream(plane).await?,
            door: watch::Sender::new(Door::Open),
            counts: Mutex::new(Box::new(|_| true)),
            writes: Mutex::default(),
            under_way: AtomicUsize::new(0),
            most_under_way: AtomicUsize::new(0),
        });
        let router = Router::new().fallback(pass).with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            // It ends with the gate alone.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, shared, serving })
    }

    /// The URL at which the proxy listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Shuts right after the n-th write from now for which `counts` is true. Writes look as in [`Gate::writes`].
    pub fn shut_after(&self, nth: usize, counts: impl Fn(&str) -> bool + Send + 'static) {
        *self.shared.counts.lock() = Box::new(counts);
        self.note();
        self.shared.door.send_replace(Door::Closing(nth));
    }

    /// Lets this many writes pass from now for which `counts` is true, and keeps the next ones waiting until [`Gate::open`].
    /// Leases are renewed meanwhile.
    pub fn pause_after(&self, writes: usize, counts: impl Fn(&str) -> bool + Send + 'static) {
        *self.shared.counts.lock() = Box::new(counts);
        self.note();
        self.shared.door.send_replace(Door::Narrowing(writes));
    }

    /// Waits until a write waits for [`Gate::open`], after [`Gate::pause_after`].
    pub async fn paused(&self) {
        let mut door = self.shared.door.subscribe();
        // The sender lives as long as the gate.
        let _ = door.wait_for(|door| *door == Door::HalfOpen).await;
    }

    /// Forgets the writes that passed so far.
    pub fn note(&self) {
        self.shared.writes.lock().clear();
    }

    /// Forwards all requests again that are sent from now on, and those that wait since [`Gate::pause_after`].
    pub fn open(&self) {
        self.shared.door.send_replace(Door::Open);
    }

    /// Waits until the last write has been made, and nothing passes any more.
    pub async fn silent(&self) {
        let mut door = self.shared.door.subscribe();
        // The sender lives as long as the gate.
        let _ = door.wait_for(|door| *door == Door::Silent).await;
    }

    /// The largest number of requests that were in flight at the same time while the proxy forwarded all.
    pub fn most_at_once(&self) -> usize {
        self.shared.most_under_way.load(Ordering::SeqCst)
    }

    /// The writes that passed since [`Gate::note`] or [`Gate::shut_after`], such as `POST /api/v1/namespaces`.
    pub fn writes(&self) -> Vec<String> {
        self.shared.writes.lock().clone()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Shared {
    fn admit(&self, request: &Request) -> Verdict {
        let path = request.uri().path();
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_dry_run = request.uri().query().is_some_and(|query| query.contains("dryRun="));
        let is_write = !reads && !is_dry_run && !UNCOUNTED.iter().any(|prefix| path.starts_with(prefix));
        let write = format!("{} {path}", request.method());
        let counts = is_write && (self.counts.lock())(&write);
        let mut verdict = Verdict::Pass;
        self.door.send_modify(|door| match *door {
            Door::Shut | Door::Silent => verdict = Verdict::Hold,
            Door::Closing(0 | 1) if counts => {
                verdict = Verdict::Last;
                *door = Door::Shut;
            }
            Door::Closing(left) if counts => *door = Door::Closing(left - 1),
            Door::Narrowing(0) | Door::HalfOpen if counts => {
                verdict = Verdict::Wait;
                *door = Door::HalfOpen;
            }
            Door::Narrowing(left) if counts => *door = Door::Narrowing(left - 1),
            Door::Closing(_) | Door::Narrowing(_) | Door::HalfOpen | Door::Open => {}
        });
        if is_write && matches!(verdict, Verdict::Pass | Verdict::Last) {
            self.writes.lock().push(write);
        }
        verdict
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Builds a client without credentials: each request brings those of its sender.
pub(crate) async fn upstream(plane: &ControlPlane) -> Result<Client> {
    let admin = serde_json::from_value(plane.kubeconfig().to_value())?;
    let mut config = Config::from_custom_kubeconfig(admin, &KubeConfigOptions::default()).await?;
    // Verified as the admin does it. A watch may be silent.
    config.auth_info = AuthInfo::default();
    config.read_timeout = None;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Forwards a request, and returns its answer.
pub(crate) async fn forward(upstream: &Client, request: Request) -> Response {
    let answer = async {
        let (mut parts, body) = request.into_parts();
        parts.headers.remove(http::header::HOST);
        let body = to_bytes(body, BODY_MAX).await?;
        let request = http::Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
        anyhow::Ok(upstream.send(request).await?)
    };
    match answer.await {
        Ok(answer) => answer.map(Body::new),
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
    }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    match shared.admit(&request) {
        Verdict::Pass => {
            let under_way = shared.under_way.fetch_add(1, Ordering::SeqCst) + 1;
            shared.most_under_way.fetch_max(under_way, Ordering::SeqCst);
            let answer = forward(&shared.upstream, request).await;
            shared.under_way.fetch_sub(1, Ordering::SeqCst);
            answer
        }
        Verdict::Wait => {
            // The sender lives as long as the state.
            let _ = shared.door.subscribe().wait_for(|door| *door == Door::Open).await;
            forward(&shared.upstream, request).await
        }
        Verdict::Last => {
            forward(&shared.upstream, request).await;
            shared.door.send_replace(Door::Silent);
            std::future::pending().await
        }
        // Whoever sent it is about to be killed: it is not answered after the gate has opened either.
        Verdict::Hold => std::future::pending().await,
    }
}
