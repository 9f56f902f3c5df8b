//! The port of a scripted server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// As long as the system queues connections that the server did not accept yet.
const BACKLOG: u32 = 1024;

/// A port of loopback that no other process gets while this value lives, whether the server listens or not.
///
/// The socket is bound and never listens, so connections are refused unless a listener of [`Port::listen`] is there.
#[derive(Debug)]
pub(super) struct Port {
    _held: TcpSocket,
    address: SocketAddr,
}

impl Port {
    /// Takes a free port.
    pub(super) fn take() -> io::Result<Self> {
        let held = bound(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = held.local_addr()?;
        Ok(Self { _held: held, address })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens on the port. It fails while another listener of it lives.
    pub(super) fn listen(&self) -> io::Result<TcpListener> {
        bound(self.address)?.listen(BACKLOG)
    }
}

/// A socket with this address, which it shares with sockets that do not listen.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn a_port_without_a_listener_refuses_connections_and_stays_taken() {
        let port = Port::take().unwrap();
        let refused = async || TcpStream::connect(port.address()).await.unwrap_err().kind();
        assert_eq!(refused().await, io::ErrorKind::ConnectionRefused);
        for _ in 0..2 {
            let listener = port.listen().unwrap();
            TcpStream::connect(port.address()).await.unwrap();
            assert_eq!(port.listen().unwrap_err().kind(), io::ErrorKind::AddrInUse);
            drop(listener);
            assert_eq!(refused().await, io::ErrorKind::ConnectionRefused);
        }
    }
}
