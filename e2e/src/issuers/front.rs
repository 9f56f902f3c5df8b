//! The proxy in front of an issuer: it has the address, terminates TLS, notes each request, and can be closed, silent or answer itself.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use axum::body::Body;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use hyper::{body::Incoming, client::conn::http1 as client, server::conn::http1 as server, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::sleep,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::aws_lc_rs},
};

use crate::{control_plane::free_address, pki::Identity};

/// How many addresses are tried, while the chosen one is taken.
const TRIES: usize = 10;

/// A proxy that ends on drop.
#[derive(Debug)]
pub(super) struct Front {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// A request that an issuer got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRequest {
    /// The method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
}

/// An answer in place of the issuer's.
#[derive(Clone, Debug)]
pub struct PlannedAnswer {
    /// The status, such as 500.
    pub status: u16,
    /// Headers, such as `Location`.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// How long the answer takes.
    pub delay: Duration,
}

struct Shared {
    tls: TlsAcceptor,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The port on which the issuer itself listens.
    upstream: Option<u16>,
    is_silent: bool,
    requests: Vec<SeenRequest>,
    plans: Vec<Plan>,
}

#[derive(Debug)]
struct Plan {
    path: String,
    times: usize,
    answer: PlannedAnswer,
}

/// How a request is handled.
enum Verdict {
    Forward(u16),
    Answer(PlannedAnswer),
    Silence,
}

// === impl Front ===

impl Front {
    /// Listens on a free loopback port, with this certificate.
    pub(super) async fn listen(identity: &Identity) -> Result<Self> {
        let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
        let tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        let shared = Arc::new(Shared {
            tls: TlsAcceptor::from(Arc::new(tls)),
            state: Mutex::default(),
        });
        for _ in 0..TRIES {
            let mut front = Self {
                address: free_address()?,
                shared: Arc::clone(&shared),
                accepting: None,
            };
            // Another process may have taken the address meanwhile.
            if front.open().await.is_ok() {
                return Ok(front);
            }
        }
        bail!("no address for an issuer was free")
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Tells on which port the issuer itself listens.
    pub(super) fn forward_to(&self, port: u16) {
        self.shared.state.lock().upstream = Some(port);
    }

    /// Listens at the address.
    pub(super) async fn open(&mut self) -> Result<()> {
        if self.accepting.is_none() {
            let listener = TcpListener::bind(self.address)
                .await
                .with_context(|| format!("cannot listen at {}", self.address))?;
            self.accepting = Some(tokio::spawn(accept(listener, Arc::clone(&self.shared))));
        }
        Ok(())
    }

    /// Ends all connections, and refuses new ones. Returns when nobody listens at the address.
    pub(super) async fn close(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            // It was aborted.
            let _ = accepting.await;
        }
    }

    pub(super) fn set_silent(&self, is_silent: bool) {
        self.shared.state.lock().is_silent = is_silent;
    }

    pub(super) fn plan(&self, path: String, times: usize, answer: PlannedAnswer) {
        self.shared.state.lock().plans.push(Plan { path, times, answer });
    }

    pub(super) fn forget_plans(&self) {
        self.shared.state.lock().plans.clear();
    }

    pub(super) fn requests(&self) -> Vec<SeenRequest> {
        self.shared.state.lock().requests.clone()
    }

    pub(super) fn forget_requests(&self) {
        self.shared.state.lock().requests.clear();
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
    }
}

// === impl PlannedAnswer ===

impl PlannedAnswer {
    /// An answer at once, with a JSON body.
    pub fn json(status: u16, body: &serde_json::Value) -> Self {
        Self {
            status,
            headers: vec![("content-type", "application/json".to_owned())],
            body: body.to_string().into_bytes(),
            delay: Duration::ZERO,
        }
    }

    /// A redirect to a URL.
    pub fn redirect(url: &str) -> Self {
        Self {
            status: 302,
            headers: vec![("location", url.to_owned())],
            body: Vec::new(),
            delay: Duration::ZERO,
        }
    }

    /// Delays the answer.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    async fn into_response(self) -> Result<Response<Body>> {
        sleep(self.delay).await;
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = StatusCode::from_u16(self.status)?;
        for (name, value) in self.headers {
            let name = HeaderName::from_static(name);
            response.headers_mut().insert(name, HeaderValue::try_from(value)?);
        }
        Ok(response)
    }
}

// === impl Shared ===

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Shared {
    async fn connection(self: Arc<Self>, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let stream = self.tls.accept(stream).await?;
        let service = service_fn(|request| Arc::clone(&self).answer(request));
        server::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await?;
        Ok(())
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>> {
        let verdict = self.state.lock().judge(&request);
        match verdict {
            Verdict::Forward(port) => forward(port, request).await,
            Verdict::Answer(answer) => answer.into_response().await,
            Verdict::Silence => std::future::pending().await,
        }
    }
}

// === impl State ===

impl State {
    /// Notes a request, and tells what becomes of it.
    fn judge(&mut self, request: &Request<Incoming>) -> Verdict {
        let path = request.uri().path();
        self.requests.push(SeenRequest {
            method: request.method().to_string(),
            path: path.to_owned(),
        });
        if self.is_silent {
            return Verdict::Silence;
        }
        if let Some(plan) = self.plans.iter_mut().find(|plan| plan.path == path && plan.times > 0) {
            plan.times -= 1;
            return Verdict::Answer(plan.answer.clone());
        }
        self.upstream.map_or(Verdict::Silence, Verdict::Forward)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                connections.spawn(Arc::clone(&shared).connection(stream));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Forwards a request to the issuer itself, which learns that its client uses TLS.
async fn forward(port: u16, mut request: Request<Incoming>) -> Result<Response<Body>> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let (mut sender, connection) = client::handshake(TokioIo::new(stream)).await?;
    let headers = request.headers_mut();
    headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?.map(Body::new))
}
