use bindery_api::{
    Severity,
    conditions::{self, false_condition},
    v1alpha2::{DeletionPolicy, GroupResource, PermissionClaim},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    bundle::fixtures::{
        NOW, act, add, at, bound, bundle, by_hand, contract, count, delete, export, list, of_bundle, remove, respec,
        seen, words,
    },
    controller::{access::ContractAccess, observed_session::ClusterPin},
    session::connect::ConnectError,
};

fn with(mut seen: ObservedBundle, change: impl FnOnce(&mut ObservedBundle)) -> ObservedBundle {
    change(&mut seen);
    seen
}

/// The steps, and a part of what is said of the export `a`.
#[track_caller]
fn check(seen: &ObservedBundle, expect: &[&str], says: &str) {
    let plan = plan(seen);
    assert_eq!(words(&plan.ops), expect, "{plan:?}");
    let said = plan.problems.get("a").or_else(|| plan.waiting.get("a"));
    let said = said.map(String::as_str).unwrap_or_default();
    assert!(said.contains(says), "{said:?}");
    assert_eq!(said.is_empty(), says.is_empty(), "{said:?}");
}

#[test]
fn every_export_gets_a_binding_that_belongs_to_the_bundle() {
    let seen = seen(&["b", "a"]);
    check(&seen, &["create a", "create b"], "");
    let BundleOp::Create(made) = &plan(&seen).ops[0] else {
        panic!("nothing is made");
    };
    assert_eq!(made.spec.kubeconfig_secret_ref, seen.bundle.spec.kubeconfig_secret_ref);
    assert_eq!((made.spec.export_name.as_deref(), made.export_name()), (None, "a"));
    assert_eq!(made.annotations()[annotations::ACCEPTED_CLAIMS], "[]");
    let owner = &made.owner_references()[0];
    assert_eq!(
        (&*owner.kind, &*owner.name, &*owner.uid),
        ("APIServiceBindingBundle", "west", "bundle-uid")
    );
    assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
    let settled = bound(&["a", "b"]);
    check(&settled, &[], "");
    let plan = plan(&settled);
    assert_eq!((plan.discovered, plan.bound, plan.unready), (2, 2, 0));
}

#[test]
fn a_prefix_names_the_binding_and_the_export_is_named_apart() {
    let prefixed = with(seen(&["a"]), |seen| {
        respec(seen, |spec| spec.binding_name_prefix = Some("west-".to_owned()));
    });
    check(&prefixed, &["create west-a"], "");
    let BundleOp::Create(made) = &plan(&prefixed).ops[0] else {
        panic!("nothing is made");
    };
    assert_eq!(made.export_name(), "a");
    let mut settled = prefixed.clone();
    act(&mut settled, &plan(&prefixed).ops);
    check(&settled, &[], "");
}

#[test]
fn what_is_bound_by_hand_is_left_alone_and_counted() {
    for (name, secret, contract) in [
        ("a", "provider", None),
        ("a", "other", Some("a")),
        ("x", "other", Some("a")),
    ] {
        let mut binding = by_hand(name, secret, contract);
        binding.spec.export_name = Some("a".to_owned());
        let seen = with(seen(&["a"]), |seen| add(seen, binding));
        check(&seen, &[], "");
        assert_eq!(plan(&seen).bound, 1);
    }
    let leaving = with(seen(&["a"]), |seen| {
        add(seen, by_hand("a", "provider", Some("a")));
        delete(at(seen, "a"));
    });
    check(&leaving, &[], "is being deleted");
}

#[test]
fn a_conflict_is_said_and_harms_nothing() {
    let foreign = with(seen(&["a", "b"]), |seen| add(seen, by_hand("a", "other", Some("z"))));
    check(&foreign, &["create b"], "made by hand");
    check(&foreign, &["create b"], "bindingNamePrefix");
    let unknown = with(seen(&["a"]), |seen| add(seen, by_hand("a", "other", None)));
    check(&unknown, &[], "made by hand");
    let east = |contract, uid| of_bundle(by_hand("a", "other", Some(contract)), uid);
    let taken = with(seen(&["a"]), |seen| add(seen, east("z", "other-uid")));
    check(&taken, &[], "belongs to APIServiceBindingBundle east");
    let shared = with(seen(&["a"]), |seen| add(seen, east("a", "other-uid")));
    check(&shared, &[], "has bound it");
    for contract in ["a", "z"] {
        let orphaned = with(seen(&["a"]), |seen| add(seen, east(contract, "gone-uid")));
        check(&orphaned, &[], "with its APIServiceBindingBundle east");
    }
    let prefixed = with(seen(&["a"]), |seen| {
        respec(seen, |spec| spec.binding_name_prefix = Some("west-".to_owned()));
        add(seen, by_hand("west-a", "other", Some("z")));
    });
    check(&prefixed, &[], "by a new APIServiceBindingBundle with another");
    for reason in ["ForeignCustomResourceDefinition", "SchemasDisagree"] {
        let crd = with(bound(&["a"]), |seen| {
            let message = "CRD x belongs to APIServiceBinding y";
            let connected = false_condition(conditions::CONNECTED, Severity::Error, reason, message);
            at(seen, "a").set_condition(connected, NOW);
            at(seen, "a").set_ready_summary(NOW);
        });
        check(&crd, &[], "belongs to APIServiceBinding y");
        assert_eq!(plan(&crd).unready, 1);
    }
}

#[test]
fn own_bindings_are_known_by_reference_and_export() {
    let taken_over = with(seen(&["a"]), |seen| {
        let mut binding = of_bundle(by_hand("mine", "other", Some("a")), "bundle-uid");
        binding.spec.export_name = Some("a".to_owned());
        add(seen, binding);
    });
    check(&taken_over, &["patch mine"], "");
    let mut settled = taken_over.clone();
    act(&mut settled, &plan(&taken_over).ops);
    check(&settled, &[], "");
    let elsewhere = with(bound(&["a"]), |seen| {
        at(seen, "a").status.as_mut().unwrap().contract_uid = Some("z".to_owned());
    });
    check(&elsewhere, &[], "but to another contract");
    let removed = with(elsewhere, |seen| {
        list(seen, &[]);
        count(seen, "a", 0, true);
    });
    check(&removed, &[], "but to another contract");
}

#[test]
fn accepted_claims_and_consent_are_passed_on() {
    let claim = PermissionClaim {
        group_resource: GroupResource::new("", "secrets"),
        ..PermissionClaim::default()
    };
    let mut seen = with(bound(&["a"]), |seen| {
        respec(seen, |spec| spec.accepted_claims.push(claim));
    });
    check(&seen, &["patch a"], "");
    let ops = plan(&seen).ops;
    act(&mut seen, &ops);
    check(&seen, &[], "");
    assert!(at(&mut seen, "a").annotations()[annotations::ACCEPTED_CLAIMS].contains("secrets"));
    let until = "1970-01-02T00:00:00Z".to_owned();
    bundle(&mut seen)
        .annotations_mut()
        .insert(annotations::ACCEPT_PROVIDER_CHANGE.to_owned(), until.clone());
    at(&mut seen, "a").status.as_mut().unwrap().contract_uid = Some("z".to_owned());
    check(&seen, &["patch a"], "changes its provider");
    let ops = plan(&seen).ops;
    act(&mut seen, &ops);
    assert_eq!(
        at(&mut seen, "a").annotations()[annotations::ACCEPT_PROVIDER_CHANGE],
        until
    );
    check(&seen, &[], "changes its provider");
    let mut removed = with(bound(&["a"]), |removed| {
        bundle(removed).metadata.annotations = seen.bundle.metadata.annotations.clone();
        at(removed, "a").status.as_mut().unwrap().contract_uid = Some("z".to_owned());
        list(removed, &[]);
        remove(removed, "a", 1000, false);
    });
    check(&removed, &["patch a"], "changes its provider");
    let ops = plan(&removed).ops;
    act(&mut removed, &ops);
    check(&removed, &[], "changes its provider");
    bundle(&mut seen).annotations_mut().insert(
        annotations::ACCEPT_PROVIDER_CHANGE.to_owned(),
        "1969-01-01T00:00:00Z".to_owned(),
    );
    check(&seen, &[], "but to another contract");
}

#[test]
fn the_policy_for_copies_is_passed_on_where_the_bundle_has_one() {
    let wants = |seen: &mut ObservedBundle, policy| respec(seen, |spec| spec.deletion_policy = policy);
    let mut seen = with(seen(&["a"]), |seen| wants(seen, Some(DeletionPolicy::Delete)));
    let ops = plan(&seen).ops;
    act(&mut seen, &ops);
    assert_eq!(at(&mut seen, "a").spec.deletion_policy, Some(DeletionPolicy::Delete));
    check(&seen, &[], "");
    wants(&mut seen, None);
    check(&seen, &[], "");
    wants(&mut seen, Some(DeletionPolicy::Orphan));
    let ops = plan(&seen).ops;
    let [BundleOp::Patch { patch, .. }] = &ops[..] else {
        panic!("{ops:?}");
    };
    assert_eq!(patch["spec"]["deletionPolicy"], "Orphan");
}

/// A bound bundle with `objects` objects, whose export has been gone for `seconds`.
fn removed(objects: Option<usize>, seconds: u64, policy: RemovedExports) -> ObservedBundle {
    with(bound(&["a", "b"]), |seen| {
        respec(seen, |spec| spec.removed_exports = Some(policy));
        list(seen, &["b"]);
        remove(seen, "a", seconds, false);
        if let Some(objects) = objects {
            count(seen, "a", objects, true);
        }
    })
}

#[test]
fn a_binding_ends_without_its_export_only_when_that_is_safe() {
    use RemovedExports::{Keep, Unbind};
    check(&removed(Some(0), 0, Keep), &["delete a"], "");
    check(&removed(Some(0), 0, Unbind), &["delete a"], "");
    for (policy, expect) in [(Keep, true), (Unbind, false)] {
        let ops = plan(&removed(Some(0), 0, policy)).ops;
        assert!(
            matches!(ops[..], [BundleOp::Delete { only_unused, .. }] if only_unused == expect),
            "{ops:?}"
        );
    }
    for objects in [None, Some(1)] {
        check(&removed(objects, 1000, Keep), &[], "");
        check(&removed(objects, 0, Unbind), &[], "unless the export comes back");
        check(&removed(objects, 30, Unbind), &["delete a"], "");
    }
    let consented = |until: &str, objects, seconds| {
        with(removed(Some(objects), seconds, Keep), |seen| {
            let annotations = at(seen, "a").annotations_mut();
            annotations.insert(annotations::ALLOW_UNBIND.to_owned(), until.to_owned());
        })
    };
    let valid = "1970-01-02T00:00:00Z";
    check(&consented(valid, 7, 30), &["delete a"], "");
    check(&consented(valid, 7, 29), &[], "unless the export comes back");
    check(&consented(valid, 0, 0), &["delete a"], "");
    let replaced = with(consented(valid, 0, 0), |seen| remove(seen, "a", 29, true));
    check(&replaced, &[], "unless the export comes back");
    check(&consented("1969-01-02T00:00:00Z", 7, 1000), &[], "");
    check(&consented("yes", 7, 1000), &[], "");
    let before = with(removed(Some(0), 0, Keep), |seen| count(seen, "a", 0, false));
    check(&before, &[], "");
    let replaced = |seconds| with(removed(Some(0), 0, Keep), |seen| remove(seen, "a", seconds, true));
    check(&replaced(29), &[], "unless the export comes back");
    assert!(plan(&replaced(29)).wake.is_some());
    check(&replaced(30), &["delete a"], "");
    let paused = with(removed(Some(0), 0, Unbind), |seen| {
        let annotations = at(seen, "a").annotations_mut();
        annotations.insert(annotations::PAUSED.to_owned(), annotations::TRUE.to_owned());
    });
    check(&paused, &[], "");
    let going = with(removed(Some(0), 0, Keep), |seen| delete(at(seen, "a")));
    check(&going, &[], "");
}

#[test]
fn an_export_that_is_being_deleted_is_as_good_as_gone() {
    let mut deleting = export("a");
    deleting.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
    let going = |mut seen: ObservedBundle| {
        seen.exports.exports[0].1 = ExportLookup::Present(Arc::new(deleting.clone()));
        seen
    };
    check(&going(seen(&["a"])), &[], "");
    let unused = with(going(bound(&["a"])), |seen| count(seen, "a", 0, true));
    check(&unused, &["delete a"], "");
    check(&going(bound(&["a"])), &[], "");
}

#[test]
fn an_export_that_is_selected_no_more_is_left_like_one_that_is_gone() {
    let selector = LabelSelector {
        match_labels: Some(std::collections::BTreeMap::from([("name".to_owned(), "b".to_owned())])),
        ..LabelSelector::default()
    };
    let narrowed = |objects, seconds| {
        with(bound(&["a", "b"]), |seen| {
            respec(seen, |spec| spec.selector = Some(selector.clone()));
            count(seen, "a", objects, false);
            remove(seen, "a", seconds, false);
        })
    };
    check(&narrowed(1, 1000), &[], "");
    check(&narrowed(0, 4), &[], "unless the export comes back");
    check(&narrowed(0, 5), &["delete a"], "");
    let allowed = with(narrowed(1, 0), |seen| {
        let annotations = at(seen, "a").annotations_mut();
        annotations.insert(annotations::ALLOW_UNBIND.to_owned(), "1970-01-02T00:00:00Z".to_owned());
    });
    check(&allowed, &["delete a"], "");
    let claimed = with(narrowed(1, 1000), |seen| {
        let claim = PermissionClaim {
            group_resource: GroupResource::new("", "secrets"),
            ..PermissionClaim::default()
        };
        respec(seen, |spec| spec.accepted_claims.push(claim));
    });
    check(&claimed, &["patch b", "patch a"], "");
    let plan = plan(&narrowed(1, 0));
    assert_eq!((plan.discovered, plan.bound), (1, 1));
    let broken = LabelSelector {
        match_expressions: Some(vec![
            serde_json::from_value(json!({"key": "x", "operator": "Near"})).unwrap(),
        ]),
        ..LabelSelector::default()
    };
    let unusable = with(narrowed(0, 1000), |seen| {
        respec(seen, |spec| spec.selector = Some(broken));
    });
    check(&unusable, &[], "");
    assert_eq!(super::plan(&unusable).blocker.unwrap().reason.as_str(), "InvalidSpec");
}

#[test]
fn an_export_that_cannot_be_read_is_there() {
    let broken = |mut seen: ObservedBundle| {
        let message = "it cannot be read".to_owned();
        seen.exports.exports[0].1 = ExportLookup::Broken { message };
        seen
    };
    check(&broken(seen(&["a"])), &[], "cannot be read");
    let was_bound = with(broken(bound(&["a"])), |seen| count(seen, "a", 0, true));
    check(&was_bound, &[], "cannot be read");
}

/// A bundle with a blocker, although one binding is to be deleted and one to be created.
#[track_caller]
fn check_blocked(change: impl FnOnce(&mut ObservedBundle), reason: &str, says: &str) {
    let blocked = with(removed(Some(0), 1000, RemovedExports::Unbind), |seen| {
        list(seen, &["c"]);
        change(seen);
    });
    let plan = plan(&blocked);
    let why = plan.blocker.expect("a blocker");
    assert_eq!(why.reason.as_str(), reason);
    assert!(why.message.contains(says), "{}", why.message);
    assert!(plan.ops.is_empty(), "{:?}", plan.ops);
}

#[test]
fn nothing_is_done_without_a_provider_that_is_the_right_one() {
    let (server, message) = ("https://x".to_owned(), "no route".to_owned());
    let away = ConnectError::Unreachable {
        server: server.clone(),
        message: message.clone(),
    };
    check_blocked(
        |seen| seen.access = ContractAccess::Failed(away),
        "ListExportsFailed",
        "no route",
    );
    let denied = ConnectError::Denied { server, message };
    check_blocked(
        |seen| seen.access = ContractAccess::Failed(denied),
        "ListExportsFailed",
        "denies",
    );
    let setup = ConnectError::Setup {
        message: "bad".to_owned(),
    };
    check_blocked(
        |seen| seen.access = ContractAccess::Failed(setup),
        "ProviderClientError",
        "bad",
    );
    check_blocked(|seen| seen.access = ContractAccess::Connecting, "Connecting", "answer");
    let changed = ContractAccess::Changed {
        pinned: "a".to_owned(),
        found: contract("z"),
    };
    check_blocked(|seen| seen.access = changed, "ProviderClientError", "another provider");
    check_blocked(|seen| seen.session = None, "Connecting", "session");
    check_blocked(
        |seen| bundle(seen).status = None,
        "Connecting",
        "recorded in the status",
    );
    let pin = |seen: &mut ObservedBundle, pin| seen.session.as_mut().unwrap().pin = pin;
    check_blocked(|seen| pin(seen, ClusterPin::Unknown), "Waiting", "heartbeat");
    let other = ClusterPin::Other {
        recorded: Some("z".to_owned()),
    };
    check_blocked(|seen| pin(seen, other), "ConsumerClusterMismatch", "another cluster");
    check_blocked(|seen| seen.exports.complete = false, "Connecting", "list");
    check_blocked(
        |seen| {
            seen.exports.complete = false;
            seen.exports.failing = Some(("forbidden".to_owned(), std::time::Duration::ZERO));
        },
        "ListExportsFailed",
        "forbidden",
    );
    check_blocked(
        |seen| seen.bindings_failing = Some("gone".to_owned()),
        "ListBindingsFailed",
        "gone",
    );
}

#[test]
fn what_is_not_confirmed_ends_nothing() {
    let unconfirmed = |change: fn(&mut ObservedBundle)| {
        let seen = with(removed(Some(0), 1000, RemovedExports::Unbind), change);
        check(&seen, &[], "has confirmed");
    };
    unconfirmed(|seen| seen.last_probe = None);
    unconfirmed(|seen| seen.last_probe.as_mut().unwrap().exports_version -= 1);
    unconfirmed(|seen| seen.exports.failing = Some(("forbidden".to_owned(), std::time::Duration::ZERO)));
    unconfirmed(|seen| {
        let (server, namespace) = (String::new(), String::new());
        seen.last_probe.as_mut().unwrap().problem = Some(ConnectError::Gone { server, namespace });
    });
    unconfirmed(|seen| seen.last_probe.as_mut().unwrap().is_verified = false);
    unconfirmed(|seen| seen.session.as_mut().unwrap().found = None);
    unconfirmed(|seen| seen.session.as_mut().unwrap().found = Some("b".into()));
    unconfirmed(|seen| seen.session.as_mut().unwrap().pin = ClusterPin::Unverified);
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Something that may happen in the world.
#[derive(Clone, Debug)]
enum Happening {
    Exports(Vec<&'static str>),
    Incomplete,
    Unlisted,
    Away,
    ByHand(&'static str, bool),
    Foreign(&'static str),
    ObjectCount(&'static str, usize),
    Policy(RemovedExports),
    Time,
}

fn happening() -> impl Strategy<Value = Happening> {
    let name = || proptest::sample::select(&NAMES[..]);
    prop_oneof![
        proptest::sample::subsequence(NAMES.to_vec(), 0..=NAMES.len()).prop_map(Happening::Exports),
        Just(Happening::Incomplete),
        Just(Happening::Unlisted),
        Just(Happening::Away),
        (name(), any::<bool>()).prop_map(|(name, same)| Happening::ByHand(name, same)),
        name().prop_map(Happening::Foreign),
        (name(), 0..3_usize).prop_map(|(name, objects)| Happening::ObjectCount(name, objects)),
        proptest::sample::select(vec![RemovedExports::Keep, RemovedExports::Unbind]).prop_map(Happening::Policy),
        Just(Happening::Time),
    ]
}

fn happen(seen: &mut ObservedBundle, happening: &Happening) {
    let is_taken = |seen: &ObservedBundle, name: &str| seen.bindings.iter().any(|binding| binding.name_any() == name);
    match happening {
        Happening::Exports(names) => {
            list(seen, names);
            let own: Vec<_> = seen.own().map(|binding| binding.name_any()).collect();
            for name in own.iter().filter(|name| !names.contains(&name.as_str())) {
                remove(seen, name, 0, false);
            }
        }
        Happening::Incomplete => {
            seen.exports.exports.clear();
            seen.exports.complete = false;
        }
        Happening::Unlisted => seen.exports.failing = Some(("forbidden".to_owned(), SUCCESSOR_PATIENCE)),
        Happening::Away => seen.last_probe.as_mut().unwrap().exports_version = 0,
        Happening::ByHand(name, same) if !is_taken(seen, name) => {
            add(seen, by_hand(name, "provider", Some(if *same { "a" } else { "z" })));
        }
        Happening::Foreign(name) if !is_taken(seen, name) => {
            add(seen, of_bundle(by_hand(name, "other", Some("z")), "other-uid"));
        }
        Happening::ByHand(..) | Happening::Foreign(_) => {}
        Happening::ObjectCount(name, objects) => count(seen, name, *objects, true),
        Happening::Policy(policy) => respec(seen, |spec| spec.removed_exports = Some(*policy)),
        Happening::Time => {
            for removed in seen.removed.values_mut() {
                removed.removed_for += SUCCESSOR_PATIENCE;
            }
        }
    }
}

proptest! {
    #[test]
    fn any_history_settles_and_harms_nothing(history in proptest::collection::vec(happening(), 0..12)) {
        let mut seen = seen(&["a", "b"]);
        for happening in &history {
            happen(&mut seen, happening);
            for round in 0.. {
                let plan = plan(&seen);
                if plan.ops.is_empty() {
                    break;
                }
                prop_assert!(round < 3, "no end: {:?}", words(&plan.ops));
                for op in &plan.ops {
                    let BundleOp::Delete { binding, only_unused, .. } = op else { continue };
                    prop_assert_eq!(seen.owner_of(binding), BindingOwner::Us);
                    prop_assert!(seen.exports.complete && seen.exports.failing.is_none() && seen.is_confirmed());
                    prop_assert!(seen.exports.get(binding.export_name()).is_none(), "it is there");
                    let uid = binding.metadata.uid.as_deref().unwrap();
                    let is_empty = seen.counts.get(uid).is_some_and(|count| count.objects == 0);
                    prop_assert!(is_empty || seen.bundle.spec.removed_exports == Some(RemovedExports::Unbind));
                    prop_assert!(*only_unused || seen.bundle.spec.removed_exports == Some(RemovedExports::Unbind));
                }
                act(&mut seen, &plan.ops);
            }
        }
        list(&mut seen, &NAMES);
        for _ in 0..2 {
            let ops = plan(&seen).ops;
            act(&mut seen, &ops);
        }
        let plan = plan(&seen);
        prop_assert!(plan.ops.is_empty(), "{:?}", words(&plan.ops));
        prop_assert_eq!(plan.bound + plan.problems.len(), NAMES.len());
        let ready = |binding: &&Arc<APIServiceBinding>| binding.is_condition_true(conditions::READY);
        prop_assert_eq!(seen.own().filter(ready).count(), seen.own().count());
    }
}
