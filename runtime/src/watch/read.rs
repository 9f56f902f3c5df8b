//! Sends the requests of a watcher and reads the answers piece by piece, each within limits of length and time.

use std::{pin::Pin, time::Duration};

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use http::Request;
use kube::Client;
use tokio::time::{Instant, sleep_until, timeout};

use crate::{
    client::{RequestKind, ResponseTimer},
    guard::{Held, Reader},
};

/// The longest text of an event that is read, in bytes: an object has some 1.5 MiB at rest at most, which JSON may escape to
/// more.
const LINE_BYTES_MAX: usize = 16 << 20;
/// Half an event, or of a page, up to this many bytes does not count as held.
const LINE_BYTES_FREE: usize = 64 << 10;
/// The longest page of a list that is read, in bytes.
pub(super) const PAGE_BYTES_MAX: usize = 64 << 20;
/// A request without an answer, or a list without its next byte, for this long has failed.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const NO_ANSWER: &str = "the API server does not answer";

/// Body of an answer of the API server.
pub(super) type Body = Pin<Box<dyn AsyncBufRead + Send>>;

/// Sends the requests of a watcher. Tests script the answers.
pub(super) trait ApiServer: Send + Sync {
    /// Sends a request and returns the body of its answer. Fails if the request is refused.
    fn get(&self, request: Request<Vec<u8>>) -> impl Future<Output = Result<Body, kube::Error>> + Send;
}

impl ApiServer for Client {
    async fn get(&self, request: Request<Vec<u8>>) -> Result<Body, kube::Error> {
        Ok(Box::pin(self.request_stream(request).await?))
    }
}

/// Fails if a request or a read takes longer than 30 s.
pub(super) async fn within_limit<T>(work: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    let done = timeout(ANSWER_MAX, work).await;
    done.unwrap_or_else(|_| Err(io_error(NO_ANSWER)))
}

/// Sends a request for a list and waits for the head of its answer. The time limit counts from when the list got its permit,
/// however long other lists take until then.
pub(super) async fn get_list(api: &impl ApiServer, mut request: Request<Vec<u8>>) -> Result<Body, kube::Error> {
    let timer = ResponseTimer::new();
    request.extensions_mut().insert(RequestKind::List(timer.clone()));
    let mut answer = std::pin::pin!(api.get(request));
    loop {
        let now = Instant::now();
        let late = timer.started().unwrap_or(now) + ANSWER_MAX;
        if late <= now {
            return Err(io_error(NO_ANSWER));
        }
        tokio::select! {
            answer = &mut answer => return answer,
            () = sleep_until(late) => {}
        }
    }
}

/// Makes an error of the watcher's own, which counts as a broken connection.
pub(super) fn io_error(message: &'static str) -> kube::Error {
    kube::Error::ReadEvents(std::io::Error::other(message))
}

/// Hands over what has arrived of a body, waiting for some. Returns false at its end.
pub(super) async fn read_on(
    body: &mut (impl AsyncBufRead + Unpin),
    take: impl FnOnce(&[u8]) -> Result<(), &'static str>,
) -> Result<bool, kube::Error> {
    let chunk = body.fill_buf().await.map_err(kube::Error::ReadEvents)?;
    let length = chunk.len();
    take(chunk).map_err(io_error)?;
    body.consume_unpin(length);
    Ok(length > 0)
}

/// Appends a whole body to a text. Returns false, without reading on, where the text gets longer than a page may be. A text that gets long
/// counts for the reader, since several lists may have one at a time.
pub(super) async fn read_all(
    body: &mut (impl AsyncBufRead + Unpin),
    text: &mut Vec<u8>,
    mut reader: Option<&mut Reader>,
) -> Result<bool, kube::Error> {
    let mut held: Option<Held> = None;
    loop {
        let append = |chunk: &[u8]| {
            text.extend_from_slice(chunk);
            Ok(())
        };
        if !within_limit(read_on(body, append)).await? {
            return Ok(true);
        }
        if text.len() > PAGE_BYTES_MAX {
            return Ok(false);
        }
        if let Some(reader) = reader.as_mut().filter(|_| text.len() > LINE_BYTES_FREE) {
            held.get_or_insert_with(|| reader.hold(0, 0))
                .resize(0, text.len() as u64);
            if reader.is_full() {
                return Err(io_error("a page is too long while so much else is held"));
            }
        }
    }
}

/// Appends the text up to and with the next line break. Returns false at the end of the body; what came without a line break
/// is half an event.
///
/// A line that gets long counts for the reader, since many watches may have one at a time.
pub(super) async fn read_line(
    body: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
    mut reader: Option<&mut Reader>,
) -> Result<bool, kube::Error> {
    let mut held: Option<Held> = None;
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
        body.consume_unpin(length);
        if end.is_some() {
            return Ok(true);
        }
        if let Some(reader) = reader.as_mut().filter(|_| line.len() > LINE_BYTES_FREE) {
            held.get_or_insert_with(|| reader.hold(0, 0))
                .resize(0, line.len() as u64);
            if reader.is_full() {
                return Err(io_error("an event is too long while so much else is held"));
            }
        }
    }
}

/// Checks that what was read is UTF-8: one pass over the whole is quicker than a check of each string.
pub(super) fn utf8(text: &[u8]) -> Result<&str, kube::Error> {
    std::str::from_utf8(text).map_err(|error| kube::Error::ReadEvents(std::io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use kube::client::Body;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_list_that_waits_for_others_is_not_late() {
        let (wait, begin) = (20 * ANSWER_MAX + ANSWER_MAX / 3, Instant::now());
        let client = Client::new(
            tower::service_fn(move |request: Request<Body>| async move {
                let Some(RequestKind::List(timer)) = request.extensions().get() else {
                    panic!("not sent as a list");
                };
                timer.stop();
                sleep_until(begin + wait).await;
                timer.start();
                std::future::pending::<Result<http::Response<Body>, std::io::Error>>().await
            }),
            "default",
        );
        let answer = get_list(&client, Request::get("/").body(Vec::new()).unwrap()).await;
        let failure = answer.err().expect("there is no answer");
        assert!(failure.to_string().contains(NO_ANSWER), "{failure}");
        assert_eq!(begin.elapsed().as_secs(), (wait + ANSWER_MAX).as_secs());
    }

    #[tokio::test]
    async fn lines_are_read_whole_and_a_torn_one_is_dropped() {
        let mut body = &b"one\ntwo\nhal"[..];
        let mut lines = Vec::new();
        let mut line = Vec::new();
        while read_line(&mut body, &mut line, None).await.unwrap() {
            lines.push(String::from_utf8(std::mem::take(&mut line)).unwrap());
        }
        assert_eq!(lines, ["one\n", "two\n"]);
    }
}
