//! Which object belongs to which binding, bundle or export, by owner references.

use bindery_api::{
    finalizers,
    meta::{controller, controller_reference},
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle},
};
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Resource as _, ResourceExt as _};

/// Returns the owner reference of a binding that a bundle made.
pub fn by_bundle(bundle: &APIServiceBindingBundle) -> OwnerReference {
    OwnerReference {
        block_owner_deletion: Some(true),
        ..controller_reference(bundle)
    }
}

/// Whether a binding is the controller of a CRD, or inherits it: see [`inherits_crd`].
pub fn owns_crd(binding: &APIServiceBinding, crd: &CustomResourceDefinition) -> bool {
    inherits_crd(binding, crd)
        || controller(&crd.metadata).is_some_and(|owner| is_named(owner, binding) && is_same(owner, binding))
}

/// Whether a CRD is being deleted, and its controller is an earlier binding of the same name. That one is gone, as after a restore of a
/// backup, so nobody else lets go of the objects of the CRD.
pub fn inherits_crd(binding: &APIServiceBinding, crd: &CustomResourceDefinition) -> bool {
    crd.metadata.deletion_timestamp.is_some()
        && controller(&crd.metadata).is_some_and(|owner| is_named(owner, binding) && !is_same(owner, binding))
}

fn is_named(owner: &OwnerReference, binding: &APIServiceBinding) -> bool {
    let expected = controller_reference(binding);
    owner.name == expected.name && owner.kind == expected.kind && owner.api_version.starts_with("kube-bind.io/")
}

fn is_same(owner: &OwnerReference, binding: &APIServiceBinding) -> bool {
    binding.metadata.uid.as_deref() == Some(&*owner.uid)
}

/// Whether a CRD of a binding stays with its objects, because the binding was deleted with propagation policy Orphan. The garbage
/// collector takes the owner reference off the CRD meanwhile; then the status of the binding still lists it.
pub fn orphans_crd(binding: &APIServiceBinding, crd: &CustomResourceDefinition) -> bool {
    if binding.metadata.deletion_timestamp.is_none() {
        return false;
    }
    if owns_crd(binding, crd) {
        return binding.finalizers().iter().any(|known| known == finalizers::ORPHAN);
    }
    let mut bound = binding.status.iter().flat_map(|status| &status.bound_schemas);
    let is_listed = bound.any(|bound| bound.group == crd.spec.group && bound.resource == crd.spec.names.plural);
    is_listed && controller(&crd.metadata).is_none()
}

/// Returns the reference to the bundle that made a binding, whether or not that bundle still exists.
pub fn bundle_of(binding: &APIServiceBinding) -> Option<&OwnerReference> {
    controller(&binding.metadata).filter(|owner| {
        owner.kind == APIServiceBindingBundle::kind(&()) && owner.api_version.starts_with("kube-bind.io/")
    })
}
