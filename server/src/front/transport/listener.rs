//! The port of the gRPC server, which speaks TLS unless it is plaintext on loopback.

use std::{io, net::SocketAddr, sync::Arc, thread, time::Duration};

use futures::Stream;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Handle},
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::{
    front::transport::{
        connection::{Connection, Peer},
        metrics::Metrics,
        places::{ConnectionEnd, Place, Places},
    },
    settings::ConnectionLimits,
    tls::PortTls,
};

/// How long, and how much, is read of a client whose handshake failed.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 64 * 1024;
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// A bound port, on which no connection has been accepted yet.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    port: Port,
}

/// What makes an accepted connection ready for HTTP.
#[derive(Clone, Debug)]
struct Port {
    tls: Option<PortTls>,
    handshake: Duration,
    places: Places,
    metrics: Metrics,
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
    /// There is no thread for it.
    #[error("cannot accept connections: {0}")]
    Thread(#[source] io::Error),
}

impl Listener {
    /// Binds the port. Without TLS it is plaintext, which [`crate::args`] allows on loopback only.
    pub async fn bind(
        address: SocketAddr,
        tls: Option<PortTls>,
        limits: ConnectionLimits,
        metrics: Metrics,
    ) -> Result<Self, ListenError> {
        let tcp = TcpListener::bind(address)
            .await
            .map_err(|source| ListenError::Bind { address, source })?;
        let port = Port {
            tls,
            handshake: limits.handshake,
            places: Places::new(limits),
            metrics,
        };
        Ok(Self { tcp, port })
    }

    /// The address that was bound.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Accepts connections until `stop` is cancelled, in a thread of its own: where clients come faster than the runtime gets to them, the
    /// system would drop what they send to begin, and each of them would try again after a second at the earliest.
    pub fn connections(self, stop: CancellationToken) -> Result<impl Stream<Item = Connection>, ListenError> {
        let (sender, receiver) = mpsc::channel(16);
        self.start(sender, stop).map_err(ListenError::Thread)?;
        Ok(ReceiverStream::new(receiver))
    }

    fn start(self, sender: mpsc::Sender<Connection>, stop: CancellationToken) -> io::Result<()> {
        let workers = Handle::current();
        let accepting = Builder::new_current_thread().enable_io().enable_time().build()?;
        let tcp = {
            let _entered = accepting.enter();
            TcpListener::from_std(self.tcp.into_std()?)?
        };
        let accept = accept(tcp, self.port, sender, workers);
        let thread = thread::Builder::new().name("accept".to_owned());
        thread.spawn(move || accepting.block_on(stop.run_until_cancelled(accept)))?;
        Ok(())
    }
}

/// Accepts connections, and waits for no client: all else happens in a task of `workers` for each of them.
async fn accept(tcp: TcpListener, port: Port, sender: mpsc::Sender<Connection>, workers: Handle) {
    loop {
        // A stream belongs to the runtime that it was made in.
        let accepted = tcp.accept().await;
        let accepted = accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer)));
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Most likely the process has no descriptor left until other connections end.
                tracing::warn!(%error, "cannot accept a connection");
                sleep(PAUSE_AFTER_ERROR).await;
                continue;
            }
        };
        let peer = Peer(peer);
        let place = match port.places.admit(peer.network()) {
            Ok(place) => Arc::new(place),
            Err(end) => {
                port.metrics.connection_end(end);
                tracing::debug!(peer = %peer.0, end = end.label(), "connection refused");
                continue;
            }
        };
        let (port, sender) = (port.clone(), sender.clone());
        workers.spawn(async move {
            let stream = match TcpStream::from_std(stream) {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot serve a connection");
                    return;
                }
            };
            if let Some(connection) = port.ready(stream, peer, place).await {
                // Without a receiver the server ends.
                let _ = sender.send(connection).await;
            }
        });
    }
}

impl Port {
    /// Completes the handshake; none if the client does not.
    async fn ready(&self, stream: TcpStream, peer: Peer, place: Arc<Place>) -> Option<Connection> {
        // Without Nagle's algorithm, small messages are sent at once.
        let _ = stream.set_nodelay(true);
        let Some(config) = self.tls.as_ref().map(PortTls::config) else {
            return Some(Connection::new(stream, peer).at(place));
        };
        let end = tokio::select! {
            biased;
            end = place.closed() => end,
            encrypted = timeout(self.handshake, encrypted(config.into(), stream)) => match encrypted {
                Ok(stream) => return stream.map(|stream| Connection::new(stream, peer).at(place)),
                Err(_) => ConnectionEnd::Handshake,
            },
        };
        self.metrics.connection_end(end);
        tracing::debug!(peer = %peer.0, end = end.label(), "connection ends");
        None
    }
}

async fn encrypted(acceptor: TlsAcceptor, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
    match acceptor.accept(stream).into_fallible().await {
        Ok(stream) => Some(stream),
        Err((error, stream)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            let _ = timeout(LINGER, linger(stream)).await;
            None
        }
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
    use bindery_runtime::telemetry;
    use futures::StreamExt as _;
    use rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName},
    };
    use tokio::net::TcpSocket;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::tls::ServingCertificate;

    fn limits(all: usize, per_peer: usize) -> ConnectionLimits {
        ConnectionLimits {
            all,
            per_peer,
            ..crate::settings::tests::settings().connections
        }
    }

    async fn listen(tls: Option<PortTls>, limits: ConnectionLimits) -> (SocketAddr, impl Stream<Item = Connection>) {
        let metrics = Metrics::new(&mut telemetry::registry());
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address"), tls, limits, metrics)
            .await
            .expect("a port");
        let address = listener.address().expect("an address");
        let connections = listener.connections(CancellationToken::new()).expect("a thread");
        (address, connections)
    }

    /// Connects from an address of loopback.
    async fn connect(from: [u8; 4], to: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((from, 0).into()).expect("a port");
        socket.connect(to).await.expect("a connection")
    }

    async fn is_closed(client: &mut TcpStream) -> bool {
        // A reset is an end as well.
        client.read(&mut [0; 1]).await.is_ok_and(|read| read == 0)
    }

    fn tls() -> (PortTls, CertificateDer<'static>) {
        let issued = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        let serving = Arc::new(ServingCertificate::default());
        let key = PrivateKeyDer::try_from(issued.signing_key.serialize_der()).expect("a key");
        let set = serving.set(vec![issued.cert.der().clone()], key, jiff::Timestamp::MAX);
        set.expect("a certificate");
        (PortTls::new(&serving).expect("TLS"), issued.cert.der().clone())
    }

    async fn handshake(stream: TcpStream, root: CertificateDer<'static>) -> tokio_rustls::client::TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(root).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from("localhost").expect("a name");
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await.expect("a handshake")
    }

    #[tokio::test]
    async fn plaintext_comes_through_with_its_peer() {
        let (address, mut connections) = listen(None, limits(8, 8)).await;
        let mut client = TcpStream::connect(address).await.expect("a connection");
        let (mut server, peer, _place) = connections.next().await.expect("a connection").into_parts();
        assert_eq!(peer.0, client.local_addr().expect("an address"));
        client.write_all(b"hello").await.expect("written");
        let mut bytes = [0; 5];
        server.read_exact(&mut bytes).await.expect("read");
        assert_eq!(&bytes, b"hello");
    }

    #[tokio::test]
    async fn a_peer_has_so_many_connections_and_no_more() {
        let (address, mut connections) = listen(None, limits(100, 2)).await;
        let mut accept = async |from: [u8; 4]| {
            let client = connect(from, address).await;
            let (_, peer, place) = connections.next().await.expect("a connection").into_parts();
            assert_eq!(peer.0, client.local_addr().expect("an address"));
            (client, place.expect("a place"))
        };
        let one = [127, 0, 0, 1];
        let (first, second) = (accept(one).await, accept(one).await);
        first.1.authenticated();
        second.1.authenticated();
        let mut third = connect(one, address).await;
        assert!(is_closed(&mut third).await, "closed at once");
        // Another address has its own, and one that ends makes room.
        accept([127, 0, 0, 2]).await;
        drop(first);
        accept(one).await;
    }

    #[tokio::test]
    async fn strangers_keep_no_known_client_out() {
        let (address, mut connections) = listen(None, limits(8, 8)).await;
        let mut known = connect([127, 0, 0, 9], address).await;
        let (_stream, _, place) = connections.next().await.expect("a connection").into_parts();
        let place = place.expect("a place");
        place.authenticated();
        let mut strangers = Vec::new();
        for number in 0..40 {
            strangers.push(connect([127, 0, 1, number % 4], address).await);
            strangers.push(connect([127, 0, 2, number], address).await);
        }
        let accepted: Vec<_> = (&mut connections).take(80).collect().await;
        let open = accepted.into_iter().filter_map(|connection| connection.into_parts().2);
        let open = open.filter(|place| futures::FutureExt::now_or_never(place.closed()).is_none());
        assert_eq!(open.count(), 4, "half of the places");
        assert_eq!(futures::FutureExt::now_or_never(place.closed()), None);
        // A client that returns gets a place before it has proved who it is.
        let again = connect([127, 0, 0, 9], address).await;
        let (_, peer, _place) = connections.next().await.expect("a connection").into_parts();
        assert_eq!(peer.0, again.local_addr().expect("an address"));
        known.write_all(b"still here").await.expect("written");
    }

    #[tokio::test]
    async fn clients_that_send_nothing_delay_no_other_handshake() {
        let (tls, root) = tls();
        let (address, mut connections) = listen(Some(tls), limits(2_000, 2_000)).await;
        let mut silent = Vec::new();
        for _ in 0..600 {
            silent.push(TcpStream::connect(address).await.expect("a connection"));
        }
        let stream = TcpStream::connect(address).await.expect("a connection");
        let client = handshake(stream, root).await;
        assert_eq!(client.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
        let (_, peer, _place) = connections.next().await.expect("a connection").into_parts();
        assert_eq!(peer.0, client.get_ref().0.local_addr().expect("an address"));
    }

    #[tokio::test]
    async fn a_handshake_ends_in_time_or_when_its_place_is_taken() {
        let (tls, root) = tls();
        let slow = ConnectionLimits {
            handshake: Duration::from_millis(100),
            ..limits(8, 8)
        };
        let (address, _connections) = listen(Some(tls.clone()), slow).await;
        assert!(is_closed(&mut connect([127, 0, 0, 1], address).await).await, "too slow");

        let patient = ConnectionLimits {
            handshake: Duration::from_hours(1),
            ..limits(2, 2)
        };
        let (address, mut connections) = listen(Some(tls), patient).await;
        let mut silent = connect([127, 0, 0, 1], address).await;
        let client = handshake(connect([127, 0, 0, 2], address).await, root).await;
        assert!(is_closed(&mut silent).await, "displaced");
        let (_, peer, _place) = connections.next().await.expect("a connection").into_parts();
        assert_eq!(peer.0, client.get_ref().0.local_addr().expect("an address"));
    }
}
