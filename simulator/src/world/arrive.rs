//! Requests on their way to an API server, and answers on their way back.

use bindery_runtime::client::TransportBody;
use bindery_simulator_apiserver as apiserver;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use rand::RngExt as _;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::{StreamExt as _, wrappers::UnboundedReceiverStream};
use tower::BoxError;

use super::{
    Event, Origin, Step, World,
    link::{Connect, Emission, End, HowClosed, Reply},
    process::ProcessId,
    rules::{Fate, SILENCE},
    timestamp,
};
use crate::{
    faults::{ProcessName, Target, TriggerPoint},
    topology::Cluster,
};

/// Header by which the journal of an API server names the request of a write.
const NUMBER: &str = "x-simulator-request";

/// A request that has not reached its API server.
#[derive(Debug)]
pub(super) struct InFlight {
    process: ProcessId,
    incarnation: u32,
    cluster: Cluster,
    request: Request<Bytes>,
    sent: Duration,
    /// `None` if the answer goes nowhere.
    reply: Option<Reply>,
    fate: Fate,
}

/// An answer that has not reached its process.
#[derive(Debug)]
pub(super) struct Answer {
    process: ProcessId,
    incarnation: u32,
    reply: Reply,
    response: Result<Response<TransportBody>, BoxError>,
    watch: Option<u64>,
    /// The API server that gave it, and when.
    given: Option<(Cluster, Duration)>,
}

impl World {
    /// Sends on what a process sent.
    pub(super) fn dispatch(&mut self, process: ProcessId, sent: Vec<Emission>) {
        let incarnation = self.processes[process.0].incarnation;
        for emission in sent {
            // An armed fault at one request ends the process before the next one.
            if self.processes[process.0].running.is_none() {
                break;
            }
            match emission {
                Emission::Request { request, reply } => {
                    self.depart(process, incarnation, *request, reply);
                    self.reach(process, TriggerPoint::Sent);
                }
                Emission::Dial { host, reply } => {
                    let at = self.now + self.latency();
                    let connect = Connect {
                        from: process,
                        incarnation,
                        host,
                        reply,
                    };
                    self.queue.push(at, Event::Connect(Box::new(connect)));
                }
                Emission::Bytes { connection, to, bytes } => {
                    if let Some(at) = self.carry(connection, to, process) {
                        self.queue.push(at, Event::Bytes { connection, to, bytes });
                    }
                }
                Emission::Close { connection, to } => {
                    let how = HowClosed::Orderly;
                    if let Some(at) = self.carry(connection, to, process) {
                        self.queue.push(at, Event::Close { connection, to, how });
                    }
                }
            }
        }
    }

    /// A request leaves its process.
    fn depart(&mut self, process: ProcessId, incarnation: u32, mut request: Request<Bytes>, reply: Reply) {
        let host = request.uri().host().unwrap_or_default().to_owned();
        let Some(cluster) = self.cluster_of_host(&host) else {
            let answer = Answer {
                process,
                incarnation,
                reply,
                response: Err(format!("{host} is unknown").into()),
                watch: None,
                given: None,
            };
            self.answer(answer, Duration::ZERO);
            return;
        };
        let fate = self.fate(process, Target::Api(cluster));
        if fate.is_lost {
            self.break_off(process, incarnation, reply);
            return;
        }
        let name = self.processes[process.0].name;
        let sent = self.now;
        let informed = match name {
            Some(ProcessName::Konnector { of, .. }) => {
                let heard = self.processes[process.0].heard.get(&of);
                heard.copied().unwrap_or_default()
            }
            Some(ProcessName::Server { .. }) | None => sent,
        };
        let number = self.number(name.map(|process| Origin {
            process,
            incarnation,
            sent,
            informed,
            is_disturbed: fate.is_doubled || fate.is_answer_lost || !fate.delay.is_zero(),
        }));
        request.headers_mut().insert(NUMBER, number);
        if fate.is_doubled {
            let millis = if self.random.random_bool(0.2) {
                self.random.random_range(1_000..30_000)
            } else {
                self.random.random_range(1..500)
            };
            let at = self.now + self.latency() + Duration::from_millis(millis);
            self.late(at);
            let twin = InFlight {
                process,
                incarnation,
                cluster,
                request: copy(&request),
                sent,
                reply: None,
                fate: Fate::default(),
            };
            self.queue.push(at, Event::Arrive(Box::new(twin)));
        }
        let at = self.now + self.latency() + fate.delay;
        if !fate.delay.is_zero() {
            // The answer takes as long.
            self.late(at + fate.delay);
        }
        let request = InFlight {
            process,
            incarnation,
            cluster,
            request,
            sent,
            reply: Some(reply),
            fate,
        };
        self.queue.push(at, Event::Arrive(Box::new(request)));
    }

    /// The number of the next request, for its header.
    fn number(&mut self, origin: Option<Origin>) -> HeaderValue {
        let number = self.origins.len();
        self.origins.push(origin);
        HeaderValue::from(number)
    }

    /// Lets a client learn after a while that its connection is broken, or at once.
    fn break_off(&mut self, process: ProcessId, incarnation: u32, reply: Reply) {
        let delay = if self.random.random_bool(0.5) {
            SILENCE
        } else {
            Duration::ZERO
        };
        self.late(self.now + delay);
        self.reset(process, incarnation, reply, delay);
    }

    /// Lets a client learn after a time that its connection is broken.
    fn reset(&mut self, process: ProcessId, incarnation: u32, reply: Reply, delay: Duration) {
        let answer = Answer {
            process,
            incarnation,
            reply,
            response: Err("connection reset by peer".into()),
            watch: None,
            given: None,
        };
        self.answer(answer, delay);
    }

    fn answer(&mut self, answer: Answer, delay: Duration) {
        let at = self.now + self.latency() + delay;
        self.queue.push(at, Event::Answer(Box::new(answer)));
    }

    /// A request reaches its API server.
    pub(super) fn arrive(&mut self, arriving: InFlight) -> Step {
        let InFlight {
            process,
            incarnation,
            cluster,
            request,
            sent,
            reply,
            fate,
        } = arriving;
        let step = Step::Request(cluster);
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str())
            .to_owned();
        let label = &self.processes[process.0].label;
        let told = format!("{label} → {cluster}: {} {path}", request.method());
        let now = timestamp(self.now);
        let Some(slot) = self.clusters.get_mut(&cluster) else {
            self.trace.line(self.now, &format!("{told}: no cluster"));
            if let Some(reply) = reply {
                self.break_off(process, incarnation, reply);
            }
            return step;
        };
        // No client opens a watch from what it listed before a restore without having lost a connection.
        if sent < slot.away_until && parameter(&request, "watch").is_some() {
            self.trace
                .line(self.now, &format!("{told}: not answered during a restore"));
            if let Some(reply) = reply {
                self.reset(process, incarnation, reply, Duration::ZERO);
            }
            return step;
        }
        let answer = match fate.refused {
            Some(status) => apiserver::Answer::Whole(refusal(status)),
            None => slot.api.handle(now, &request),
        };
        let (answer, watch, status) = match answer {
            apiserver::Answer::Whole(answer) => {
                let status = answer.status();
                (answer.map(whole), None, status)
            }
            apiserver::Answer::Watch { head, id } => {
                let status = head.status();
                let (sender, receiver) = mpsc::unbounded_channel();
                let stream =
                    UnboundedReceiverStream::new(receiver).map(|bytes: Result<Bytes, BoxError>| bytes.map(Frame::data));
                let body = TransportBody::new(StreamBody::new(stream));
                let shown = format!("{} of {cluster}", request.uri().path());
                let number = self.watches.open((cluster, id), (process, incarnation), sender, shown);
                if let Some(seconds) = timeout_of(&request) {
                    self.queue.push(self.now + seconds, Event::WatchOver(number));
                }
                (head.map(|()| body), Some(number), status)
            }
        };
        let lost = if fate.is_answer_lost {
            ", and the answer is lost"
        } else {
            ""
        };
        self.trace.line(self.now, &format!("{told}: {}{lost}", status.as_u16()));
        self.after_writes(cluster);
        match reply {
            Some(reply) if !fate.is_answer_lost => {
                let answer = Answer {
                    process,
                    incarnation,
                    reply,
                    response: Ok(answer),
                    watch,
                    given: Some((cluster, self.now)),
                };
                self.answer(answer, fate.delay);
            }
            reply => {
                // Nobody reads a watch whose answer is lost.
                drop(answer);
                if let Some(watch) = watch {
                    self.close_watch(watch);
                }
                if let Some(reply) = reply {
                    self.break_off(process, incarnation, reply);
                }
            }
        }
        if self.processes[process.0].incarnation == incarnation {
            self.reach(process, TriggerPoint::Arrived);
        }
        step
    }

    /// An answer reaches its process; false if the process has ended meanwhile.
    pub(super) fn deliver_answer(&mut self, answer: Answer) -> bool {
        let Answer {
            process,
            incarnation,
            reply,
            response,
            watch,
            given,
        } = answer;
        let slot = &mut self.processes[process.0];
        let is_there = slot.incarnation == incarnation && slot.running.is_some();
        if let Some((cluster, at)) = given.filter(|_| is_there) {
            let heard = slot.heard.entry(cluster).or_default();
            *heard = at.max(*heard);
        }
        // Sending fails if the client gave up.
        let is_taken = is_there && reply.send(response).is_ok();
        if is_taken {
            self.reach(process, TriggerPoint::Answered);
            self.run(process);
        }
        match watch {
            Some(watch) if is_taken => self.watch_answered(watch),
            Some(watch) => self.close_watch(watch),
            None => {}
        }
        is_taken
    }

    /// Sends a person's request to an API server, which answers at once.
    pub(super) fn answer_person(
        &mut self,
        cluster: Cluster,
        user: &str,
        mut request: Request<Bytes>,
    ) -> Response<Bytes> {
        let number = self.number(None);
        request.headers_mut().insert(NUMBER, number);
        if let Ok(token) = HeaderValue::try_from(format!("Bearer {user}")) {
            request.headers_mut().insert(header::AUTHORIZATION, token);
        }
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str())
            .to_owned();
        let now = timestamp(self.now);
        let Some(slot) = self.clusters.get_mut(&cluster) else {
            return refusal(StatusCode::SERVICE_UNAVAILABLE);
        };
        let before = slot.api.revision();
        let answer = match slot.api.handle(now, &request) {
            apiserver::Answer::Whole(answer) => answer,
            apiserver::Answer::Watch { id, .. } => {
                slot.api.end_watch(id);
                refusal(StatusCode::BAD_REQUEST)
            }
        };
        if slot.api.revision() != before {
            self.changed_by_people += 1;
        }
        if request.method() != Method::GET {
            let line = format!(
                "{user} → {cluster}: {} {path}: {}",
                request.method(),
                answer.status().as_u16()
            );
            self.trace.line(self.now, &line);
        }
        self.after_writes(cluster);
        answer
    }

    /// When something on a connection arrives at an end; `None` if the connection is gone.
    fn carry(&mut self, connection: u64, to: End, from: ProcessId) -> Option<Duration> {
        let (client, provider) = {
            let known = self.connections.get(connection)?;
            (known.client, known.provider)
        };
        let fate = self.fate(client, Target::Grpc(provider));
        let delay = self.latency() + fate.delay;
        if fate.is_lost || fate.refused.is_some() || fate.is_answer_lost && from != client {
            // Both ends notice.
            let at = self.now + SILENCE;
            self.late(at);
            for end in [End::Client, End::Server] {
                let (to, how) = (end, HowClosed::Reset);
                self.queue.push(at, Event::Close { connection, to, how });
            }
            return None;
        }
        let known = self.connections.get_mut(connection)?;
        let last = &mut known.last[to.index()];
        *last = (*last).max(self.now + delay);
        let at = *last;
        self.late(at);
        Some(at)
    }

    /// Opens a connection to a replica of a server.
    pub(super) fn connect(&mut self, connect: Connect) {
        let Connect {
            from,
            incarnation,
            host,
            reply,
        } = connect;
        let client = &self.processes[from.0];
        let Some(client_outbox) = client.running.as_ref().map(|running| running.outbox.clone()) else {
            return;
        };
        if client.incarnation != incarnation {
            return;
        }
        let provider = self
            .topology
            .provider_numbers()
            .find(|number| grpc_host(*number) == host);
        let mut ports = Vec::new();
        for (index, slot) in self.processes.iter().enumerate() {
            let is_of_host = matches!(slot.name, Some(crate::faults::ProcessName::Server { provider: of, .. }) if Some(of) == provider);
            if is_of_host && slot.running.as_ref().is_some_and(|running| running.incoming.is_some()) {
                ports.push(ProcessId(index));
            }
        }
        let fate = match provider {
            Some(provider) => self.fate(from, Target::Grpc(provider)),
            None => Fate::default(),
        };
        let is_broken = fate.is_lost || fate.refused.is_some();
        if is_broken || ports.is_empty() {
            let _ = reply.send(Err(std::io::ErrorKind::ConnectionRefused.into()));
            self.run(from);
            return;
        }
        let server = ports[self.random.random_range(0..ports.len())];
        let line = format!(
            "{} connects to {}",
            self.processes[from.0].label, self.processes[server.0].label
        );
        self.trace.line(self.now, &line);
        if let Some(running) = &self.processes[server.0].running
            && let Some(incoming) = &running.incoming
        {
            let provider = provider.unwrap_or_default();
            let (ours, theirs) = self
                .connections
                .open((from, &client_outbox), (server, &running.outbox), provider);
            // A process that does not accept drops the stream, which closes the connection.
            let _ = incoming.send(theirs);
            let _ = reply.send(Ok(ours));
        }
        self.run(server);
        self.run(from);
    }

    /// Bytes arrive at an end; false if nobody is there.
    pub(super) fn deliver_bytes(&mut self, connection: u64, to: End, bytes: Bytes) -> bool {
        let Some(known) = self.connections.get(connection) else {
            return false;
        };
        known.arrive(to, bytes);
        let process = known.process(to);
        self.run(process);
        true
    }

    /// An end learns that a connection is closed; false if nobody is there.
    pub(super) fn deliver_close(&mut self, connection: u64, to: End, how: HowClosed) -> bool {
        let Some(known) = self.connections.get(connection) else {
            return false;
        };
        let is_over = known.close(to, how);
        let process = known.process(to);
        if is_over {
            self.connections.forget(connection);
        }
        self.run(process);
        true
    }
}

/// The host name of a server's gRPC port.
pub(crate) fn grpc_host(provider: u8) -> String {
    format!("bind-{provider}.sim")
}

fn copy(request: &Request<Bytes>) -> Request<Bytes> {
    let mut copy = Request::new(request.body().clone());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

fn whole(bytes: Bytes) -> TransportBody {
    TransportBody::new(Full::new(bytes).map_err(|never| match never {}))
}

fn parameter<'a>(request: &'a Request<Bytes>, name: &str) -> Option<&'a str> {
    let pairs = request.uri().query()?.split('&');
    pairs
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

/// When the client wants a watch to end.
fn timeout_of(request: &Request<Bytes>) -> Option<Duration> {
    Some(Duration::from_secs(parameter(request, "timeoutSeconds")?.parse().ok()?))
}

/// An answer with which an API server refuses to work.
fn refusal(status: StatusCode) -> Response<Bytes> {
    let reason = match status {
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::INTERNAL_SERVER_ERROR => "InternalError",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        _ => "ServiceUnavailable",
    };
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "refused by the simulator", "reason": reason, "code": status.as_u16(),
    });
    let mut answer = Response::new(Bytes::from(body.to_string()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}
