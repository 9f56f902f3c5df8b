use bindery_api::v1alpha2::{DeletionPolicy, Isolation, Selector};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;
use std::sync::Arc;

use super::*;
use crate::{
    binding::{
        fixtures::{CRD, accept, act, binding, export, schema, served, session, words},
        plan, unbind,
    },
    controller::observed_session::ClusterPin,
    session::exports::ExportLookup,
};

const CORE: [&str; 3] = ["configmaps", "secrets", "serviceaccounts"];

fn claim(group: &str, resource: &str) -> PermissionClaim {
    PermissionClaim {
        group_resource: GroupResource::new(group, resource),
        selector: Selector {
            label_selector: Some(LabelSelector::default()),
            ..Selector::default()
        },
    }
}

fn core(resources: &[&str]) -> Vec<PermissionClaim> {
    resources.iter().map(|resource| claim("", resource)).collect()
}

fn names(claims: &[PermissionClaim]) -> Vec<String> {
    claims.iter().map(|claim| claim.group_resource.to_string()).collect()
}

fn claims(seen: &mut ObservedBinding, claims: Vec<PermissionClaim>) {
    let mut export = export();
    accept(binding(seen), &claims);
    export.spec.permission_claims = claims;
    session(seen).export = ExportLookup::Present(Arc::new(export));
}

fn note(seen: &mut ObservedBinding, claims: Vec<PermissionClaim>) {
    binding(seen).status.as_mut().unwrap().permission_claims = claims;
}

fn reject(seen: &mut ObservedBinding, resources: &[&str]) {
    binding(seen).spec.rejected_permission_claims = resources
        .iter()
        .map(|resource| GroupResource::new("", *resource))
        .collect();
}

/// A binding of this world: what the export claims, the status lists, the user rejects.
fn world(claimed: &[&str], noted: &[&str], rejected: &[&str]) -> ObservedBinding {
    let mut seen = served();
    claims(&mut seen, core(claimed));
    note(&mut seen, core(noted));
    reject(&mut seen, rejected);
    seen
}

/// Looks, acts, and writes the status, once.
fn turn(seen: &mut ObservedBinding) -> Vec<String> {
    let plan = plan::plan(seen);
    let listed = plan.claims.map(|claims| claims.listed);
    act(seen, &plan.ops);
    if let Some(listed) = listed {
        note(seen, listed);
    }
    words(&plan.ops)
}

#[track_caller]
fn check(seen: &mut ObservedBinding, expect: &[&str], listed: &[&str]) {
    assert_eq!(turn(seen), expect);
    assert_eq!(names(listed_claims(seen)), listed);
}

#[test]
fn a_claim_stands_in_the_status_before_anything_is_done_for_it() {
    let mut seen = world(&["secrets", "configmaps"], &[], &[]);
    check(&mut seen, &["go on"], &["secrets", "configmaps"]);
    check(
        &mut seen,
        &["claim [secrets,configmaps] withdraw []", "go on"],
        &["secrets", "configmaps"],
    );
    check(&mut seen, &["go on"], &["secrets", "configmaps"]);
}

#[test]
fn what_was_rejected_from_the_start_is_never_touched() {
    let mut seen = world(&["secrets", "configmaps"], &[], &["secrets"]);
    check(&mut seen, &["go on"], &["configmaps"]);
    check(&mut seen, &["claim [configmaps] withdraw []", "go on"], &["configmaps"]);
}

#[test]
fn what_is_rejected_is_withdrawn_and_then_leaves_the_status() {
    let both = ["configmaps", "secrets"];
    let mut seen = world(&both, &both, &[]);
    turn(&mut seen);
    reject(&mut seen, &["secrets"]);
    let ops = ["claim [configmaps] withdraw [secrets]", "go on"];
    check(&mut seen, &ops, &both);
    let progress = seen.claims.progress.claims.get_mut(&GroupResource::new("", "secrets"));
    progress.unwrap().remaining = Some(3);
    check(&mut seen, &["go on"], &both);
    let progress = seen.claims.progress.claims.get_mut(&GroupResource::new("", "secrets"));
    progress.unwrap().remaining = Some(0);
    check(&mut seen, &["go on"], &["configmaps"]);
    check(&mut seen, &["claim [configmaps] withdraw []", "go on"], &["configmaps"]);
    reject(&mut seen, &[]);
    check(&mut seen, &["go on"], &both);
    check(&mut seen, &["claim [configmaps,secrets] withdraw []", "go on"], &both);
}

#[test]
fn a_restart_forgets_nothing_that_is_to_be_withdrawn() {
    let mut seen = world(&["secrets"], &["secrets", "configmaps"], &["secrets"]);
    let ops = ["claim [] withdraw [configmaps,secrets]", "go on"];
    check(&mut seen, &ops, &["secrets", "configmaps"]);
    check(&mut seen, &["go on"], &[]);
    check(&mut seen, &["unclaim", "go on"], &[]);
    check(&mut seen, &["go on"], &[]);
}

#[test]
fn what_is_claimed_at_first_is_recorded_before_it_is_in_effect() {
    let mut seen = world(&["secrets"], &[], &[]);
    binding(&mut seen).metadata.annotations = None;
    check(&mut seen, &["accept 1", "go on"], &[]);
    check(&mut seen, &["go on"], &["secrets"]);
    check(&mut seen, &["claim [secrets] withdraw []", "go on"], &["secrets"]);
    // To remove the record is to accept what is claimed now, and stops nothing meanwhile.
    binding(&mut seen).metadata.annotations = None;
    check(&mut seen, &["accept 1", "go on"], &["secrets"]);
    check(&mut seen, &["go on"], &["secrets"]);
}

#[test]
fn a_claim_that_grows_is_in_effect_as_far_as_it_was_accepted() {
    let mut seen = world(&["configmaps"], &["configmaps"], &[]);
    let named = PermissionClaim {
        selector: Selector {
            named_resources: vec![bindery_api::v1alpha2::NamedResource::default()],
            ..Selector::default()
        },
        ..claim("", "configmaps")
    };
    accept(binding(&mut seen), std::slice::from_ref(&named));
    let mut grown = export();
    grown.spec.permission_claims = core(&["configmaps", "secrets"]);
    session(&mut seen).export = ExportLookup::Present(Arc::new(grown));
    let sorted = super::plan(&seen).unwrap();
    assert_eq!(sorted.effective, [named]);
    assert_eq!(sorted.unaccepted.len(), 2);
    check(&mut seen, &["claim [configmaps] withdraw []", "go on"], &["configmaps"]);
    let broken = |text: &str| {
        let mut seen = seen.clone();
        let annotations = binding(&mut seen).annotations_mut();
        annotations.insert(annotations::ACCEPTED_CLAIMS.to_owned(), text.to_owned());
        super::plan(&seen).unwrap()
    };
    assert!(broken("[]").effective.is_empty());
}

#[test]
fn a_record_that_cannot_be_read_stops_nothing_and_accepts_nothing() {
    for text in ["", "all", "[1]"] {
        let mut seen = world(&["secrets", "configmaps"], &["secrets", "serviceaccounts"], &[]);
        let annotations = binding(&mut seen).annotations_mut();
        annotations.insert(annotations::ACCEPTED_CLAIMS.to_owned(), text.to_owned());
        let sorted = super::plan(&seen).unwrap();
        assert!(sorted.is_unreadable);
        assert_eq!(
            sorted.effective,
            core(&["secrets"]),
            "{text}: what the status lists goes on"
        );
        assert_eq!(sorted.unaccepted, [GroupResource::new("", "configmaps")]);
        let ops = ["claim [secrets] withdraw [serviceaccounts]", "go on"];
        assert_eq!(words(&plan::plan(&seen).ops), ops, "{text}");
        reject(&mut seen, &["secrets"]);
        assert!(super::plan(&seen).unwrap().effective.is_empty(), "{text}");
        // Nothing is claimed, so nothing is amiss.
        claims(&mut seen, Vec::new());
        let annotations = binding(&mut seen).annotations_mut();
        annotations.insert(annotations::ACCEPTED_CLAIMS.to_owned(), text.to_owned());
        assert!(!super::plan(&seen).unwrap().is_unreadable, "{text}");
    }
}

#[test]
fn what_the_provider_claims_no_more_is_told_apart_and_so_is_what_may_be_left_of_it() {
    let mut seen = world(&["secrets"], &["secrets", "configmaps"], &["secrets"]);
    turn(&mut seen);
    let spec = seen.claims.running.clone().unwrap();
    assert_eq!(spec.wanted.dropped, [GroupResource::new("", "configmaps")]);
    let mut seen = world(&["secrets"], &["secrets", "configmaps"], &[]);
    let plan = plan::plan(&seen);
    act(&mut seen, &plan.ops);
    assert_eq!(abandoned_copies(&seen), None);
    let progress = |seen: &mut ObservedBinding, resource: &str, remaining| {
        let resource = GroupResource::new("", resource);
        let progress = seen.claims.progress.claims.get_mut(&resource).unwrap();
        (progress.out_of_reach, progress.remaining) = (true, remaining);
    };
    progress(&mut seen, "configmaps", Some(2));
    assert_eq!(abandoned_copies(&seen), None, "not done yet");
    progress(&mut seen, "configmaps", Some(0));
    let told = abandoned_copies(&seen).unwrap();
    assert!(told.starts_with("the provider no longer claims configmaps"), "{told}");
    assert_eq!(names(&super::plan(&seen).unwrap().listed), ["secrets"]);
}

#[test]
fn an_old_count_is_no_proof() {
    let mut seen = world(&["secrets"], &["secrets"], &[]);
    turn(&mut seen);
    let resource = GroupResource::new("", "secrets");
    assert_eq!(seen.claims.progress.claims[&resource].remaining, Some(0));
    reject(&mut seen, &["secrets"]);
    let plan = plan::plan(&seen);
    assert_eq!(names(&plan.claims.unwrap().listed), ["secrets"]);
}

#[test]
fn a_session_hears_what_others_claim_of_the_same() {
    let mut seen = world(&["secrets"], &["secrets", "configmaps"], &[]);
    let others = [("sheriffs", ["secrets"]), ("deputies", ["serviceaccounts"])];
    seen.claims.elsewhere = others
        .iter()
        .map(|(name, claimed)| ((*name).to_owned(), core(claimed)))
        .collect();
    let spec = super::plan(&seen).unwrap().spec.unwrap();
    assert_eq!(spec.wanted.kept, [("sheriffs".to_owned(), core(&["secrets"]))].into());
    turn(&mut seen);
    seen.claims.elsewhere.clear();
    assert!(
        turn(&mut seen).iter().any(|step| step.starts_with("claim")),
        "told again"
    );
}

#[test]
fn it_comes_to_rest_from_everything_a_predecessor_may_have_left() {
    let subset = |bits: usize| -> Vec<&str> {
        let chosen = CORE.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0);
        chosen.map(|(_, resource)| *resource).collect()
    };
    for bits in 0..512 {
        let (claimed, noted, rejected) = (subset(bits & 7), subset(bits >> 3 & 7), subset(bits >> 6));
        let mut seen = world(&claimed, &noted, &rejected);
        for _ in 0..5 {
            turn(&mut seen);
        }
        let expect: Vec<_> = claimed
            .iter()
            .filter(|name| !rejected.contains(name))
            .copied()
            .collect();
        assert_eq!(names(super::listed_claims(&seen)), expect, "{bits}");
        let running = seen.claims.running.as_ref();
        let accepted = running.map_or(vec![], |running| names(&running.wanted.accepted));
        assert_eq!(accepted, expect, "{bits}");
        assert!(
            running.is_none_or(|running| running.wanted.withdrawn.is_empty()),
            "{bits}"
        );
        assert_eq!(turn(&mut seen), ["go on"], "{bits}");
    }
}

#[test]
fn what_no_provider_may_claim_is_refused_here_too() {
    let mut seen = served();
    let mine = claim("wildwest.dev", "cowboys");
    claims(
        &mut seen,
        vec![
            claim("", "pods"),
            claim("rbac.authorization.k8s.io", "clusterroles"),
            claim("apps", "deployments"),
            claim("kube-bind.io", "apiservicebindings"),
            mine,
            claim("", "secrets"),
            claim("cert.example.com", "certificates"),
        ],
    );
    let sorted = super::plan(&seen).unwrap();
    assert_eq!(names(&sorted.effective), ["secrets", "certificates.cert.example.com"]);
    assert_eq!(names(&sorted.listed), names(&sorted.effective));
    let refused: Vec<_> = sorted
        .refused
        .iter()
        .map(|(resource, _)| resource.resource.as_str())
        .collect();
    assert_eq!(
        refused,
        ["pods", "clusterroles", "deployments", "apiservicebindings", "cowboys"]
    );
}

#[test]
fn isolation_and_scope_say_where_claimed_objects_are() {
    let of = |isolation, scope: Option<Scope>| {
        let mut seen = world(&["secrets"], &["secrets"], &[]);
        let mut export = export();
        export.spec.isolation = isolation;
        let schema = match scope {
            None => ObservedSchema::Unknown,
            Some(scope) => {
                let mut schema = Arc::unwrap_or_clone(schema());
                schema.spec.scope = scope;
                ObservedSchema::Present(Arc::new(schema))
            }
        };
        seen.schemas.insert(CRD.to_owned(), schema);
        place(&seen, &export)
    };
    for isolation in [Isolation::Prefixed, Isolation::Namespaced] {
        assert_eq!(of(isolation, None), Some(ClaimedPlacement::Mapped));
        assert_eq!(of(isolation, Some(Scope::Cluster)), Some(ClaimedPlacement::Mapped));
    }
    assert_eq!(
        of(Isolation::None, Some(Scope::Namespaced)),
        Some(ClaimedPlacement::Mapped)
    );
    assert_eq!(
        of(Isolation::None, Some(Scope::Cluster)),
        Some(ClaimedPlacement::Shared)
    );
    assert_eq!(of(Isolation::None, None), None);
}

#[test]
fn with_the_export_gone_claims_rest_and_rejected_ones_go() {
    let mut seen = world(&["secrets"], &["secrets", "configmaps"], &[]);
    turn(&mut seen);
    session(&mut seen).export = ExportLookup::Absent;
    let both = ["secrets", "configmaps"];
    assert!(turn(&mut seen).contains(&"unclaim".to_owned()));
    check(&mut seen, &[], &both);
    reject(&mut seen, &["configmaps"]);
    check(&mut seen, &["clean up configmaps"], &both);
    check(&mut seen, &[], &["secrets"]);
    check(&mut seen, &["stop cleanup"], &["secrets"]);
    note(&mut seen, core(&both));
    seen.claims.elsewhere = [("sheriffs".to_owned(), core(&["configmaps"]))].into();
    check(&mut seen, &[], &["secrets"]);
}

/// Ends a binding whose engines are done at once, and answers the steps of each look.
fn end(seen: &mut ObservedBinding) -> Vec<Vec<String>> {
    let now = seen.now;
    binding(seen).metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
    let mut all = Vec::new();
    for _ in 0..12 {
        let ending = unbind::plan(seen);
        act(seen, &ending.ops);
        if let Some(listed) = ending.listed {
            note(seen, listed);
        }
        all.push(words(&ending.ops));
        if seen.binding.finalizers().is_empty() {
            return all;
        }
    }
    panic!("no end: {all:?}");
}

#[test]
fn claims_are_withdrawn_after_the_objects_and_before_all_else() {
    let claimed = ["secrets", "configmaps"];
    let mut seen = world(&claimed, &claimed, &[]);
    turn(&mut seen);
    let all = end(&mut seen).concat();
    let steps: Vec<_> = all.iter().filter(|step| *step != "go on").map(String::as_str).collect();
    assert_eq!(
        steps,
        [
            "drain",
            "claim [] withdraw [configmaps,secrets]",
            "unclaim",
            "delete crd",
            "stop engine",
            "delete export",
            "end holding",
            "delete roles",
            "remove finalizer"
        ]
    );
}

#[test]
fn orphaned_objects_stay_and_copies_of_claimed_ones_do_not() {
    let mut seen = world(&["secrets"], &["secrets"], &[]);
    turn(&mut seen);
    binding(&mut seen).spec.deletion_policy = Some(DeletionPolicy::Orphan);
    let all = end(&mut seen).concat();
    let at = |step: &str| {
        all.iter()
            .position(|other| other == step)
            .unwrap_or_else(|| panic!("{all:?}"))
    };
    assert!(at("release All") < at("claim [] withdraw [secrets]"));
    assert!(at("claim [] withdraw [secrets]") < at("delete crd"));
    assert!(at("delete crd") < at("force export"));
    assert!(!all.contains(&"drain".to_owned()), "{all:?}");
}

#[test]
fn without_the_provider_the_consumers_copies_go() {
    for forced in [false, true] {
        let mut seen = world(&["secrets"], &["secrets", "configmaps"], &[]);
        seen.claims.elsewhere = [("sheriffs".to_owned(), core(&["configmaps"]))].into();
        if forced {
            let annotations = binding(&mut seen).annotations_mut();
            annotations.insert(annotations::FORCE_UNBIND.to_owned(), annotations::TRUE.to_owned());
        } else {
            session(&mut seen).export = ExportLookup::Absent;
        }
        let all = end(&mut seen).concat();
        assert!(all.contains(&"clean up secrets".to_owned()), "{all:?}");
        assert!(!all.iter().any(|step| step.starts_with("claim")), "{all:?}");
    }
}

#[test]
fn claims_are_not_withdrawn_before_it_is_known_where_they_are() {
    let mut seen = world(&["secrets"], &["secrets"], &[]);
    let mut none = Arc::unwrap_or_clone(Arc::clone(seen.export().unwrap()));
    none.spec.isolation = Isolation::None;
    session(&mut seen).export = ExportLookup::Present(Arc::new(none));
    let withdrawal = |seen: &ObservedBinding| {
        let withdrawal = withdraw(seen, Withdrawer::Session(1)).unwrap();
        (words(&withdrawal.ops), names(&withdrawal.listed), withdrawal.remaining)
    };
    seen.schemas.insert(CRD.to_owned(), ObservedSchema::Unknown);
    assert_eq!(withdrawal(&seen), (vec![], vec!["secrets".to_owned()], None));
    seen.schemas.insert(CRD.to_owned(), ObservedSchema::Present(schema()));
    let ops = vec!["claim [] withdraw [secrets]".to_owned()];
    assert_eq!(withdrawal(&seen), (ops.clone(), vec!["secrets".to_owned()], None));
    seen.schemas.insert(CRD.to_owned(), ObservedSchema::Missing);
    assert_eq!(withdrawal(&seen).0, ops, "no schema will come");
}

#[test]
fn an_unverified_contract_gets_no_claimed_object() {
    let unrecorded: fn(&mut ObservedBinding) = |seen| session(seen).pin = ClusterPin::Unverified;
    let unread: fn(&mut ObservedBinding) = |seen| session(seen).found = None;
    let another: fn(&mut ObservedBinding) = |seen| session(seen).found = Some("b".into());
    for lacks in [unrecorded, unread, another] {
        let mut seen = world(&["secrets"], &[], &[]);
        lacks(&mut seen);
        check(&mut seen, &["go on"], &[]);
        note(&mut seen, core(&["secrets"]));
        check(&mut seen, &["go on"], &["secrets"]);

        // What is registered stays as it is, whatever the provider claims now.
        let mut seen = world(&["secrets"], &["secrets"], &[]);
        check(&mut seen, &["claim [secrets] withdraw []", "go on"], &["secrets"]);
        lacks(&mut seen);
        check(&mut seen, &["go on"], &["secrets"]);
        claims(&mut seen, core(&["configmaps"]));
        check(&mut seen, &["go on"], &["secrets"]);
        reject(&mut seen, &["secrets"]);
        check(&mut seen, &["go on"], &["secrets"]);
    }
    assert_eq!(super::unverified(&served()), None, "nothing is claimed");
}

/// A binding without a record of accepted claims, whose export claims these.
fn unrecorded(claimed: &[&str]) -> ObservedBinding {
    let mut seen = world(claimed, &[], &[]);
    binding(&mut seen)
        .annotations_mut()
        .remove(annotations::ACCEPTED_CLAIMS);
    seen
}

#[test]
fn claims_are_recorded_at_first_sight_and_later_ones_need_consent() {
    let unread: fn(&mut ObservedBinding) = |seen| session(seen).found = None;
    let unplaced: fn(&mut ObservedBinding) = |seen| {
        seen.schemas.insert(CRD.to_owned(), ObservedSchema::Unreadable);
        let mut export = Arc::unwrap_or_clone(Arc::clone(seen.export().unwrap()));
        export.spec.isolation = Isolation::None;
        session(seen).export = ExportLookup::Present(Arc::new(export));
    };
    for lacks in [unread, unplaced] {
        let mut seen = unrecorded(&[]);
        lacks(&mut seen);
        let first = turn(&mut seen);
        assert!(first.contains(&"accept 0".to_owned()), "{first:?}");

        // The provider claims more, and gives the right after that.
        let record = binding(&mut seen).annotations()[annotations::ACCEPTED_CLAIMS].clone();
        claims(&mut seen, core(&["secrets"]));
        let accepted = binding(&mut seen).annotations_mut();
        accepted.insert(annotations::ACCEPTED_CLAIMS.to_owned(), record);
        session(&mut seen).found = Some("a".into());
        seen.schemas.insert(CRD.to_owned(), ObservedSchema::Present(schema()));
        let plan = super::plan(&seen).unwrap();
        assert_eq!((names(&plan.effective), plan.record), (vec![], None));
        assert_eq!(plan.unaccepted, [GroupResource::new("", "secrets")]);
    }
    let mut seen = unrecorded(&["secrets"]);
    unread(&mut seen);
    let first = turn(&mut seen);
    assert!(first.contains(&"accept 1".to_owned()), "{first:?}");
    check(&mut seen, &["go on"], &[]);
    session(&mut seen).found = Some("a".into());
    check(&mut seen, &["go on"], &["secrets"]);
}

#[test]
fn a_namespace_stays_listed_until_its_copies_are_withdrawn() {
    let mut seen = world(&["secrets"], &["secrets"], &[]);
    binding(&mut seen).spec.claim_namespaces = vec!["west".to_owned()];
    let listed = |seen: &ObservedBinding| super::plan(seen).unwrap().namespaces.listed;
    let wanted = |seen: &ObservedBinding| super::plan(seen).unwrap().spec.unwrap().wanted;
    // Claims were in effect in all namespaces before.
    assert_eq!(listed(&seen), [""; 0]);
    assert_eq!(
        wanted(&seen).claim_namespaces,
        Some(BTreeSet::from(["west".to_owned()]))
    );
    assert_eq!(wanted(&seen).watched_namespaces, None);
    let secrets = GroupResource::new("", "secrets");
    let settle = |seen: &mut ObservedBinding, remaining: usize| {
        seen.claims.running = super::plan(seen).unwrap().spec;
        let progress = seen.claims.progress.claims.entry(secrets.clone()).or_default();
        progress.remaining = Some(remaining);
    };
    settle(&mut seen, 3);
    assert_eq!(listed(&seen), [""; 0]);
    settle(&mut seen, 0);
    assert_eq!(listed(&seen), ["west"]);
    let record = |seen: &mut ObservedBinding, names: &[&str]| {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        binding(seen).status.as_mut().unwrap().claim_namespaces = names;
    };
    record(&mut seen, &["west"]);
    assert_eq!(
        wanted(&seen).watched_namespaces,
        Some(BTreeSet::from(["west".to_owned()]))
    );
    // Another namespace takes its place. What the session counted was for other namespaces.
    binding(&mut seen).spec.claim_namespaces = vec!["east".to_owned()];
    assert_eq!(listed(&seen), ["east", "west"]);
    record(&mut seen, &["east", "west"]);
    assert_eq!(
        wanted(&seen).claim_namespaces,
        Some(BTreeSet::from(["east".to_owned()]))
    );
    assert_eq!(listed(&seen), ["east", "west"]);
    settle(&mut seen, 0);
    assert_eq!(listed(&seen), ["east"]);
    // Without claims there are no copies.
    reject(&mut seen, &["secrets"]);
    note(&mut seen, Vec::new());
    record(&mut seen, &["east"]);
    assert_eq!(listed(&seen), [""; 0]);
}
