use bindery_runtime::telemetry::{self, Registry};
use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::{body::Frame, client::conn::http2};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    task::JoinHandle,
    time::Instant,
};
use tower::service_fn as tower_fn;

use super::*;
use crate::front::{Peer, transport::places::Places};

/// A connection that is served, and the task that ends with it.
struct Served {
    client: DuplexStream,
    serving: JoinHandle<()>,
    registry: Registry,
    stop: CancellationToken,
}

fn limits() -> ConnectionLimits {
    crate::settings::tests::settings().connections
}

/// Answers at once; at path `/stream` with a body that never ends.
fn served_at(place: Option<Arc<Place>>) -> Served {
    let services = tower_fn(|request: Request<Body>| async move {
        let endless = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        Ok(Response::new(match request.uri().path() {
            "/stream" => Body::new(endless),
            _ => Body::empty(),
        }))
    });
    let (client, server) = duplex(64 * 1024);
    let connection = Connection::new(server, Peer(([192, 0, 2, 7], 1).into()));
    let connection = match place {
        Some(place) => connection.at(place),
        None => connection,
    };
    let mut registry = telemetry::registry();
    let (metrics, stop) = (Metrics::new(&mut registry), CancellationToken::new());
    let connections = stream::iter([connection]);
    let serving = tokio::spawn(serve(services, connections, limits(), metrics, stop.clone()));
    Served {
        client,
        serving,
        registry,
        stop,
    }
}

type Sender = http2::SendRequest<Empty<Bytes>>;

/// A client of HTTP/2. The task ends with the connection.
async fn http2(client: DuplexStream) -> (Sender, JoinHandle<hyper::Result<()>>) {
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(client))
        .await
        .expect("a handshake");
    (sender, tokio::spawn(connection))
}

async fn get(sender: &mut Sender, path: &str) -> hyper::Result<Incoming> {
    let uri = format!("http://bind.example.com{path}");
    let request = Request::get(uri).body(Empty::new()).expect("a request");
    sender.send_request(request).await.map(Response::into_body)
}

#[track_caller]
fn check_counted(registry: &Registry, reason: &str) {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).expect("text");
    let line = format!("bindery_grpc_connection_ends_total{{reason=\"{reason}\"}} 1");
    assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_begin_is_cut_off() {
    for begun_with in [
        &b""[..],
        b"PRI * HTTP/2.0",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        b"POST / HTTP/1.1\r\nhost: a\r\n",
    ] {
        let served = served_at(None);
        let (mut reader, mut writer) = tokio::io::split(served.client);
        let (begun, mut received) = (Instant::now(), Vec::new());
        let trickle = async {
            for byte in begun_with {
                writer.write_all(&[*byte]).await.expect("sent");
                sleep(Duration::from_millis(200)).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = trickle => {}
            read = reader.read_to_end(&mut received) => {
                read.expect("an end");
            }
        }
        let name = String::from_utf8_lossy(begun_with);
        assert_eq!(begun.elapsed().as_secs(), limits().first_request.as_secs(), "{name}");
        served.serving.await.expect("no panic");
        check_counted(&served.registry, "first_request");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_call_is_told_to_go() {
    let served = served_at(None);
    let (mut sender, connection) = http2(served.client).await;
    let stream = get(&mut sender, "/stream").await.expect("an answer");
    sleep(limits().idle * 3).await;
    let answer = get(&mut sender, "/").await;
    assert!(answer.is_ok(), "while a stream is open, the connection is not idle");
    drop(answer);
    drop(stream);
    let begun = Instant::now();
    connection.await.expect("no panic").expect("an end in good order");
    assert_eq!(begun.elapsed().as_secs(), limits().idle.as_secs());
    served.serving.await.expect("no panic");
    check_counted(&served.registry, "idle");
}

#[tokio::test(start_paused = true)]
async fn an_old_connection_takes_no_more_calls_and_ends_with_the_last_one() {
    let served = served_at(None);
    let (mut sender, _connection) = http2(served.client).await;
    let begun = Instant::now();
    let mut stream = get(&mut sender, "/stream").await.expect("an answer");
    while get(&mut sender, "/").await.is_ok() {
        sleep(Duration::from_secs(10)).await;
    }
    let age = begun.elapsed();
    assert!(
        age <= limits().age + Duration::from_secs(10) && age >= limits().age.mul_f64(0.9),
        "{age:?}"
    );
    let frame = timeout(Duration::from_mins(1), stream.frame()).await;
    assert!(frame.is_err(), "the stream goes on");
    drop(stream);
    let begun = Instant::now();
    served.serving.await.expect("no panic");
    assert!(begun.elapsed() <= LINGER, "{:?}", begun.elapsed());
    check_counted(&served.registry, "age");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_end_holds_an_old_connection_for_a_limited_time() {
    let served = served_at(None);
    let (mut sender, _connection) = http2(served.client).await;
    let begun = Instant::now();
    let mut stream = get(&mut sender, "/stream").await.expect("an answer");
    let frame = stream.frame().await.expect("an end");
    assert!(frame.is_err());
    served.serving.await.expect("no panic");
    let age = begun.elapsed().saturating_sub(GRACE);
    assert!(age <= limits().age && age >= limits().age.mul_f64(0.9), "{age:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_place_is_taken_ends_at_once() {
    let places = Places::new(limits());
    let place = Arc::new(places.admit([192, 0, 2, 7].into()).expect("a place"));
    let served = served_at(Some(Arc::clone(&place)));
    let (mut sender, _connection) = http2(served.client).await;
    let _stream = get(&mut sender, "/stream").await.expect("an answer");
    let begun = Instant::now();
    place.close(ConnectionEnd::Displaced);
    served.serving.await.expect("no panic");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    check_counted(&served.registry, "displaced");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_calls_under_way() {
    let served = served_at(None);
    let (mut sender, _connection) = http2(served.client).await;
    let stream = get(&mut sender, "/stream").await.expect("an answer");
    served.stop.cancel();
    sleep(Duration::from_mins(1)).await;
    assert!(!served.serving.is_finished());
    drop(stream);
    served.serving.await.expect("no panic");
}
