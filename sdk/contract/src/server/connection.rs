//! One connection, and the calls on it.

use std::collections::BTreeMap;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::{BufMut as _, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::tap::Tap;
use super::{Seen, Shared, proxy};
use crate::large;
use crate::proto_json;
use crate::script::{Answer, Opening, Step};

/// What an answer does to its whole connection.
enum Command {
    GoAway,
    Break,
}

/// Serves a connection until it is closed.
pub(super) async fn run(shared: Arc<Shared>, stream: TcpStream, number: usize, opening: Opening) {
    let mut generation = shared.generation.subscribe();
    tokio::select! {
        // A broken connection is what some cases are about; what matters is what the client says of it.
        _ = open(&shared, stream, number, opening) => {}
        _ = generation.changed() => {}
    }
}

async fn open(shared: &Arc<Shared>, mut stream: TcpStream, number: usize, opening: Opening) -> Result<()> {
    stream.set_nodelay(true)?;
    match opening {
        Opening::Close => Ok(()),
        Opening::Silence => pending().await,
        Opening::Text(text) => {
            let mut buffer = [0; 1024];
            let _ = stream.read(&mut buffer).await?;
            stream.write_all(text.as_bytes()).await?;
            Ok(stream.shutdown().await?)
        }
        Opening::Serve => match &shared.acceptor {
            Some(acceptor) => behind(shared, acceptor.accept(stream).await?, number).await,
            None => behind(shared, stream, number).await,
        },
    }
}

/// Serves a connection, behind a proxy if the script has one.
async fn behind(
    shared: &Arc<Shared>,
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    number: usize,
) -> Result<()> {
    match shared.proxy {
        Some(proxy) => proxy::run(shared, io, number, proxy).await,
        None => serve(shared, io, number).await,
    }
}

/// Serves a connection of HTTP/2.
pub(super) async fn serve(shared: &Arc<Shared>, io: impl AsyncRead + AsyncWrite + Unpin, number: usize) -> Result<()> {
    let io = Tap::new(io, shared.pings.clone());
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(1 << 20)
        .initial_connection_window_size(1 << 20);
    if let Some(streams) = shared.streams {
        builder.max_concurrent_streams(streams);
    }
    let mut connection = builder.handshake::<_, Bytes>(io).await?;
    let (commands, mut received) = mpsc::unbounded_channel();
    loop {
        tokio::select! {
            accepted = connection.accept() => {
                let Some(accepted) = accepted else { return Ok(()) };
                let (request, respond) = accepted?;
                let call = Call { shared: shared.clone(), commands: commands.clone() };
                tokio::spawn(call.answer(request, respond, number));
            }
            Some(command) = received.recv() => match command {
                Command::GoAway => connection.graceful_shutdown(),
                Command::Break => return Ok(()),
            },
        }
    }
}

struct Call {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedSender<Command>,
}

/// The response of a call, as far as it was sent.
enum Sending {
    Nothing(SendResponse<Bytes>),
    Body(SendStream<Bytes>),
    Over,
}

impl Call {
    async fn answer(self, request: Request<RecvStream>, respond: SendResponse<Bytes>, connection: usize) {
        let (parts, body) = request.into_parts();
        let Ok(message) = read(body).await else { return };
        let headers = parts.headers.iter().map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        });
        let seen = Seen {
            path: parts.uri.path().to_owned(),
            headers: headers.collect(),
            // Less the five bytes that frame the message.
            message: message.get(5..).unwrap_or_default().to_vec(),
            at: self.shared.start.elapsed(),
            connection,
            reset: None,
        };
        let method = seen.method().to_owned();
        let answer = self.shared.next_answer(&seen);
        let index = {
            let mut all = self.shared.seen.lock();
            all.push(seen);
            all.len() - 1
        };
        let mut sending = Sending::Nothing(respond);
        let ended = self.run(answer, &method, &mut sending).await;
        if let Ok(Some(reset)) = ended {
            self.shared.seen.lock()[index].reset = Some(reset);
        }
    }

    /// Runs an answer; returns how the client ended the call before the answer was over.
    async fn run(&self, answer: Answer, method: &str, sending: &mut Sending) -> Result<Option<String>> {
        for step in answer {
            match step {
                Step::Headers(headers) => sending.headers(&headers)?,
                Step::Message(value) => {
                    let message = proto_json::encode_as(proto_json::method(method)?.output(), &value)?;
                    sending.data(frame(&message))?;
                }
                Step::Large(length) => {
                    let value = json!({ "export": { "metadata": { "name": "x".repeat(length) } } });
                    sending.data(frame(&proto_json::encode("GetExportResponse", &value)?))?;
                }
                Step::Raw(digits) => sending.data(hexadecimal(&digits)?)?,
                Step::Status(status) => {
                    let mut trailers = HeaderMap::new();
                    status.status().add_header(&mut trailers)?;
                    sending.trailers(trailers)?;
                }
                Step::Trailers(trailers) => sending.trailers(header_map(&trailers)?)?,
                Step::End => sending.end()?,
                Step::Reset(code) => sending.reset(Reason::from(code)),
                Step::Sleep(time) => {
                    let sleep = tokio::time::sleep(Duration::from_millis(time));
                    tokio::select! {
                        () = sleep => {}
                        reset = sending.reset_by_client() => return Ok(Some(reset)),
                    }
                }
                Step::Stall => return Ok(Some(sending.reset_by_client().await)),
                Step::GoAway => self.commands.send(Command::GoAway).ok().context("no connection")?,
                Step::Break => self.commands.send(Command::Break).ok().context("no connection")?,
                Step::Restart(pause) => {
                    self.shared
                        .restarts
                        .send(Duration::from_millis(pause))
                        .ok()
                        .context("no server")?;
                }
                Step::WriteToken(token) => tokio::fs::write(&self.shared.token_file, token).await?,
            }
            // What was sent leaves before the next step.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        sending.trailers(header_map(&BTreeMap::from([(
            "grpc-status".to_owned(),
            "0".to_owned(),
        )]))?)?;
        Ok(None)
    }
}

impl Sending {
    fn headers(&mut self, more: &BTreeMap<String, String>) -> Result<()> {
        let mut response = Response::new(());
        for (name, value) in more {
            if name == ":status" {
                *response.status_mut() = value.parse()?;
            }
        }
        let headers = response.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        let more = more.iter().filter(|(name, _)| *name != ":status");
        headers.extend(header_map(
            &more.map(|(name, value)| (name.clone(), value.clone())).collect(),
        )?);
        if let Self::Nothing(respond) = self {
            *self = Self::Body(respond.send_response(response, false)?);
        }
        Ok(())
    }

    fn body(&mut self) -> Result<&mut SendStream<Bytes>> {
        if let Self::Nothing(_) = self {
            self.headers(&BTreeMap::new())?;
        }
        match self {
            Self::Body(body) => Ok(body),
            Self::Nothing(_) | Self::Over => bail!("the answer is over"),
        }
    }

    fn data(&mut self, data: Bytes) -> Result<()> {
        Ok(self.body()?.send_data(data, false)?)
    }

    fn end(&mut self) -> Result<()> {
        self.body()?.send_data(Bytes::new(), true)?;
        *self = Self::Over;
        Ok(())
    }

    /// Ends the call with trailers; at once, without a body, if nothing was sent yet.
    fn trailers(&mut self, trailers: HeaderMap) -> Result<()> {
        match self {
            Self::Over => return Ok(()),
            Self::Body(body) => body.send_trailers(trailers)?,
            Self::Nothing(respond) => {
                let mut response = Response::new(());
                *response.headers_mut() = trailers;
                response
                    .headers_mut()
                    .insert("content-type", HeaderValue::from_static("application/grpc"));
                respond.send_response(response, true)?;
            }
        }
        *self = Self::Over;
        Ok(())
    }

    fn reset(&mut self, reason: Reason) {
        match self {
            Self::Nothing(respond) => respond.send_reset(reason),
            Self::Body(body) => body.send_reset(reason),
            Self::Over => {}
        }
        *self = Self::Over;
    }

    async fn reset_by_client(&mut self) -> String {
        let reset = match self {
            Self::Nothing(respond) => poll_fn(|cx| respond.poll_reset(cx)).await,
            Self::Body(body) => poll_fn(|cx| body.poll_reset(cx)).await,
            Self::Over => pending().await,
        };
        // The code without its explanation, such as CANCEL.
        reset.map_or_else(|_| "closed".to_owned(), |reason| format!("{reason:?}"))
    }
}

async fn read(mut body: RecvStream) -> Result<Vec<u8>> {
    let mut message = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        message.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len())?;
    }
    Ok(message)
}

fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}

fn hexadecimal(digits: &str) -> Result<Bytes> {
    let digits: Vec<_> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let bytes = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair)?, 16).context("no digits"));
    bytes.collect()
}

fn header_map(headers: &BTreeMap<String, String>) -> Result<HeaderMap> {
    let header = |(name, value): (&String, &String)| -> Result<_> {
        Ok((
            HeaderName::try_from(name.as_str())?,
            HeaderValue::from_bytes(large::text(value).as_bytes())?,
        ))
    };
    headers.iter().map(header).collect()
}
