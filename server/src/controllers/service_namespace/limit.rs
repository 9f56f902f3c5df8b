//! The limit on the namespaces of a contract, and which namespaces are refused beyond it.

use std::{collections::BTreeSet, sync::Arc};

use bindery_api::v1alpha2::APIServiceNamespace;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;

use super::observed::made_for;
use crate::contract;

/// How many namespaces a contract may have mapped now. `namespaces` are all that carry the contract's label: a namespace that
/// nobody maps, and that is kept for the objects in it, counts against the limit too. Otherwise a consumer could get any number
/// by leaving an object in each.
pub(super) fn room(limit: usize, all: &[Arc<APIServiceNamespace>], namespaces: &[Arc<Namespace>]) -> usize {
    let mapped: BTreeSet<_> = all
        .iter()
        .filter_map(|object| object.metadata.name.as_deref())
        .collect();
    let made = namespaces.iter().filter(|namespace| !contract::is_contract(namespace));
    let kept = made.filter(|namespace| made_for(namespace).is_none_or(|key| !mapped.contains(&*key.name)));
    limit.saturating_sub(kept.count())
}

/// Whether an APIServiceNamespace is within its contract's limit. One with a provider namespace always is, also if the limit was
/// lowered since; the others are admitted by age, and those of one age by name.
pub(super) fn admits(object: &APIServiceNamespace, all: &[Arc<APIServiceNamespace>], limit: usize) -> bool {
    if is_assigned(object) || all.len() <= limit {
        return true;
    }
    let own = rank(object);
    all.iter().filter(|other| rank(other) < own).count() < limit
}

/// The APIServiceNamespaces within the limit that have no provider namespace yet.
pub(super) fn admitted(mut all: Vec<Arc<APIServiceNamespace>>, limit: usize) -> Vec<Arc<APIServiceNamespace>> {
    all.sort_by(|one, other| rank(one).cmp(&rank(other)));
    all.truncate(limit);
    all.retain(|object| !is_assigned(object));
    all
}

fn is_assigned(object: &APIServiceNamespace) -> bool {
    let status = object.status.as_ref();
    status.is_some_and(|status| status.namespace.is_some())
}

fn rank(object: &APIServiceNamespace) -> (bool, Option<Timestamp>, Option<&str>) {
    let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (!is_assigned(object), created, object.metadata.name.as_deref())
}

#[cfg(test)]
mod tests {
    use bindery_api::{
        annotations, labels,
        v1alpha2::{APIServiceNamespaceSpec, APIServiceNamespaceStatus},
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::ResourceExt as _;
    use proptest::{collection::btree_map, prelude::*};

    use super::*;

    fn object(name: &str, created: i64, assigned: bool) -> Arc<APIServiceNamespace> {
        let mut object = APIServiceNamespace::new(name, APIServiceNamespaceSpec {});
        object.metadata.creation_timestamp = Some(Time(Timestamp::from_second(created).unwrap()));
        object.status = assigned.then(|| APIServiceNamespaceStatus {
            namespace: Some(format!("kube-bind-a-{name}")),
            ..APIServiceNamespaceStatus::default()
        });
        Arc::new(object)
    }

    #[track_caller]
    fn check(objects: &[(&str, i64, bool)], limit: usize, expect: &[&str]) {
        let all: Vec<_> = objects
            .iter()
            .map(|(name, created, assigned)| object(name, *created, *assigned))
            .collect();
        let admitted: Vec<_> = all
            .iter()
            .filter(|one| admits(one, &all, limit))
            .map(|one| one.name_any())
            .collect();
        assert_eq!(admitted, expect);
    }

    #[test]
    fn the_oldest_are_admitted_and_of_equally_old_ones_the_first_by_name() {
        check(
            &[("c", 1, false), ("b", 2, false), ("a", 2, false)],
            3,
            &["c", "b", "a"],
        );
        check(&[("c", 1, false), ("b", 2, false), ("a", 2, false)], 2, &["c", "a"]);
        check(&[("c", 1, false), ("b", 2, false), ("a", 2, false)], 1, &["c"]);
        // A limit that was lowered takes no namespace away.
        check(&[("c", 1, true), ("b", 2, true), ("a", 3, false)], 1, &["c", "b"]);
        // Nor does one that comes with an earlier name push another out, or in.
        check(&[("b", 1, true), ("a", 1, false)], 1, &["b"]);
    }

    #[test]
    fn namespaces_that_are_kept_take_up_room() {
        let namespace = |name: &str, mapped: Option<&str>| {
            let mut namespace = Namespace::default();
            namespace.metadata.name = Some(name.to_owned());
            let label = (labels::CONTRACT.to_owned(), "kube-bind-a".to_owned());
            namespace.labels_mut().extend([label]);
            let mark = mapped.map(|mapped| {
                let key = annotations::API_SERVICE_NAMESPACE.to_owned();
                (key, format!("kube-bind-a/{mapped}"))
            });
            namespace.annotations_mut().extend(mark);
            Arc::new(namespace)
        };
        let namespaces = [
            namespace("kube-bind-a", None),
            namespace("kube-bind-a-mapped", Some("mapped")),
            namespace("kube-bind-a-kept", Some("kept")),
        ];
        let mapped = [object("mapped", 1, true)];
        assert_eq!(room(3, &mapped, &namespaces), 2);
        assert_eq!(room(1, &mapped, &namespaces), 0);
        assert_eq!(
            room(3, &[object("mapped", 1, true), object("kept", 2, false)], &namespaces),
            3
        );
        assert!(!admits(&object("new", 2, false), &mapped, 0));
        assert!(admits(&mapped[0], &mapped, 0), "what is mapped stays so");
    }

    proptest! {
        /// Asked one by one in any state of the others, never more than the limit are admitted, and those that a freed place
        /// lets in are those that are told.
        #[test]
        fn never_more_than_the_limit(objects in btree_map("[a-z]{1,3}", 0..5_i64, 0..12), limit in 1..6_usize) {
            let all: Vec<_> = objects.iter().map(|(name, created)| object(name, *created, false)).collect();
            let one_by_one: BTreeSet<_> =
                all.iter().filter(|one| admits(one, &all, limit)).map(|one| one.name_any()).collect();
            prop_assert_eq!(one_by_one.len(), limit.min(all.len()));
            let told: BTreeSet<_> = admitted(all, limit).iter().map(|one| one.name_any()).collect();
            prop_assert_eq!(one_by_one, told);
        }
    }
}
