//! Reads answers piece by piece, each within limits of length and time.

use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use tokio::time::timeout;

/// The longest line of a watch: an object is at most some 1.5 MiB at rest, and JSON may escape it to more.
const LINE_BYTES_MAX: usize = 16 << 20;
/// Without a first or a next byte for this long, a list, or the answer to a watch request, has failed.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Waits for an answer, though not for ever.
pub(super) async fn answer<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    timeout(ANSWER_MAX, request)
        .await
        .unwrap_or_else(|_| Err(io_error("the API server does not answer")))
}

/// A failure of our own making.
pub(super) fn io_error(message: &'static str) -> kube::Error {
    kube::Error::ReadEvents(std::io::Error::other(message))
}

/// Hands over what has arrived, waiting for some. False at the end of the body.
pub(super) async fn read_on<R>(
    body: &mut std::pin::Pin<&mut R>,
    take: impl FnOnce(&[u8]) -> Result<(), &'static str>,
) -> Result<bool, kube::Error>
where
    R: AsyncBufRead,
{
    let chunk = body.fill_buf().await.map_err(kube::Error::ReadEvents)?;
    let length = chunk.len();
    take(chunk).map_err(io_error)?;
    body.as_mut().consume(length);
    Ok(length > 0)
}

/// Appends what has arrived, waiting for some. False at the end of the body.
pub(super) async fn read_chunk<R>(body: &mut std::pin::Pin<&mut R>, text: &mut Vec<u8>) -> Result<bool, kube::Error>
where
    R: AsyncBufRead,
{
    let append = |chunk: &[u8]| {
        text.extend_from_slice(chunk);
        Ok(())
    };
    read_on(body, append).await
}

/// Reads up to and with the next line break. False at the end of the body; a last line without a break is dropped,
/// for it may be half an event.
pub(super) async fn read_line<R>(body: &mut std::pin::Pin<&mut R>, line: &mut Vec<u8>) -> Result<bool, kube::Error>
where
    R: AsyncBufRead,
{
    loop {
        let chunk = body.fill_buf().await.map_err(kube::Error::ReadEvents)?;
        if chunk.is_empty() {
            return Ok(false);
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(chunk.len(), |at| at + 1);
        if line.len() + length > LINE_BYTES_MAX {
            return Err(io_error("an event is too long"));
        }
        line.extend_from_slice(&chunk[..length]);
        body.as_mut().consume(length);
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// What was read, as text: to look once at the whole of it is quicker than to look at each string.
pub(super) fn utf8(text: &[u8]) -> Result<&str, kube::Error> {
    std::str::from_utf8(text).map_err(|error| kube::Error::ReadEvents(std::io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_read_whole_and_a_torn_one_is_dropped() {
        let mut body = std::pin::pin!(&b"one\ntwo\nhal"[..]);
        let mut lines = Vec::new();
        let mut line = Vec::new();
        while read_line(&mut body, &mut line).await.unwrap() {
            lines.push(String::from_utf8(std::mem::take(&mut line)).unwrap());
        }
        assert_eq!(lines, ["one\n", "two\n"]);
    }
}
