//! Takes over a CRD that existed before the binding, with its objects, if the user offers it and both schemas agree.

use bindery_api::{annotations::ADOPT_BY, meta::controller_reference, v1alpha2::APIServiceBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{check, patch};
use crate::{
    controller::conditions::{FOREIGN_CRD, SCHEMAS_DISAGREE},
    patch::unchanged,
};

/// Why a CRD that does not belong to the binding is not taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TakeoverRefusal {
    /// Another object is the controller of the CRD.
    #[error("CRD {name} belongs to {kind} {owner}; unbind that first, or leave this API to it")]
    Owned { name: String, kind: String, owner: String },
    /// Another object is the controller of the CRD, and the CRD is being deleted.
    #[error(
        "CRD {name} is being deleted, and belongs to {kind} {owner}; it is created anew when it is gone; if no {owner} is left to let go \
         of its objects, bind this API by that name"
    )]
    OwnedAndEnding { name: String, kind: String, owner: String },
    /// The user did not offer the CRD to this binding.
    #[error(
        "CRD {name} exists and was not made by this binding; delete it, with its objects, bind another API, or let the \
         binding take it over with its objects: kubectl annotate crd {name} {ADOPT_BY}={binding}"
    )]
    NotOffered { name: String, binding: String },
    /// The CRD is being deleted.
    #[error("CRD {name} is being deleted, and was not made by this binding; it is created anew when it is gone")]
    Ending { name: String },
    /// Objects of the CRD may be invalid by the provider's schema.
    #[error(
        "CRD {name} is offered to this binding, but its schema and the provider's do not agree: {broken}; change the schema, or remove \
         annotation {ADOPT_BY}"
    )]
    Disagrees { name: String, broken: String },
}

impl TakeoverRefusal {
    /// Reason of the condition.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Owned { .. } | Self::OwnedAndEnding { .. } | Self::NotOffered { .. } | Self::Ending { .. } => {
                FOREIGN_CRD
            }
            Self::Disagrees { .. } => SCHEMAS_DISAGREE,
        }
    }
}

/// Returns the merge patch that makes a binding the owner of a CRD and brings the CRD up to date.
pub(super) fn plan(
    existing: &CustomResourceDefinition,
    wanted: &CustomResourceDefinition,
    binding: &APIServiceBinding,
) -> Result<Value, TakeoverRefusal> {
    let name = existing.name_any();
    let mut owners = existing.owner_references().to_vec();
    if let Some(owner) = owners.iter().find(|owner| owner.controller == Some(true)) {
        let (kind, owner) = (owner.kind.clone(), owner.name.clone());
        return Err(if existing.metadata.deletion_timestamp.is_some() {
            TakeoverRefusal::OwnedAndEnding { name, kind, owner }
        } else {
            TakeoverRefusal::Owned { name, kind, owner }
        });
    }
    if existing.annotations().get(ADOPT_BY) != binding.metadata.name.as_ref() {
        let binding = binding.name_any();
        return Err(TakeoverRefusal::NotOffered { name, binding });
    }
    if existing.metadata.deletion_timestamp.is_some() {
        return Err(TakeoverRefusal::Ending { name });
    }
    let disagrees = |broken: String| TakeoverRefusal::Disagrees {
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
    // Sync reads and writes objects in a version that the provider offers, whose schema must have all their fields.
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
    owners.push(controller_reference(binding));
    let mut change = patch(existing, wanted).unwrap_or_else(|| unchanged(&existing.metadata));
    change["metadata"]["ownerReferences"] = json!(owners);
    Ok(change)
}
