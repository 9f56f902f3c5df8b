use bindery_proto::v1alpha2::{ExportRequest, PermissionClaim, Resource};

use super::*;

/// An answer for a binding `west` that exports `cowboys` and claims `secrets`.
pub(in crate::manifests) fn answer() -> BindingResourceResponse {
    BindingResourceResponse {
        provider_namespace: "kube-bind-x".to_owned(),
        binding_name: "west".to_owned(),
        requests: vec![ExportRequest {
            name: "west".to_owned(),
            resources: vec![resource("wildwest.dev", "cowboys")],
            permission_claims: vec![claim("", "secrets")],
            ..ExportRequest::default()
        }],
        consumer_rules: vec![
            rule(
                &["wildwest.dev"],
                &["cowboys", "cowboys/status"],
                &["get", "list", "watch", "patch"],
            ),
            rule(&[""], &["secrets"], &["get", "list", "watch"]),
        ],
        ..BindingResourceResponse::default()
    }
}

fn resource(group: &str, resource: &str) -> Resource {
    Resource {
        group: group.to_owned(),
        resource: resource.to_owned(),
        versions: Vec::new(),
    }
}

fn claim(group: &str, resource: &str) -> PermissionClaim {
    PermissionClaim {
        group: group.to_owned(),
        resource: resource.to_owned(),
        selector: None,
    }
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> ConsumerRule {
    let owned = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
    ConsumerRule {
        api_groups: owned(groups),
        resources: owned(resources),
        verbs: owned(verbs),
        resource_names: Vec::new(),
    }
}

#[track_caller]
fn check(change: impl FnOnce(&mut BindingResourceResponse), expect: &str) {
    let mut changed = answer();
    change(&mut changed);
    let refusal = judge(&changed, "west").expect_err("a refusal");
    assert_eq!(refusal.reason(), expect, "{refusal}");
}

#[test]
fn rights_follow_from_what_is_exported_and_claimed_alone() {
    let offer = judge(&answer(), "west").unwrap();
    assert_eq!(offer.contract, "kube-bind-x");
    assert!(
        offer
            .resources
            .iter()
            .eq([&GroupResource::new("wildwest.dev", "cowboys")])
    );
    let [claim] = offer.claims.as_slice() else {
        panic!("one claim: {:?}", offer.claims);
    };
    assert_eq!(claim.group_resource, GroupResource::new("", "secrets"));
    let mut bare = answer();
    bare.consumer_rules.clear();
    assert_eq!(judge(&bare, "west").unwrap(), offer);
}

#[test]
fn an_answer_to_another_question_is_refused() {
    check(|answer| answer.binding_name = "east".to_owned(), "OtherBinding");
    check(|answer| answer.requests[0].name = "east".to_owned(), "OtherBinding");
    check(|answer| answer.provider_namespace.clear(), "NoContract");
    check(|answer| answer.requests.clear(), "Empty");
}

#[test]
fn apis_of_this_cluster_cannot_be_exported_to_it() {
    for (group, plural) in [
        ("", "secrets"),
        ("apps", "deployments"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("k8s.io", "things"),
        ("metrics.kubernetes.io", "things"),
        ("kube-bind.io", "apiservicebindings"),
        ("*.dev", "cowboys"),
        ("wildwest.dev", "cowboys/status"),
        ("wildwest.dev", ""),
    ] {
        check(
            |answer| answer.requests[0].resources.push(resource(group, plural)),
            "ForeignApi",
        );
    }
    // Merely ends in the same letters.
    let mut fine = answer();
    fine.requests[0].resources.push(resource("my-kube-bind.io", "things"));
    assert!(judge(&fine, "west").is_ok());
}

#[test]
fn rules_beyond_export_and_claims_are_refused() {
    let with = |groups: &[&str], resources: &[&str], verbs: &[&str], expect: &str| {
        check(
            |answer| answer.consumer_rules.push(rule(groups, resources, verbs)),
            expect,
        );
    };
    with(&["*"], &["cowboys"], &["get"], "Wildcard");
    with(&["wildwest.dev"], &["*"], &["get"], "Wildcard");
    with(&["wildwest.dev"], &["cowboys"], &["*"], "Wildcard");
    with(&["wildwest.dev"], &["*/status"], &["get"], "Wildcard");
    with(&["wildwest.dev"], &["sheriffs"], &["get"], "Beyond");
    with(&[""], &["configmaps"], &["get"], "Beyond");
    with(&[""], &["secrets/status"], &["get"], "Beyond");
    with(&["wildwest.dev"], &["cowboys/scale"], &["get"], "Beyond");
    with(&["wildwest.dev"], &["cowboys"], &["escalate"], "Verb");
    with(&["wildwest.dev"], &["cowboys"], &["deletecollection"], "Verb");
    // Each part is fine, and the product of both is not.
    with(&["wildwest.dev", ""], &["cowboys", "secrets"], &["get"], "Beyond");
}

#[test]
fn what_rules_a_cluster_cannot_be_claimed() {
    for (group, plural) in [
        ("", "nodes"),
        ("", "pods"),
        ("apps", "deployments"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("kube-bind.io", "apiservicebindings"),
        ("example.com", "*"),
        // Exported already, or claimed already.
        ("wildwest.dev", "cowboys"),
        ("", "secrets"),
    ] {
        check(
            |answer| answer.requests[0].permission_claims.push(claim(group, plural)),
            "Unclaimable",
        );
    }
    let mut fine = answer();
    fine.requests[0]
        .permission_claims
        .push(claim("example.com", "certificates"));
    assert_eq!(judge(&fine, "west").unwrap().claims.len(), 2);
}
