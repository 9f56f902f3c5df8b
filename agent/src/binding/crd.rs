//! Decides about the CRD of one exported resource on the consumer. Nothing is written here.

use std::sync::Arc;

use bindery_api::{
    annotations,
    conditions::RIGHTS_MISSING,
    crd::{self, compat},
    hash,
    meta::controller_reference,
    names,
    v1alpha2::{APIServiceBinding, BoundSchema, Scope},
    versions,
};
use bindery_runtime::{
    crds::{complaint, is_established, merge_versions},
    json::contains,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::{controller::ownership::owns_crd, model::BoundResource, rights};

mod takeover;

/// The BoundSchema of a resource, as far as it is known.
#[derive(Clone, Debug)]
pub enum ObservedSchema {
    /// The schemas were not listed yet.
    Unknown,
    /// The konnector may not list the schemas.
    Unreadable,
    /// The provider has no schema of that name.
    Missing,
    /// The schema.
    Present(Arc<BoundSchema>),
}

/// A write of a CRD.
#[derive(Clone, Debug, PartialEq)]
pub enum CrdOp {
    /// Create this CRD.
    Create(Box<CustomResourceDefinition>),
    /// Apply this merge patch to the CRD.
    Patch(Value),
}

/// Whether a resource can be synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrdState {
    /// The resource cannot be synced until a user acts.
    Refused {
        /// Reason of the condition.
        reason: &'static str,
        /// What is wrong, and what to do.
        message: String,
    },
    /// The resource is being installed.
    Pending {
        /// Reason of the condition.
        reason: &'static str,
        /// What the installation waits for.
        message: String,
    },
    /// The resource can be synced.
    Usable(BoundResource),
}

/// A change of the provider's schema that is refused. The installed schema stays in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedSchemaChange {
    /// Reason of the condition.
    pub reason: &'static str,
    /// What the change would break, and what to do.
    pub message: String,
}

/// The decision about the CRD of a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct CrdDecision {
    /// The write that is needed, if any.
    pub op: Option<CrdOp>,
    /// Whether the resource can be synced now.
    pub state: CrdState,
    /// A change of the provider's schema that is refused.
    pub refused_change: Option<RefusedSchemaChange>,
}

/// Decides about the CRD of that name, as the binding needs it.
pub fn plan(
    name: &str,
    schema: &ObservedSchema,
    crd: Option<&CustomResourceDefinition>,
    binding: &APIServiceBinding,
) -> CrdDecision {
    let refused = |reason, message| CrdDecision {
        op: None,
        state: CrdState::Refused { reason, message },
        refused_change: None,
    };
    let schema = match schema {
        ObservedSchema::Unknown => {
            return pending(None, "SchemaUnknown", format!("BoundSchema {name} is not known yet"));
        }
        ObservedSchema::Unreadable => return unreadable(name, crd, binding),
        ObservedSchema::Missing => {
            return refused(
                "BoundSchemaFetchFailed",
                format!("BoundSchema {name} does not exist on the provider; ask its admin, or bind again"),
            );
        }
        ObservedSchema::Present(schema) => schema,
    };
    if let Some(owner) = names::owner_of_group(&schema.spec.group) {
        return refused(
            "ProtectedGroup",
            format!(
                "{name} is refused: APIs of group {:?} come from {owner} and never from a provider",
                schema.spec.group
            ),
        );
    }
    if names::custom_resource_definition(&schema.spec.names.plural, &schema.spec.group) != name {
        return refused(
            "BoundSchemaInvalid",
            format!(
                "BoundSchema {name} describes resource {} of group {}; ask the provider's admin",
                names::quoted(&schema.spec.names.plural),
                names::quoted(&schema.spec.group)
            ),
        );
    }
    let wanted = match crd::custom_resource_definition(&schema.spec, Some(controller_reference(binding))) {
        Ok(wanted) => wanted,
        Err(error) => return refused("BoundSchemaInvalid", error.to_string()),
    };
    let Some(existing) = crd else {
        let op = CrdOp::Create(Box::new(with_hash(wanted)));
        return pending(
            Some(op),
            "CustomResourceDefinitionMissing",
            format!("CRD {name} is being created"),
        );
    };
    if !owns_crd(binding, existing) {
        return match takeover::plan(existing, &wanted, binding) {
            Ok(patch) => pending(
                Some(CrdOp::Patch(patch)),
                "CustomResourceDefinitionMissing",
                format!("CRD {name} is being taken over"),
            ),
            Err(refusal) => refused(refusal.reason(), refusal.to_string()),
        };
    }
    let state = state(name, schema.spec.versions.iter().map(crd::listed_bound), existing);
    // A CRD that is being deleted deletes its objects, and an engine must delete their copies. So it is synced to its end.
    if existing.metadata.deletion_timestamp.is_some() {
        return CrdDecision {
            op: None,
            state,
            refused_change: None,
        };
    }
    let refused_change = incompatible(name, existing, &wanted);
    let op = patch(existing, &wanted)
        .filter(|_| refused_change.is_none())
        .map(CrdOp::Patch);
    CrdDecision {
        op,
        state,
        refused_change,
    }
}

/// Returns the provider's change of the schema, if it would break objects of a CRD that is in use.
fn incompatible(
    name: &str,
    existing: &CustomResourceDefinition,
    wanted: &CustomResourceDefinition,
) -> Option<RefusedSchemaChange> {
    // With an unchanged hash the provider changed nothing: the difference was made here and is reverted.
    let applied = existing.annotations().get(annotations::SOURCE_SPEC_HASH);
    if !is_established(existing) || applied == Some(&spec_hash(wanted)) {
        return None;
    }
    let broken = check(existing, wanted).err()?;
    Some(RefusedSchemaChange {
        reason: broken.reason(),
        message: format!(
            "the provider's change of {name} is refused, and sync continues with the installed schema: \
             {broken}; ask the provider for a change that keeps objects valid, or unbind and bind again"
        ),
    })
}

/// Checks that objects stay valid and lose no field when the wanted CRD replaces the installed one.
fn check(existing: &CustomResourceDefinition, wanted: &CustomResourceDefinition) -> Result<(), compat::Incompatible> {
    let mut merged = wanted.clone();
    merged.spec.versions = merge_versions(&existing.spec.versions, &wanted.spec.versions);
    compat::check_definitions(existing, &merged)
}

/// Returns the decision for a resource that is being installed.
fn pending(op: Option<CrdOp>, reason: &'static str, message: String) -> CrdDecision {
    CrdDecision {
        op,
        state: CrdState::Pending { reason, message },
        refused_change: None,
    }
}

/// Decides about a CRD whose schema the konnector may not read: one that was installed before is used as it is.
fn unreadable(name: &str, crd: Option<&CustomResourceDefinition>, binding: &APIServiceBinding) -> CrdDecision {
    let state = match crd.filter(|existing| owns_crd(binding, existing)) {
        Some(existing) => state(name, existing.spec.versions.iter().map(crd::listed), existing),
        None => CrdState::Refused {
            reason: RIGHTS_MISSING,
            message: format!(
                "BoundSchema {name} cannot be read, so its CRD is not installed; the provider's admin mends it by this rule in a Role \
                 of the contract namespace: {}",
                rights::rule("kube-bind.io", &["boundschemas"], &["get", "list", "watch"])
            ),
        },
    };
    CrdDecision {
        op: None,
        state,
        refused_change: None,
    }
}

/// Tells whether an installed CRD can be synced, and in which version. `offered` are the versions of the provider.
fn state<'a>(
    name: &str,
    offered: impl IntoIterator<Item = versions::Listed<'a>>,
    existing: &'a CustomResourceDefinition,
) -> CrdState {
    if !is_established(existing) {
        return CrdState::Pending {
            reason: "CustomResourceDefinitionNotEstablished",
            message: format!("CRD {name} is not served yet: {}", complaint(existing)),
        };
    }
    let common = versions::common(offered, existing.spec.versions.iter().map(crd::listed));
    let Some(version) = common else {
        return CrdState::Pending {
            reason: "NoCommonVersion",
            message: format!("CRD {name} serves no version that the provider serves"),
        };
    };
    let installed = existing
        .spec
        .versions
        .iter()
        .find(|installed| installed.name == version);
    let status = installed
        .and_then(|installed| installed.subresources.as_ref())
        .is_some_and(|subresources| subresources.status.is_some());
    CrdState::Usable(BoundResource {
        group: existing.spec.group.as_str().into(),
        version: version.into(),
        plural: existing.spec.names.plural.as_str().into(),
        kind: existing.spec.names.kind.as_str().into(),
        // The scope of a CRD is immutable, so the installed one counts.
        scope: Scope::from_name(&existing.spec.scope).unwrap_or_default(),
        status_subresource: status,
    })
}

/// Returns the merge patch that brings a CRD of the binding up to date; `None` if it is up to date.
fn patch(existing: &CustomResourceDefinition, wanted: &CustomResourceDefinition) -> Option<Value> {
    let hash = spec_hash(wanted);
    let versions = merge_versions(&existing.spec.versions, &wanted.spec.versions);
    let desired = json!({
        "metadata": {"annotations": {annotations::SOURCE_SPEC_HASH: hash}},
        "spec": {
            "versions": versions, "names": wanted.spec.names, "scope": wanted.spec.scope,
            "conversion": {"strategy": "None"},
        },
    });
    let actual = serde_json::to_value(existing).ok()?;
    // A schema still contains a wanted schema with fewer fields. The hash tells the two apart.
    if contains(&actual, &desired) {
        return None;
    }
    let mut patch = desired;
    patch["spec"]["conversion"]["webhook"] = Value::Null;
    patch["metadata"]["uid"] = json!(existing.metadata.uid);
    patch["metadata"]["resourceVersion"] = json!(existing.metadata.resource_version);
    Some(patch)
}

/// Adds the hash of its spec to a CRD, as an annotation.
fn with_hash(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let hash = spec_hash(&crd);
    crd.annotations_mut()
        .insert(annotations::SOURCE_SPEC_HASH.to_owned(), hash);
    crd
}

/// Digest of the spec of a CRD.
fn spec_hash(crd: &CustomResourceDefinition) -> String {
    let text = hash::canonical_json(&crd.spec);
    bindery_runtime::kubeconfig::Fingerprint::of([text.as_bytes()])
        .as_str()
        .to_owned()
}

#[cfg(test)]
#[path = "tests/crd.rs"]
mod tests;
