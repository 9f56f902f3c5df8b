use serde_json::json;

use super::*;

const UNLISTED: &[&str] = &[];

#[track_caller]
fn check(listed: &[&str], namespace: &str, secret_type: Option<&str>, has_bound: Referenced, expect: Descent) {
    let listed: BTreeSet<_> = listed.iter().map(|&name| name.to_owned()).collect();
    let bounds = Bounds::new(
        Some(&listed).filter(|listed| !listed.is_empty()),
        &["connection.example.dev/v1".to_owned(), TOKEN_SECRET_TYPES[0].to_owned()],
        &[GroupResource::new("wildwest.dev", "cowboys")],
    );
    let decided = bounds.decide(namespace, secret_type, true, |bound| {
        assert_eq!(bound.len(), 1);
        has_bound
    });
    assert_eq!(decided, expect, "{listed:?} {namespace} {secret_type:?}");
}

#[test]
fn objects_come_down_only_where_the_consumer_has_a_bound_object_or_said_so() {
    use Descent::{Allowed, Refused, Unknown};
    use Referenced::{No, Yes};

    check(UNLISTED, "west", None, Yes, Allowed);
    check(UNLISTED, "west", None, No, Refused(Refusal::NoBoundObject));
    check(UNLISTED, "west", None, Referenced::Unknown, Unknown);
    check(&["west"], "west", None, No, Allowed);
    check(&["west", "east"], "east", None, Referenced::Unknown, Allowed);
    // A list is exact: a bound object elsewhere adds nothing.
    check(&["west"], "east", None, Yes, Refused(Refusal::NotListed));
    check(&["west"], "wes", None, Yes, Refused(Refusal::NotListed));
    check(&["west"], "west-1", None, Yes, Refused(Refusal::NotListed));
}

#[test]
fn only_secrets_of_known_types_come_down() {
    let of = |secret_type, expect| check(&["west"], "west", Some(secret_type), Referenced::Yes, expect);
    for allowed in SECRET_TYPES {
        of(allowed, Descent::Allowed);
    }
    of("connection.example.dev/v1", Descent::Allowed);
    for refused in [
        "helm.sh/release.v1",
        "",
        "opaque",
        "example.dev/unknown",
        "kubernetes.io/service-account-token",
        "bootstrap.kubernetes.io/token",
    ] {
        of(refused, Descent::Refused(Refusal::SecretType));
    }
    let bounds = Bounds::new(Some(&BTreeSet::from(["west".to_owned()])), &[], &[]);
    let config_map = bounds.decide("west", Some("helm.sh/release.v1"), false, |_| Referenced::No);
    assert_eq!(config_map, Descent::Allowed, "another resource may have a field type");
}

#[test]
fn one_binding_that_allows_it_is_enough() {
    let refused = Descent::Refused(Refusal::NotListed);
    assert_eq!(refused.or(Descent::Allowed), Descent::Allowed);
    assert_eq!(Descent::Unknown.or(Descent::Allowed), Descent::Allowed);
    assert_eq!(refused.or(Descent::Unknown), Descent::Unknown);
    assert_eq!(refused.or(Descent::Refused(Refusal::SecretType)), refused);
}

#[test]
fn labels_come_down_that_say_what_an_object_is_or_that_its_claim_names() {
    let claim = |selector: serde_json::Value| PermissionClaim {
        selector: serde_json::from_value(selector).unwrap(),
        ..PermissionClaim::default()
    };
    let claims = [
        claim(json!({"labelSelector": {"matchLabels": {"claims": "yes"}}})),
        claim(json!({"labelSelector": {"matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["gold"]},
            {"key": "example.dev/shared", "operator": "Exists"},
            {"key": "owner", "operator": "NotIn", "values": ["nobody"]},
            {"key": "argocd.argoproj.io/secret-type", "operator": "DoesNotExist"},
        ]}})),
        claim(json!({"namedResources": [{"name": "colt"}]})),
    ];
    let selecting = selecting_labels(&claims);
    for carried in [
        "claims",
        "tier",
        "example.dev/shared",
        "app.kubernetes.io/name",
        "app.kubernetes.io/version",
    ] {
        assert!(is_label_carried(carried, &selecting), "{carried}");
    }
    for left_out in [
        "owner",
        "name",
        "status",
        "grafana_dashboard",
        "argocd.argoproj.io/secret-type",
        "app.kubernetes.io/managed-by",
        "app.kubernetes.io/instance",
        "kustomize.toolkit.fluxcd.io/name",
        "cnpg.io/reload",
        "kube-bind.io/owner",
    ] {
        assert!(!is_label_carried(left_out, &selecting), "{left_out}");
    }
}
