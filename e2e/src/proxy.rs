//! A TCP proxy that can cut its connections: the network between two processes, with a switch.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use anyhow::{Context, Result};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// A proxy that forwards connections to a server on loopback until they are cut or blocked. It ends on drop.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Arc<watch::Sender<State>>,
    accepting: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// Connections of earlier generations are cut.
    generation: u64,
    blocked: bool,
}

impl Proxy {
    /// Listens on a free loopback port for connections to `target`.
    pub async fn start(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("no free loopback port")?;
        let address = listener.local_addr()?;
        let state = Arc::new(watch::Sender::new(State {
            generation: 0,
            blocked: false,
        }));
        let accepting = tokio::spawn(accept(listener, target, Arc::clone(&state)));
        Ok(Self {
            address,
            state,
            accepting,
        })
    }

    /// The address at which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts all open connections, watches among them; new ones work at once.
    pub fn sever(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// Cuts all open connections and closes new ones until [`Proxy::unblock`].
    pub fn block(&self) {
        self.state.send_modify(|state| {
            state.generation += 1;
            state.blocked = true;
        });
    }

    /// Lets new connections pass again.
    pub fn unblock(&self) {
        self.state.send_modify(|state| state.blocked = false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.sever();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, state: Arc<watch::Sender<State>>) {
    while let Ok((inbound, _)) = listener.accept().await {
        let mut changes = state.subscribe();
        let State { generation, blocked } = *changes.borrow();
        if blocked {
            continue;
        }
        tokio::spawn(async move {
            tokio::select! {
                () = pass(inbound, target) => {}
                _ = changes.wait_for(|state| state.generation != generation) => {}
            }
        });
    }
}

async fn pass(mut inbound: TcpStream, target: SocketAddr) {
    // Either end may fail at any time; to the other it looks like any lost connection.
    if let Ok(mut outbound) = TcpStream::connect(target).await {
        let _ = inbound.set_nodelay(true);
        let _ = outbound.set_nodelay(true);
        let _ = copy_bidirectional(&mut inbound, &mut outbound).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.into_split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        address
    }

    /// Whether a byte comes back.
    async fn works(stream: &mut TcpStream) -> bool {
        let mut byte = [0];
        stream.write_all(b"x").await.is_ok() && matches!(stream.read(&mut byte).await, Ok(1))
    }

    #[tokio::test]
    async fn cuts_and_blocks() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let connect = || TcpStream::connect(proxy.address());
        let mut first = connect().await.unwrap();
        assert!(works(&mut first).await);

        proxy.sever();
        assert!(!works(&mut first).await, "an open connection outlived the cut");
        let mut second = connect().await.unwrap();
        assert!(works(&mut second).await, "a new connection after a cut");

        proxy.block();
        assert!(!works(&mut second).await);
        let mut third = connect().await.unwrap();
        assert!(!works(&mut third).await, "a new connection while blocked");

        proxy.unblock();
        let mut fourth = connect().await.unwrap();
        assert!(works(&mut fourth).await);
    }
}
