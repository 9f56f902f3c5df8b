use bindery_api::{
    annotations, labels,
    v1alpha2::{APIServiceNamespaceSpec, APIServiceNamespaceStatus},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::{collection::vec, prelude::*};

use super::*;

const CONTRACT: &str = "kube-bind-a";

fn object(name: &str, created: i64, assigned: bool) -> APIServiceNamespace {
    let mut object = APIServiceNamespace::new(name, APIServiceNamespaceSpec {});
    object.metadata.namespace = Some(CONTRACT.to_owned());
    object.metadata.creation_timestamp = Some(Time(Timestamp::from_second(created).unwrap()));
    object.status = assigned.then(|| APIServiceNamespaceStatus {
        namespace: Some(format!("{CONTRACT}-{name}")),
        ..APIServiceNamespaceStatus::default()
    });
    object
}

fn made(name: &str, made_for: Option<&str>) -> Namespace {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(format!("{CONTRACT}-{name}"));
    let label = (labels::CONTRACT.to_owned(), CONTRACT.to_owned());
    namespace.labels_mut().extend([label]);
    let mark = made_for.map(|name| {
        let key = annotations::API_SERVICE_NAMESPACE.to_owned();
        (key, format!("{CONTRACT}/{name}"))
    });
    namespace.annotations_mut().extend(mark);
    namespace
}

fn add(tables: &mut Tables, objects: &[APIServiceNamespace]) {
    let of_contract = tables.namespaces.entry(CONTRACT.to_owned()).or_default();
    for object in objects {
        of_contract.note_mapped(&ObjectKey::of(object), None, Some(object));
    }
}

#[track_caller]
fn check(objects: &[(&str, i64, bool)], limit: u32, expect: &[&str]) {
    let all: Vec<_> = objects
        .iter()
        .map(|(name, created, assigned)| object(name, *created, *assigned))
        .collect();
    let mut tables = Tables::default();
    add(&mut tables, &all);
    let of_contract = tables.namespaces.get_mut(CONTRACT).unwrap();
    let admitted: Vec<_> = all
        .iter()
        .filter(|one| of_contract.admits(one, limit))
        .map(kube::ResourceExt::name_any)
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
    let mut tables = Tables::default();
    add(&mut tables, &[object("mapped", 1, true)]);
    for namespace in [made("mapped", Some("mapped")), made("kept", Some("kept"))] {
        tables.note_namespace(None, Some(&namespace));
    }
    let new = object("new", 2, false);
    add(&mut tables, std::slice::from_ref(&new));
    let of_contract = tables.namespaces.get_mut(CONTRACT).unwrap();
    assert_eq!(of_contract.len(), 3);
    assert!(of_contract.admits(&new, 3) && !of_contract.admits(&new, 2));
    assert!(
        of_contract.admits(&object("mapped", 1, true), 0),
        "what is mapped stays so"
    );
    let kept = made("kept", Some("kept"));
    tables.note_namespace(Some(&kept), None);
    assert_eq!(
        tables.namespaces.get_mut(CONTRACT).unwrap().admitted(2),
        [Arc::from("new")]
    );
}

#[test]
fn contracts_are_counted_for_each_of_their_owners() {
    let contract = |owners: &[&str]| {
        let mut namespace = made("", None);
        namespace.metadata.name = Some(CONTRACT.to_owned());
        let owners: Vec<_> = owners
            .iter()
            .map(|owner| crate::principal::Principal::named(*owner))
            .collect();
        let entry = (annotations::OWNERS.to_owned(), serde_json::to_string(&owners).unwrap());
        namespace.annotations_mut().extend([entry]);
        namespace
    };
    let mut tables = Tables::default();
    let count = |tables: &Tables, owner: &str| tables.contracts.get(owner).copied();
    let (one, two) = (contract(&["jane"]), contract(&["jane", "john"]));
    tables.note_namespace(None, Some(&one));
    tables.note_namespace(Some(&one), Some(&two));
    assert_eq!((count(&tables, "jane"), count(&tables, "john")), (Some(1), Some(1)));
    tables.note_namespace(Some(&two), None);
    assert!(tables.contracts.is_empty());
}

/// The rule without an index: it looks at all objects.
fn admits_by_all(object: &APIServiceNamespace, all: &[APIServiceNamespace], kept: usize, limit: usize) -> bool {
    let rank = |object: &APIServiceNamespace| (!is_assigned(object), rank(object));
    let room = limit.saturating_sub(kept);
    is_assigned(object) || all.iter().filter(|other| rank(other) < rank(object)).count() < room
}

proptest! {
    /// After any changes of APIServiceNamespaces and of namespaces on the provider, the index answers as a look at all objects does.
    #[test]
    fn the_index_answers_as_a_look_at_all(
        steps in vec((0..6_u8, 0..3_i64, 0..4_u8, 0..3_u8), 0..60),
        limit in 0..6_u32,
    ) {
        let mut tables = Tables::default();
        let (mut all, mut there) = (BTreeMap::new(), BTreeMap::new());
        for (name, created, what, made_for) in steps {
            let name = name.to_string();
            match what {
                0 | 1 => {
                    let new = object(&name, created, what == 1);
                    let old = all.insert(name.clone(), new.clone());
                    let of_contract = tables.namespaces.entry(CONTRACT.to_owned()).or_default();
                    of_contract.note_mapped(&ObjectKey::of(&new), old.as_ref(), Some(&new));
                }
                2 => {
                    if let Some(old) = all.remove(&name) {
                        let of_contract = tables.namespaces.get_mut(CONTRACT).unwrap();
                        of_contract.note_mapped(&ObjectKey::of(&old), Some(&old), None);
                        tables.forget_empty(CONTRACT);
                    }
                }
                _ => {
                    let new = (made_for > 0).then(|| made(&name, (made_for > 1).then_some(name.as_str())));
                    let old = match new.clone() {
                        Some(new) => there.insert(name.clone(), new),
                        None => there.remove(&name),
                    };
                    tables.note_namespace(old.as_ref(), new.as_ref());
                }
            }
            let kept = there
                .iter()
                .filter(|(name, place)| contract::made_for(place).is_none() || !all.contains_key(*name))
                .count();
            let objects: Vec<_> = all.values().cloned().collect();
            let Some(of_contract) = tables.namespaces.get_mut(CONTRACT) else {
                prop_assert!(all.is_empty() && there.is_empty());
                continue;
            };
            prop_assert_eq!(of_contract.len(), objects.len() + kept);
            let (mut told, mut within) = (BTreeSet::new(), BTreeSet::new());
            for one in &objects {
                let admitted = admits_by_all(one, &objects, kept, limit as usize);
                prop_assert_eq!(of_contract.admits(one, limit), admitted, "{} of {}", one.name_any(), limit);
                if admitted {
                    within.insert(Arc::<str>::from(one.name_any()));
                }
                if admitted && !is_assigned(one) {
                    told.insert(Arc::<str>::from(one.name_any()));
                }
            }
            let admitted: BTreeSet<_> = of_contract.admitted(limit).into_iter().collect();
            prop_assert_eq!(admitted, told);
            prop_assert_eq!(of_contract.served(limit), within);
        }
    }
}
