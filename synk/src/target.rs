//! Names a set together with the namespace that it is applied with.

use crate::{errors::Failure, versions::Versions, wire::SetName};

/// A set on a cluster, and the namespace that it is applied with.
#[derive(Clone, Debug)]
pub struct Target {
    /// The name of the set.
    pub set: SetName,
    /// The namespace of namespaced objects whose manifest names none, and of the set's Lease and history.
    pub namespace: String,
}

// === impl Versions ===

impl Versions {
    /// Returns [`Versions::namespace`], or `given` if none is recorded. It is an error if both exist and differ.
    pub fn namespace_or<'a>(&'a self, set: &SetName, given: Option<&'a str>) -> Result<Option<&'a str>, Failure> {
        match (self.namespace(), given) {
            (Some(recorded), Some(given)) if recorded != given => Err(Failure::ElsewhereApplied {
                set: set.clone(),
                recorded: recorded.to_owned(),
                given: given.to_owned(),
            }),
            (recorded, given) => Ok(recorded.or(given)),
        }
    }
}
