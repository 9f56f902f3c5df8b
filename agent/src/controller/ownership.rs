//! Which object belongs to which binding, bundle or export, by owner references.

use bindery_api::{
    meta::{controller, controller_reference},
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle},
};
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::Resource as _;

/// Returns the owner reference of a binding that a bundle made.
pub fn by_bundle(bundle: &APIServiceBindingBundle) -> OwnerReference {
    OwnerReference {
        block_owner_deletion: Some(true),
        ..controller_reference(bundle)
    }
}

/// Whether a binding is the controller of a CRD.
pub fn owns_crd(binding: &APIServiceBinding, crd: &CustomResourceDefinition) -> bool {
    let owner = controller_reference(binding);
    controller(&crd.metadata)
        .is_some_and(|other| other.uid == owner.uid && other.name == owner.name && other.kind == owner.kind)
}

/// Returns the reference to the bundle that made a binding, whether or not that bundle still exists.
pub fn bundle_of(binding: &APIServiceBinding) -> Option<&OwnerReference> {
    controller(&binding.metadata).filter(|owner| {
        owner.kind == APIServiceBindingBundle::kind(&()) && owner.api_version.starts_with("kube-bind.io/")
    })
}
