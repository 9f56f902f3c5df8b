//! Metrics of the traffic with API servers: requests, answers, bytes, and open connections.

use std::{
    io::{self, IoSlice},
    ops::Sub,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Method, StatusCode};
use hyper_util::client::legacy::connect::{Connected, Connection};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::telemetry::Registry;

/// The metrics `kubernetes_requests`, `kubernetes_responses`, `kubernetes_bytes` and `kubernetes_connections` of all clusters.
#[derive(Debug, Default)]
pub struct TrafficMetrics {
    requests: Family<RequestLabels, Counter>,
    responses: Family<ResponseLabels, Counter>,
    bytes: Family<ByteLabels, Counter>,
    connections: Family<ConnectionLabels, Gauge>,
}

/// Counters of the traffic with one cluster. Clones share them.
#[derive(Clone, Debug)]
pub struct ClusterTraffic(Arc<PoolsTraffic>);

#[derive(Debug)]
struct PoolsTraffic {
    watch: PoolTraffic,
    write: PoolTraffic,
    lease: PoolTraffic,
}

/// Counters of one pool of connections.
#[derive(Clone, Debug)]
pub(super) struct PoolTraffic {
    requests: [Counter; METHOD_LABELS.len()],
    /// Of all pools of the cluster.
    responses: Arc<[Counter; CODE_LABELS.len()]>,
    connections: Gauge,
    /// Bytes of all pools of the cluster.
    sent: Counter,
    received: Counter,
}

/// Traffic with one cluster, summed over its pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TrafficTotals {
    /// Requests that were sent, whether or not they were answered.
    pub requests: u64,
    /// Bytes that were sent, after TLS encryption.
    pub bytes_sent: u64,
    /// Bytes that were received, before TLS decryption.
    pub bytes_received: u64,
    /// Connections that are open.
    pub connections: u64,
}

/// A stream whose bytes are counted, and which counts as an open connection until it is dropped.
#[derive(Debug)]
pub(super) struct CountedStream<S> {
    stream: S,
    traffic: PoolTraffic,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    cluster: &'static str,
    pool: &'static str,
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResponseLabels {
    cluster: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByteLabels {
    cluster: &'static str,
    direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConnectionLabels {
    cluster: &'static str,
    pool: &'static str,
}

/// Values of the label `method`; all other methods count as the last.
const METHOD_LABELS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "other"];
/// Values of the label `code`; all other status codes count as the last.
const CODE_LABELS: [&str; 16] = [
    "200", "201", "202", "400", "401", "403", "404", "405", "409", "410", "422", "429", "500", "503", "504", "other",
];

// === impl TrafficMetrics ===

impl TrafficMetrics {
    /// Makes the metrics and adds them to a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let traffic = Self::default();
        registry.register(
            "kubernetes_requests",
            "Requests sent to API servers, by cluster, pool of connections and method",
            traffic.requests.clone(),
        );
        registry.register(
            "kubernetes_responses",
            "Answers of API servers, by cluster and status code",
            traffic.responses.clone(),
        );
        registry.register(
            "kubernetes_bytes",
            "Bytes exchanged with API servers, as TCP carries them",
            traffic.bytes.clone(),
        );
        registry.register(
            "kubernetes_connections",
            "Open connections to API servers, by cluster and pool",
            traffic.connections.clone(),
        );
        traffic
    }

    /// Returns the counters of one cluster, for its clients. The name is the value of the label `cluster`.
    pub fn of_cluster(&self, cluster: &'static str) -> ClusterTraffic {
        let bytes = |direction| self.bytes.get_or_create_owned(&ByteLabels { cluster, direction });
        let (sent, received) = (bytes("sent"), bytes("received"));
        let responses =
            Arc::new(CODE_LABELS.map(|code| self.responses.get_or_create_owned(&ResponseLabels { cluster, code })));
        let pool = |pool| PoolTraffic {
            requests: METHOD_LABELS.map(|method| {
                self.requests
                    .get_or_create_owned(&RequestLabels { cluster, pool, method })
            }),
            responses: Arc::clone(&responses),
            connections: self
                .connections
                .get_or_create_owned(&ConnectionLabels { cluster, pool }),
            sent: sent.clone(),
            received: received.clone(),
        };
        ClusterTraffic(Arc::new(PoolsTraffic {
            watch: pool("watch"),
            write: pool("write"),
            lease: pool("lease"),
        }))
    }
}

// === impl ClusterTraffic ===

impl ClusterTraffic {
    /// Returns the traffic since the process began.
    pub fn totals(&self) -> TrafficTotals {
        let pools = [&self.0.watch, &self.0.write, &self.0.lease];
        let requests = pools.iter().flat_map(|pool| &pool.requests);
        TrafficTotals {
            requests: requests.map(Counter::get).sum(),
            bytes_sent: self.0.watch.sent.get(),
            bytes_received: self.0.watch.received.get(),
            connections: pools.iter().map(|pool| pool.connections.get().unsigned_abs()).sum(),
        }
    }

    pub(super) fn watch(&self) -> &PoolTraffic {
        &self.0.watch
    }

    pub(super) fn write(&self) -> &PoolTraffic {
        &self.0.write
    }

    pub(super) fn lease(&self) -> &PoolTraffic {
        &self.0.lease
    }
}

impl Default for ClusterTraffic {
    /// Makes counters that no registry serves.
    fn default() -> Self {
        TrafficMetrics::default().of_cluster("")
    }
}

// === impl PoolTraffic ===

impl PoolTraffic {
    pub(super) fn request(&self, method: &Method) {
        let known = METHOD_LABELS.iter().position(|known| *known == method.as_str());
        if let Some(counter) = self.requests.get(known.unwrap_or(METHOD_LABELS.len() - 1)) {
            counter.inc();
        }
    }

    pub(super) fn response(&self, status: StatusCode) {
        let known = CODE_LABELS.iter().position(|known| *known == status.as_str());
        if let Some(counter) = self.responses.get(known.unwrap_or(CODE_LABELS.len() - 1)) {
            counter.inc();
        }
    }
}

// === impl TrafficTotals ===

impl Sub for TrafficTotals {
    type Output = Self;

    /// Returns the traffic since an earlier total; connections are those that are open now.
    fn sub(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            bytes_sent: self.bytes_sent - before.bytes_sent,
            bytes_received: self.bytes_received - before.bytes_received,
            connections: self.connections,
        }
    }
}

// === impl CountedStream ===

impl<S> CountedStream<S> {
    pub(super) fn new(stream: S, traffic: PoolTraffic) -> Self {
        traffic.connections.inc();
        Self { stream, traffic }
    }
}

impl<S> Drop for CountedStream<S> {
    fn drop(&mut self) {
        self.traffic.connections.dec();
    }
}

impl<S: Connection> Connection for CountedStream<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.traffic.received.inc_by((buffer.filled().len() - before) as u64);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.traffic.sent.inc_by(written as u64);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, parts))?;
        self.traffic.sent.inc_by(written as u64);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Api, Config, api::ListParams};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::{client::Clients, telemetry};

    /// Answers one request, closes the connection, and says how long the request was.
    async fn answer_once(listener: TcpListener, answer: &str) -> u64 {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        request.len() as u64
    }

    #[tokio::test]
    async fn what_went_over_the_wire_is_counted_by_cluster_and_pool() {
        let body = r#"{"metadata":{"resourceVersion":"5"},"items":[]}"#;
        let answer = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let mut registry = telemetry::registry();
        let traffic = TrafficMetrics::register(&mut registry);
        let counted = traffic.of_cluster("consumer");
        let clients = Clients::counted(&Config::new(url.parse().unwrap()), None, 1, &counted).unwrap();
        let before = counted.totals();

        let maps: Api<ConfigMap> = Api::all(clients.write);
        let params = ListParams::default();
        let (received, listed) = tokio::join!(answer_once(listener, &answer), maps.list(&params));
        listed.unwrap();
        // The connection is dropped as soon as its task sees that the server has closed it.
        while counted.totals().connections > 0 {
            tokio::task::yield_now().await;
        }
        let expect = TrafficTotals {
            requests: 1,
            bytes_sent: received,
            bytes_received: answer.len() as u64,
            connections: 0,
        };
        assert_eq!(counted.totals() - before, expect);

        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"bindery_kubernetes_requests_total{cluster="consumer",pool="write",method="GET"} 1"#,
            r#"bindery_kubernetes_requests_total{cluster="consumer",pool="watch",method="GET"} 0"#,
            r#"bindery_kubernetes_responses_total{cluster="consumer",code="200"} 1"#,
            r#"bindery_kubernetes_responses_total{cluster="consumer",code="409"} 0"#,
            r#"bindery_kubernetes_connections{cluster="consumer",pool="write"} 0"#,
            &format!(r#"bindery_kubernetes_bytes_total{{cluster="consumer",direction="sent"}} {received}"#),
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
