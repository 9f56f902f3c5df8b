//! What an apply is to do. Pure: nothing is read or written here.

mod asks;
mod compare;
mod decide;
mod desired;
mod diff;
mod guards;
mod immutable;
mod merged;
pub mod order;
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

use crate::{input::Origin, object::ObjectRef, wire::SetName};

/// What may be done that is refused otherwise, and where objects may live.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Allowed {
    /// An empty set, and one that takes away more than half of what is there.
    pub prune: bool,
    /// Objects of another set or of a newer version, and a set that was applied with another namespace.
    pub take_over: bool,
    /// Namespaces besides the given one and `kube-system`.
    pub namespaces: Vec<String>,
    /// Field managers whose fields become synk's before an object is applied, however they were written: what they set, and
    /// the manifests do not say, goes.
    pub fields_of: Vec<String>,
}

/// What an apply is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The set.
    pub set: SetName,
    /// The namespace it is applied with.
    pub namespace: String,
    /// The highest version that exists.
    pub current: Option<u64>,
    /// The version that the apply makes; `None` if nothing is to be done.
    pub next: Option<u64>,
    /// What is to become of each object of the set, in the order in which they are applied.
    pub steps: Vec<Step>,
    /// What left the set.
    pub prune: Vec<Prune>,
    /// Namespaces that left the set and stay, without an owner: with them would go what lives in them.
    pub released: Vec<Prune>,
    /// Why it is refused as a whole.
    pub refusals: Vec<Refusal>,
}

/// What is to become of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The object.
    pub object: ObjectRef,
    /// Where its manifest stands.
    pub origin: Origin,
    /// What is to be done.
    pub decision: Decision,
    /// What differs between what is and what is to be. Values of Secrets are left out.
    pub changes: Vec<FieldChange>,
    /// UID of the live object.
    pub uid: Option<String>,
    /// Tells two plans for the object apart, what they do not show included. For saved plans, not for people.
    pub fingerprint: String,
}

/// What is to be done about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is made.
    Create,
    /// It is changed.
    Change,
    /// It cannot be changed: it is deleted and made anew.
    Recreate,
    /// It is as it is to be. If the set gets a new version, its owner is moved.
    Unchanged,
    /// Somebody wants it to be left alone; only its owner is moved.
    Ignored,
    /// It may differ, or only look so: the API server has to be asked (a server-side dry-run).
    Unsure,
    /// It cannot be applied, and why.
    Impossible {
        /// Why, naming what to do.
        problem: String,
        /// Whether a later attempt may succeed.
        transient: bool,
    },
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldChange {
    /// Such as `spec.template.spec.containers[name=web].image`.
    pub path: String,
    /// What it is; `None` if it is not there, or not to be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// What it is to be; `None` if it goes, or is not to be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
    /// True if the values are not to be shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// An object that left the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prune {
    /// The object.
    pub object: ObjectRef,
    /// Its UID: only this one is deleted.
    pub uid: String,
}

/// Why a plan is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing is given.
    #[error("set {set} is given no objects{}: if that is meant, say --allow-prune", all_go(*.live))]
    Empty {
        /// The set.
        set: SetName,
        /// How many objects it has.
        live: usize,
    },
    /// More than half of what is there would go.
    #[error("{pruned} of the {live} objects of set {set} would be deleted: if that is meant, say --allow-prune")]
    TooMuch {
        /// The set.
        set: SetName,
        /// How many would go.
        pruned: usize,
        /// How many there are.
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
        /// The namespace it has.
        recorded: String,
        /// The one that is given.
        given: String,
    },
}

// === impl Plan ===

impl Plan {
    /// Whether anything is to be done.
    pub fn is_pending(&self) -> bool {
        self.next.is_some()
    }
}

// === impl Decision ===

impl Decision {
    /// In a word, as programs and saved plans have it.
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
