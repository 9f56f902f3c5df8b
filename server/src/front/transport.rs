//! How calls reach the services: the port, TLS, and the layers that every call passes.

use std::time::Duration;

use http::HeaderName;
use tonic::transport::Server;

use crate::front::limits::{HEADER_BYTES_MAX, STREAMS_PER_CONNECTION};

pub(crate) mod connection;
pub(crate) mod deadline;
pub(crate) mod interceptor;
pub(crate) mod layers;
pub(crate) mod listener;
pub(crate) mod metrics;
pub(crate) mod web;

/// The header with the id of a request, of the caller's choice or made by the layers, by which the log names the call.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The HTTP server: HTTP/2, and HTTP/1.1 for gRPC-Web. Over HTTP/1.1, hyper closes a connection whose next request has not sent its
/// headers within 30 s.
pub(crate) fn http_server() -> Server {
    Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .http2_keepalive_timeout(Some(Duration::from_secs(20)))
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .initial_stream_window_size(64 * 1024)
        .initial_connection_window_size(256 * 1024)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .accept_http1(true)
}
