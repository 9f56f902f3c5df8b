//! Counts the PING frames of a client.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const PREFACE: usize = 24;
const HEADER: usize = 9;
const PING: u8 = 6;
const ACK: u8 = 1;

/// A stream of HTTP/2 whose frames are counted as they are read.
pub(super) struct Tap<S> {
    inner: S,
    pings: Arc<AtomicUsize>,
    /// Bytes to skip before the next frame begins.
    skip: usize,
    header: Vec<u8>,
}

impl<S> Tap<S> {
    pub(super) fn new(inner: S, pings: Arc<AtomicUsize>) -> Self {
        Self {
            inner,
            pings,
            skip: PREFACE,
            header: Vec::with_capacity(HEADER),
        }
    }

    fn look(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let wanted = (HEADER - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..wanted]);
            bytes = &bytes[wanted..];
            if let [a, b, c, kind, flags, ..] = self.header[..]
                && self.header.len() == HEADER
            {
                self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                if kind == PING && flags & ACK == 0 {
                    self.pings.fetch_add(1, Ordering::Relaxed);
                }
                self.header.clear();
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tap<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        self.look(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tap<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_are_found_wherever_reads_end() {
        let frame = |kind: u8, flags: u8, length: u8| {
            let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, 0];
            frame.extend(vec![PING; usize::from(length)]);
            frame
        };
        let bytes = [
            vec![0; PREFACE],
            frame(4, 0, 12),
            frame(PING, 0, 8),
            frame(PING, ACK, 8),
            frame(0, 0, 0),
            frame(PING, 0, 8),
        ];
        let bytes = bytes.concat();
        for size in [1, 7, 9, 1000] {
            let pings = Arc::<AtomicUsize>::default();
            let mut tap = Tap::new((), pings.clone());
            bytes.chunks(size).for_each(|chunk| tap.look(chunk));
            assert_eq!(pings.load(Ordering::Relaxed), 2, "reads of {size} bytes");
        }
    }
}
