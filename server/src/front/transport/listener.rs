//! The port of the gRPC server, which speaks TLS unless it is plaintext on loopback.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures::Stream;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::{
    front::{
        limits::Permits,
        transport::connection::{Connection, ConnectionPermits, Peer},
    },
    tls::PortTls,
};

/// The connection of a client that does not finish its TLS handshake within this time is closed.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Handshakes at the same time. Each costs a signature.
const HANDSHAKES_MAX: usize = 256;
/// Connections at the same time. Further ones wait in the kernel.
const CONNECTIONS_MAX: usize = 16_384;
/// How long, and how much, is read of a client whose handshake failed.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 64 * 1024;
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// A bound port, on which no connection has been accepted yet.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    tls: Option<PortTls>,
    peers: Permits<IpAddr>,
}

/// Why the server cannot accept connections.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is in use, or is none of this host.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

impl Listener {
    /// Binds the port. Without TLS it is plaintext, which [`crate::args`] allows on loopback only. Each peer may have
    /// `connections_per_peer` connections; further ones are closed at once.
    pub async fn bind(
        address: SocketAddr,
        tls: Option<PortTls>,
        connections_per_peer: usize,
    ) -> Result<Self, ListenError> {
        let tcp = TcpListener::bind(address)
            .await
            .map_err(|source| ListenError::Bind { address, source })?;
        Ok(Self {
            tcp,
            tls,
            peers: Permits::new(connections_per_peer),
        })
    }

    /// The address that was bound.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Accepts connections until `stop` is cancelled.
    pub fn connections(self, stop: CancellationToken) -> impl Stream<Item = io::Result<Connection>> {
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(async move {
            stop.run_until_cancelled(accept(self.tcp, self.tls, self.peers, sender))
                .await;
        });
        ReceiverStream::new(receiver)
    }
}

async fn accept(
    tcp: TcpListener,
    tls: Option<PortTls>,
    peers: Permits<IpAddr>,
    sender: mpsc::Sender<io::Result<Connection>>,
) {
    let all = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    loop {
        // Neither semaphore is ever closed.
        let Ok(permit) = Arc::clone(&all).acquire_owned().await else {
            return;
        };
        let (stream, peer) = match tcp.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Most likely the process has no descriptor left until other connections end.
                tracing::warn!(%error, "cannot accept a connection");
                sleep(PAUSE_AFTER_ERROR).await;
                continue;
            }
        };
        let peer = Peer(peer);
        let Some(of_peer) = peers.try_acquire(peer.network()) else {
            tracing::debug!(peer = %peer.0, "connection closed: the peer has as many connections as it may");
            continue;
        };
        let permits = ConnectionPermits {
            _of_all: permit,
            _of_peer: of_peer,
        };
        // Without Nagle's algorithm, small messages are sent at once.
        let _ = stream.set_nodelay(true);
        let Some(config) = tls.as_ref().map(PortTls::config) else {
            if sender.send(Ok(Connection::new(stream, peer, permits))).await.is_err() {
                return;
            }
            continue;
        };
        let Ok(handshake) = Arc::clone(&handshakes).acquire_owned().await else {
            return;
        };
        let sender = sender.clone();
        tokio::spawn(async move {
            if let Some(stream) = encrypted(config.into(), stream).await {
                let _ = sender.send(Ok(Connection::new(stream, peer, permits))).await;
            }
            drop(handshake);
        });
    }
}

async fn encrypted(acceptor: TlsAcceptor, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
    match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream).into_fallible()).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err((error, stream))) => {
            tracing::debug!(%error, "a TLS handshake failed");
            let _ = timeout(LINGER, linger(stream)).await;
            None
        }
        Err(_) => None,
    }
}

/// Reads what the client has sent meanwhile: if a socket is closed with unread bytes, the client may not receive the alert that
/// says why, such as that it needs a certificate.
async fn linger(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    tokio::io::copy(&mut stream.take(LINGER_BYTES), &mut tokio::io::sink()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use rustls::{
        ClientConfig, RootCertStore,
        pki_types::{PrivateKeyDer, ServerName},
    };
    use tokio_rustls::TlsConnector;
    use tonic::transport::server::Connected as _;

    use super::*;
    use crate::tls::ServingCertificate;

    async fn listen(tls: Option<PortTls>) -> (SocketAddr, impl Stream<Item = io::Result<Connection>>) {
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address"), tls, 2)
            .await
            .expect("a port");
        let address = listener.address().expect("an address");
        (address, listener.connections(CancellationToken::new()))
    }

    #[tokio::test]
    async fn plaintext_comes_through_with_its_peer() {
        let (address, mut connections) = listen(None).await;
        let mut client = TcpStream::connect(address).await.expect("a connection");
        let mut server = connections.next().await.expect("a connection").expect("no error");
        assert_eq!(server.connect_info().0, client.local_addr().expect("an address"));
        client.write_all(b"hello").await.expect("written");
        let mut bytes = [0; 5];
        server.read_exact(&mut bytes).await.expect("read");
        assert_eq!(&bytes, b"hello");
    }

    #[tokio::test]
    async fn a_peer_has_so_many_connections_and_no_more() {
        let (address, mut connections) = listen(None).await;
        let connect = async || TcpStream::connect(address).await.expect("a connection");
        let (first, second) = (connect().await, connect().await);
        let accepted = (connections.next().await, connections.next().await);
        let mut third = connect().await;
        assert_eq!(third.read(&mut [0; 1]).await.expect("an end"), 0, "closed at once");
        // Another address has its own, and one that ends makes room.
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.2:0".parse().expect("an address")).expect("a port");
        let other = socket.connect(address).await.expect("a connection");
        let served = connections.next().await.expect("a connection").expect("no error");
        assert_eq!(served.connect_info().0, other.local_addr().expect("an address"));
        drop(accepted);
        let fourth = connect().await;
        let served = connections.next().await.expect("a connection").expect("no error");
        assert_eq!(served.connect_info().0, fourth.local_addr().expect("an address"));
        drop((first, second));
    }

    #[tokio::test]
    async fn a_client_that_sends_nothing_delays_no_other_handshake() {
        let issued = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        let serving = Arc::new(ServingCertificate::default());
        let key = PrivateKeyDer::try_from(issued.signing_key.serialize_der()).expect("a key");
        let set = serving.set(vec![issued.cert.der().clone()], key, jiff::Timestamp::MAX);
        set.expect("a certificate");
        let tls = PortTls::new(&serving).expect("TLS");
        let (address, mut connections) = listen(Some(tls)).await;
        let _silent = TcpStream::connect(address).await.expect("a connection");

        let mut roots = RootCertStore::empty();
        roots.add(issued.cert.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TcpStream::connect(address).await.expect("a connection");
        let name = ServerName::try_from("localhost").expect("a name");
        let client = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .expect("a handshake");
        assert_eq!(client.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
        let server = connections.next().await.expect("a connection").expect("no error");
        assert_eq!(
            server.connect_info().0,
            client.get_ref().0.local_addr().expect("an address")
        );
    }
}
