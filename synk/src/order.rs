//! Defines the order in which objects are applied.

use crate::object::{Gvk, ObjectRef};

/// Phase of CRDs, before everything, because other objects may be of the kinds that they define.
const DEFINITIONS: u16 = 0;
/// Phase of admission policies and their bindings, before rights and programs that they limit.
pub(crate) const POLICIES: u16 = 4;
/// Phase of all objects that no other object is known to depend on.
const REST: u16 = 999;

/// Returns the sort key for applying objects: CRDs first, then what other objects live in or run as, admission policies, and the rest.
pub fn key(object: &ObjectRef) -> impl Ord + use<> {
    (phase(object), object.clone())
}

/// Returns the phase in which an object is applied. Phases run in ascending order; the objects of one phase are applied
/// concurrently.
pub fn phase(object: &ObjectRef) -> u16 {
    match (object.gvk.group.as_str(), object.gvk.kind.as_str()) {
        _ if object.gvk.is_crd() => DEFINITIONS,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding") => POLICIES,
        _ => priority(&object.gvk),
    }
}

/// Returns the sort key by which a ResourceSet lists objects.
pub fn wire_key(object: &ObjectRef) -> impl Ord + use<> {
    (priority(&object.gvk), object.clone())
}

/// Splits a slice that is sorted by [`key`] into its phases.
pub fn phases<T>(sorted: &[T], object: impl Fn(&T) -> &ObjectRef) -> impl Iterator<Item = &[T]> {
    sorted.chunk_by(move |left, right| phase(object(left)) == phase(object(right)))
}

fn priority(gvk: &Gvk) -> u16 {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Namespace") => 1,
        ("", "ServiceAccount") => 2,
        ("", "Secret") => 3,
        _ => REST,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> ObjectRef {
        ObjectRef {
            gvk: Gvk::new(api_version, kind),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    #[test]
    fn what_others_need_comes_first() {
        let sorted = [
            object("apiextensions.k8s.io/v1", "CustomResourceDefinition", None, "z"),
            object("v1", "Namespace", None, "z"),
            object("v1", "ServiceAccount", Some("a"), "z"),
            object("v1", "Secret", Some("a"), "z"),
            object(
                "admissionregistration.k8s.io/v1",
                "ValidatingAdmissionPolicy",
                None,
                "z",
            ),
            object(
                "admissionregistration.k8s.io/v1",
                "ValidatingAdmissionPolicyBinding",
                None,
                "z",
            ),
            object("v1", "ConfigMap", Some("a"), "b"),
            object("v1", "ConfigMap", Some("b"), "a"),
            object("apps/v1", "Deployment", Some("a"), "a"),
            object("apps/v1", "Deployment", Some("a"), "b"),
        ];
        let mut shuffled = sorted.clone();
        shuffled.reverse();
        shuffled.sort_by_key(key);
        assert_eq!(shuffled, sorted);
        let sizes: Vec<_> = phases(&sorted, |object| object).map(<[_]>::len).collect();
        assert_eq!(sizes, [1, 1, 1, 1, 2, 4]);
        shuffled.sort_by_key(wire_key);
        assert_eq!(
            shuffled[3], sorted[6],
            "a set lists definitions and policies among the rest"
        );
    }

    fn any_object() -> impl Strategy<Value = ObjectRef> {
        let kinds = prop_oneof![
            Just(("v1", "Namespace")),
            Just(("v1", "ServiceAccount")),
            Just(("v1", "Secret")),
            Just(("v1", "ConfigMap")),
            Just(("apps/v1", "Deployment")),
            Just(("example.com/v1", "Secret")),
            Just(("apiextensions.k8s.io/v1", "CustomResourceDefinition")),
        ];
        (kinds, proptest::option::of("[ab]"), "[a-c]{1,2}")
            .prop_map(|((api, kind), namespace, name)| object(api, kind, namespace.as_deref(), &name))
    }

    proptest! {
        /// Whatever the order of the input, there is one order of the same objects, and no phase is entered twice.
        #[test]
        fn the_order_is_total_and_the_same_for_every_input(
            (objects, shuffled) in proptest::collection::btree_set(any_object(), 0..20)
                .prop_map(|set| set.into_iter().collect::<Vec<_>>())
                .prop_flat_map(|objects| (Just(objects.clone()), Just(objects).prop_shuffle())),
        ) {
            let sort = |mut objects: Vec<ObjectRef>| {
                objects.sort_by_key(key);
                objects
            };
            let sorted = sort(objects);
            prop_assert_eq!(&sort(shuffled), &sorted);
            prop_assert!(sorted.windows(2).all(|pair| key(&pair[0]) < key(&pair[1])), "no two are equal");
            prop_assert!(sorted.is_sorted_by_key(phase));
            let definitions = sorted.iter().take_while(|object| object.gvk.is_crd()).count();
            let namespaces = sorted.iter().filter(|object| object.gvk == Gvk::new("v1", "Namespace"));
            prop_assert!(sorted.iter().skip(definitions).take(namespaces.clone().count()).eq(namespaces));
            prop_assert!(!sorted.iter().skip(definitions).any(|object| object.gvk.is_crd()));
        }
    }
}
