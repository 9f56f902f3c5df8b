//! Frames of HTTP/2 (RFC 9113) for requests that no client library sends: without their end, or byte by byte.

/// What a client begins with: the preface, and an empty SETTINGS frame.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The headers of a gRPC call of the method with this path, shorter than 127 bytes.
pub(super) fn headers(stream: u32, path: &str) -> Vec<u8> {
    // HPACK (RFC 7541): `:method: POST` and `:scheme: https` by their index, all else by literals without Huffman's code.
    let mut block = vec![0x83, 0x87];
    // `:path`, `:authority` and `content-type` by the index of their names.
    for (name, value) in [
        (&[0x04][..], path),
        (&[0x01], "localhost"),
        (&[0x0f, 0x10], "application/grpc"),
    ] {
        block.extend_from_slice(name);
        literal(&mut block, value);
    }
    block.push(0);
    literal(&mut block, "te");
    literal(&mut block, "trailers");
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// A part of the body of a request.
pub(super) fn data(stream: u32, bytes: &[u8], is_last: bool) -> Vec<u8> {
    frame(DATA, if is_last { END_STREAM } else { 0 }, stream, bytes)
}

fn literal(block: &mut Vec<u8>, text: &str) {
    block.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
    block.extend_from_slice(text.as_bytes());
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt as _, Empty};
    use hyper::{Request, Response, body::Bytes, body::Incoming, server::conn::http2, service::service_fn};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::{
        io::{AsyncWriteExt as _, duplex},
        sync::mpsc,
    };

    use super::*;

    #[tokio::test]
    async fn a_server_reads_them_as_a_request() {
        let (mut client, server) = duplex(64 * 1024);
        let (sender, mut requests) = mpsc::unbounded_channel();
        let service = service_fn(move |request: Request<Incoming>| {
            let sender = sender.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.expect("a body").to_bytes();
                sender.send((parts, body)).expect("a receiver");
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        });
        tokio::spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(server), service));
        client.write_all(PREFACE).await.expect("sent");
        client.write_all(&headers(1, "/a.B/C")).await.expect("sent");
        client.write_all(&data(1, &[7; 3], false)).await.expect("sent");
        client.write_all(&data(1, &[8; 2], true)).await.expect("sent");
        let (parts, body) = requests.recv().await.expect("a request");
        assert_eq!((parts.method.as_str(), parts.uri.path()), ("POST", "/a.B/C"));
        assert_eq!(parts.headers["content-type"], "application/grpc");
        assert_eq!(parts.headers["te"], "trailers");
        assert_eq!(&body[..], [7, 7, 7, 8, 8]);
    }
}
