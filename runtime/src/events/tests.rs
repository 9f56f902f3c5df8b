use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use parking_lot::Mutex;

use super::*;

/// An API server that answers the requests with these status codes, one after the other, and the methods it was called with.
fn api_server(answers: impl IntoIterator<Item = u16>) -> (Client, Arc<Mutex<Vec<Method>>>) {
    let methods = Arc::new(Mutex::new(Vec::new()));
    let called = Arc::clone(&methods);
    let answers = Mutex::new(answers.into_iter().collect::<Vec<_>>().into_iter());
    let service = tower::service_fn(move |request: Request<Body>| {
        called.lock().push(request.method().clone());
        let code = answers.lock().next().expect("no more requests than answers");
        let body = match code {
            200 => json!({"metadata": {"name": "a", "namespace": "ns"}}),
            code => {
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": "no", "code": code})
            }
        };
        let mut response = Response::new(Body::from(body.to_string().into_bytes()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    });
    (Client::new(service, "default"), methods)
}

fn reporter() -> Reporter {
    Reporter {
        controller: "kube-bind.io/test",
        action: "Test",
        instance: "test".to_owned(),
    }
}

/// Records one warning repeatedly, 40 s apart, and asserts the methods of the requests.
async fn check(answers: &[u16], expect: &[Method]) {
    let (client, methods) = api_server(answers.iter().copied());
    let recorder = Recorder::start(client, reporter());
    for _ in answers {
        recorder.warn(&ObjectReference::default(), "Conflict", "x");
        tokio::time::sleep(Duration::from_secs(40)).await;
    }
    assert_eq!(*methods.lock(), expect, "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_was_not_written_is_created_by_its_repetition() {
    check(&[500, 200, 200], &[Method::POST, Method::POST, Method::PATCH]).await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_gone_is_created_anew_and_one_that_could_not_be_counted_is_counted_later() {
    check(&[200, 404, 200], &[Method::POST, Method::PATCH, Method::POST]).await;
    check(&[200, 500, 200], &[Method::POST, Method::PATCH, Method::PATCH]).await;
}
