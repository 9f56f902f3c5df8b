//! An accepted connection, with or without TLS, and the address of its peer.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::OwnedSemaphorePermit,
    time::{Sleep, sleep},
};
use tonic::transport::server::Connected;

use crate::front::limits::Permit;

/// The address of the client's end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

impl Peer {
    /// The address by which peers are counted. A host with an IPv6 address has a whole /64 network to call from.
    pub(crate) fn network(self) -> IpAddr {
        match self.0.ip().to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
            address @ IpAddr::V4(_) => address,
        }
    }

    /// The peer that a request came from, as tonic attaches it.
    pub(crate) fn of(request: &http::Extensions) -> Option<Self> {
        request.get::<Self>().copied()
    }

    /// The network of the peer that a request came from.
    pub(crate) fn network_of(request: &http::Extensions) -> IpAddr {
        Self::of(request).map_or_else(|| Ipv4Addr::UNSPECIFIED.into(), Self::network)
    }
}

/// A stream of bytes in both directions.
trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// The first bytes of a client, by which HTTP/2 is told from HTTP/1.1, must come within this time. Until then no protocol with a
/// limit of its own is at work.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(10);
/// How many bytes that are: those of the preface of HTTP/2. Every request of HTTP/1.1 has more.
const FIRST_BYTES: usize = 24;

/// An accepted connection. Its permits are given back on drop.
pub struct Connection {
    stream: Pin<Box<dyn Duplex>>,
    /// None once they were read.
    awaited: Option<FirstBytes>,
    peer: Peer,
    _permits: ConnectionPermits,
}

/// The permits that a connection holds: one of all connections, and one of those of its peer.
pub(crate) struct ConnectionPermits {
    pub(crate) _of_all: OwnedSemaphorePermit,
    pub(crate) _of_peer: Permit<IpAddr>,
}

impl Connection {
    /// A connection from `peer` that is ready for HTTP.
    pub(crate) fn new(
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        peer: Peer,
        permits: ConnectionPermits,
    ) -> Self {
        Self {
            stream: Box::pin(stream),
            awaited: Some(FirstBytes {
                missing: FIRST_BYTES,
                until: Box::pin(sleep(FIRST_BYTES_TIMEOUT)),
            }),
            peer,
            _permits: permits,
        }
    }
}

/// The first bytes of a connection, and when they must have come.
struct FirstBytes {
    missing: usize,
    until: Pin<Box<Sleep>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = self.stream.as_mut().poll_read(cx, buffer);
        if let Some(awaited) = &mut self.awaited {
            if read.is_pending() {
                let elapsed = awaited.until.as_mut().poll(cx);
                return elapsed.map(|()| Err(io::ErrorKind::TimedOut.into()));
            }
            awaited.missing = awaited.missing.saturating_sub(buffer.filled().len() - before);
            if awaited.missing == 0 {
                self.awaited = None;
            }
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
        sync::Semaphore,
        time::Instant,
    };

    use super::*;
    use crate::front::limits::Permits;

    fn connection(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Connection {
        let peer = Peer(([192, 0, 2, 7], 1).into());
        let permits = ConnectionPermits {
            _of_all: Arc::new(Semaphore::new(1)).try_acquire_owned().expect("a permit"),
            _of_peer: Permits::new(1).try_acquire(peer.network()).expect("a permit"),
        };
        Connection::new(stream, peer, permits)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_begin_is_cut_off() {
        let (mut client, server) = duplex(64);
        let mut connection = connection(server);
        let begin = Instant::now();
        let trickle = tokio::spawn(async move {
            for byte in b"PRI * HTTP/2.0" {
                client.write_all(&[*byte]).await.expect("sent");
                sleep(Duration::from_secs(1)).await;
            }
            std::future::pending::<()>().await;
        });
        let mut read = Vec::new();
        let error = connection.read_to_end(&mut read).await.expect_err("an end");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begin.elapsed().as_secs(), FIRST_BYTES_TIMEOUT.as_secs());
        trickle.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_begun_may_be_silent() {
        let (mut client, server) = duplex(64);
        let mut connection = connection(server);
        client.write_all(&[b'a'; FIRST_BYTES]).await.expect("sent");
        let mut read = [0; FIRST_BYTES];
        connection.read_exact(&mut read).await.expect("the first bytes");
        sleep(FIRST_BYTES_TIMEOUT * 10).await;
        client.write_all(b"b").await.expect("sent");
        assert_eq!(connection.read_u8().await.expect("a byte"), b'b');
    }

    #[test]
    fn a_host_of_ipv6_is_counted_by_its_network() {
        let network = |address: &str| {
            let address: IpAddr = address.parse().expect("an address");
            Peer((address, 1).into()).network().to_string()
        };
        assert_eq!(network("192.0.2.7"), "192.0.2.7");
        assert_eq!(network("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(network("2001:db8:1:2::9"), "2001:db8:1:2::");
        assert_eq!(network("2001:db8:1:3::1"), "2001:db8:1:3::");
    }
}
