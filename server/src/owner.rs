//! Owner references: what a contract's objects die with.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

/// The references of an object with one plain reference per owner, if that differs from those it has. References to
/// other exports stay, and a controller's becomes a plain one, so that no export takes the object with it.
pub fn shared<K: Resource>(object: &K, owners: &[OwnerReference]) -> Option<Vec<OwnerReference>> {
    let before = object.meta().owner_references.clone().unwrap_or_default();
    let mut after: Vec<OwnerReference> = before.iter().cloned().map(plain).collect();
    for owner in owners {
        if !after.iter().any(|other| other.uid == owner.uid) {
            // An export made anew under its name takes the place of the old one.
            after.retain(|other| (&other.kind, &other.name) != (&owner.kind, &owner.name));
            after.push(owner.clone());
        }
    }
    (after != before).then_some(after)
}

/// Whether an object has this owner and no other, and so ends with it.
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
    fn only_a_sole_owner_takes_an_object_along() {
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
