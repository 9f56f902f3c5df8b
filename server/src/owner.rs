//! Owner references, by which Kubernetes deletes objects together with the export or the contract that they were made for.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

/// The owner references that an object needs so that it has these owners too; none if it has them already. Other references
/// stay, and no owner is marked as the controller, so that the object lives until its last owner is deleted.
pub fn shared<K: Resource>(object: &K, owners: &[OwnerReference]) -> Option<Vec<OwnerReference>> {
    let before = object.meta().owner_references.clone().unwrap_or_default();
    let mut after: Vec<OwnerReference> = before.iter().cloned().map(plain).collect();
    for owner in owners {
        if !after.iter().any(|other| other.uid == owner.uid) {
            // An export that was deleted and made anew replaces the reference to its predecessor.
            after.retain(|other| (&other.kind, &other.name) != (&owner.kind, &owner.name));
            after.push(owner.clone());
        }
    }
    (after != before).then_some(after)
}

/// Whether an object has this owner and no other, so that it is deleted with it.
pub fn is_alone<K: Resource>(object: &K, uid: Option<&str>) -> bool {
    let owners = object.meta().owner_references.as_deref().unwrap_or_default();
    owners.len() == 1 && owners.first().map(|owner| owner.uid.as_str()) == uid
}

fn plain(owner: OwnerReference) -> OwnerReference {
    OwnerReference {
        controller: None,
        block_owner_deletion: None,
        ..owner
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::API_VERSION;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn an_object_is_deleted_with_its_only_owner() {
        let object = |owners: &[&str]| {
            let mut object = ConfigMap::default();
            object.metadata.owner_references = Some(owners.iter().map(|uid| owner("export", uid, None)).collect());
            object
        };
        assert!(is_alone(&object(&["a"]), Some("a")));
        assert!(!is_alone(&object(&["a", "b"]), Some("a")));
        assert!(!is_alone(&object(&["b"]), Some("a")));
        assert!(!is_alone(&object(&[]), None));
    }

    fn owner(name: &str, uid: &str, controller: Option<bool>) -> OwnerReference {
        OwnerReference {
            api_version: API_VERSION.to_owned(),
            kind: "APIServiceExport".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            controller,
            block_owner_deletion: controller,
        }
    }

    #[track_caller]
    fn check(before: &[&OwnerReference], owners: &[&OwnerReference], expect: Option<&[&OwnerReference]>) {
        let owned = |owners: &[&OwnerReference]| owners.iter().copied().cloned().collect::<Vec<_>>();
        let mut object = ConfigMap::default();
        object.metadata.owner_references = Some(owned(before));
        assert_eq!(shared(&object, &owned(owners)), expect.map(owned));
    }

    #[test]
    fn each_owner_has_one_plain_reference() {
        let (a, b) = (owner("a", "1", None), owner("b", "2", None));
        check(&[], &[&a], Some(&[&a]));
        check(&[&a], &[&a], None);
        check(&[&a], &[&b], Some(&[&a, &b]));
        check(&[&owner("a", "1", Some(true))], &[&a], Some(&[&a]));
        check(&[&owner("a", "old", None)], &[&a], Some(&[&a]));
    }
}
