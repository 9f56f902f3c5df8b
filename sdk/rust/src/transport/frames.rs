//! The body of a response by gRPC-Web, before and after tonic-web reads it: what the one hides, the other restores.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};
use tonic::Status;

use super::BoxError;

/// A frame begins with a byte of flags and four of its length.
const FRAME_HEADER: usize = 5;
/// The flag of a frame of trailers.
const TRAILERS: u8 = 0x80;
/// Size limit of trailers, in bytes.
const TRAILERS_MAX: usize = 64 * 1024;

/// How long the end of a body may take after its trailers.
const END_TIMEOUT: Duration = Duration::from_millis(100);

/// What is wrong with a body. tonic-web keeps only the text of an error.
pub(super) type BodyFault = Arc<Mutex<Option<BoxError>>>;

/// A response broke off.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Broken(String);

/// A body as it comes from the connection. A frame that is too large fails at its header: tonic-web would collect all of it.
pub(super) struct ReceivedBody<B> {
    body: B,
    message_max: usize,
    fault: BodyFault,
    header: [u8; FRAME_HEADER],
    /// Bytes of the header that have come.
    begun: usize,
    /// Bytes that the present frame still lacks.
    missing: usize,
}

/// A body as tonic-web reads it, with the faults of the connection. It holds the permit of its call.
pub(super) struct CompleteBody<B> {
    body: B,
    fault: BodyFault,
    /// Whether the status has come, in trailers or in headers.
    complete: bool,
    /// Trailers that wait for the end of the body: a connection that is left before cannot serve another call.
    trailers: Option<(Frame<Bytes>, Pin<Box<Sleep>>)>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl<B> ReceivedBody<B> {
    pub(super) fn new(body: B, message_max: usize, fault: BodyFault) -> Self {
        Self {
            body,
            message_max,
            fault,
            header: [0; FRAME_HEADER],
            begun: 0,
            missing: 0,
        }
    }

    /// Follows the frames; fails at the header of one that is too large.
    fn follow(&mut self, mut bytes: &[u8]) -> Result<(), Status> {
        while !bytes.is_empty() {
            let skipped = self.missing.min(bytes.len());
            self.missing -= skipped;
            bytes = &bytes[skipped..];
            let taken = (FRAME_HEADER - self.begun).min(bytes.len());
            self.header[self.begun..self.begun + taken].copy_from_slice(&bytes[..taken]);
            self.begun += taken;
            bytes = &bytes[taken..];
            if self.begun < FRAME_HEADER {
                continue;
            }
            self.begun = 0;
            let [flags, length @ ..] = self.header;
            self.missing = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
            let limit = if flags & TRAILERS == 0 {
                self.message_max
            } else {
                TRAILERS_MAX
            };
            if self.missing > limit {
                // As tonic says it of gRPC.
                let found = self.missing;
                return Err(Status::out_of_range(format!(
                    "Error, decoded message length too large: found {found} bytes, the limit is: {limit} bytes"
                )));
            }
        }
        Ok(())
    }
}

impl<B> Body for ReceivedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let fault: BoxError = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Ok(frame)) => match self.follow(frame.data_ref().map_or(&[], |data| data)) {
                Ok(()) => return Poll::Ready(Some(Ok(frame))),
                Err(status) => status.into(),
            },
            Some(Err(error)) => Broken(innermost(&*error.into())).into(),
        };
        *self.fault.lock() = Some(fault);
        Poll::Ready(Some(Err("the fault is kept apart")))
    }
}

impl<B> CompleteBody<B> {
    pub(super) fn new(body: B, fault: BodyFault, complete: bool, permit: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            body,
            fault,
            complete,
            trailers: None,
            _permit: permit,
        }
    }
}

impl<B> Body for CompleteBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError> + Display,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            let next = Pin::new(&mut self.body).poll_frame(cx);
            if let Some((_, wait)) = &mut self.trailers {
                if next.is_pending() {
                    ready!(wait.as_mut().poll(cx));
                }
                let trailers = self.trailers.take();
                return Poll::Ready(trailers.map(|(frame, _)| Ok(frame)));
            }
            return Poll::Ready(match ready!(next) {
                Some(Ok(frame)) if frame.is_trailers() => {
                    self.complete = true;
                    self.trailers = Some((frame, Box::pin(sleep(END_TIMEOUT))));
                    continue;
                }
                Some(Ok(frame)) => Some(Ok(frame)),
                Some(Err(error)) => {
                    self.complete = true;
                    let fault = self.fault.lock().take();
                    Some(Err(fault.unwrap_or_else(|| error.into())))
                }
                None if self.complete => None,
                // A proxy that gives up a response may end it in good order.
                None => {
                    self.complete = true;
                    Some(Err(Broken("the response ended before its status".to_owned()).into()))
                }
            });
        }
    }
}

/// The text of the innermost source of an error.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| (*error).source());
    chain.last().map_or_else(String::new, ToString::to_string)
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures::stream;
    use http_body_util::{BodyExt as _, StreamBody};
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;

    const MAX: usize = 100;

    fn frame(flags: u8, length: u32) -> Vec<u8> {
        let mut bytes = vec![flags];
        bytes.extend(length.to_be_bytes());
        bytes
    }

    fn received(
        chunks: Vec<io::Result<Vec<u8>>>,
    ) -> (
        ReceivedBody<impl Body<Data = Bytes, Error = io::Error> + Unpin>,
        BodyFault,
    ) {
        let frames = chunks
            .into_iter()
            .map(|chunk| chunk.map(|bytes| Frame::data(Bytes::from(bytes))));
        let fault = BodyFault::default();
        (
            ReceivedBody::new(StreamBody::new(stream::iter(frames)), MAX, Arc::clone(&fault)),
            fault,
        )
    }

    fn told(fault: &BodyFault) -> String {
        let fault = fault.lock().take().expect("a fault");
        let status = Status::from_error(fault);
        format!("{:?} {}", status.code(), status.message())
    }

    #[tokio::test]
    async fn a_frame_that_is_too_large_fails_at_its_header() {
        for (flags, fits, exceeds) in [(0, 100, 101), (TRAILERS, 65_536, 65_537)] {
            let (body, _) = received(vec![Ok(frame(flags, fits))]);
            body.collect().await.expect("a header of a frame that fits");
            let (body, fault) = received(vec![Ok(frame(flags, exceeds))]);
            assert!(body.collect().await.is_err());
            let told = told(&fault);
            assert!(
                told.starts_with("OutOfRange Error, decoded message length too large"),
                "{told}"
            );
        }
    }

    #[tokio::test]
    async fn a_response_that_breaks_off_is_no_answer_of_the_server() {
        let (body, fault) = received(vec![Ok(frame(0, 2)), Err(io::ErrorKind::UnexpectedEof.into())]);
        assert!(body.collect().await.is_err());
        assert_eq!(told(&fault), "Unknown unexpected end of file");
    }

    #[tokio::test]
    async fn a_response_needs_its_status() {
        let read = |trailers: bool, complete: bool| {
            let end = trailers.then(|| Ok::<_, BoxError>(Frame::trailers(http::HeaderMap::new())));
            CompleteBody::new(StreamBody::new(stream::iter(end)), BodyFault::default(), complete, None).collect()
        };
        assert!(read(true, false).await.is_ok());
        assert!(read(false, true).await.is_ok());
        let error = read(false, false).await.expect_err("no status");
        assert_eq!(Status::from_error(error).code(), Code::Unknown);
    }

    proptest! {
        #[test]
        fn frames_are_followed_however_they_are_cut(
            lengths in proptest::collection::vec(0_u32..=100, 0..5), cuts in proptest::collection::vec(1_usize..20, 1..60), last: bool,
        ) {
            let mut bytes: Vec<u8> = Vec::new();
            for length in &lengths {
                bytes.extend(frame(0, *length));
                bytes.extend(vec![0xff; usize::try_from(*length).unwrap()]);
            }
            if last {
                bytes.extend(frame(0, 101));
            }
            let (mut body, _) = received(vec![]);
            let mut rest = &bytes[..];
            let mut outcome = Ok(());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() || outcome.is_err() {
                    break;
                }
                let (part, next) = rest.split_at((*cut).min(rest.len()));
                outcome = body.follow(part);
                rest = next;
            }
            prop_assert_eq!(outcome.is_err(), last);
        }
    }
}
