//! Forwards connections between the networks of Pods and that of this machine. Everything listens on loopback.

use std::{net, time::Duration};

use anyhow::Result;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::sleep,
};

/// The pause after a connection that could not be accepted.
const RETRY: Duration = Duration::from_millis(100);

/// Forwards connections until it is dropped, which closes them.
#[derive(Debug)]
pub(crate) struct Forward {
    accepting: JoinHandle<()>,
}

impl Forward {
    /// Forwards each connection that `listener` accepts over one that `connect` opens for it. If that fails, the accepted
    /// connection is closed.
    pub(crate) fn start<C>(listener: net::TcpListener, connect: impl Fn() -> C + Send + 'static) -> Result<Self>
    where
        C: Future<Output = Result<TcpStream>> + Send + 'static,
    {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let accepting = tokio::spawn(async move {
            let mut relays = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        match accepted {
                            Ok((client, _)) => {
                                relays.spawn(relay(client, connect()));
                            }
                            // Such as too many open files, or a client that has gone already.
                            Err(_) => sleep(RETRY).await,
                        }
                    }
                    Some(_) = relays.join_next() => {}
                }
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

/// Copies both ways until both sides have closed.
async fn relay(mut client: TcpStream, server: impl Future<Output = Result<TcpStream>>) -> Result<()> {
    let mut server = server.await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
