//! Reads facts, each within a time limit, so that one dead endpoint does not hold up the others.

use std::time::Duration;

use bindery_runtime::errors;
use tokio::time::timeout;

use crate::{
    check::facts::{Fact, Unread},
    errors::{Exit, Failure},
};

/// Waits for an answer, up to the limit.
pub(super) async fn fact<T, E>(limit: Duration, answer: impl Future<Output = Result<T, E>>) -> Fact<T>
where
    E: Into<Cause>,
{
    match timeout(limit, answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(error.into().0),
        Err(_) => Err(silent(limit)),
    }
}

/// The error of an answer that did not come in time.
pub(super) fn silent(limit: Duration) -> Unread {
    Unread::Silent(format!("no answer within {} s", limit.as_secs()))
}

/// Why a request failed.
pub(super) struct Cause(pub(super) Unread);

impl From<kube::Error> for Cause {
    fn from(error: kube::Error) -> Self {
        Self(unread(&error))
    }
}

impl From<Failure> for Cause {
    fn from(failure: Failure) -> Self {
        Self(match &failure {
            Failure::Cluster { source, .. } => unread(source),
            other if other.exit() == Exit::Denied => Unread::Denied(other.to_string()),
            other => Unread::Failed(other.to_string()),
        })
    }
}

/// What an error of an API server means for a fact.
pub(super) fn unread(error: &kube::Error) -> Unread {
    let why = errors::explain(error);
    match errors::code(error) {
        Some(401 | 403) => Unread::Denied(why),
        _ if errors::is_unreachable(error) => Unread::Silent(why),
        _ => Unread::Failed(why),
    }
}
