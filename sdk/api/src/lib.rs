//! The kube-bind.io/v1alpha2 resources, their names and their conditions.
//!
//! Everything here is pure: types, names and functions over them. No client, no clock, no file.

mod accepted;
pub mod adoption;
pub mod annotations;
pub mod backend;
pub mod claims;
pub mod conditions;
pub mod consumer_rules;
pub mod crd;
pub mod crds;
pub mod duration;
pub mod finalizers;
pub mod hash;
pub mod holder;
mod label_selector;
pub mod labels;
pub mod meta;
pub mod names;
pub mod orphans;
pub mod placement;
pub mod retention;
pub mod revocation;
mod times;
pub mod v1alpha2;
pub mod versions;

pub use accepted::Accepted;
pub use conditions::{Condition, ConditionStatus, Conditions, Severity};
pub use duration::Duration;
pub use label_selector::{LabelSelectorError, label_evaluator};
