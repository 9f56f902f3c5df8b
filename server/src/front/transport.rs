//! How calls reach the services: the port, TLS, and the layers that every call passes.

pub(crate) mod connection;
pub(crate) mod deadline;
pub(crate) mod interceptor;
pub(crate) mod layers;
pub(crate) mod listener;
pub(crate) mod metrics;
