//! Forwards connections between the networks of containers and that of this machine. Everything listens on loopback.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use tokio::{io::copy_bidirectional, task::JoinHandle};

use crate::NetworkNamespace;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A network in which an address means something: that of a container, or, if `None`, that of this machine.
pub(crate) type Network = Option<Arc<NetworkNamespace>>;

/// Forwards connections until it is dropped.
#[derive(Debug)]
pub(crate) struct Forward {
    accepting: JoinHandle<()>,
}

impl Forward {
    /// Listens at `from` in the network of a container, and connects to `to` in another network for each connection.
    pub(crate) fn start(inside: &NetworkNamespace, from: SocketAddr, outside: Network, to: SocketAddr) -> Result<Self> {
        let listener = inside
            .run(move || Ok(TcpListener::bind(from)?))
            .with_context(|| format!("cannot listen at {from} in the network of a container"))?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, outside.clone(), to));
            }
        });
        Ok(Self { accepting })
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Connects to an address in a network.
pub(crate) async fn connect(network: Network, address: SocketAddr) -> Result<tokio::net::TcpStream> {
    let Some(network) = network else {
        return Ok(tokio::net::TcpStream::connect(address).await?);
    };
    let connect = move || network.run(move || Ok(TcpStream::connect_timeout(&address, CONNECT_LIMIT)?));
    let stream = tokio::task::spawn_blocking(connect).await??;
    stream.set_nonblocking(true)?;
    Ok(tokio::net::TcpStream::from_std(stream)?)
}

/// Copies both ways. A target that does not answer closes the connection, as a refused connection would.
async fn relay(mut client: tokio::net::TcpStream, network: Network, to: SocketAddr) -> Result<()> {
    let mut server = connect(network, to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
