//! Where connections come from: a port, and, unless it is plaintext on loopback, TLS.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use futures::Stream;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use super::{connection::Connection, tls::Certificate};

/// A client that does not finish its handshake within this time is let go.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Handshakes at the same time: each costs a signature.
const HANDSHAKES_MAX: usize = 256;
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// A bound port.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    certificate: Option<Arc<Certificate>>,
}

/// Why no connection can be accepted.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is taken, or not ours.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// No certificate can be served.
    #[error(transparent)]
    Tls(#[from] super::tls::TlsError),
}

impl Listener {
    /// Binds the port. Without a certificate it is plaintext; [`crate::args`] allows that on loopback alone.
    pub async fn bind(address: SocketAddr, certificate: Option<Arc<Certificate>>) -> Result<Self, ListenError> {
        let tcp = TcpListener::bind(address)
            .await
            .map_err(|source| ListenError::Bind { address, source })?;
        Ok(Self { tcp, certificate })
    }

    /// The address that was bound.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Accepts connections until cancelled. A slow handshake holds up no other connection.
    pub fn connections(
        self,
        stop: CancellationToken,
    ) -> Result<impl Stream<Item = io::Result<Connection>>, super::tls::TlsError> {
        let acceptor = match &self.certificate {
            Some(certificate) => Some(TlsAcceptor::from(Arc::new(certificate.server_config()?))),
            None => None,
        };
        let (sender, receiver) = mpsc::channel(16);
        let certificate = self.certificate.clone();
        let end = stop.clone();
        tokio::spawn(async move {
            end.run_until_cancelled(accept(self.tcp, acceptor, sender)).await;
        });
        if let Some(certificate) = certificate {
            tokio::spawn(certificate.follow(stop));
        }
        Ok(ReceiverStream::new(receiver))
    }
}

async fn accept(tcp: TcpListener, acceptor: Option<TlsAcceptor>, sender: mpsc::Sender<io::Result<Connection>>) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    loop {
        let stream = match tcp.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: others must end before more can come.
                tracing::warn!(%error, "cannot accept a connection");
                sleep(PAUSE_AFTER_ERROR).await;
                continue;
            }
        };
        // Small messages must not wait for one another.
        let _ = stream.set_nodelay(true);
        let Some(acceptor) = acceptor.clone() else {
            if sender.send(Ok(Connection::Plain(stream))).await.is_err() {
                return;
            }
            continue;
        };
        let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else {
            return;
        };
        let sender = sender.clone();
        tokio::spawn(async move {
            if let Some(connection) = handshake(acceptor, stream).await {
                let _ = sender.send(Ok(connection)).await;
            }
            drop(permit);
        });
    }
}

async fn handshake(acceptor: TlsAcceptor, stream: TcpStream) -> Option<Connection> {
    match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some(Connection::Tls(Box::new(stream))),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            None
        }
        Err(_) => None,
    }
}
