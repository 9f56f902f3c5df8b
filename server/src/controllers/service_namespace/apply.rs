//! Applies the plan of an APIServiceNamespace, and reports what the server lacks or what is in the way.

use std::{collections::BTreeMap, time::Duration};

use bindery_api::v1alpha2::APIServiceNamespace;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{Role, RoleBinding},
};
use kube::ResourceExt as _;

use super::{ServiceNamespaces, end, observed::Observed, plan};
use crate::{
    controllers::Next,
    rbac::view,
    writes::{self, Write, WriteError},
};

/// How soon to look again at what is in the way: no cache holds it.
const IN_THE_WAY: Duration = Duration::from_mins(1);
/// How long the API server may take until a new role binding is in effect.
const SETTLING: SignedDuration = SignedDuration::from_secs(10);

impl ServiceNamespaces {
    /// Applies writes in their order. Where the server must not grant the rights of one export, the others get theirs.
    pub(super) async fn apply_all(&self, seen: &Observed<'_>, writes: Vec<Write>) -> Result<Next, WriteError> {
        let client = &self.context.state.clients.write;
        let mut refused = BTreeMap::new();
        let mut foreign = None;
        for write in writes {
            let role = role(&write);
            let is_shared = is_about(&write, seen.name);
            if role.is_some_and(|role| refused.contains_key(role)) || is_shared && foreign.is_some() {
                continue;
            }
            if write.is_status() && (!refused.is_empty() || foreign.is_some()) {
                break;
            }
            match (write.apply(client).await, role) {
                (Ok(_), _) => {}
                (Err(error), Some(role)) if error.is_forbidden() => {
                    refused.insert(role.to_owned(), error);
                }
                (Err(WriteError::Foreign { name, .. }), _) if is_shared => foreign = Some(name),
                (Err(WriteError::Foreign { name, .. }), _) => {
                    writes::apply_all(client, plan::foreign(seen, &name)).await?;
                    return Ok(Next::After(IN_THE_WAY));
                }
                (Err(error), _) => return Err(error),
            }
        }
        if refused.contains_key(view::VIEW_BINDING) {
            writes::apply_all(client, end::blind(seen, view::LACKING)).await?;
            return Ok(Next::After(IN_THE_WAY));
        }
        if let Some((_, error)) = refused.pop_first() {
            return self.explain(seen, error).await;
        }
        let Some(foreign) = foreign else {
            return Ok(Next::Change);
        };
        writes::apply_all(client, plan::foreign_shared(seen, &foreign)).await?;
        Ok(Next::After(IN_THE_WAY))
    }

    /// Reports which rights the server lacks. If it lacks none, it got them a moment ago, and the caller tries again.
    pub(super) async fn explain(&self, seen: &Observed<'_>, error: WriteError) -> Result<Next, WriteError> {
        if !error.is_forbidden() {
            return Err(error);
        }
        let mut lacking = Vec::new();
        for export in seen.exports {
            if let Some(refusal) = self.context.state.rights.lacking(export).await? {
                lacking.push(format!("export {}: {refusal}", export.name_any()));
            }
        }
        if seen.server_binding.is_some_and(|binding| is_fresh(binding, seen.now)) {
            return Err(error);
        }
        if seen.exports.is_empty() {
            // No export tells any more of which resources objects may be left.
            lacking.push(format!("the server lacks a right: {error}"));
        }
        if lacking.is_empty() {
            return Err(error);
        }
        let client = &self.context.state.clients.write;
        writes::apply_all(client, plan::lacking(seen, lacking.join("\n"))).await?;
        Ok(Next::After(IN_THE_WAY))
    }
}

/// The name of the role that a write grants or takes away; its binding has the same name.
fn role(write: &Write) -> Option<&str> {
    (write.is_of::<Role>() || write.is_of::<RoleBinding>()).then_some(&write.name)
}

/// Whether a write is about a provider namespace, or about a role or binding in it.
pub(super) fn is_about(write: &Write, namespace: &str) -> bool {
    if write.is_of::<Namespace>() {
        write.name == namespace
    } else {
        !write.is_of::<APIServiceNamespace>() && write.namespace == namespace
    }
}

/// Whether a binding was created so recently that the API server may not know it everywhere.
pub(super) fn is_fresh(binding: &RoleBinding, now: Timestamp) -> bool {
    let created = binding.metadata.creation_timestamp.as_ref();
    created.is_some_and(|created| now.duration_since(created.0) < SETTLING)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[track_caller]
    fn check_fresh(age: i64, expect: bool) {
        let now = Timestamp::UNIX_EPOCH;
        let mut binding = RoleBinding::default();
        binding.metadata.creation_timestamp = Some(Time(now - SignedDuration::from_secs(age)));
        assert_eq!(is_fresh(&binding, now), expect, "{age}");
    }

    #[test]
    fn a_right_is_given_time_to_count() {
        check_fresh(0, true);
        check_fresh(9, true);
        check_fresh(10, false);
        // Clocks differ.
        check_fresh(-3, true);
        assert!(!is_fresh(&RoleBinding::default(), Timestamp::UNIX_EPOCH));
    }
}
