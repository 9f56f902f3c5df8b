//! What a bind installs on the consumer cluster. Nothing here reads or writes.

pub(crate) mod manifests;
pub(crate) mod owner;
pub(crate) mod plan;
pub(crate) mod write;
