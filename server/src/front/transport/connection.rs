//! An accepted connection, with or without TLS, and the address of its peer.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::front::transport::places::Place;

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

    /// The peer that a request came from, as the task of its connection attaches it.
    pub(crate) fn of(request: &http::Extensions) -> Option<Self> {
        request.get::<Self>().copied()
    }

    /// The network of the peer that a request came from.
    pub(crate) fn network_of(request: &http::Extensions) -> IpAddr {
        Self::of(request).map_or_else(|| Ipv4Addr::UNSPECIFIED.into(), Self::network)
    }
}

/// A stream of bytes in both directions.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// An accepted connection.
pub struct Connection {
    stream: Pin<Box<dyn Duplex>>,
    peer: Peer,
    place: Option<Arc<Place>>,
}

impl Connection {
    /// A connection from `peer` that is ready for HTTP, and takes no place on a port.
    pub fn new(stream: impl AsyncRead + AsyncWrite + Send + 'static, peer: Peer) -> Self {
        Self {
            stream: Box::pin(stream),
            peer,
            place: None,
        }
    }

    /// The connection with its place on the port, which is given back when the connection and its calls have ended.
    pub(crate) fn at(self, place: Arc<Place>) -> Self {
        Self {
            place: Some(place),
            ..self
        }
    }

    /// The stream, the peer and the place.
    pub(crate) fn into_parts(self) -> (Pin<Box<dyn Duplex>>, Peer, Option<Arc<Place>>) {
        (self.stream, self.peer, self.place)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
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
