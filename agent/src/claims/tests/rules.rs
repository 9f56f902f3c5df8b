use bindery_api::{placement::ClaimedPlacement, v1alpha2::GroupResource};
use serde_json::{Value, json};

use super::*;
use crate::claims::{
    pair::{Cluster, Side},
    testing::{object, rules, secret, terms, wanted},
};

fn named(name: &str) -> Value {
    json!({"namedResources": [{"name": name}]})
}

fn choose(wanted: &[Wanted], namespace: &str, name: &str) -> ClaimChoice {
    let rules = rules(wanted, &References::default());
    let side = Side::source(&object(&secret(namespace, name, "u", 1)));
    side.choice(Cluster::Consumer, &ObjectKey::new(namespace, name), &rules)
}

#[track_caller]
fn check(wanted: &[Wanted], name: &str, expect: ClaimChoice) {
    assert_eq!(choose(wanted, "west", name), expect, "{name}");
}

/// Checks the choice for a single binding.
#[track_caller]
fn check_one(wanted: &Wanted, name: &str, expect: ClaimChoice) {
    check(std::slice::from_ref(wanted), name, expect);
}

#[test]
fn the_claims_of_all_bindings_count() {
    let both = [wanted(&[named("colt")]), wanted(&[named("badge")])];
    check(&both, "colt", ClaimChoice::Selected);
    check(&both, "badge", ClaimChoice::Selected);
    check(&both, "other", ClaimChoice::Unselected);
    check(&[], "colt", ClaimChoice::Unselected);
    assert_eq!(terms(&both).exports.len(), 2);
}

#[test]
fn a_paused_binding_keeps_what_it_has_as_it_is() {
    let paused = |selectors: &[Value]| Wanted {
        paused: true,
        ..wanted(selectors)
    };
    let both = [wanted(&[named("colt")]), paused(&[named("badge")])];
    check(&both, "colt", ClaimChoice::Selected);
    check(&both, "badge", ClaimChoice::Kept);
    check(&both, "other", ClaimChoice::Unselected);
    assert!(!terms(&both).paused && terms(&[paused(&[named("badge")])]).paused);
    let withdrawing = Wanted {
        withdrawn: vec![GroupResource::new("", "secrets")],
        ..paused(&[])
    };
    check_one(&withdrawing, "other", ClaimChoice::Kept);
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
    check_one(&badge, "colt", ClaimChoice::Selected);
    check_one(&badge, "badge", ClaimChoice::Kept);
    check_one(&badge, "other", ClaimChoice::Unselected);
    // `kept` does not count for a binding that is served: its own claims do.
    check(
        &[with("binding-1", &named("badge")), wanted(&[named("star")])],
        "badge",
        ClaimChoice::Unselected,
    );
    check(&[with("sheriffs", &referenced)], "badge", ClaimChoice::Unknown);
    let withdrawing = Wanted {
        accepted: Vec::new(),
        withdrawn: vec![GroupResource::new("", "secrets")],
        ..badge
    };
    check_one(&withdrawing, "badge", ClaimChoice::Kept);
    check_one(&withdrawing, "colt", ClaimChoice::Unselected);
    assert!(!rules(&[withdrawing], &References::default()).is_withdrawn());
}

#[test]
fn labels_come_down_by_the_selectors_of_the_claims() {
    let by = |label: &str| [wanted(&[json!({"labelSelector": {"matchLabels": {(label): "x"}}})])];
    let rules = rules(&by("team"), &References::default());
    assert!(rules.carries_label("team") && !rules.carries_label("tier"));
    assert!(rules.carries_labels_of(&terms(&by("team"))) && !rules.carries_labels_of(&terms(&by("tier"))));
}

#[test]
fn another_place_is_another_claim() {
    let shared = Wanted {
        placement: ClaimedPlacement::Shared,
        ..wanted(&[named("colt")])
    };
    check(&[shared], "colt", ClaimChoice::Unselected);
}

#[test]
fn claims_of_listed_namespaces_concern_the_consumers_objects_there_alone() {
    let limited = |selector: &Value, namespaces: &[&str]| Wanted {
        claim_namespaces: Some(namespaces.iter().map(|&name| name.to_owned()).collect()),
        ..wanted(std::slice::from_ref(selector))
    };
    let one = [limited(&named("colt"), &["west"])];
    assert_eq!(choose(&one, "west", "colt"), ClaimChoice::Selected);
    assert_eq!(choose(&one, "east", "colt"), ClaimChoice::Unselected);
    assert_eq!(
        choose(&[limited(&named("colt"), &[])], "west", "colt"),
        ClaimChoice::Unselected
    );
    // Each binding has a list of its own.
    let two = [limited(&named("colt"), &["west"]), limited(&named("badge"), &["east"])];
    assert_eq!(choose(&two, "east", "colt"), ClaimChoice::Unselected);
    assert_eq!(choose(&two, "east", "badge"), ClaimChoice::Selected);
    let wide = [limited(&named("colt"), &["west"]), wanted(&[named("colt")])];
    assert_eq!(choose(&wide, "east", "colt"), ClaimChoice::Selected);
    // While a binding is paused, nothing ends.
    let paused = Wanted {
        paused: true,
        ..limited(&named("colt"), &["west"])
    };
    assert_eq!(choose(std::slice::from_ref(&paused), "east", "colt"), ClaimChoice::Kept);
    // But it is known to be left.
    let side = Side::source(&object(&secret("east", "colt", "u", 1)));
    let is_leftover = |namespace: &str| {
        let rules = rules(std::slice::from_ref(&paused), &References::default());
        rules.is_leftover(&ObjectKey::new(namespace, "colt"), &side.labels, None)
    };
    assert!(is_leftover("east") && !is_leftover("west"));
}

#[test]
fn what_the_provider_made_elsewhere_is_claimed_and_does_not_come_down() {
    let limited = Wanted {
        claim_namespaces: Some(BTreeSet::from(["west".to_owned()])),
        ..wanted(&[named("colt")])
    };
    let kept_by = |wanted: &[Wanted]| {
        let rules = rules(wanted, &References::default());
        let side = Side::source(&object(&secret("east", "colt", "u", 1)));
        rules.descent(&ObjectKey::new("east", "colt"), &side.labels, Some("Opaque")) == Descent::Unknown
    };
    let paused = |name: &str| Wanted {
        paused: true,
        ..wanted(&[named(name)])
    };
    let unserved = |name: &str| Wanted {
        kept: [("sheriffs".to_owned(), wanted(&[named(name)]).accepted)].into(),
        ..limited.clone()
    };
    assert!(
        kept_by(&[limited.clone(), paused("colt")]),
        "a paused binding may have let it come"
    );
    assert!(
        kept_by(&[unserved("colt")]),
        "and so may one that is not served at present"
    );
    assert!(!kept_by(&[limited.clone(), paused("badge")]) && !kept_by(&[unserved("badge")]));
    let rules = rules(&[limited], &References::default());
    let side = Side::source(&object(&secret("east", "colt", "u", 1)));
    let key = ObjectKey::new("east", "colt");
    assert_eq!(side.choice(Cluster::Provider, &key, &rules), ClaimChoice::Selected);
    let descent = rules.descent(&key, &side.labels, Some("Opaque"));
    assert_eq!(descent, Descent::Refused(descent::Refusal::NotListed));
    assert!(
        rules.is_leftover(&key, &side.labels, Some("Opaque")),
        "a copy that came before"
    );
}

#[test]
fn objects_in_namespaces_of_kubernetes_and_of_the_konnector_are_never_claimed() {
    for selector in [json!({"labelSelector": {}}), named("kubeconfig")] {
        let all = [wanted(&[selector])];
        assert_eq!(choose(&all, "west", "kubeconfig"), ClaimChoice::Selected);
        assert_eq!(choose(&all, "kube-systems", "kubeconfig"), ClaimChoice::Selected);
        for protected in ["kube-bind", "kube-system", "kube-public", "kube-node-lease"] {
            assert_eq!(
                choose(&all, protected, "kubeconfig"),
                ClaimChoice::Unselected,
                "{protected}"
            );
        }
    }
}

#[test]
fn a_copy_is_a_leftover_when_no_claim_selects_it() {
    let is_leftover = |wanted: &[Wanted]| {
        let rules = rules(wanted, &References::default());
        let side = Side::source(&object(&secret("west", "colt", "u", 1)));
        rules.is_leftover(&ObjectKey::new("west", "colt"), &side.labels, None)
    };
    let referenced = json!({"references": [
        {"group": "wildwest.dev", "resource": "sheriffs", "jsonPath": {"name": "spec.ref"}},
    ]});
    assert!(is_leftover(&[]));
    assert!(is_leftover(&[wanted(&[named("badge")])]));
    assert!(!is_leftover(&[wanted(&[named("colt")])]));
    assert!(
        !is_leftover(&[wanted(&[referenced])]),
        "what is not known is no leftover"
    );
    let paused = Wanted {
        paused: true,
        ..wanted(&[named("colt")])
    };
    assert!(!is_leftover(&[paused]));
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
