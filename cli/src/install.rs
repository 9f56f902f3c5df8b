//! What a bind installs on the consumer cluster. Nothing here reads or writes.

pub(crate) mod conflict;
pub(crate) mod manifests;
pub(crate) mod owner;
pub(crate) mod plan;
mod rules;
pub(crate) mod write;
