//! A server on loopback that does what a script says, also what no server should, and that records what it sees.

mod connection;
mod port;
mod proxy;
mod tap;
mod tls;

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::proto_json;
use crate::script::{Answer, Match, Opening, Proxy, ServerScript, Step, Tls};
use port::Port;
pub use tls::Certificates;

/// A running server. It ends on drop.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// A call as the server saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The path, such as `/kubebind.v1alpha2.ExportService/GetExport`.
    pub path: String,
    /// The headers of the call.
    pub headers: BTreeMap<String, String>,
    /// The message without its frame.
    pub message: Vec<u8>,
    /// When the call arrived, since the server has begun.
    pub at: Duration,
    /// Number of the connection, from 0.
    pub connection: usize,
    /// The HTTP/2 error code with which the client reset the stream, or `closed` if it closed the connection.
    pub reset: Option<String>,
}

/// State that all connections share.
struct Shared {
    start: Instant,
    openings: Mutex<VecDeque<Opening>>,
    answers: Mutex<VecDeque<Answer>>,
    matching: Vec<Match>,
    otherwise: Answer,
    seen: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
    pings: Arc<AtomicUsize>,
    token_file: PathBuf,
    acceptor: Option<TlsAcceptor>,
    streams: Option<u32>,
    proxy: Option<Proxy>,
    restarts: mpsc::UnboundedSender<Duration>,
    /// Changes when all connections are to be closed.
    generation: watch::Sender<u64>,
}

impl Server {
    /// Starts a server, which needs a runtime. `token_file` is what [`Step::WriteToken`] writes.
    pub fn start(script: &ServerScript, certificates: &Certificates, token_file: PathBuf) -> Result<Self> {
        let port = Port::take().context("no free port")?;
        let address = port.address();
        let (restarts, restarted) = mpsc::unbounded_channel();
        let over = || {
            vec![Step::Trailers(
                [("grpc-status", "13"), ("grpc-message", "the script is over")]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            )]
        };
        let shared = Arc::new(Shared {
            start: Instant::now(),
            openings: Mutex::new(script.connections.iter().cloned().collect()),
            answers: Mutex::new(script.answers.iter().cloned().collect()),
            matching: script.matching.clone(),
            otherwise: script.otherwise.clone().unwrap_or_else(over),
            seen: Mutex::default(),
            connections: AtomicUsize::new(0),
            pings: Arc::default(),
            token_file,
            acceptor: certificates.acceptor(script.tls)?,
            streams: script.streams,
            proxy: script.proxy,
            restarts,
            generation: watch::Sender::new(0),
        });
        let listener = if script.absent { None } else { Some(port.listen()?) };
        let task = tokio::spawn(shared.clone().serve(port, listener, restarted));
        Ok(Self { address, shared, task })
    }

    /// The URL that a client dials.
    pub fn url(&self, tls: Tls) -> String {
        let scheme = if tls == Tls::Plaintext { "http" } else { "https" };
        format!("{scheme}://{}", self.address)
    }

    /// The calls so far, in the order of their arrival.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().clone()
    }

    /// Number of connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Number of PING frames of clients so far on connections that were quiet, those that are answers excepted.
    pub fn pings(&self) -> usize {
        self.shared.pings.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.close_all();
    }
}

impl Shared {
    /// Accepts connections. Without a listener they are refused.
    async fn serve(
        self: Arc<Self>,
        port: Port,
        mut listener: Option<TcpListener>,
        mut restarts: mpsc::UnboundedReceiver<Duration>,
    ) {
        loop {
            tokio::select! {
                accepted = accept(listener.as_ref()) => {
                    let Ok((stream, _)) = accepted else { continue };
                    let number = self.connections.fetch_add(1, Ordering::Relaxed);
                    let opening = self.openings.lock().pop_front().unwrap_or(Opening::Serve);
                    tokio::spawn(connection::run(self.clone(), stream, number, opening));
                }
                Some(pause) = restarts.recv() => {
                    drop(listener.take());
                    self.close_all();
                    tokio::time::sleep(pause).await;
                    listener = port.listen().ok();
                }
            }
        }
    }

    fn close_all(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }

    fn next_answer(&self, call: &Seen) -> Answer {
        if let Some(found) = self.matching.iter().find(|entry| entry.is_for(call)) {
            return found.answer.clone();
        }
        self.answers
            .lock()
            .pop_front()
            .unwrap_or_else(|| self.otherwise.clone())
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => pending().await,
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("seen", &self.seen.lock().len())
            .finish_non_exhaustive()
    }
}

impl Match {
    fn is_for(&self, call: &Seen) -> bool {
        if !self.header.is_empty() {
            return call.headers.get(&self.header) == Some(&self.value);
        }
        let request = proto_json::method(call.method()).and_then(|it| proto_json::decode_as(it.input(), &call.message));
        request.is_ok_and(|request| request["pageToken"] == self.page.as_str())
    }
}

impl Seen {
    /// The name of the method.
    pub fn method(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The call as text for reports.
    pub fn report(&self) -> Value {
        json!({
            "path": self.path, "headers": self.headers, "atMs": self.at.as_millis(), "connection": self.connection,
            "reset": self.reset, "bytes": self.message.len(),
        })
    }
}
