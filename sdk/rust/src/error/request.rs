//! Requests to bind that failed or are still pending.

use std::fmt;
use std::time::Duration;

use bindery_proto::v1alpha2::{BindableResourcesRequest, Condition};

use super::one_line;

/// A request that the server accepted and could not fulfill.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestFailed {
    /// The request in phase FAILED; its conditions say why.
    pub request: BindableResourcesRequest,
}

/// A request that is still pending when the client stops waiting.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingError {
    /// The request in phase PENDING.
    pub request: BindableResourcesRequest,
    /// How long the client has waited.
    pub waited: Duration,
}

impl RequestFailed {
    /// Returns the condition that says why: the first one that is false.
    pub fn condition(&self) -> Option<&Condition> {
        self.request
            .status
            .as_ref()?
            .conditions
            .iter()
            .find(|condition| condition.status == "False")
    }

    /// Returns the reason of the first condition that is false, or `RequestFailed` if none is.
    pub fn reason(&self) -> &str {
        self.condition().map_or("RequestFailed", |condition| &condition.reason)
    }
}

fn name(request: &BindableResourcesRequest) -> String {
    one_line(request.metadata.as_ref().map_or("", |metadata| &metadata.name))
}

impl fmt::Display for RequestFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} failed", name(&self.request))?;
        match self.condition() {
            Some(condition) => write!(
                f,
                ": {} ({})",
                one_line(&condition.message),
                one_line(&condition.reason)
            ),
            None => f.write_str(" and has no condition that says why"),
        }
    }
}

impl std::error::Error for RequestFailed {}

impl fmt::Display for PendingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.waited.as_secs();
        write!(
            f,
            "request {} is still pending after {seconds} s; bind again to go on waiting",
            name(&self.request)
        )
    }
}

impl std::error::Error for PendingError {}
