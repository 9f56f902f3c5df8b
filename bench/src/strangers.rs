//! `bindery-bench strangers`: they attack the port of the server from many addresses, each with as many connections as fill the port
//! together: they begin a handshake and do not end it, call nothing, send a request byte by byte, or hold open streams that need no token.
//!
//! They are a program of their own, so that they can run at a priority of their own. It says that it is ready when each connection was
//! opened once, and ends when its standard input does.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use bindery_runtime::descriptors;
use http::Uri;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{h2_frames, input, output};

/// How many connections each address has of each kind: 8,192 of 64 addresses.
const KINDS: [(StrangerKind, usize); 4] = [
    (StrangerKind::SlowHandshake, 96),
    (StrangerKind::Idle, 12),
    (StrangerKind::SlowRequest, 10),
    (StrangerKind::OpenStreams, 10),
];
/// Streams on one connection.
const STREAMS: u32 = 16;
/// Pause between two bytes of what is sent slowly.
const BYTE_PAUSE: Duration = Duration::from_secs(1);
/// Pause before a connection that ended is opened again.
const AGAIN: Duration = Duration::from_millis(500);
/// Time limit for the strangers to open all connections for the first time.
const OPENED_WITHIN: Duration = Duration::from_mins(1);

const WATCH: &str = "/grpc.health.v1.Health/Watch";
const GET_PROVIDER: &str = "/kubebind.v1alpha2.ProviderService/GetProvider";

/// Flags of `bindery-bench strangers`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// URL of the server.
    #[arg(long)]
    server: String,
    /// CA of the server's certificate, PEM.
    #[arg(long)]
    ca: PathBuf,
    /// From how many addresses of loopback they attack.
    #[arg(long)]
    addresses: u8,
}

/// What is attacked, and how often a connection to it was opened.
struct Target {
    address: SocketAddr,
    name: ServerName<'static>,
    tls: TlsConnector,
    opened: AtomicUsize,
}

/// What a stranger does with its connection.
#[derive(Clone, Copy, Debug)]
enum StrangerKind {
    SlowHandshake,
    Idle,
    SlowRequest,
    OpenStreams,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    descriptors::raise().context("cannot raise the limit of open files")?;
    let target = Arc::new(Target::new(&args.server, &fs::read(&args.ca).context("--ca")?)?);
    let mut tasks = JoinSet::new();
    for number in 0..args.addresses {
        let from = Ipv4Addr::new(127, 0, 0, number.saturating_add(2));
        for (kind, count) in KINDS {
            for _ in 0..count {
                tasks.spawn(Arc::clone(&target).attack(kind, from));
            }
        }
    }
    let opened = timeout(OPENED_WITHIN, target.is_opened(tasks.len())).await;
    opened.context("they did not open their connections in time")?;
    output::line(&json!({"ready": true}))?;
    let mut lines = input::lines();
    while lines.recv().await.is_some() {}
    output::line(&json!({"opened": target.opened.load(Ordering::Relaxed)}))
}

// === impl Target ===

impl Target {
    fn new(server: &str, ca: &[u8]) -> Result<Self> {
        let url: Uri = server.parse().context("--server")?;
        let host = url.host().context("--server names no host")?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca) {
            roots.add(certificate.context("--ca")?)?;
        }
        let mut tls = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self {
            address: SocketAddr::new(
                host.parse().context("the host is no address")?,
                url.port_u16().unwrap_or(443),
            ),
            name: ServerName::try_from(host.to_owned())?,
            tls: TlsConnector::from(Arc::new(tls)),
            opened: AtomicUsize::new(0),
        })
    }

    /// Waits until the strangers have opened this number of connections, counted over all kinds.
    async fn is_opened(&self, connections: usize) {
        while self.opened.load(Ordering::Relaxed) < connections {
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Opens a connection, and the next one when it ends, for ever.
    async fn attack(self: Arc<Self>, kind: StrangerKind, from: Ipv4Addr) {
        loop {
            // That the server ends it, in whatever way, is what an attack has to expect.
            let _ = self.once(kind, from).await;
            sleep(AGAIN).await;
        }
    }

    async fn once(&self, kind: StrangerKind, from: Ipv4Addr) -> Result<()> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        let stream = socket.connect(self.address).await?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        match kind {
            // The begin of a record with a ClientHello of 512 bytes.
            StrangerKind::SlowHandshake => trickle(stream, &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).await,
            StrangerKind::Idle => {
                let mut stream = self.encrypted(stream).await?;
                stream.write_all(h2_frames::PREFACE).await?;
                until_closed(&mut stream).await
            }
            StrangerKind::SlowRequest => {
                let mut stream = self.encrypted(stream).await?;
                stream.write_all(h2_frames::PREFACE).await?;
                stream.write_all(&h2_frames::headers(1, GET_PROVIDER)).await?;
                // A message of 60 KiB, which never comes.
                stream
                    .write_all(&h2_frames::data(1, &[0, 0, 0, 0xf0, 0], false))
                    .await?;
                trickle(stream, &h2_frames::data(1, &[0; 100], false)).await
            }
            StrangerKind::OpenStreams => {
                let mut stream = self.encrypted(stream).await?;
                stream.write_all(h2_frames::PREFACE).await?;
                for id in (0..STREAMS).map(|number| 2 * number + 1) {
                    stream.write_all(&h2_frames::headers(id, WATCH)).await?;
                    // An empty message.
                    stream.write_all(&h2_frames::data(id, &[0; 5], true)).await?;
                }
                until_closed(&mut stream).await
            }
        }
    }

    async fn encrypted(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>> {
        Ok(self.tls.connect(self.name.clone(), stream).await?)
    }
}

/// Sends byte by byte, and then nothing, until the server closes the connection.
async fn trickle(stream: impl AsyncRead + AsyncWrite, bytes: &[u8]) -> Result<()> {
    let (mut reader, mut writer) = split(stream);
    let sending = async {
        for byte in bytes {
            writer.write_all(&[*byte]).await?;
            writer.flush().await?;
            sleep(BYTE_PAUSE).await;
        }
        std::future::pending::<Result<()>>().await
    };
    tokio::select! {
        sent = sending => sent,
        closed = until_closed(&mut reader) => closed,
    }
}

/// Reads until the server closes the connection.
async fn until_closed(stream: &mut (impl AsyncRead + Unpin)) -> Result<()> {
    let mut buffer = [0; 1024];
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}
