//! Decides when a provider namespace is requested for a consumer namespace and when it is given up, and sends the requests.

pub(crate) mod mapped;
mod reconcile;
