//! Admission: ValidatingAdmissionPolicies, and the checks of RBAC against escalation.

mod authorizer;
mod cel;
mod escalation;
mod evaluation;
mod matching;
mod policy;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{UserInfo, kind::KindInfo, status::StatusError, store::Objects};

/// A write that admission judges, after defaulting and before storage.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionRequest<'a> {
    /// Who writes.
    pub(crate) user: &'a UserInfo,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub(crate) operation: &'static str,
    /// Kind of the object.
    pub(crate) kind: &'a KindInfo,
    /// Plural name of the resource.
    pub(crate) resource: &'a str,
    /// Subresource, empty if none.
    pub(crate) subresource: &'a str,
    /// Namespace, empty if none. A Namespace is in itself.
    pub(crate) namespace: &'a str,
    /// Name of the object.
    pub(crate) name: &'a str,
    /// The object as it would be stored; absent for `DELETE`.
    pub(crate) object: Option<&'a Value>,
    /// The object as it is stored; absent for `CREATE`.
    pub(crate) old_object: Option<&'a Value>,
    /// The options of the request, such as DeleteOptions.
    pub(crate) options: &'a Value,
    /// If the request is a dry run.
    pub(crate) dry_run: bool,
    /// Time of the request.
    pub(crate) now: Timestamp,
    /// How long after its creation a policy takes effect.
    pub(crate) policy_delay: SignedDuration,
}

/// Judges a write: the warnings for its answer, or the refusal.
pub(crate) fn admit(objects: &dyn Objects, request: &AdmissionRequest<'_>) -> Result<Vec<String>, StatusError> {
    policy::check(objects, request)
}

/// Compiles the expressions of a ValidatingAdmissionPolicy, so that its first use takes no longer than others.
pub(crate) fn compile(policy: &Value) {
    policy::compile(policy);
}

/// Refuses a role or a binding that gives more than its author has.
pub(crate) fn check_grants(objects: &dyn Objects, request: &AdmissionRequest<'_>) -> Result<(), StatusError> {
    escalation::check(objects, request)
}

#[cfg(test)]
mod tests;
