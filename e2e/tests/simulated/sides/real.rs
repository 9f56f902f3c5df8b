//! The real API server: one for all sequences, each of which has names of its own.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{task::JoinHandle, time::sleep};

use super::{Answer, wire::Wire};
use crate::generate::step::User;

/// By its first part, the API server names the field manager of requests that name none.
pub(crate) const USER_AGENT: &str = "simulated/1.0";

/// How long an expected event may take.
const EVENTS_LIMIT: Duration = Duration::from_secs(10);

/// How long is waited for events that are not expected.
const MORE: Duration = Duration::from_millis(60);

#[derive(Debug)]
pub(crate) struct Real {
    admin: Arc<Admin>,
    groups: BTreeMap<String, Vec<String>>,
    watches: BTreeMap<usize, Stream>,
}

/// The connections to the API server.
pub(crate) struct Admin {
    /// With the admin's certificate.
    pub(crate) client: Client,
    /// With none, for requests with tokens.
    pub(crate) anonymous: Client,
}

/// A watch, and the task that reads it.
#[derive(Debug)]
struct Stream {
    received: Arc<Mutex<Received>>,
    reader: JoinHandle<()>,
}

/// What came on a watch.
#[derive(Debug, Default)]
struct Received {
    /// Events that were not taken yet.
    events: Vec<Value>,
    /// How the stream ended: `end`, or the error. None while it goes on.
    end: Option<String>,
}

impl Real {
    /// One sequence's view of the API server.
    pub(crate) fn new(admin: Arc<Admin>, groups: BTreeMap<String, Vec<String>>) -> Self {
        Self {
            admin,
            groups,
            watches: BTreeMap::new(),
        }
    }

    pub(crate) async fn call(&self, wire: &Wire) -> Result<Answer> {
        let (head, body) = self.send(wire).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer::new(head.status.as_u16(), &head.headers, &body))
    }

    /// Opens a watch. Returns the head, or the whole answer of a request that was refused.
    pub(crate) async fn watch(&mut self, number: usize, wire: &Wire) -> Result<Answer> {
        let (head, body) = self.send(wire).await?.into_parts();
        if !head.status.is_success() {
            let body = body.collect().await?.to_bytes();
            return Ok(Answer::new(head.status.as_u16(), &head.headers, &body));
        }
        let received = Arc::new(Mutex::new(Received::default()));
        let reader = tokio::spawn(read(body, Arc::clone(&received)));
        self.watches.insert(number, Stream { received, reader });
        Ok(Answer::new(head.status.as_u16(), &head.headers, b""))
    }

    /// Takes the events of a watch: waits for as many as are expected, and a moment for more.
    pub(crate) async fn events(&mut self, number: usize, expected: usize) -> Vec<Value> {
        let Some(stream) = self.watches.get(&number) else {
            return Vec::new();
        };
        let start = Instant::now();
        while stream.received.lock().events.len() < expected && start.elapsed() < EVENTS_LIMIT {
            sleep(Duration::from_millis(5)).await;
        }
        sleep(MORE).await;
        std::mem::take(&mut stream.received.lock().events)
    }

    /// Waits for the end of a watch. Returns how it ended: `end`, the error of the connection, or `open` if it goes on.
    pub(crate) async fn end(&self, number: usize) -> String {
        let Some(stream) = self.watches.get(&number) else {
            return "end".to_owned();
        };
        let start = Instant::now();
        loop {
            let end = stream.received.lock().end.clone();
            match end {
                Some(end) => return end,
                None if start.elapsed() > EVENTS_LIMIT => return "open".to_owned(),
                None => sleep(Duration::from_millis(5)).await,
            }
        }
    }

    async fn send(&self, wire: &Wire) -> Result<Response<Body>> {
        let mut request = Request::builder()
            .method(wire.method.clone())
            .uri(&wire.uri)
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT, wire.accept);
        if wire.body.is_some() {
            request = request.header(header::CONTENT_TYPE, wire.content_type);
        }
        let client = match &wire.user {
            User::Token(token) => {
                request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
                &self.admin.anonymous
            }
            User::Admin => &self.admin.client,
            User::Named(name) => {
                request = request.header("impersonate-user", name);
                for group in self.groups.get(name).into_iter().flatten() {
                    request = request.header("impersonate-group", group);
                }
                &self.admin.client
            }
        };
        let body = wire.body.clone().unwrap_or_default();
        let request = request.body(Body::from(Bytes::from(body).to_vec()))?;
        let sent = client.send(request).await;
        sent.with_context(|| format!("{} {}", wire.method, wire.uri))
    }
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read(mut body: Body, received: Arc<Mutex<Received>>) {
    let mut rest = Vec::new();
    let end = loop {
        let frame = match body.frame().await {
            None => break "end".to_owned(),
            Some(Err(error)) => break error.to_string(),
            Some(Ok(frame)) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        rest.extend_from_slice(&data);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let value = serde_json::from_slice(&line);
            let value: Value = value.unwrap_or_else(|_| String::from_utf8_lossy(&line).into_owned().into());
            if !is_periodic(&value) {
                received.lock().events.push(value);
            }
        }
    };
    received.lock().end = Some(end);
}

/// If an event is a bookmark that the API server sends from time to time, and not the one that ends the initial events.
fn is_periodic(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"].is_null()
}
