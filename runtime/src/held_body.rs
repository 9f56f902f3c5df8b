//! The body of an HTTP answer that holds a value, such as a permit, until it was read or dropped.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use hyper::body::{Body, Frame, SizeHint};

/// A body with a value that is dropped after it.
#[derive(Debug)]
pub struct HeldBody<B, T> {
    // Dropped before the value, so that the stream is cancelled before another one takes, say, its permit.
    body: B,
    _held: T,
}

impl<B, T> HeldBody<B, T> {
    /// Makes `body` hold a value.
    pub fn new(body: B, held: T) -> Self {
        Self { body, _held: held }
    }
}

impl<B: Body + Unpin, T: Unpin> Body for HeldBody<B, T> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
