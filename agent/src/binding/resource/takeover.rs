//! A CRD that was there before the binding: it becomes the binding's, with its objects, where the user says so and both
//! schemas agree.

use bindery_api::{annotations::ADOPT_BY, v1alpha2::APIServiceBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{check, owner, patch};
use crate::binding::status::types;

/// Why a CRD that is not the binding's is left alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// Another object controls it.
    #[error("CRD {name} belongs to {kind} {owner}; unbind that first, or leave this API to it")]
    Owned { name: String, kind: String, owner: String },
    /// Nobody said that this binding may have it.
    #[error(
        "CRD {name} exists and was not made by this binding; delete it, with its objects, bind another API, or let the \
         binding have it with its objects: kubectl annotate crd {name} {ADOPT_BY}={binding}"
    )]
    NotOffered { name: String, binding: String },
    /// It is on its way out.
    #[error("CRD {name} is being deleted, and was not made by this binding; it is made anew when it is gone")]
    Ending { name: String },
    /// Its objects might not be what the provider's schema takes.
    #[error(
        "CRD {name} is offered to this binding, but its schema and the provider's do not agree: {broken}; change it, or take \
         annotation {ADOPT_BY} off"
    )]
    Disagrees { name: String, broken: String },
}

impl Refusal {
    /// Reason of the condition.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Owned { .. } | Self::NotOffered { .. } | Self::Ending { .. } => types::FOREIGN_CRD,
            Self::Disagrees { .. } => types::SCHEMAS_DISAGREE,
        }
    }
}

/// The merge patch that makes a CRD the binding's and brings it up to date.
pub(super) fn plan(
    existing: &CustomResourceDefinition,
    wanted: &CustomResourceDefinition,
    binding: &APIServiceBinding,
) -> Result<Value, Refusal> {
    let name = existing.name_any();
    let mut owners = existing.owner_references().to_vec();
    if let Some(owner) = owners.iter().find(|owner| owner.controller == Some(true)) {
        let (kind, owner) = (owner.kind.clone(), owner.name.clone());
        return Err(Refusal::Owned { name, kind, owner });
    }
    if existing.annotations().get(ADOPT_BY) != binding.metadata.name.as_ref() {
        let binding = binding.name_any();
        return Err(Refusal::NotOffered { name, binding });
    }
    if existing.metadata.deletion_timestamp.is_some() {
        return Err(Refusal::Ending { name });
    }
    let disagrees = |broken: String| Refusal::Disagrees {
        name: name.clone(),
        broken,
    };
    let conversion = existing.spec.conversion.as_ref();
    if conversion.is_some_and(|conversion| conversion.strategy != "None") {
        return Err(disagrees("it has a conversion webhook".to_owned()));
    }
    let offered = |version: &str| {
        let mut versions = wanted.spec.versions.iter();
        versions.any(|offered| offered.name == version && offered.served)
    };
    // Objects are read and written in a version of the provider's, whose schema has to know all their fields.
    let served = existing.spec.versions.iter().filter(|version| version.served);
    let stored = existing
        .status
        .iter()
        .flat_map(|status| status.stored_versions.iter().flatten());
    let mut used = served.map(|version| &version.name).chain(stored);
    if let Some(version) = used.find(|version| !offered(version)) {
        return Err(disagrees(format!("the provider does not offer its version {version}")));
    }
    check(existing, wanted).map_err(|broken| disagrees(broken.to_string()))?;
    owners.push(owner(binding));
    let mut change = patch(existing, wanted).unwrap_or_else(
        || json!({"metadata": {"uid": existing.metadata.uid, "resourceVersion": existing.metadata.resource_version}}),
    );
    change["metadata"]["ownerReferences"] = json!(owners);
    Ok(change)
}
