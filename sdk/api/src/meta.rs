//! Accessors and builders for object metadata: owner references, and the labels and annotations that several programs read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

use crate::{annotations, labels};

/// Returns a reference to an owner that is one of possibly several: the garbage collector deletes the dependent when the
/// last owner is gone. An owner without a name or UID, as before its creation, leaves that field empty.
pub fn owner_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    let meta = owner.meta();
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        controller: None,
        block_owner_deletion: None,
    }
}

/// Returns a reference to the owner that controls the dependent, of which there is one at most. See [`owner_reference`].
pub fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        controller: Some(true),
        ..owner_reference(owner)
    }
}

/// Returns the controller of an object, whatever its kind.
pub fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = meta.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

/// Whether an object carries an annotation with the value `true`; any other value counts as absent.
pub fn is_annotated(meta: &ObjectMeta, key: &str) -> bool {
    let value = meta.annotations.as_ref().and_then(|all| all.get(key));
    value.is_some_and(|value| value == annotations::TRUE)
}

/// Whether the user paused the synchronization of an object or a binding. See [`annotations::PAUSED`].
pub fn is_paused(meta: &ObjectMeta) -> bool {
    is_annotated(meta, annotations::PAUSED)
}

/// Returns the contract namespace that an object belongs to by its label. See [`labels::CONTRACT`].
pub fn contract(meta: &ObjectMeta) -> Option<&str> {
    label(meta, labels::CONTRACT)
}

/// Returns the UID of the contract namespace that an object belongs to by its label. See [`labels::CONTRACT_UID`].
pub fn contract_uid(meta: &ObjectMeta) -> Option<&str> {
    label(meta, labels::CONTRACT_UID)
}

/// Returns the identity of the consumer cluster, by the annotation of its contract namespace or ClusterBinding.
pub fn identity(meta: &ObjectMeta) -> Option<&str> {
    let noted = meta.annotations.as_ref()?;
    let identity = noted
        .get(annotations::IDENTITY)
        .or_else(|| noted.get(annotations::IDENTITY_LEGACY));
    identity.map(String::as_str)
}

/// Whether a namespace is a contract: its label names itself, while the label of a provider namespace names its contract.
pub fn is_contract(meta: &ObjectMeta) -> bool {
    contract(meta).is_some_and(|contract| meta.name.as_deref() == Some(contract))
}

/// Whether an object is an anchor of the contract in whose namespace it is. See [`labels::TOKEN_ANCHOR`].
pub fn is_anchor(meta: &ObjectMeta) -> bool {
    label(meta, labels::COMPONENT) == Some(labels::TOKEN_ANCHOR) && contract(meta) == meta.namespace.as_deref()
}

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}
