//! How calls reach the services: the port, TLS, and the layers that every call passes.

use http::HeaderName;

pub(crate) mod connection;
pub(crate) mod deadline;
pub(crate) mod interceptor;
pub(crate) mod layers;
pub(crate) mod listener;
pub(crate) mod metrics;
mod open_calls;
pub(crate) mod places;
pub(crate) mod serve;
mod traces;
pub(crate) mod web;

/// The header with the id of a request, of the caller's choice or made by the layers, by which the log names the call.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
