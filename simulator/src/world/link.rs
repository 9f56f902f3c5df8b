//! What a process and the world see of each other: an outbox of requests, and both ends of gRPC connections.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bindery_runtime::client::{Transport, TransportBody};
use bindery_server::front::Peer;
use bytes::{Buf as _, Bytes};
use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
};
use tower::BoxError;

use super::process::ProcessId;

/// Hands the answer of a request to the process that sent it.
pub(super) type Reply = oneshot::Sender<Result<Response<TransportBody>, BoxError>>;

/// What a process sent.
pub(super) enum Emission {
    /// A request to an API server.
    Request { request: Box<Request<Bytes>>, reply: Reply },
    /// A connection to the gRPC port of this host.
    Dial {
        host: String,
        reply: oneshot::Sender<io::Result<SimStream>>,
    },
    /// Bytes on a connection.
    Bytes { connection: u64, to: End, bytes: Bytes },
    /// The end of a connection.
    Close { connection: u64, to: End },
}

/// What a process has sent and the world has not taken yet.
#[derive(Default)]
pub(super) struct Outbox(Mutex<Vec<Emission>>);

/// Carries the requests of one process to API servers.
#[derive(Debug)]
pub(super) struct ProcessTransport(pub(super) Arc<Outbox>);

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    /// The end that dialled.
    Client,
    /// The end that accepted.
    Server,
}

/// How a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HowClosed {
    /// In order, after all bytes.
    Orderly,
    /// By the end of a process or a fault of the network.
    Reset,
}

/// A connection to a gRPC port that is being opened.
#[derive(Debug)]
pub(super) struct Connect {
    pub(super) from: ProcessId,
    pub(super) incarnation: u32,
    pub(super) host: String,
    pub(super) reply: oneshot::Sender<io::Result<SimStream>>,
}

/// All open connections by number.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: BTreeMap<u64, Connection>,
    next: u64,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: ProcessId,
    pub(super) server: ProcessId,
    pub(super) provider: u8,
    inboxes: [Arc<Inbox>; 2],
    /// When the last bytes in each direction arrive: bytes keep their order.
    pub(super) last: [Duration; 2],
}

/// Bytes that have arrived at one end and were not read yet.
#[derive(Debug, Default)]
struct Inbox(Mutex<InboxState>);

#[derive(Debug, Default)]
struct InboxState {
    chunks: VecDeque<Bytes>,
    closed: Option<HowClosed>,
    reader: Option<Waker>,
}

/// One end of a connection as a process uses it.
pub(super) struct SimStream {
    connection: u64,
    end: End,
    inbox: Arc<Inbox>,
    outbox: Arc<Outbox>,
    peer: Peer,
    is_shut: bool,
}

// === impl Outbox ===

impl Outbox {
    fn push(&self, emission: Emission) {
        self.0.lock().push(emission);
    }

    /// Takes all that was sent, in order.
    pub(super) fn take(&self) -> Vec<Emission> {
        std::mem::take(&mut self.0.lock())
    }

    /// Dials the gRPC port of a host.
    pub(super) async fn dial(self: Arc<Self>, host: String) -> io::Result<SimStream> {
        let (reply, answer) = oneshot::channel();
        self.push(Emission::Dial { host, reply });
        answer
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::ConnectionReset.into()))
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").finish_non_exhaustive()
    }
}

impl Transport for ProcessTransport {
    fn send(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<TransportBody>, BoxError>> {
        let outbox = Arc::clone(&self.0);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let request = Box::new(Request::from_parts(parts, body));
            let (reply, answer) = oneshot::channel();
            outbox.push(Emission::Request { request, reply });
            answer.await.unwrap_or_else(|_| Err("connection reset by peer".into()))
        }
        .boxed()
    }
}

// === impl End ===

impl End {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    pub(super) fn index(self) -> usize {
        match self {
            Self::Client => 0,
            Self::Server => 1,
        }
    }
}

// === impl Connections ===

impl Connections {
    /// Opens a connection, and returns its ends for client and server.
    pub(super) fn open(
        &mut self,
        (client, client_outbox): (ProcessId, &Arc<Outbox>),
        (server, server_outbox): (ProcessId, &Arc<Outbox>),
        provider: u8,
    ) -> (SimStream, SimStream) {
        let connection = self.next;
        self.next += 1;
        let inboxes: [Arc<Inbox>; 2] = Default::default();
        let stream = |end: End, outbox: &Arc<Outbox>, of: ProcessId| SimStream {
            connection,
            end,
            inbox: Arc::clone(&inboxes[end.index()]),
            outbox: Arc::clone(outbox),
            peer: Peer(([10, 0, 0, u8::try_from(of.0).unwrap_or(u8::MAX)], 50_000).into()),
            is_shut: false,
        };
        let ends = (
            stream(End::Client, client_outbox, server),
            stream(End::Server, server_outbox, client),
        );
        self.open.insert(
            connection,
            Connection {
                client,
                server,
                provider,
                inboxes,
                last: [Duration::ZERO; 2],
            },
        );
        ends
    }

    pub(super) fn get_mut(&mut self, connection: u64) -> Option<&mut Connection> {
        self.open.get_mut(&connection)
    }

    pub(super) fn get(&self, connection: u64) -> Option<&Connection> {
        self.open.get(&connection)
    }

    /// The ends that face a process, with the numbers of their connections.
    pub(super) fn ends_facing(&self, process: ProcessId) -> Vec<(u64, End)> {
        let of = |(number, connection): (&u64, &Connection)| {
            if connection.client == process {
                Some((*number, End::Server))
            } else if connection.server == process {
                Some((*number, End::Client))
            } else {
                None
            }
        };
        self.open.iter().filter_map(of).collect()
    }

    pub(super) fn forget(&mut self, connection: u64) {
        self.open.remove(&connection);
    }
}

impl Connection {
    /// The process at an end.
    pub(super) fn process(&self, end: End) -> ProcessId {
        match end {
            End::Client => self.client,
            End::Server => self.server,
        }
    }

    /// Puts bytes into the inbox of an end.
    pub(super) fn arrive(&self, to: End, bytes: Bytes) {
        let mut inbox = self.inboxes[to.index()].0.lock();
        inbox.chunks.push_back(bytes);
        if let Some(reader) = inbox.reader.take() {
            reader.wake();
        }
    }

    /// Tells an end that the other end has closed the connection. Returns whether nothing will ever be sent on it again.
    pub(super) fn close(&self, to: End, how: HowClosed) -> bool {
        let is_other_closed = self.inboxes[to.other().index()].0.lock().closed.is_some();
        let mut inbox = self.inboxes[to.index()].0.lock();
        inbox.closed.get_or_insert(how);
        if let Some(reader) = inbox.reader.take() {
            reader.wake();
        }
        is_other_closed
    }
}

// === impl SimStream ===

impl fmt::Debug for SimStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimStream")
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}

impl SimStream {
    /// The address of the other end.
    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    fn is_reset(&self) -> bool {
        self.inbox.0.lock().closed == Some(HowClosed::Reset)
    }

    fn shut(&mut self) {
        if !self.is_shut {
            self.is_shut = true;
            let (connection, to) = (self.connection, self.end.other());
            self.outbox.push(Emission::Close { connection, to });
        }
    }
}

impl AsyncRead for SimStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut inbox = self.inbox.0.lock();
        let Some(chunk) = inbox.chunks.front_mut() else {
            return match inbox.closed {
                Some(HowClosed::Orderly) => Poll::Ready(Ok(())),
                Some(HowClosed::Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                None => {
                    inbox.reader = Some(context.waker().clone());
                    Poll::Pending
                }
            };
        };
        let length = chunk.len().min(buffer.remaining());
        buffer.put_slice(&chunk[..length]);
        chunk.advance(length);
        if chunk.is_empty() {
            inbox.chunks.pop_front();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_shut || self.is_reset() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.outbox.push(Emission::Bytes {
            connection: self.connection,
            to: self.end.other(),
            bytes: Bytes::copy_from_slice(bytes),
        });
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shut();
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.shut();
    }
}
