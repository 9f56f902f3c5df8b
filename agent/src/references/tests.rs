use bindery_api::v1alpha2::ReferencePath;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::object::Object;
use Referenced::{No, Yes};

fn sheriffs() -> GroupResource {
    GroupResource::new("wildwest.dev", "sheriffs")
}

fn secrets() -> Subscriber {
    Subscriber {
        claim: ClaimKey {
            resource: GroupResource::new("", "secrets"),
            placement: ClaimedPlacement::Mapped,
        },
        kept: false,
    }
}

fn rule(name: &str, namespace: Option<&str>) -> ReferenceRule {
    let paths = ReferencePath {
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
    };
    ReferenceRule {
        from: sheriffs(),
        versions: Vec::new(),
        paths: ReferencePaths::parse(&paths).unwrap(),
        cluster_scoped_namespace: None,
    }
}

fn sheriff(namespace: &str, name: &str, refs: &[&str]) -> Object {
    let json = json!({
        "metadata": {"namespace": namespace, "name": name, "resourceVersion": "1"},
        "spec": {"refs": refs},
    });
    serde_json::from_str(&json.to_string()).unwrap()
}

fn key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(namespace, name)
}

/// References with a rule for Secrets, an indexer that listed nothing, and the calls of the listener.
fn set_up() -> (References, ReferenceIndexer, Arc<Mutex<Vec<ReferenceChange>>>) {
    let references = References::default();
    let heard: Arc<Mutex<Vec<ReferenceChange>>> = Arc::default();
    let into = Arc::clone(&heard);
    references.listen(
        &secrets(),
        Some(Arc::new(move |changed: &ReferenceChange| {
            into.lock().push(changed.clone());
        })),
    );
    references.set_rules(&secrets(), vec![rule("spec.refs", None)]);
    let indexer = references.indexer(sheriffs(), "v1");
    indexer.listing();
    indexer.listed();
    heard.lock().clear();
    (references, indexer, heard)
}

fn told(heard: &Mutex<Vec<ReferenceChange>>) -> Vec<String> {
    let mut names = Vec::new();
    for changed in std::mem::take(&mut *heard.lock()) {
        match changed {
            ReferenceChange::All => names.push("all".to_owned()),
            // What concerns the references alone is told here.
            ReferenceChange::Namespace(_) => {}
            ReferenceChange::Objects(objects) => names.extend(objects.iter().map(|object| {
                let namespace = object.namespace.as_deref().unwrap_or("*");
                format!("{namespace}/{}", object.name)
            })),
        }
    }
    names.sort();
    names
}

#[test]
fn a_namespace_is_told_of_with_its_first_bound_object_and_its_last() {
    let (references, indexer, heard) = set_up();
    let namespaces = || -> Vec<String> {
        let changes = std::mem::take(&mut *heard.lock());
        let namespaces = changes.into_iter().filter_map(|change| match change {
            ReferenceChange::Namespace(namespace) => Some(namespace.to_string()),
            ReferenceChange::All | ReferenceChange::Objects(_) => None,
        });
        namespaces.collect()
    };
    let has_bound = |namespace: &str| references.has_bound(&[sheriffs()], namespace);
    assert_eq!(has_bound("west"), No);
    indexer.seen(&sheriff("west", "wyatt", &[]));
    indexer.seen(&sheriff("west", "virgil", &[]));
    assert_eq!(
        (namespaces(), has_bound("west"), has_bound("east")),
        (vec!["west".to_owned()], Yes, No)
    );
    indexer.gone(&key("west", "wyatt"));
    assert_eq!((namespaces(), has_bound("west")), (Vec::new(), Yes));
    indexer.gone(&key("west", "virgil"));
    assert_eq!((namespaces(), has_bound("west")), (vec!["west".to_owned()], No));
    let unknown = GroupResource::new("wildwest.dev", "cowboys");
    assert_eq!(
        references.has_bound(&[sheriffs(), unknown], "west"),
        Referenced::Unknown
    );
}

#[test]
fn the_last_reference_counts() {
    let (references, indexer, heard) = set_up();
    indexer.seen(&sheriff("west", "wyatt", &["colt", "badge"]));
    assert_eq!(told(&heard), ["west/badge", "west/colt"]);
    indexer.seen(&sheriff("west", "virgil", &["colt"]));
    assert!(told(&heard).is_empty(), "it was referred to before");
    indexer.seen(&sheriff("west", "wyatt", &["badge"]));
    assert!(told(&heard).is_empty(), "another still refers to it");
    assert_eq!(references.referenced(&secrets(), &key("west", "colt")), Referenced::Yes);
    assert_eq!(references.referenced(&secrets(), &key("east", "colt")), Referenced::No);
    indexer.gone(&key("west", "virgil"));
    assert_eq!(told(&heard), ["west/colt"]);
    assert_eq!(references.referenced(&secrets(), &key("west", "colt")), Referenced::No);
}

#[test]
fn what_a_retained_object_refers_to_stays() {
    let (references, indexer, _) = set_up();
    let (wyatt, colt) = (key("west", "wyatt"), key("west", "colt"));
    let check = |expect: Referenced| assert_eq!(references.referenced(&secrets(), &colt), expect);
    indexer.seen(&sheriff("west", "wyatt", &["colt"]));
    indexer.retain(&wyatt, None);
    indexer.gone(&wyatt);
    indexer.listing();
    indexer.listed();
    check(Referenced::Yes);
    indexer.seen(&sheriff("west", "wyatt", &["badge"]));
    check(Referenced::Yes);
    indexer.unretain(&wyatt, false);
    check(Referenced::No);
    // After a restart only the copy is known, by its own namespace.
    indexer.retain(&wyatt, Some(&sheriff("kube-bind-x-west", "wyatt", &["colt"])));
    check(Referenced::Yes);
    references.set_rules(&secrets(), vec![]);
    references.set_rules(&secrets(), vec![rule("spec.refs", None)]);
    indexer.listing();
    indexer.listed();
    check(Referenced::Yes);
    indexer.unretain(&wyatt, true);
    check(Referenced::Yes);
}

#[test]
fn what_the_copy_of_a_retained_object_refers_to_counts() {
    let (references, indexer, _) = set_up();
    let wyatt = key("west", "wyatt");
    let counts = |name: &str| references.referenced(&secrets(), &key("west", name)) == Referenced::Yes;
    // The object was changed and deleted while no konnector ran.
    indexer.seen(&sheriff("west", "wyatt", &["badge"]));
    indexer.retain(&wyatt, None);
    assert!(counts("badge"));
    indexer.retain(&wyatt, Some(&sheriff("kube-bind-x-west", "wyatt", &["colt"])));
    assert!(counts("colt") && !counts("badge"));
    indexer.gone(&wyatt);
    assert!(counts("colt") && !counts("badge"));
}

#[test]
fn what_an_object_refers_to_counts_once_no_retained_copy_blocks_its_name() {
    let (references, indexer, _) = set_up();
    let wyatt = key("west", "wyatt");
    let counts = |name: &str| references.referenced(&secrets(), &key("west", name)) == Referenced::Yes;
    let retain = || indexer.retain(&wyatt, Some(&sheriff("kube-bind-x-west", "wyatt", &["colt"])));
    retain();
    indexer.seen(&sheriff("west", "wyatt", &["star"]));
    indexer.seen(&sheriff("west", "wyatt", &["badge"]));
    assert!(counts("colt") && !counts("badge"));
    indexer.unretain(&wyatt, true);
    assert!(!counts("colt") && counts("badge") && !counts("star"));
    indexer.gone(&wyatt);
    assert!(!counts("badge"));
    // A restored object that is not shown again has the references of its copy.
    retain();
    indexer.seen(&sheriff("west", "wyatt", &["badge"]));
    indexer.gone(&wyatt);
    indexer.unretain(&wyatt, true);
    assert!(counts("colt") && !counts("badge"));
}

#[test]
fn nothing_is_denied_before_all_is_known() {
    let references = References::default();
    references.set_rules(&secrets(), vec![rule("spec.refs", None)]);
    let colt = key("west", "colt");
    let check = |expect: Referenced, complains: bool| {
        assert_eq!(references.referenced(&secrets(), &colt), expect);
        assert_eq!(references.complaint(&secrets()).is_some(), complains);
    };
    check(Referenced::Unknown, true);
    let indexer = references.indexer(sheriffs(), "v1");
    check(Referenced::Unknown, true);
    indexer.listing();
    check(Referenced::Unknown, true);
    indexer.seen(&sheriff("west", "wyatt", &["colt"]));
    check(Referenced::Yes, true);
    indexer.seen(&sheriff("west", "wyatt", &[]));
    check(Referenced::Unknown, true);
    indexer.listed();
    check(Referenced::No, false);
    let next = references.indexer(sheriffs(), "v1");
    drop(indexer);
    check(Referenced::Unknown, true);
    next.listing();
    next.listed();
    check(Referenced::No, false);
    drop(next);
    check(Referenced::Unknown, true);
}

#[test]
fn a_namespace_is_said_meant_or_any() {
    let (references, indexer, _) = set_up();
    let any = |expect: [Referenced; 3]| {
        for (namespace, expect) in ["west", "east", "home"].into_iter().zip(expect) {
            assert_eq!(
                references.referenced(&secrets(), &key(namespace, "colt")),
                expect,
                "{namespace}"
            );
        }
    };
    indexer.seen(&sheriff("west", "wyatt", &["colt"]));
    any([Yes, No, No]);
    indexer.gone(&key("west", "wyatt"));
    indexer.seen(&sheriff("", "wyatt", &["colt"]));
    any([Yes, Yes, Yes]);
    let again = |rule: ReferenceRule| {
        references.set_rules(&secrets(), vec![rule]);
        indexer.listing();
        indexer.seen(&sheriff("", "wyatt", &["colt", "east"]));
        indexer.listed();
    };
    again(ReferenceRule {
        cluster_scoped_namespace: Some("home".into()),
        ..rule("spec.refs", None)
    });
    any([No, No, Yes]);
    again(ReferenceRule {
        cluster_scoped_namespace: Some("home".into()),
        ..rule("spec.refs.0", Some("spec.refs.1"))
    });
    any([No, Yes, No]);
}

#[test]
fn new_rules_need_all_objects_again() {
    let (references, indexer, heard) = set_up();
    let mut rounds = indexer.relists().unwrap();
    indexer.seen(&sheriff("west", "wyatt", &["colt"]));
    indexer.listing();
    references.set_rules(&secrets(), vec![rule("metadata.name", None)]);
    assert!(rounds.has_changed().unwrap());
    rounds.mark_unchanged();
    assert_eq!(
        references.referenced(&secrets(), &key("west", "colt")),
        Referenced::Unknown
    );
    indexer.seen(&sheriff("west", "wyatt", &["colt"]));
    indexer.listed();
    assert_eq!(
        references.referenced(&secrets(), &key("west", "colt")),
        Referenced::Unknown,
        "the list began before the rule"
    );
    indexer.listing();
    indexer.seen(&sheriff("west", "wyatt", &["colt"]));
    told(&heard);
    indexer.listed();
    assert_eq!(told(&heard), ["all"]);
    assert_eq!(references.referenced(&secrets(), &key("west", "colt")), Referenced::No);
    assert_eq!(
        references.referenced(&secrets(), &key("west", "wyatt")),
        Referenced::Yes
    );
    references.set_rules(&secrets(), vec![rule("metadata.name", None)]);
    assert!(
        !rounds.has_changed().unwrap() && told(&heard).is_empty(),
        "the same rule"
    );
    references.set_rules(&secrets(), Vec::new());
    assert_eq!(references.referenced(&secrets(), &key("west", "wyatt")), Referenced::No);
}

#[test]
fn a_list_ends_the_references_of_what_it_did_not_show() {
    let (references, indexer, heard) = set_up();
    indexer.seen(&sheriff("west", "wyatt", &["colt"]));
    indexer.seen(&sheriff("west", "virgil", &["badge"]));
    indexer.seen(&sheriff("west", "morgan", &["star"]));
    told(&heard);
    indexer.listing();
    indexer.unreadable(key("west", "virgil"));
    indexer.seen(&sheriff("west", "morgan", &["star"]));
    indexer.listed();
    assert_eq!(told(&heard), ["west/colt"]);
    assert_eq!(
        references.referenced(&secrets(), &key("west", "badge")),
        Referenced::Yes
    );
    assert_eq!(references.referenced(&secrets(), &key("west", "star")), Referenced::Yes);
}

#[test]
fn paths_are_for_versions() {
    let (references, indexer, _) = set_up();
    let of = |versions: &[&str]| ReferenceRule {
        versions: versions.iter().map(|version| (*version).to_owned()).collect(),
        ..rule("spec.refs", None)
    };
    references.set_rules(&secrets(), vec![of(&["v2", "v1"])]);
    indexer.listing();
    indexer.seen(&sheriff("west", "wyatt", &["colt"]));
    indexer.listed();
    assert_eq!(references.referenced(&secrets(), &key("west", "colt")), Referenced::Yes);
    references.set_rules(&secrets(), vec![of(&["v2"])]);
    indexer.listing();
    indexer.seen(&sheriff("west", "wyatt", &["colt"]));
    indexer.listed();
    assert_eq!(
        references.referenced(&secrets(), &key("west", "colt")),
        Referenced::Unknown
    );
    assert!(references.complaint(&secrets()).unwrap().contains("version v2"));
}

#[test]
fn an_indexer_that_was_replaced_changes_nothing() {
    let (references, indexer, heard) = set_up();
    let next = references.indexer(sheriffs(), "v1");
    told(&heard);
    indexer.seen(&sheriff("west", "wyatt", &["colt"]));
    indexer.gone(&key("west", "wyatt"));
    indexer.listing();
    indexer.listed();
    assert!(indexer.relists().is_none() && told(&heard).is_empty());
    assert_eq!(
        references.referenced(&secrets(), &key("west", "colt")),
        Referenced::Unknown
    );
    drop(indexer);
    next.listing();
    next.listed();
    assert_eq!(references.referenced(&secrets(), &key("west", "colt")), Referenced::No);
}

proptest! {
    #[test]
    fn what_is_told_is_what_changed(
        steps in prop::collection::vec(("[abc]", prop::option::of(prop::collection::vec("[xyz]", 0..3))), 0..30),
    ) {
        let (references, indexer, heard) = set_up();
        let mut model: HashMap<String, Vec<String>> = HashMap::new();
        for (name, refs) in steps {
            let before: HashSet<_> = model.values().flatten().cloned().collect();
            match &refs {
                Some(refs) => {
                    let refs: Vec<_> = refs.iter().map(String::as_str).collect();
                    indexer.seen(&sheriff("west", &name, &refs));
                }
                None => indexer.gone(&key("west", &name)),
            }
            model.insert(name, refs.unwrap_or_default());
            let after: HashSet<_> = model.values().flatten().cloned().collect();
            let mut expect: Vec<_> = before.symmetric_difference(&after).map(|name| format!("west/{name}")).collect();
            expect.sort();
            prop_assert_eq!(told(&heard), expect);
            for name in ["x", "y", "z"] {
                let known = references.referenced(&secrets(), &key("west", name));
                prop_assert_eq!(known == Referenced::Yes, after.contains(name));
            }
        }
    }
}

#[test]
fn objects_without_rules_or_without_references_have_no_entry() {
    let noted = |references: &References| {
        let state = references.state.lock();
        let referrer = &state.referrers[&sheriffs()];
        let listed = referrer.listing.as_ref().map_or(0, |listing| listing.keys.len());
        (referrer.objects.len(), listed)
    };
    let references = References::default();
    let indexer = references.indexer(sheriffs(), "v1");
    indexer.listing();
    indexer.seen(&sheriff("west", "wyatt", &["colt"]));
    assert_eq!(noted(&references), (0, 0), "there is no rule");
    let other = ReferenceRule {
        versions: vec!["v2".to_owned()],
        ..rule("spec.refs", None)
    };
    references.set_rules(&secrets(), vec![other]);
    indexer.seen(&sheriff("west", "wyatt", &["colt"]));
    assert_eq!(noted(&references), (0, 0), "no rule is for this version");
    references.set_rules(&secrets(), vec![rule("spec.refs", None)]);
    indexer.seen(&sheriff("west", "wyatt", &["colt"]));
    indexer.seen(&sheriff("west", "virgil", &[]));
    indexer.unreadable(key("west", "morgan"));
    assert_eq!(noted(&references), (1, 1));
    indexer.listed();
    assert!(references.complaint(&secrets()).is_some(), "not all objects were read");
    indexer.listing();
    indexer.unreadable(key("west", "wyatt"));
    indexer.listed();
    assert_eq!(references.referenced(&secrets(), &key("west", "colt")), Yes);
    indexer.listing();
    indexer.listed();
    assert_eq!(references.referenced(&secrets(), &key("west", "colt")), No);
}
