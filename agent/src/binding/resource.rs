//! What one exported resource needs on the consumer: its CRD, and when it can be synced.

use std::sync::Arc;

use bindery_api::{
    annotations,
    crd::{self, compat},
    hash, names,
    v1alpha2::{API_VERSION, APIServiceBinding, BoundSchema, Scope},
    versions,
};
use bindery_runtime::{
    crds::{complaint, is_established, merge_versions},
    json::contains,
};
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::model::BoundResource;

mod takeover;

/// What is known of a BoundSchema.
#[derive(Clone, Debug)]
pub enum Schema {
    /// The list is on its way.
    Unknown,
    /// The provider has none of that name.
    Missing,
    /// There is one.
    Present(Arc<BoundSchema>),
}

/// What to write.
#[derive(Clone, Debug, PartialEq)]
pub enum CrdOp {
    /// Create it.
    Create(Box<CustomResourceDefinition>),
    /// Change it by this merge patch.
    Patch(Value),
}

/// How a resource stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It will not be served until somebody acts.
    Refused {
        /// Reason of the condition.
        reason: &'static str,
        /// What is wrong and what mends it.
        message: String,
    },
    /// It is on its way.
    Pending {
        /// Reason of the condition.
        reason: &'static str,
        /// What is waited for.
        message: String,
    },
    /// It can be synced.
    Usable(BoundResource),
}

/// A change of the provider's schema that is not taken over. What is installed goes on as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Reason of the condition.
    pub reason: &'static str,
    /// What would break, and what mends it.
    pub message: String,
}

/// What to do for a resource, and how it stands until then.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The write, if one is needed.
    pub op: Option<CrdOp>,
    /// How it stands.
    pub state: State,
    /// Why the schema is not the provider's, though it is in use.
    pub held: Option<Held>,
}

/// The reference by which a CRD belongs to a binding.
pub fn owner(binding: &APIServiceBinding) -> OwnerReference {
    OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: "APIServiceBinding".to_owned(),
        name: binding.name_any(),
        uid: binding.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// Whether a CRD belongs to a binding.
pub fn is_owned(crd: &CustomResourceDefinition, binding: &APIServiceBinding) -> bool {
    let owner = owner(binding);
    let is_owner = |other: &OwnerReference| {
        other.uid == owner.uid && other.name == owner.name && other.kind == owner.kind && other.controller == Some(true)
    };
    crd.owner_references().iter().any(is_owner)
}

/// Whether the API server certainly never served a CRD, so that no object of it exists: what it established once, it
/// does not take back. One that it is about to serve is none of those.
pub fn was_never_served(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions
        .unwrap_or_default()
        .iter()
        .filter(|condition| condition.type_ == "Established" && condition.status == "False")
        .any(|condition| condition.reason.as_deref() != Some("Installing"))
}

/// Decides for the resource of that CRD name.
pub fn plan(
    name: &str,
    schema: &Schema,
    crd: Option<&CustomResourceDefinition>,
    binding: &APIServiceBinding,
) -> Decision {
    let refused = |reason, message| Decision {
        op: None,
        state: State::Refused { reason, message },
        held: None,
    };
    let schema = match schema {
        Schema::Unknown => return pending(None, "SchemaUnknown", format!("BoundSchema {name} is not known yet")),
        Schema::Missing => {
            return refused(
                "BoundSchemaFetchFailed",
                format!("BoundSchema {name} does not exist on the provider; ask its admin, or bind again"),
            );
        }
        Schema::Present(schema) => schema,
    };
    if let Some(owner) = names::owner_of_group(&schema.spec.group) {
        return refused(
            "ProtectedGroup",
            format!(
                "{name} is refused: APIs of group {:?} do not come from a provider, but from {owner}",
                schema.spec.group
            ),
        );
    }
    if names::custom_resource_definition(&schema.spec.names.plural, &schema.spec.group) != name {
        return refused(
            "BoundSchemaInvalid",
            format!(
                "BoundSchema {name} describes {}.{}",
                schema.spec.names.plural, schema.spec.group
            ),
        );
    }
    let wanted = match crd::custom_resource_definition(&schema.spec, Some(owner(binding))) {
        Ok(wanted) => wanted,
        Err(error) => return refused("BoundSchemaInvalid", error.to_string()),
    };
    let Some(existing) = crd else {
        let op = CrdOp::Create(Box::new(stamped(wanted)));
        return pending(
            Some(op),
            "CustomResourceDefinitionMissing",
            format!("CRD {name} is being created"),
        );
    };
    if !is_owned(existing, binding) {
        return match takeover::plan(existing, &wanted, binding) {
            Ok(patch) => pending(
                Some(CrdOp::Patch(patch)),
                "CustomResourceDefinitionMissing",
                format!("CRD {name} is being taken over"),
            ),
            Err(refusal) => refused(refusal.reason(), refusal.to_string()),
        };
    }
    let state = state(name, schema, existing);
    // One that is being deleted takes its objects along, whose copies an engine must delete: it is used to its end.
    if existing.metadata.deletion_timestamp.is_some() {
        return Decision {
            op: None,
            state,
            held: None,
        };
    }
    let held = incompatible(name, existing, &wanted);
    let op = patch(existing, &wanted).filter(|_| held.is_none()).map(CrdOp::Patch);
    Decision { op, state, held }
}

/// Why what the provider changed is not written over a CRD that is in use.
fn incompatible(name: &str, existing: &CustomResourceDefinition, wanted: &CustomResourceDefinition) -> Option<Held> {
    // What differs although the provider changed nothing was changed here, and is put back.
    let applied = existing.annotations().get(annotations::SOURCE_SPEC_HASH);
    if !is_established(existing) || applied == Some(&stamp(wanted)) {
        return None;
    }
    let broken = check(existing, wanted).err()?;
    Some(Held {
        reason: broken.reason(),
        message: format!(
            "the provider's change of {name} is not taken over, and sync goes on with the schema that is installed: \
             {broken}; ask the provider for a change that keeps objects valid, or unbind and bind again"
        ),
    })
}

/// Whether objects stay valid and whole when what is wanted is written over what is installed.
fn check(existing: &CustomResourceDefinition, wanted: &CustomResourceDefinition) -> Result<(), compat::Incompatible> {
    let mut merged = wanted.clone();
    merged.spec.versions = merge_versions(&existing.spec.versions, &wanted.spec.versions);
    compat::check_definitions(existing, &merged)
}

fn pending(op: Option<CrdOp>, reason: &'static str, message: String) -> Decision {
    Decision {
        op,
        state: State::Pending { reason, message },
        held: None,
    }
}

fn state(name: &str, schema: &BoundSchema, existing: &CustomResourceDefinition) -> State {
    if !is_established(existing) {
        return State::Pending {
            reason: "CustomResourceDefinitionNotEstablished",
            message: format!("CRD {name} is not served yet: {}", complaint(existing)),
        };
    }
    let common = versions::common(
        schema.spec.versions.iter().map(crd::listed_bound),
        existing.spec.versions.iter().map(crd::listed),
    );
    let Some(version) = common else {
        return State::Pending {
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
    State::Usable(BoundResource {
        group: existing.spec.group.as_str().into(),
        version: version.into(),
        plural: existing.spec.names.plural.as_str().into(),
        kind: existing.spec.names.kind.as_str().into(),
        // A scope is never changed: what is installed counts.
        scope: Scope::from_name(&existing.spec.scope).unwrap_or_default(),
        status_subresource: status,
    })
}

/// The merge patch that brings a CRD of ours up to date; `None` where there is nothing to do.
fn patch(existing: &CustomResourceDefinition, wanted: &CustomResourceDefinition) -> Option<Value> {
    let stamp = stamp(wanted);
    let versions = merge_versions(&existing.spec.versions, &wanted.spec.versions);
    let desired = json!({
        "metadata": {"annotations": {annotations::SOURCE_SPEC_HASH: stamp}},
        "spec": {
            "versions": versions, "names": wanted.spec.names, "scope": wanted.spec.scope,
            "conversion": {"strategy": "None"},
        },
    });
    let actual = serde_json::to_value(existing).ok()?;
    // What was removed from a schema is still contained in it: the stamp tells that it is another one.
    if contains(&actual, &desired) {
        return None;
    }
    let mut patch = desired;
    patch["spec"]["conversion"]["webhook"] = Value::Null;
    patch["metadata"]["uid"] = json!(existing.metadata.uid);
    patch["metadata"]["resourceVersion"] = json!(existing.metadata.resource_version);
    Some(patch)
}

fn stamped(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let stamp = stamp(&crd);
    crd.annotations_mut()
        .insert(annotations::SOURCE_SPEC_HASH.to_owned(), stamp);
    crd
}

/// Digest of a specification.
fn stamp(crd: &CustomResourceDefinition) -> String {
    let text = hash::canonical_json(&crd.spec);
    bindery_runtime::kubeconfig::Fingerprint::of([text.as_bytes()])
        .as_str()
        .to_owned()
}

#[cfg(test)]
#[path = "resource_tests.rs"]
mod tests;
