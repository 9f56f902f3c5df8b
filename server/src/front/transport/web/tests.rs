use std::convert::Infallible;

use bytes::Bytes;
use futures::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::front::{
    Metrics, Peer,
    transport::{connection::Connection, serve::serve},
};

const PATH: &str = "/kubebind.v1alpha2.ExportService/GetExport";
const MESSAGE: &[u8] = b"\0\0\0\0\x02\x08\x01";

fn endpoint(address: &str, origins: &[&'static str]) -> GrpcEndpoint {
    GrpcEndpoint {
        address: address.to_owned(),
        former: vec!["https://old.example.com/former".to_owned()],
        allowed_origins: origins.iter().map(|origin| HeaderValue::from_static(origin)).collect(),
        reflection: true,
    }
}

/// A connection to a server whose service answers with a message, trailers, and the path that it was called by.
fn connect(endpoint: &GrpcEndpoint) -> DuplexStream {
    let service = service_fn(|request: Request<Body>| async move {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        let frames = [Frame::data(Bytes::from_static(MESSAGE)), Frame::trailers(trailers)];
        let frames = stream::iter(frames.map(Ok::<_, Infallible>));
        let mut response = Response::new(Body::new(StreamBody::new(frames)));
        let path = HeaderValue::from_str(request.uri().path()).expect("a path");
        response.headers_mut().insert("x-path", path);
        Ok::<_, Infallible>(response)
    });
    let (client, server) = duplex(64 * 1024);
    let connections = stream::iter([Connection::new(server, Peer(([192, 0, 2, 7], 1).into()))]);
    let services = with_grpc_web(service, endpoint);
    let limits = crate::settings::tests::settings().connections;
    let metrics = Metrics::new(&mut bindery_runtime::telemetry::registry());
    tokio::spawn(serve(services, connections, limits, metrics, CancellationToken::new()));
    client
}

/// Sends a request by HTTP/1.1, and returns all that comes back.
async fn exchange(endpoint: &GrpcEndpoint, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let mut connection = connect(endpoint);
    let headers: String = headers
        .iter()
        .map(|(name, value)| [name, ": ", value, "\r\n"].concat())
        .collect();
    let length = MESSAGE.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: bind.example.com\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).await.expect("sent");
    connection.write_all(MESSAGE).await.expect("sent");
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await.expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

const WEB: (&str, &str) = ("content-type", "application/grpc-web+proto");

#[tokio::test]
async fn the_trailers_of_a_call_over_http_1_1_are_in_its_body() {
    let endpoint = endpoint("https://bind.example.com", &[]);
    let answer = exchange(&endpoint, "POST", PATH, &[WEB]).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(
        answer.contains("content-type: application/grpc-web+proto\r\n"),
        "{answer}"
    );
    assert!(answer.contains("grpc-status:0\r\n"), "{answer}");
    assert!(!answer.contains("access-control"), "{answer}");
}

#[tokio::test]
async fn what_is_no_grpc_web_is_told_so_over_http_1_1() {
    let endpoint = endpoint("https://bind.example.com", &[]);
    for (method, headers) in [
        ("POST", &[("content-type", "application/grpc")][..]),
        ("GET", &[]),
        ("OPTIONS", &[("origin", "https://console.example.com")]),
    ] {
        let answer = exchange(&endpoint, method, PATH, headers).await;
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{method}: {answer}");
        assert!(answer.contains("answers gRPC-Web only"), "{method}: {answer}");
    }
    let answer = exchange(&endpoint, "GET", PATH, &[WEB]).await;
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
}

#[tokio::test]
async fn headers_are_limited_as_over_http_2() {
    let endpoint = endpoint("https://bind.example.com", &[]);
    let fits = "a".repeat(HEADER_BYTES_MAX as usize - 1024);
    let answer = exchange(&endpoint, "POST", PATH, &[WEB, ("x-padding", &fits)]).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let exceeds = "a".repeat(HEADER_BYTES_MAX as usize);
    let answer = exchange(&endpoint, "POST", PATH, &[WEB, ("x-padding", &exceeds)]).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_its_headers_slowly_is_cut_off() {
    let mut connection = connect(&endpoint("https://bind.example.com", &[]));
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: bind.example.com\r\n");
    connection.write_all(head.as_bytes()).await.expect("sent");
    let trickle = async {
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if connection.write_all(b"x: y\r\n").await.is_err() {
                return;
            }
        }
        panic!("the connection is still open");
    };
    timeout(Duration::from_secs(40), trickle).await.expect("cut off");
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_next_request_is_closed() {
    let mut connection = connect(&endpoint("https://bind.example.com", &[]));
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: bind.example.com\r\ncontent-length: 0\r\ncontent-type: {}\r\n\r\n",
        WEB.1
    );
    connection.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    let whole = connection.read_to_end(&mut answer);
    timeout(Duration::from_secs(40), whole)
        .await
        .expect("closed")
        .expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn a_prefix_that_a_proxy_left_is_taken_off() {
    let endpoint = endpoint("https://bind.example.com/bindery", &[]);
    for (path, expect) in [
        (PATH.to_owned(), PATH.to_owned()),
        (format!("/bindery{PATH}"), PATH.to_owned()),
        (format!("/former{PATH}"), PATH.to_owned()),
        (format!("/bindery/bindery{PATH}"), format!("/bindery{PATH}")),
        (format!("/binderyx{PATH}"), format!("/binderyx{PATH}")),
        (format!("/other{PATH}"), format!("/other{PATH}")),
    ] {
        let answer = exchange(&endpoint, "POST", &path, &[WEB]).await;
        assert!(answer.contains(&format!("x-path: {expect}\r\n")), "{path}: {answer}");
    }
}

#[tokio::test]
async fn only_pages_of_the_allowed_origins_may_call() {
    let endpoint = endpoint("https://bind.example.com", &["https://console.example.com"]);
    let preflight = async |origin: &str| {
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            (
                "access-control-request-headers",
                "authorization,content-type,x-grpc-web",
            ),
        ];
        exchange(&endpoint, "OPTIONS", PATH, &headers).await
    };
    let allowed = preflight("https://console.example.com").await;
    assert!(allowed.starts_with("HTTP/1.1 200 "), "{allowed}");
    assert!(
        allowed.contains("access-control-allow-origin: https://console.example.com\r\n"),
        "{allowed}"
    );
    assert!(allowed.contains("authorization"), "{allowed}");
    assert!(!allowed.contains("access-control-allow-credentials"), "{allowed}");
    for origin in [
        "https://evil.example.com",
        "http://console.example.com",
        "https://console.example.com.evil.com",
        "null",
    ] {
        let refused = preflight(origin).await;
        assert!(!refused.contains("access-control-allow-origin"), "{origin}: {refused}");
    }
    let call = exchange(
        &endpoint,
        "POST",
        PATH,
        &[WEB, ("origin", "https://console.example.com")],
    )
    .await;
    assert!(
        call.contains("access-control-allow-origin: https://console.example.com\r\n"),
        "{call}"
    );
    assert!(call.contains("grpc-status-details-bin"), "exposed: {call}");
}
