use proptest::prelude::*;
use serde_json::json;

use super::*;
use Referenced::{No, Yes};

fn sheriffs() -> GroupResource {
    GroupResource::new("wildwest.dev", "sheriffs")
}

fn claim_key(resource: &str) -> ClaimKey {
    ClaimKey {
        resource: GroupResource::new("", resource),
        place: Place::Mapped,
    }
}

fn secrets() -> Asker {
    Asker {
        claim: claim_key("secrets"),
        held: false,
    }
}

fn question(name: &str, namespace: Option<&str>) -> Question {
    Question {
        from: sheriffs(),
        versions: Vec::new(),
        reference: Reference::parse(name, namespace).unwrap(),
        home: None,
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

/// References with a claim on Secrets, a feed that listed nothing, and what the claim was told.
fn set_up() -> (References, Feed, Arc<Mutex<Vec<Changed>>>) {
    let references = References::default();
    let heard: Arc<Mutex<Vec<Changed>>> = Arc::default();
    let into = Arc::clone(&heard);
    references.listen(
        &secrets(),
        Some(Arc::new(move |changed: &Changed| into.lock().push(changed.clone()))),
    );
    references.ask(&secrets(), vec![question("spec.refs", None)]);
    let feed = references.feed(sheriffs(), "v1");
    feed.listing();
    feed.listed();
    heard.lock().clear();
    (references, feed, heard)
}

fn told(heard: &Mutex<Vec<Changed>>) -> Vec<String> {
    let mut names = Vec::new();
    for changed in std::mem::take(&mut *heard.lock()) {
        match changed {
            Changed::All => names.push("all".to_owned()),
            Changed::Targets(targets) => names.extend(targets.iter().map(|target| {
                let namespace = target.namespace.as_deref().unwrap_or("*");
                format!("{namespace}/{}", target.name)
            })),
        }
    }
    names.sort();
    names
}

#[test]
fn the_last_reference_counts() {
    let (references, feed, heard) = set_up();
    feed.seen(&sheriff("west", "wyatt", &["colt", "badge"]));
    assert_eq!(told(&heard), ["west/badge", "west/colt"]);
    feed.seen(&sheriff("west", "virgil", &["colt"]));
    assert!(told(&heard).is_empty(), "it was referred to before");
    feed.seen(&sheriff("west", "wyatt", &["badge"]));
    assert!(told(&heard).is_empty(), "another still refers to it");
    assert_eq!(references.referenced(&secrets(), &key("west", "colt")), Referenced::Yes);
    assert_eq!(references.referenced(&secrets(), &key("east", "colt")), Referenced::No);
    feed.gone(&key("west", "virgil"));
    assert_eq!(told(&heard), ["west/colt"]);
    assert_eq!(references.referenced(&secrets(), &key("west", "colt")), Referenced::No);
}

#[test]
fn nothing_is_denied_before_all_is_known() {
    let references = References::default();
    references.ask(&secrets(), vec![question("spec.refs", None)]);
    let colt = key("west", "colt");
    let check = |expect: Referenced, complains: bool| {
        assert_eq!(references.referenced(&secrets(), &colt), expect);
        assert_eq!(references.complaint(&secrets()).is_some(), complains);
    };
    check(Referenced::Unknown, true);
    let feed = references.feed(sheriffs(), "v1");
    check(Referenced::Unknown, true);
    feed.listing();
    check(Referenced::Unknown, true);
    feed.seen(&sheriff("west", "wyatt", &["colt"]));
    check(Referenced::Yes, true);
    feed.seen(&sheriff("west", "wyatt", &[]));
    check(Referenced::Unknown, true);
    feed.listed();
    check(Referenced::No, false);
    let next = references.feed(sheriffs(), "v1");
    drop(feed);
    check(Referenced::Unknown, true);
    next.listing();
    next.listed();
    check(Referenced::No, false);
    drop(next);
    check(Referenced::Unknown, true);
}

#[test]
fn a_namespace_is_said_meant_or_any() {
    let (references, feed, _) = set_up();
    let any = |expect: [Referenced; 3]| {
        for (namespace, expect) in ["west", "east", "home"].into_iter().zip(expect) {
            assert_eq!(
                references.referenced(&secrets(), &key(namespace, "colt")),
                expect,
                "{namespace}"
            );
        }
    };
    feed.seen(&sheriff("west", "wyatt", &["colt"]));
    any([Yes, No, No]);
    feed.gone(&key("west", "wyatt"));
    feed.seen(&sheriff("", "wyatt", &["colt"]));
    any([Yes, Yes, Yes]);
    let again = |question: Question| {
        references.ask(&secrets(), vec![question]);
        feed.listing();
        feed.seen(&sheriff("", "wyatt", &["colt", "east"]));
        feed.listed();
    };
    again(Question {
        home: Some("home".into()),
        ..question("spec.refs", None)
    });
    any([No, No, Yes]);
    again(Question {
        home: Some("home".into()),
        ..question("spec.refs.0", Some("spec.refs.1"))
    });
    any([No, Yes, No]);
}

#[test]
fn new_questions_are_asked_of_all() {
    let (references, feed, heard) = set_up();
    let mut rounds = feed.rounds().unwrap();
    feed.seen(&sheriff("west", "wyatt", &["colt"]));
    feed.listing();
    references.ask(&secrets(), vec![question("metadata.name", None)]);
    assert!(rounds.has_changed().unwrap());
    rounds.mark_unchanged();
    assert_eq!(
        references.referenced(&secrets(), &key("west", "colt")),
        Referenced::Unknown
    );
    feed.seen(&sheriff("west", "wyatt", &["colt"]));
    feed.listed();
    assert_eq!(
        references.referenced(&secrets(), &key("west", "colt")),
        Referenced::Unknown,
        "the list began before the question"
    );
    feed.listing();
    feed.seen(&sheriff("west", "wyatt", &["colt"]));
    told(&heard);
    feed.listed();
    assert_eq!(told(&heard), ["all"]);
    assert_eq!(references.referenced(&secrets(), &key("west", "colt")), Referenced::No);
    assert_eq!(
        references.referenced(&secrets(), &key("west", "wyatt")),
        Referenced::Yes
    );
    references.ask(&secrets(), vec![question("metadata.name", None)]);
    assert!(
        !rounds.has_changed().unwrap() && told(&heard).is_empty(),
        "the same question"
    );
    references.ask(&secrets(), Vec::new());
    assert_eq!(references.referenced(&secrets(), &key("west", "wyatt")), Referenced::No);
}

#[test]
fn a_list_ends_the_references_of_what_it_did_not_show() {
    let (references, feed, heard) = set_up();
    feed.seen(&sheriff("west", "wyatt", &["colt"]));
    feed.seen(&sheriff("west", "virgil", &["badge"]));
    feed.seen(&sheriff("west", "morgan", &["star"]));
    told(&heard);
    feed.listing();
    feed.unreadable(key("west", "virgil"));
    feed.seen(&sheriff("west", "morgan", &["star"]));
    feed.listed();
    assert_eq!(told(&heard), ["west/colt"]);
    assert_eq!(
        references.referenced(&secrets(), &key("west", "badge")),
        Referenced::Yes
    );
    assert_eq!(references.referenced(&secrets(), &key("west", "star")), Referenced::Yes);
}

#[test]
fn paths_are_for_versions() {
    let (references, feed, _) = set_up();
    let of = |versions: &[&str]| Question {
        versions: versions.iter().map(|version| (*version).to_owned()).collect(),
        ..question("spec.refs", None)
    };
    references.ask(&secrets(), vec![of(&["v2", "v1"])]);
    feed.listing();
    feed.seen(&sheriff("west", "wyatt", &["colt"]));
    feed.listed();
    assert_eq!(references.referenced(&secrets(), &key("west", "colt")), Referenced::Yes);
    references.ask(&secrets(), vec![of(&["v2"])]);
    feed.listing();
    feed.seen(&sheriff("west", "wyatt", &["colt"]));
    feed.listed();
    assert_eq!(
        references.referenced(&secrets(), &key("west", "colt")),
        Referenced::Unknown
    );
    assert!(references.complaint(&secrets()).unwrap().contains("version v2"));
}

#[test]
fn a_feed_that_was_replaced_is_not_listened_to() {
    let (references, feed, heard) = set_up();
    let next = references.feed(sheriffs(), "v1");
    told(&heard);
    feed.seen(&sheriff("west", "wyatt", &["colt"]));
    feed.gone(&key("west", "wyatt"));
    feed.listing();
    feed.listed();
    assert!(feed.rounds().is_none() && told(&heard).is_empty());
    assert_eq!(
        references.referenced(&secrets(), &key("west", "colt")),
        Referenced::Unknown
    );
    drop(feed);
    next.listing();
    next.listed();
    assert_eq!(references.referenced(&secrets(), &key("west", "colt")), Referenced::No);
}

proptest! {
    #[test]
    fn what_is_told_is_what_changed(
        steps in prop::collection::vec(("[abc]", prop::option::of(prop::collection::vec("[xyz]", 0..3))), 0..30),
    ) {
        let (references, feed, heard) = set_up();
        let mut model: HashMap<String, Vec<String>> = HashMap::new();
        for (name, refs) in steps {
            let before: HashSet<_> = model.values().flatten().cloned().collect();
            match &refs {
                Some(refs) => {
                    let refs: Vec<_> = refs.iter().map(String::as_str).collect();
                    feed.seen(&sheriff("west", &name, &refs));
                }
                None => feed.gone(&key("west", &name)),
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
fn nothing_is_noted_of_what_nobody_asks_about_or_refers_to_nothing() {
    let noted = |references: &References| {
        let state = references.state.lock();
        let referrer = &state.referrers[&sheriffs()];
        let listed = referrer.listing.as_ref().map_or(0, |listing| listing.keys.len());
        (referrer.objects.len(), listed)
    };
    let references = References::default();
    let feed = references.feed(sheriffs(), "v1");
    feed.listing();
    feed.seen(&sheriff("west", "wyatt", &["colt"]));
    assert_eq!(noted(&references), (0, 0), "nobody asks");
    let other = Question {
        versions: vec!["v2".to_owned()],
        ..question("spec.refs", None)
    };
    references.ask(&secrets(), vec![other]);
    feed.seen(&sheriff("west", "wyatt", &["colt"]));
    assert_eq!(noted(&references), (0, 0), "nobody asks in this version");
    references.ask(&secrets(), vec![question("spec.refs", None)]);
    feed.seen(&sheriff("west", "wyatt", &["colt"]));
    feed.seen(&sheriff("west", "virgil", &[]));
    feed.unreadable(key("west", "morgan"));
    assert_eq!(noted(&references), (1, 1));
    feed.listed();
    assert!(references.complaint(&secrets()).is_some(), "not all were asked");
    feed.listing();
    feed.unreadable(key("west", "wyatt"));
    feed.listed();
    assert_eq!(references.referenced(&secrets(), &key("west", "colt")), Yes);
    feed.listing();
    feed.listed();
    assert_eq!(references.referenced(&secrets(), &key("west", "colt")), No);
}
