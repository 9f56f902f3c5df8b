//! A server that answers by script: whatever is called next gets the next answer.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bindery_proto::ERROR_DOMAIN;
use bindery_proto::v1alpha2::ErrorReason;
use bindery_sdk::{Client, ClientBuilder};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{FutureExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prost::Message;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// One answer of the script: what happens, in order.
pub(crate) type Answer = Vec<Step>;

/// One thing that happens within an answer. After the last one the call ends with OK.
#[derive(Clone)]
pub(crate) enum Step {
    Send(Bytes),
    Sleep(Duration),
    Fail(Status),
    /// Fails with details that are no base64.
    Garble,
    /// The stream is reset, once what was sent has arrived.
    Break,
}

/// A call as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) at: Instant,
}

#[derive(Clone, Default)]
pub(crate) struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// The value of the header `authorization` that is refused, and the answer to all others.
    expired: Option<(&'static str, Answer)>,
}

pub(crate) fn message(message: &impl Message) -> Step {
    Step::Send(frame(message))
}

/// A message as it stands in a body: its length, and its bytes.
pub(crate) fn frame(message: &impl Message) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.encoded_len()).expect("a small message"));
    message.encode(&mut frame).expect("room grows");
    frame.freeze()
}

/// Fails with this reason, as a server of ours does.
pub(crate) fn fail(reason: ErrorReason, retry_after: Option<Duration>) -> Step {
    let mut details =
        ErrorDetails::with_error_info(reason.reason_str(), ERROR_DOMAIN, std::collections::HashMap::new());
    if retry_after.is_some() {
        details.set_retry_info(retry_after);
    }
    Step::Fail(Status::with_error_details(reason.code(), "by script", details))
}

pub(crate) fn fail_plain(code: Code) -> Step {
    Step::Fail(Status::new(code, "by script"))
}

impl Script {
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self {
            answers: Arc::new(Mutex::new(answers.into_iter().collect())),
            seen: Arc::default(),
            expired: None,
        }
    }

    /// A server that calls one token expired, and gives the same answer to all calls with another one.
    pub(crate) fn expiring(authorization: &'static str, answer: Answer) -> Self {
        Self {
            expired: Some((authorization, answer)),
            ..Self::default()
        }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// Starts the server in memory and gives a client of it.
    pub(crate) fn client(&self, builder: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
        let (connections, incoming) = mpsc::unbounded_channel::<Result<DuplexStream, Infallible>>();
        let server = self
            .server()
            .serve_with_incoming(UnboundedReceiverStream::new(incoming));
        tokio::spawn(server);
        let connect = tower::service_fn(move |_| {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            let sent = connections.send(Ok(theirs));
            std::future::ready(
                sent.map(|()| TokioIo::new(ours))
                    .map_err(|_| std::io::ErrorKind::ConnectionRefused.into()),
            ) as std::future::Ready<Result<_, std::io::Error>>
        });
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(connect);
        let builder = builder(Client::builder("https://bind.example.com"));
        builder.build_with_channel(channel).expect("a valid address")
    }

    /// The server with its services, still without a socket.
    pub(crate) fn server(&self) -> tonic::transport::server::Router {
        self.add_to(Server::builder())
    }

    pub(crate) fn add_to<L: Clone>(&self, mut server: Server<L>) -> tonic::transport::server::Router<L> {
        server
            .add_service(Provider(self.clone()))
            .add_service(Catalog(self.clone()))
            .add_service(Binding(self.clone()))
            .add_service(Export(self.clone()))
            .add_service(Credential(self.clone()))
    }

    async fn answer(self, request: http::Request<Body>) -> http::Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        // Less the five bytes that frame the message.
        let body = body.slice(body.len().min(5)..);
        let path = parts.uri.path().to_owned();
        let token = parts.headers.get("authorization").cloned();
        self.seen.lock().push(Seen {
            path,
            headers: parts.headers,
            body,
            at: Instant::now(),
        });
        let answer = match &self.expired {
            None => self.answers.lock().pop_front(),
            Some((expired, _)) if token.is_some_and(|token| token == *expired) => {
                // The calls that are under way are refused one after the other, the last one long after the first.
                let calls = u32::try_from(self.seen.lock().len()).unwrap_or(u32::MAX);
                tokio::time::sleep(Duration::from_millis(5) * calls).await;
                Some(vec![fail(ErrorReason::TokenExpired, None)])
            }
            Some((_, answer)) => Some(answer.clone()),
        };
        let mut steps: VecDeque<_> = answer.unwrap_or_else(|| vec![fail_plain(Code::Internal)]).into();
        if let Some(Step::Fail(status)) = steps.front() {
            return status.clone().into_http();
        }
        steps.push_back(Step::Fail(Status::ok("")));
        let frames = stream::unfold(steps, |mut steps| async move {
            loop {
                match steps.pop_front()? {
                    Step::Send(bytes) => return Some((Ok(Frame::data(bytes)), steps)),
                    Step::Sleep(time) => tokio::time::sleep(time).await,
                    Step::Break => {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        return Some((Err(Status::internal("broken by script")), VecDeque::new()));
                    }
                    Step::Garble => {
                        let mut trailers = http::HeaderMap::new();
                        trailers.insert("grpc-status", http::HeaderValue::from_static("3"));
                        trailers.insert("grpc-status-details-bin", http::HeaderValue::from_static("***"));
                        return Some((Ok(Frame::trailers(trailers)), VecDeque::new()));
                    }
                    Step::Fail(status) => {
                        let mut trailers = http::HeaderMap::new();
                        status.add_header(&mut trailers).expect("a status of the script");
                        return Some((Ok(Frame::trailers(trailers)), VecDeque::new()));
                    }
                }
            }
        });
        let mut response = http::Response::new(Body::new(StreamBody::new(frames)));
        response
            .headers_mut()
            .insert("content-type", http::HeaderValue::from_static("application/grpc"));
        response
    }
}

macro_rules! services {
    ($($service:ident = $name:literal),+ $(,)?) => {$(
        #[derive(Clone)]
        struct $service(Script);

        impl NamedService for $service {
            const NAME: &'static str = $name;
        }

        impl tower::Service<http::Request<Body>> for $service {
            type Response = http::Response<Body>;
            type Error = Infallible;
            type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: http::Request<Body>) -> Self::Future {
                self.0.clone().answer(request).map(Ok).boxed()
            }
        }
    )+};
}

services!(
    Provider = "kubebind.v1alpha2.ProviderService",
    Catalog = "kubebind.v1alpha2.CatalogService",
    Binding = "kubebind.v1alpha2.BindingService",
    Export = "kubebind.v1alpha2.ExportService",
    Credential = "kubebind.v1alpha2.CredentialService",
);
