use bindery_api::conditions::{Severity, false_condition, true_condition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;
use crate::consumer::kinds::{resolve, tests::served};

mod claimed;

const CONTRACT: &str = "kube-bind-x";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

fn object(value: Value) -> Seen<ObjectFacts> {
    Seen::Is(ObjectFacts::of(serde_json::from_value(value).unwrap()))
}

fn merge(base: &mut Value, change: &Value) {
    match (base, change) {
        (Value::Object(base), Value::Object(change)) => {
            for (key, change) in change {
                merge(base.entry(key.clone()).or_insert(Value::Null), change);
            }
        }
        (base, change) => *base = change.clone(),
    }
}

/// A cowboy of the consumer that the konnector has taken up, with changes.
fn here(change: &Value) -> Seen<ObjectFacts> {
    let mut value = json!({
        "metadata": { "name": "billy", "namespace": "west", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["kubebind.io/syncer"],
            "annotations": { "kube-bind.io/provider-namespace": "kube-bind-x-west", "kube-bind.io/provider-uid": "p1" },
            "managedFields": [{ "manager": "kube-bind.io", "time": "2026-01-01T00:00:02Z" }] },
        "spec": { "intent": "x" }, "status": { "result": "y" },
    });
    merge(&mut value, change);
    object(value)
}

/// Its copy, with changes.
fn there(change: &Value) -> Seen<ObjectFacts> {
    let mut value = json!({
        "metadata": { "name": "billy", "namespace": "kube-bind-x-west", "uid": "p1", "creationTimestamp": "2026-01-01T00:00:01Z",
            "annotations": { "kube-bind.io/cluster-namespace": CONTRACT, "kube-bind.io/consumer-uid": "u1",
                "kube-bind.io/projection-hash": "ab" },
            "managedFields": [{ "manager": "kube-bind.io", "time": "2026-01-01T00:00:03Z" }] },
        "spec": { "intent": "x" }, "status": { "result": "y" },
    });
    merge(&mut value, change);
    object(value)
}

fn facts(object: Seen<ObjectFacts>, copy: Seen<ObjectFacts>) -> Facts {
    let kind = resolve(&served(), "cowboy", |_| false).unwrap();
    let binding = BindingFacts {
        name: "cowboys".to_owned(),
        contract: Some(CONTRACT.to_owned()),
        home: "kube-bind".to_owned(),
        conditions: vec![true_condition("Ready")],
        ..BindingFacts::default()
    };
    Facts {
        kind,
        namespace: "west".to_owned(),
        name: "billy".to_owned(),
        object,
        events: Seen::Is(Vec::new()),
        links: vec![BindingLink {
            binding: Seen::Is(binding),
            relation: Relation::Bound,
            server: Some("https://api.example.com".to_owned()),
            place: Seen::Is(CopyLocation::At {
                namespace: "kube-bind-x-west".to_owned(),
                name: "billy".to_owned(),
            }),
            copy,
            last_wins: false,
        }],
    }
}

/// Expected of each line: its level, a part of what it says, and a part of whom it waits for.
#[track_caller]
fn check(facts: &Facts, expect: &[(Level, &str, &str)]) {
    let lines = diagnose(facts);
    assert_eq!(lines.len(), expect.len(), "{lines:#?}");
    for (line, (level, what, waits)) in lines.iter().zip(expect) {
        assert_eq!(line.level, *level, "{line:?}");
        assert!(line.what.contains(what), "{what:?} is not in {line:?}");
        let waiting = line.waiting_for.as_deref().unwrap_or_default();
        assert!(
            waiting.contains(waits) && (waiting.is_empty() == waits.is_empty()),
            "{line:?}"
        );
    }
}

#[track_caller]
fn check_pair(object: Seen<ObjectFacts>, copy: Seen<ObjectFacts>, expect: (Level, &str, &str)) {
    check(&facts(object, copy), &[expect]);
}

use Level::{Broken, Unknown, Waits, Well};

#[test]
fn what_is_in_sync_is_said_to_be() {
    check_pair(
        here(&json!({})),
        there(&json!({})),
        (Well, "in sync with its copy kube-bind-x-west/billy", ""),
    );
    let lines = diagnose(&facts(here(&json!({})), there(&json!({}))));
    assert_eq!(lines[0].since, Some(at(3)), "last written there");
    // The provider may add what it likes.
    check_pair(
        here(&json!({})),
        there(&json!({ "spec": { "more": 1 }, "metadata": { "labels": { "a": "b" } } })),
        (Well, "in sync", ""),
    );
}

#[test]
fn a_difference_is_the_konnectors_to_mend() {
    check_pair(
        here(&json!({ "spec": { "intent": "z" } })),
        there(&json!({})),
        (Waits, "spec.intent of the copy", "konnector"),
    );
    check_pair(
        here(&json!({ "status": { "result": "old" } })),
        there(&json!({})),
        (Waits, "status is not here yet", "konnector"),
    );
    check_pair(
        here(&json!({})),
        there(&json!({ "spec": { "intent": "mine" },
            "metadata": { "annotations": { "kube-bind.io/projection-hash": "ab+" } } })),
        (Broken, "the provider changed spec.intent", "you"),
    );
}

#[test]
fn the_providers_own_word_counts() {
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "Busy",
        "message": "the horse is tired", "lastTransitionTime": "2026-01-01T00:00:09Z" }] } });
    check_pair(
        here(&status),
        there(&status),
        (Waits, "the horse is tired", "provider's controllers"),
    );
    assert_eq!(diagnose(&facts(here(&status), there(&status)))[0].since, Some(at(9)));
}

#[test]
fn what_is_not_there_yet_says_whose_turn_it_is() {
    let fresh = || here(&json!({ "metadata": { "finalizers": [] } }));
    check_pair(fresh(), Seen::Absent, (Waits, "has not taken it up", "konnector"));
    check_pair(
        here(&json!({})),
        Seen::Absent,
        (Waits, "has no copy of it", "konnector"),
    );
    let mut unmapped = facts(here(&json!({})), Seen::Absent);
    unmapped.links[0].place = Seen::Is(CopyLocation::Unmapped {
        namespace: "west".to_owned(),
        why: "a contract may have 2 namespaces".to_owned(),
    });
    check(
        &unmapped,
        &[(
            Waits,
            "no namespace for namespace west yet: a contract may have 2 namespaces",
            "provider",
        )],
    );
}

#[test]
fn what_is_somebody_elses_is_a_conflict() {
    let with = |annotations: Value| there(&json!({ "metadata": { "annotations": annotations } }));
    let bare = object(json!({ "metadata": { "name": "billy", "namespace": "kube-bind-x-west", "uid": "p9" } }));
    check_pair(here(&json!({})), bare, (Broken, "not managed by any binding", "you"));
    check_pair(
        here(&json!({})),
        with(json!({ "kube-bind.io/cluster-namespace": "kube-bind-y" })),
        (Broken, "belongs to contract kube-bind-y", "you"),
    );
    check_pair(
        here(&json!({})),
        with(json!({ "kube-bind.io/consumer-uid": "u0" })),
        (Broken, "another object of this name (UID u0)", "you"),
    );
    check_pair(
        here(&json!({})),
        with(json!({ "kube-bind.io/released": "2026-01-01T00:00:00Z" })),
        (Broken, "kept when an earlier binding ended", "you"),
    );
    let mut shared = facts(
        here(&json!({})),
        with(json!({ "kube-bind.io/cluster-namespace": "kube-bind-y" })),
    );
    shared.links[0].last_wins = true;
    check(&shared, &[(Well, "another consumer (contract kube-bind-y) wrote", "")]);
}

#[test]
fn a_deletion_says_what_holds_it() {
    let going = |finalizers: Value| {
        here(&json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:05Z", "finalizers": finalizers } }))
    };
    let syncer = json!(["kubebind.io/syncer"]);
    let held = there(&json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:06Z",
        "finalizers": ["example.com/stable", "example.com/bank"] } }));
    check_pair(
        going(syncer.clone()),
        held.clone(),
        (
            Waits,
            "kept by its finalizers example.com/stable, example.com/bank",
            "the controller of example.com/stable",
        ),
    );
    assert_eq!(diagnose(&facts(going(syncer.clone()), held))[0].since, Some(at(6)));
    check_pair(
        going(syncer.clone()),
        there(&json!({})),
        (Waits, "has not reached the copy", "konnector"),
    );
    check_pair(
        going(syncer.clone()),
        Seen::Absent,
        (Waits, "has not removed its finalizer yet", "konnector"),
    );
    check_pair(
        going(json!(["x/y"])),
        Seen::Absent,
        (Waits, "finalizers of this cluster: x/y", "the controller of x/y"),
    );
    check_pair(
        going(json!([])),
        Seen::Absent,
        (Waits, "nothing keeps it", "API server"),
    );
    check(
        &facts(going(syncer), Seen::Unknown("no route".to_owned())),
        &[(Waits, "waits for its copy", "provider"), (Unknown, "no route", "")],
    );
    check(
        &facts(going(json!(["kubebind.io/syncer", "x/y"])), there(&json!({}))),
        &[(Waits, "has not reached", "konnector"), (Waits, "x/y", "x/y")],
    );
}

#[test]
fn a_copy_that_goes_alone_is_made_again() {
    let copy = there(&json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:06Z", "finalizers": ["a/b"] } }));
    check_pair(
        here(&json!({})),
        copy,
        (Waits, "kept by its finalizers a/b", "provider"),
    );
}

#[test]
fn what_nobody_was_seen_to_delete_waits_for_you() {
    let orphaned = |object: Seen<ObjectFacts>| {
        let mut facts = facts(object, there(&json!({})));
        let Seen::Is(binding) = &mut facts.links[0].binding else {
            panic!("a binding");
        };
        binding.conditions.push(true_condition("OrphanedObjects"));
        facts
    };
    let gone = orphaned(Seen::Absent);
    check(&gone, &[(Broken, "nobody was seen to delete it", "you")]);
    let mend = |facts: &Facts| diagnose(facts)[0].mend.clone().unwrap();
    assert!(
        mend(&gone).contains("kubectl bind orphans cowboys --relink"),
        "{}",
        mend(&gone)
    );
    let replaced = orphaned(here(&json!({ "metadata": { "uid": "u2" } })));
    check(
        &replaced,
        &[(Broken, "another object of this name (UID u1)", "you, or the provider")],
    );
    assert!(
        mend(&replaced).contains("orphans cowboys --relink"),
        "{}",
        mend(&replaced)
    );
}

#[test]
fn what_is_retained_waits_for_you() {
    let retained = || {
        there(&json!({ "metadata": { "annotations": {
            "kube-bind.io/retained": "u1/kube-bind-x/2026-01-01T00:00:03Z",
            "kube-bind.io/retained-until": "2026-01-04T00:00:03Z",
        } } }))
    };
    let says = (
        Broken,
        "of a deleted object of this name until 2026-01-04T00:00:03Z",
        "you",
    );
    check_pair(Seen::Absent, retained(), says);
    check_pair(here(&json!({ "metadata": { "uid": "u2" } })), retained(), says);
}

#[test]
fn what_is_gone_here_may_be_left_there() {
    check_pair(
        Seen::Absent,
        there(&json!({})),
        (Waits, "the provider has its copy", "konnector"),
    );
    check_pair(
        Seen::Absent,
        there(&json!({ "metadata": { "annotations": { "kube-bind.io/cluster-namespace": "kube-bind-y" } } })),
        (Broken, "is not its copy", ""),
    );
    assert!(facts(Seen::Absent, Seen::Absent).is_nowhere());
    let unknown = facts(Seen::Absent, Seen::Unknown("forbidden".to_owned()));
    assert!(!unknown.is_nowhere());
    check(
        &unknown,
        &[(Broken, "not on this cluster", ""), (Unknown, "forbidden", "")],
    );
}

#[test]
fn a_pause_is_yours_to_end() {
    let paused = here(&json!({ "metadata": { "annotations": { "kube-bind.io/paused": "true" } } }));
    check_pair(paused, there(&json!({})), (Waits, "it is paused", "you"));
    let mut binding = facts(here(&json!({})), there(&json!({})));
    let Seen::Is(known) = &mut binding.links[0].binding else {
        panic!("a binding");
    };
    known.paused = true;
    check(&binding, &[(Waits, "APIServiceBinding cowboys is paused", "you")]);
    let mend = diagnose(&binding)[0].mend.clone().unwrap();
    assert_eq!(mend, "kubectl annotate apiservicebinding cowboys kube-bind.io/paused-");
}

#[test]
fn an_unbind_says_how_far_it_is() {
    let mut going = with_condition("Draining", Severity::Info, "3 objects are left");
    let Seen::Is(known) = &mut going.links[0].binding else {
        panic!("a binding");
    };
    known.deleting = Some(at(4));
    check(&going, &[(Waits, "is being unbound: 3 objects are left", "konnector")]);
}

fn with_condition(type_: &str, severity: Severity, message: &str) -> Facts {
    let mut facts = facts(here(&json!({})), there(&json!({})));
    let mut condition = false_condition(type_, severity, "Reason", message);
    condition.last_transition_time = Time(at(7));
    let Seen::Is(binding) = &mut facts.links[0].binding else {
        panic!("a binding");
    };
    binding.conditions.push(condition);
    facts
}

#[test]
fn what_holds_the_binding_holds_the_object() {
    let expired = with_condition("SecretValid", Severity::Error, "the credential has expired");
    check(
        &expired,
        &[(Broken, "SecretValid is False: the credential has expired (Reason)", "")],
    );
    assert_eq!(diagnose(&expired)[0].since, Some(at(7)));
    check(
        &with_condition("Connected", Severity::Info, "connecting"),
        &[(Waits, "connecting", "")],
    );
    // Ready repeats the others, and another object's trouble is not this one's.
    check(&with_condition("Ready", Severity::Error, "x"), &[(Well, "in sync", "")]);
    check(
        &with_condition("ObjectsInSync", Severity::Warning, "west/jesse: x"),
        &[(Well, "in sync", "")],
    );
    check(
        &with_condition("ObjectsInSync", Severity::Warning, "west/billy: refused"),
        &[(Broken, "refused", "")],
    );
}

#[test]
fn a_binding_without_its_export_waits_for_you() {
    let check_mend = |reason: &str, bundle: Option<&str>, level: Level, mend: &str| {
        let mut facts = with_condition("Connected", Severity::Error, "3 objects are left");
        let Seen::Is(binding) = &mut facts.links[0].binding else {
            panic!("a binding");
        };
        binding.bundle = bundle.map(str::to_owned);
        let condition = binding.conditions.last_mut().unwrap();
        condition.reason = reason.to_owned();
        check(&facts, &[(level, "3 objects are left", "you")]);
        let line = &diagnose(&facts)[0];
        assert!(line.mend.as_deref().unwrap().contains(mend), "{line:?}");
    };
    let consent = "kubectl annotate apiservicebinding cowboys kube-bind.io/allow-unbind-until=";
    check_mend("ExportRemoved", Some("acme"), Broken, consent);
    check_mend("ExportNotSelected", Some("acme"), Waits, consent);
    check_mend("ExportRemoved", None, Broken, "kubectl bind unbind cowboys");
}

#[test]
fn what_cannot_be_seen_is_said() {
    let away = || Seen::Unknown("Secret x is forbidden".to_owned());
    check(
        &facts(here(&json!({})), away()),
        &[
            (
                Well,
                "has a copy in namespace kube-bind-x-west of the provider (UID p1)",
                "",
            ),
            (Unknown, "Secret x is forbidden", ""),
        ],
    );
    check(
        &facts(here(&json!({ "metadata": { "annotations": Value::Null } })), away()),
        &[(Waits, "has not taken it up", "konnector"), (Unknown, "forbidden", "")],
    );
    let mut blind = facts(here(&json!({})), away());
    blind.links[0].binding = Seen::Unknown("you may not list".to_owned());
    let lines = diagnose(&blind);
    assert!(
        lines
            .iter()
            .any(|line| line.level == Unknown && line.what.contains("you may not list")),
        "{lines:?}"
    );
}

#[test]
fn the_last_report_stands_beside_what_is_amiss() {
    let event = EventFacts {
        at: Some(at(8)),
        warning: true,
        reason: "Invalid".to_owned(),
        message: "the provider refused: spec.intent is too long".to_owned(),
    };
    let mut refused = facts(here(&json!({})), Seen::Absent);
    refused.events = Seen::Is(vec![event.clone()]);
    check(
        &refused,
        &[
            (Waits, "no copy", "konnector"),
            (Broken, "Invalid: the provider refused", ""),
        ],
    );
    assert_eq!(
        render(&refused, &diagnose(&refused), at(60))
            .matches("is too long")
            .count(),
        1
    );
    // The condition of the binding says the same.
    let Seen::Is(binding) = &mut refused.links[0].binding else {
        unreachable!()
    };
    binding.conditions = vec![false_condition(
        "ObjectsInSync",
        Severity::Error,
        "Invalid",
        "west/billy: the provider refused: spec.intent is too long",
    )];
    let text = render(&refused, &diagnose(&refused), at(60));
    assert_eq!(text.matches("is too long").count(), 1, "{text}");
    // Overcome.
    let mut well = facts(here(&json!({})), there(&json!({})));
    well.events = Seen::Is(vec![event]);
    check(&well, &[(Well, "in sync", "")]);
}

#[test]
fn what_no_binding_touches_stays_here() {
    let mut alone = facts(here(&json!({})), Seen::Absent);
    alone.links.clear();
    check(
        &alone,
        &[(
            Well,
            "no binding of this cluster brings or claims cowboys.wildwest.dev",
            "",
        )],
    );
}

#[test]
fn people_see_both_sides_and_then_what_it_waits_for() {
    let copy = there(&json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:06Z", "finalizers": ["a/b"] } }));
    let object = here(&json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:05Z" } }));
    let facts = facts(object, copy);
    assert_eq!(
        render(&facts, &diagnose(&facts), at(60)),
        "\
Cowboy west/billy
├─ here: 60s old, written by the konnector 58s ago, being deleted for 55s
├─ binding cowboys, contract kube-bind-x at https://api.example.com
│  └─ there: kube-bind-x-west/billy, 59s old, written by the konnector 57s ago, being deleted for 54s
└─ … the provider's copy kube-bind-x-west/billy is being deleted and is kept by its finalizers a/b, since 54s
   ├─ waits for the provider: the controller of a/b
   └─ mend: the provider's controllers remove their finalizers when they have cleaned up; if they do not, ask the provider
"
    );
}
