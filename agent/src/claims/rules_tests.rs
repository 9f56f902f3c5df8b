use serde_json::{Value, json};

use bindery_api::v1alpha2::GroupResource;

use super::*;
use crate::{
    claims::testing::{object, rules, secret, terms, wanted},
    references::Place,
};

fn named(name: &str) -> Value {
    json!({"namedResources": [{"name": name}]})
}

fn choose(wanted: &[Wanted], namespace: &str, name: &str) -> Choice {
    let rules = rules(wanted, &References::default());
    let side = Side::source(&object(&secret(namespace, name, "u", 1)));
    rules.choose(&ObjectKey::new(namespace, name), &side)
}

#[track_caller]
fn check(wanted: &[Wanted], name: &str, expect: Choice) {
    assert_eq!(choose(wanted, "west", name), expect, "{name}");
}

/// The same for a single binding.
#[track_caller]
fn check_one(wanted: &Wanted, name: &str, expect: Choice) {
    check(std::slice::from_ref(wanted), name, expect);
}

#[test]
fn the_claims_of_all_bindings_count() {
    let both = [wanted(&[named("colt")]), wanted(&[named("badge")])];
    check(&both, "colt", Choice::Selected);
    check(&both, "badge", Choice::Selected);
    check(&both, "other", Choice::Unselected);
    check(&[], "colt", Choice::Unselected);
    assert_eq!(terms(&both).exports.len(), 2);
}

#[test]
fn a_paused_binding_keeps_what_it_has_as_it_is() {
    let paused = |selectors: &[Value]| Wanted {
        paused: true,
        ..wanted(selectors)
    };
    let both = [wanted(&[named("colt")]), paused(&[named("badge")])];
    check(&both, "colt", Choice::Selected);
    check(&both, "badge", Choice::Held);
    check(&both, "other", Choice::Unselected);
    assert!(!terms(&both).paused && terms(&[paused(&[named("badge")])]).paused);
    let withdrawing = Wanted {
        withdrawn: vec![GroupResource::new("", "secrets")],
        ..paused(&[])
    };
    check_one(&withdrawing, "other", Choice::Held);
    let is_withdrawn = |wanted: Wanted| rules(&[wanted], &References::default()).is_withdrawn();
    assert!(!is_withdrawn(withdrawing.clone()));
    assert!(is_withdrawn(Wanted {
        paused: false,
        ..withdrawing
    }));
    assert!(!is_withdrawn(wanted(&[named("colt")])));
}

#[test]
fn what_a_binding_claims_that_is_not_served_at_the_time_is_held() {
    let referenced = json!({"references": [
        {"group": "wildwest.dev", "resource": "sheriffs", "jsonPath": {"name": "spec.ref"}},
    ]});
    let with = |binding: &str, selector: &Value| Wanted {
        kept: [(binding.to_owned(), wanted(std::slice::from_ref(selector)).accepted)].into(),
        ..wanted(&[named("colt")])
    };
    let badge = with("sheriffs", &named("badge"));
    check_one(&badge, "colt", Choice::Selected);
    check_one(&badge, "badge", Choice::Held);
    check_one(&badge, "other", Choice::Unselected);
    // One that is served speaks for itself.
    check(
        &[with("binding-1", &named("badge")), wanted(&[named("star")])],
        "badge",
        Choice::Unselected,
    );
    check(&[with("sheriffs", &referenced)], "badge", Choice::Unknown);
    let withdrawing = Wanted {
        accepted: Vec::new(),
        withdrawn: vec![GroupResource::new("", "secrets")],
        ..badge
    };
    check_one(&withdrawing, "badge", Choice::Held);
    check_one(&withdrawing, "colt", Choice::Unselected);
    assert!(!rules(&[withdrawing], &References::default()).is_withdrawn());
}

#[test]
fn another_place_is_another_claim() {
    let shared = Wanted {
        place: Place::Shared,
        ..wanted(&[named("colt")])
    };
    check(&[shared], "colt", Choice::Unselected);
}

#[test]
fn namespaces_of_kubernetes_and_of_the_konnector_are_out_of_reach() {
    for selector in [json!({"labelSelector": {}}), named("kubeconfig")] {
        let all = [wanted(&[selector])];
        assert_eq!(choose(&all, "west", "kubeconfig"), Choice::Selected);
        assert_eq!(choose(&all, "kube-systems", "kubeconfig"), Choice::Selected);
        for protected in ["kube-bind", "kube-system", "kube-public", "kube-node-lease"] {
            assert_eq!(choose(&all, protected, "kubeconfig"), Choice::Unselected, "{protected}");
        }
    }
}

#[test]
fn a_copy_is_left_when_nobody_claims_it() {
    let left = |wanted: &[Wanted]| {
        let rules = rules(wanted, &References::default());
        let side = Side::source(&object(&secret("west", "colt", "u", 1)));
        rules.is_left(&ObjectKey::new("west", "colt"), &side)
    };
    let referenced = json!({"references": [
        {"group": "wildwest.dev", "resource": "sheriffs", "jsonPath": {"name": "spec.ref"}},
    ]});
    assert!(left(&[]));
    assert!(left(&[wanted(&[named("badge")])]));
    assert!(!left(&[wanted(&[named("colt")])]));
    assert!(!left(&[wanted(&[referenced])]), "not known is not left");
    let paused = Wanted {
        paused: true,
        ..wanted(&[named("colt")])
    };
    assert!(!left(&[paused]));
}

#[test]
fn a_claim_is_dropped_when_no_export_claims_it_any_more() {
    let secrets = || vec![GroupResource::new("", "secrets")];
    let withdrawing = |dropped: bool| Wanted {
        withdrawn: secrets(),
        dropped: if dropped { secrets() } else { Vec::new() },
        ..wanted(&[])
    };
    let is_dropped = |wanted: &[Wanted]| rules(wanted, &References::default()).is_dropped();
    assert!(is_dropped(&[withdrawing(true)]));
    assert!(!is_dropped(&[withdrawing(false)]), "rejected, or unbinding");
    assert!(!is_dropped(&[withdrawing(true), withdrawing(false)]));
    assert!(!is_dropped(&[withdrawing(true), wanted(&[named("colt")])]));
    let paused = Wanted {
        paused: true,
        ..withdrawing(true)
    };
    assert!(!is_dropped(&[paused]));
}
