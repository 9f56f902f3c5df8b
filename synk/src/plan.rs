//! What an apply is to do. Pure: nothing is read or written here.

mod asks;
mod compare;
mod decide;
mod desired;
mod diff;
mod guards;
mod immutable;
mod merged;
mod ownership;
mod prune;
mod reads;
pub mod saved;
mod takeover;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use asks::{asks, presume};
pub use decide::{PlanInput, conclude, decide, plan, settle};
pub use desired::desired;
pub use diff::changes_between;
pub use immutable::must_recreate;
pub use reads::{Read, is_read, reads};
pub use takeover::{move_owner, release, takeover};

pub use crate::order;
use crate::{manifest::Origin, object::ObjectRef, wire::SetName};

/// What the user allows that is refused otherwise, and in which namespaces objects may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Allowed {
    /// Allows an empty set, and a plan that deletes more than half of the set's objects.
    pub prune: bool,
    /// Allows to take over objects of another set or of a newer version, and to apply a set with another namespace than
    /// before.
    pub take_over: bool,
    /// Namespaces that objects may be in, besides the given one and `kube-system`.
    pub namespaces: Vec<String>,
    /// Field managers whose fields are transferred to synk before an object is applied. Those of the fields that the
    /// manifest does not set are removed.
    pub fields_of: Vec<String>,
}

/// What an apply will do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The set.
    pub set: SetName,
    /// The namespace it is applied with.
    pub namespace: String,
    /// The highest version that exists.
    pub current: Option<u64>,
    /// The version that the apply creates; `None` if there is nothing to do.
    pub next: Option<u64>,
    /// A step for each object of the set, in the order in which they are applied.
    pub steps: Vec<Step>,
    /// Objects that are no longer in the set, which are deleted.
    pub prune: Vec<Prune>,
    /// Namespaces that are no longer in the set. They only lose their owner, since deleting them would delete all objects
    /// in them.
    pub released: Vec<Prune>,
    /// Why the plan is refused as a whole; empty if it is not.
    pub refusals: Vec<Refusal>,
}

/// What an apply will do with one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The object.
    pub object: ObjectRef,
    /// File and line of its manifest.
    pub origin: Origin,
    /// The decision about the object.
    pub decision: Decision,
    /// The fields in which the live object differs from the desired one, without values of Secrets.
    pub changes: Vec<FieldChange>,
    /// UID of the live object.
    pub uid: Option<String>,
    /// A hash of the step with the values that it does not show. A saved plan holds only while the hash stays the same.
    pub fingerprint: String,
}

/// The decision about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The object is created.
    Create,
    /// The object is changed.
    Change,
    /// The object cannot be changed, so it is deleted and created again.
    Recreate,
    /// The live object already matches the manifest. If the set gets a new version, only its owner reference changes.
    Unchanged,
    /// The live object has the annotation [`IGNORE`](crate::wire::IGNORE), so only its owner reference changes.
    Ignored,
    /// Only the API server can tell whether the object would change, by a server-side dry run.
    Unsure,
    /// The object cannot be applied.
    Impossible {
        /// The reason, and what to do.
        problem: String,
        /// Whether a later attempt may succeed.
        transient: bool,
    },
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldChange {
    /// Path of the field, such as `spec.template.spec.containers[name=web].image`.
    pub path: String,
    /// The live value; `None` if the field does not exist or its value must not be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// The desired value; `None` if the field is removed or its value must not be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
    /// True if the values must not be shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// An object that is no longer in the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prune {
    /// The object.
    pub object: ObjectRef,
    /// UID of the object. Another object of the same name is not deleted.
    pub uid: String,
}

/// Why a plan is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The input has no objects.
    #[error("set {set} is given no objects{}: if that is meant, say --allow-prune", all_go(*.live))]
    Empty {
        /// The set.
        set: SetName,
        /// The number of live objects of the set.
        live: usize,
    },
    /// More than half of the set's objects would be deleted.
    #[error("{pruned} of the {live} objects of set {set} would be deleted: if that is meant, say --allow-prune")]
    TooMuch {
        /// The set.
        set: SetName,
        /// The number of objects that would be deleted.
        pruned: usize,
        /// The number of live objects of the set.
        live: usize,
    },
    /// An object belongs to another set, or to a newer version of this one.
    #[error("{object} belongs to {owner}: take it out of one of the two, or say --take-over")]
    Owned {
        /// The object.
        object: ObjectRef,
        /// The ResourceSet that owns it.
        owner: String,
    },
    /// The set was applied with another namespace.
    #[error(
        "set {set} was applied with namespace {recorded}, not {given}: use -n {recorded}, or say --take-over to move it"
    )]
    OtherNamespace {
        /// The set.
        set: SetName,
        /// The namespace that the set was applied with.
        recorded: String,
        /// The namespace that is given now.
        given: String,
    },
}

// === impl Plan ===

impl Plan {
    /// Whether there is anything to do.
    pub fn is_pending(&self) -> bool {
        self.next.is_some()
    }
}

// === impl Decision ===

impl Decision {
    /// The decision as one word, which documents for programs and saved plans contain.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::Recreate => "recreate",
            Self::Unchanged => "unchanged",
            Self::Ignored => "ignored",
            Self::Unsure => "unsure",
            Self::Impossible { .. } => "impossible",
        }
    }
}

fn all_go(live: usize) -> String {
    if live == 0 {
        String::new()
    } else {
        format!(", so that all {live} that it has would be deleted")
    }
}
