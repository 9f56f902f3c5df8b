//! Provider namespaces: when one is requested for a consumer namespace, when it is given back.

pub(crate) mod mapped;
mod reconcile;
