//! Reads answers piece by piece, each within limits of length and time.

use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use http::Request;
use kube::Client;
use tokio::time::{Instant, sleep_until, timeout};

use crate::client::Line;

/// The longest line of a watch: an object is at most some 1.5 MiB at rest, and JSON may escape it to more.
const LINE_BYTES_MAX: usize = 16 << 20;
/// Without a first or a next byte for this long, a list, or the answer to a watch request, has failed.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const NO_ANSWER: &str = "the API server does not answer";

/// Waits for an answer, though not for ever.
pub(super) async fn answer<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    timeout(ANSWER_MAX, request)
        .await
        .unwrap_or_else(|_| Err(io_error(NO_ANSWER)))
}

/// Sends a request for a list and waits for the head of its answer. The time begins when its turn has come, however long other
/// lists take until then.
pub(super) async fn answer_in_turn(
    client: &Client,
    mut request: Request<Vec<u8>>,
) -> Result<impl AsyncBufRead + Send + use<>, kube::Error> {
    let line = Line::new();
    request.extensions_mut().insert(line.clone());
    let mut answer = std::pin::pin!(client.request_stream(request));
    loop {
        let now = Instant::now();
        let late = line.since().unwrap_or(now) + ANSWER_MAX;
        if late <= now {
            return Err(io_error(NO_ANSWER));
        }
        tokio::select! {
            answer = &mut answer => return answer,
            () = sleep_until(late) => {}
        }
    }
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
    use kube::client::Body;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_list_that_waits_for_others_is_not_late() {
        let (wait, begin) = (20 * ANSWER_MAX + ANSWER_MAX / 3, Instant::now());
        let client = Client::new(
            tower::service_fn(move |request: Request<Body>| async move {
                let line = request.extensions().get::<Line>().expect("a line");
                line.wait();
                sleep_until(begin + wait).await;
                line.go();
                std::future::pending::<Result<http::Response<Body>, std::io::Error>>().await
            }),
            "default",
        );
        let answer = answer_in_turn(&client, Request::get("/").body(Vec::new()).unwrap()).await;
        let failure = answer.err().expect("there is no answer");
        assert!(failure.to_string().contains(NO_ANSWER), "{failure}");
        assert_eq!(begin.elapsed().as_secs(), (wait + ANSWER_MAX).as_secs());
    }

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
