//! An accepted connection, with or without TLS, and the address of its peer.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::OwnedSemaphorePermit,
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

/// An accepted connection. Its permits are given back on drop.
pub struct Connection {
    stream: Pin<Box<dyn Duplex>>,
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
            peer,
            _permits: permits,
        }
    }
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
        self.stream.as_mut().poll_read(cx, buffer)
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
    use super::*;

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
