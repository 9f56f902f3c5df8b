//! The limits of calls of open methods, which anybody may call without a token: how many there are at the same time, how much
//! they send, and how long they take with all of their answers.

use std::{
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bindery_proto::v1alpha2::ErrorReason;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Status, body::Body};

use crate::front::{
    Failure, Outcome,
    limits::{OPEN_CALLS_MAX, OPEN_CALLS_PER_PEER, OPEN_REQUEST_BYTES_MAX, Permit, Permits},
    transport::places::{ConnectionEnd, Place},
};

/// If a client has not read the end of its answer this long after the deadline, its connection is closed.
const UNREAD_MAX: Duration = Duration::from_secs(10);

/// Admits calls of open methods.
#[derive(Debug)]
pub(crate) struct OpenCalls {
    of_peer: Permits<IpAddr>,
    all: Arc<Semaphore>,
}

/// The permit of one call of an open method, until its answer has ended.
#[derive(Debug)]
pub(crate) struct OpenCall {
    _of_peer: Permit<IpAddr>,
    _of_all: OwnedSemaphorePermit,
}

/// The answer of an open method, which ends at the deadline of the call.
struct OpenBody {
    body: Body,
    /// None once the deadline has passed.
    until: Option<Pin<Box<Sleep>>>,
    _call: OpenCall,
    _unread: Option<AbortOnDropHandle<()>>,
}

impl OpenCalls {
    /// No calls yet.
    pub(crate) fn new() -> Self {
        Self {
            of_peer: Permits::new(OPEN_CALLS_PER_PEER),
            all: Arc::new(Semaphore::new(OPEN_CALLS_MAX)),
        }
    }

    /// Admits a call from this network, or refuses it if there are too many.
    pub(crate) fn admit(&self, network: IpAddr) -> Outcome<OpenCall> {
        let of_peer = self.of_peer.try_acquire(network).ok_or_else(|| {
            let text = "too many calls without a token at once from this address; wait for some to be answered";
            Failure::new(ErrorReason::RateLimited, text)
        })?;
        let of_all = Arc::clone(&self.all).try_acquire_owned().map_err(|_| {
            let text = "the server answers as many calls without a token as it can; try again";
            Failure::new(ErrorReason::Overloaded, text)
        })?;
        Ok(OpenCall {
            _of_peer: of_peer,
            _of_all: of_all,
        })
    }
}

/// Limits what the call sends, in all of its messages together.
pub(crate) fn limited(request: Request<Body>) -> Request<Body> {
    request.map(|body| {
        let limited = Limited::new(body, OPEN_REQUEST_BYTES_MAX);
        let too_large = |_| {
            let text = format!("a call without a token may send {OPEN_REQUEST_BYTES_MAX} bytes in all");
            Failure::new(ErrorReason::MessageTooLarge, text).into()
        };
        Body::new(limited.map_err(move |error| error.downcast::<Status>().map_or_else(too_large, |status| *status)))
    })
}

impl OpenCall {
    /// Has the answer end at the deadline. A client that does not read even that loses its connection, which `place` is of.
    pub(crate) fn follow(self, response: Response<Body>, until: Instant, place: Option<Arc<Place>>) -> Response<Body> {
        let unread = place.map(|place| {
            AbortOnDropHandle::new(tokio::spawn(async move {
                sleep_until(until + UNREAD_MAX).await;
                place.close(ConnectionEnd::OpenCall);
            }))
        });
        response.map(|body| {
            Body::new(OpenBody {
                body,
                until: Some(Box::pin(sleep_until(until))),
                _call: self,
                _unread: unread,
            })
        })
    }
}

impl HttpBody for OpenBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(until) = &mut self.until else {
            return Poll::Ready(None);
        };
        if until.as_mut().poll(context).is_ready() {
            self.until = None;
            let mut trailers = HeaderMap::new();
            Status::from(Failure::deadline()).add_header(&mut trailers)?;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.until.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{StreamExt as _, stream};
    use http_body_util::{Full, StreamBody};

    use super::*;

    const UNTIL: Duration = Duration::from_mins(1);

    #[test]
    fn one_address_takes_a_few_permits_and_all_of_them_so_many() {
        let calls = OpenCalls::new();
        let network = |number: usize| IpAddr::from([10, 0, 0, u8::try_from(number).expect("a byte")]);
        let of_one: Vec<_> = (0..OPEN_CALLS_PER_PEER)
            .map(|_| calls.admit(network(0)).expect("a permit"))
            .collect();
        let refused = calls.admit(network(0)).expect_err("a refusal");
        assert_eq!(refused.reason(), ErrorReason::RateLimited);
        let others = 1..OPEN_CALLS_MAX / OPEN_CALLS_PER_PEER;
        let others = others.flat_map(|number| (0..OPEN_CALLS_PER_PEER).map(move |_| number));
        let others: Vec<_> = others
            .map(|number| calls.admit(network(number)).expect("a permit"))
            .collect();
        let refused = calls.admit(network(255)).expect_err("a refusal");
        assert_eq!(refused.reason(), ErrorReason::Overloaded);
        drop((of_one, others));
        assert!(calls.admit(network(0)).is_ok() && calls.admit(network(255)).is_ok());
    }

    #[tokio::test]
    async fn a_call_without_a_token_sends_64_kib_at_most() {
        let sent = async |bytes: usize| {
            let frames = stream::iter(vec![Bytes::from(vec![0; bytes / 2]); 2])
                .map(|part| Ok::<_, Infallible>(Frame::data(part)));
            let request = Request::new(Body::new(StreamBody::new(frames)));
            limited(request).into_body().collect().await
        };
        assert_eq!(sent(64 * 1024).await.expect("all bytes").to_bytes().len(), 64 * 1024);
        let status = sent(64 * 1024 + 2).await.expect_err("a refusal");
        assert_eq!(status.code(), ErrorReason::MessageTooLarge.code(), "{status}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_an_open_method_ends_at_the_deadline_and_gives_its_permit_back() {
        let calls = OpenCalls::new();
        let network = IpAddr::from([10, 0, 0, 1]);
        let begun = Instant::now();
        let call = calls.admit(network).expect("a permit");
        let first = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"serving")))]);
        let body = Body::new(StreamBody::new(first.chain(stream::pending())));
        let answer = call.follow(Response::new(body), begun + UNTIL, None);
        assert_eq!(calls.all.available_permits(), OPEN_CALLS_MAX - 1);
        let whole = answer.into_body().collect().await.expect("an answer");
        assert_eq!(begun.elapsed(), UNTIL);
        let status = Status::from_header_map(whole.trailers().expect("trailers")).expect("a status");
        assert_eq!(status.code(), ErrorReason::Deadline.code());
        assert_eq!(whole.to_bytes(), "serving");
        assert_eq!(calls.all.available_permits(), OPEN_CALLS_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_the_answer_of_an_open_method_loses_its_connection() {
        let calls = OpenCalls::new();
        let network = IpAddr::from([10, 0, 0, 1]);
        let places = crate::front::transport::places::Places::new(crate::settings::tests::settings().connections);
        let place = Arc::new(places.admit(network).expect("a place"));
        let begun = Instant::now();
        let answer = |body: &'static [u8]| Response::new(Body::new(Full::from(body)));
        let call = || calls.admit(network).expect("a permit");
        let read = call().follow(answer(b"read"), begun + UNTIL / 2, Some(Arc::clone(&place)));
        read.into_body().collect().await.expect("an answer");
        let _unread = call().follow(answer(b"unread"), begun + UNTIL, Some(Arc::clone(&place)));
        assert_eq!(place.closed().await, ConnectionEnd::OpenCall);
        assert_eq!(begun.elapsed(), UNTIL + UNREAD_MAX);
    }
}
