//! What server and konnector share: Kubernetes clients, watches, work queues, leader election, CRD installation,
//! telemetry and the admin port.

pub mod admin;
pub mod backoff;
pub mod cache;
pub mod client;
pub mod crds;
pub mod descriptors;
pub mod errors;
pub mod events;
pub mod guard;
pub mod held_body;
pub mod json;
pub mod kubeconfig;
pub mod lease;
pub mod managed_fields;
pub mod policy;
pub mod preconditions;
pub mod queue;
pub mod shutdown;
pub mod telemetry;
#[cfg(feature = "terminal")]
pub mod terminal;
#[cfg(feature = "traces")]
pub mod traces;
pub mod watch;
