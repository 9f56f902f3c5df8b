use bindery_api::{
    conditions,
    v1alpha2::{NamedResource, RemovedExports, SelectorReference},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;

use super::*;
use crate::{
    binding::{
        fixtures::{accept, act, binding, export, served, session},
        observed::OwningBundle,
        plan,
        status::tests::{check, status_of, with},
    },
    claims::ClaimProgress,
    engine::Problem,
    session::exports::ExportLookup,
};

/// A binding whose export claims these; all that is not rejected is in effect.
fn claiming(claims: &[(&str, Selector)], rejected: &[&str]) -> ObservedBinding {
    with(served(), |seen| {
        let mut export = export();
        for (resource, selector) in claims {
            export.spec.permission_claims.push(PermissionClaim {
                group_resource: GroupResource::new("", *resource),
                selector: selector.clone(),
            });
        }
        accept(binding(seen), &export.spec.permission_claims);
        binding(seen).status.as_mut().unwrap().permission_claims = export.spec.permission_claims.clone();
        binding(seen).spec.rejected_permission_claims = rejected
            .iter()
            .map(|resource| GroupResource::new("", *resource))
            .collect();
        session(seen).export = ExportLookup::Present(std::sync::Arc::new(export));
        for _ in 0..2 {
            let plan = plan::plan(seen);
            act(seen, &plan.ops);
        }
    })
}

fn progress<'a>(seen: &'a mut ObservedBinding, resource: &str) -> &'a mut ClaimProgress {
    let resource = GroupResource::new("", resource);
    seen.claims.progress.claims.entry(resource).or_default()
}

#[test]
fn claims_are_told_with_their_numbers_and_what_they_reach() {
    let named = Selector {
        named_resources: vec![NamedResource::default()],
        ..Selector::default()
    };
    let all = Selector {
        label_selector: Some(LabelSelector::default()),
        ..Selector::default()
    };
    let claims = [
        ("secrets", all),
        ("configmaps", named),
        ("serviceaccounts", Selector::default()),
    ];
    let mut seen = claiming(&claims, &[]);
    progress(&mut seen, "secrets").from_consumer = 3;
    progress(&mut seen, "configmaps").from_provider = 2;
    let status = status_of(&seen);
    let condition = conditions::get(&status.conditions, types::PERMISSION_CLAIMS_IN_SYNC).unwrap();
    assert!(condition.is_true());
    assert_eq!(
        condition.message,
        "secrets: selects every object, 3 given to the provider, 0 taken from it into \
         namespaces with a bound object; configmaps: 0 given to the provider, 2 \
         taken from it into namespaces with a bound object; serviceaccounts: selects nothing, 0 given to the provider, 0 taken from it into namespaces with a \
         bound object"
    );
    assert_eq!(status.permission_claims.len(), 3);
    let mut rejected = claiming(&claims[..2], &["secrets"]);
    let status = status_of(&rejected);
    assert_eq!(status.permission_claims.len(), 1, "what is withdrawn leaves the status");
    binding(&mut rejected).status.as_mut().unwrap().permission_claims = status.permission_claims;
    let status = status_of(&rejected);
    let condition = conditions::get(&status.conditions, types::PERMISSION_CLAIMS_IN_SYNC).unwrap();
    assert!(
        condition.is_true() && condition.message.ends_with("; rejected: secrets"),
        "{condition:?}"
    );
    assert!(conditions::get(&status_of(&served()).conditions, types::PERMISSION_CLAIMS_IN_SYNC).is_none());
}

#[test]
fn a_claim_that_grew_says_how_to_accept_it() {
    let all = Selector {
        label_selector: Some(LabelSelector::default()),
        ..Selector::default()
    };
    let grown = with(claiming(&[("secrets", all)], &[]), |seen| accept(binding(seen), &[]));
    for says in [
        "secrets: the provider claims more than was accepted",
        "claims now (every object)",
        "kubectl annotate apiservicebinding cowboys kube-bind.io/accepted-claims-",
    ] {
        check(
            &grown,
            "PermissionClaimsInSync",
            "ClaimNotAccepted",
            Severity::Warning,
            says,
        );
    }
}

#[test]
fn what_is_amiss_with_a_claim_is_named() {
    let check =
        |seen: &ObservedBinding, reason, severity, says| check(seen, "PermissionClaimsInSync", reason, severity, says);
    let claimed = |change: &dyn Fn(&mut ClaimProgress)| {
        let mut seen = claiming(&[("secrets", Selector::default())], &[]);
        change(progress(&mut seen, "secrets"));
        seen
    };
    let problem = |cause| Problem {
        reason: "Any",
        message: "no right to list".to_owned(),
        cause,
        namespace: None,
    };
    let forbidden = claimed(&|progress| progress.problem = Some(problem(Cause::ProviderForbids)));
    check(
        &forbidden,
        "RightsMissing",
        Severity::Warning,
        "secrets: no right to list",
    );
    let mut lacking = claimed(&|progress| progress.problem = Some(problem(Cause::ConsumerForbids)));
    for (bundled, role) in [
        (false, "kube-bind-konnector-cowboys"),
        (true, "kube-bind-konnector-bundles"),
    ] {
        lacking.bundle = bundled.then(|| OwningBundle {
            name: "west".to_owned(),
            role: "kube-bind-konnector-bundles".to_owned(),
            removed: RemovedExports::Keep,
            selects: true,
        });
        check(&lacking, "RightsMissing", Severity::Warning, role);
        check(
            &lacking,
            "RightsMissing",
            Severity::Warning,
            "; the konnector needs this rule in ClusterRole kube",
        );
    }
    let conflict = claimed(&|progress| progress.problem = Some(problem(Cause::Other)));
    check(&conflict, "ClaimFailing", Severity::Warning, "secrets: ");
    let listing = claimed(&|progress| progress.synced = false);
    check(&listing, "ClaimsSyncing", Severity::Info, "first lists of secrets");
    let refused = claiming(&[("pods", Selector::default())], &[]);
    check(&refused, "ClaimRefused", Severity::Warning, "pods");
    let mut going = claiming(&[("secrets", Selector::default())], &["secrets"]);
    progress(&mut going, "secrets").remaining = Some(4);
    check(
        &going,
        "Withdrawing",
        Severity::Info,
        "4 copies are left to delete; rejected: secrets",
    );
    assert_eq!(status_of(&going).permission_claims.len(), 1);
}

#[test]
fn a_record_that_cannot_be_read_is_shown() {
    let broken = with(claiming(&[("secrets", Selector::default())], &[]), |seen| {
        let annotations = binding(seen).annotations_mut();
        annotations.insert(annotations::ACCEPTED_CLAIMS.to_owned(), "all".to_owned());
    });
    for says in [
        "no new claim takes effect",
        "apiservicebinding cowboys kube-bind.io/accepted-claims-",
    ] {
        let reason = "AcceptedClaimsUnreadable";
        check(&broken, "PermissionClaimsInSync", reason, Severity::Warning, says);
    }
    assert_eq!(status_of(&broken).permission_claims.len(), 1);
}

#[test]
fn who_else_chooses_what_is_claimed_is_told() {
    #[track_caller]
    fn check(paths: &[(&str, Option<&str>)], expect: &[&str]) {
        let references = paths.iter().map(|(name, namespace)| {
            let json = serde_json::json!({"resource": "cowboys", "jsonPath": {"name": name, "namespace": namespace}});
            serde_json::from_value::<SelectorReference>(json).unwrap()
        });
        let selector = Selector {
            references: references.collect(),
            ..Selector::default()
        };
        assert_eq!(chosen_by_others(&selector), expect, "{paths:?}");
        let seen = claiming(&[("secrets", selector.clone())], &[]);
        let status = status_of(&seen);
        let condition = conditions::get(&status.conditions, types::PERMISSION_CLAIMS_IN_SYNC).unwrap();
        assert!(condition.is_true(), "{condition:?}");
        for part in expect {
            assert!(condition.message.contains(part) && reach(&selector).contains(part));
        }
    }
    let by_provider = "by names that the provider writes into status";
    let by_users = "in any namespace that a referring object names";
    check(&[], &[]);
    check(
        &[("spec.ref", None), ("spec.statusRef", Some("metadata.namespace"))],
        &[],
    );
    check(&[("status.ref", None)], &[by_provider]);
    check(&[("spec.ref", None), ("status.refs.#.name", Some(""))], &[by_provider]);
    check(&[("spec.ref", Some("spec.namespace"))], &[by_users]);
    check(&[("spec.ref", Some("metadata.annotations.where"))], &[by_users]);
    check(&[("spec.ref", Some("status.namespace"))], &[]);
    check(&[("status.ref", Some("spec.namespace"))], &[by_provider, by_users]);
}

#[test]
fn that_an_unverified_contract_gets_none_is_told() {
    let unverified = with(claiming(&[("secrets", Selector::default())], &[]), |seen| {
        session(seen).found = None;
    });
    check(
        &unverified,
        types::PERMISSION_CLAIMS_IN_SYNC,
        "ContractUnverified",
        Severity::Warning,
        "are not synced",
    );
    let nothing = with(served(), |seen| session(seen).found = None);
    let status = status_of(&nothing);
    assert_eq!(
        conditions::get(&status.conditions, types::PERMISSION_CLAIMS_IN_SYNC),
        None
    );
}

#[test]
fn claims_of_listed_namespaces_say_where_rights_are_missing_and_copies_are_left() {
    let mut seen = claiming(&[("secrets", Selector::default())], &[]);
    let binding = binding(&mut seen);
    binding.spec.claim_namespaces = vec!["west".to_owned()];
    binding.status.as_mut().unwrap().claim_namespaces = vec!["east".to_owned(), "west".to_owned()];
    progress(&mut seen, "secrets").remaining = Some(2);
    let check =
        |seen: &ObservedBinding, reason, severity, says| check(seen, "PermissionClaimsInSync", reason, severity, says);
    check(
        &seen,
        "Withdrawing",
        Severity::Info,
        "copies in namespaces that spec.claimNamespaces does not list are withdrawn: secrets: 2 copies are left to delete",
    );
    assert_eq!(status_of(&seen).claim_namespaces, ["east", "west"]);
    let forbidden = |namespace: Option<&str>| Problem {
        reason: "Forbidden",
        message: "cannot watch".to_owned(),
        cause: Cause::ConsumerForbids,
        namespace: namespace.map(Into::into),
    };
    let role = "Role kube-bind-konnector-cowboys of namespace east";
    progress(&mut seen, "secrets").problem = Some(forbidden(Some("east")));
    check(&seen, "RightsMissing", Severity::Warning, role);
    // Rights on the whole cluster are missing, as after a list came to a binding that had none.
    for namespace in [None, Some("north")] {
        progress(&mut seen, "secrets").problem = Some(forbidden(namespace));
        let wide = "this rule in ClusterRole kube-bind-konnector-cowboys";
        check(&seen, "RightsMissing", Severity::Warning, wide);
    }
}
