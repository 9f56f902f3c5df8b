use bindery_api::{
    conditions::{Severity, false_condition, true_condition},
    v1alpha2::{APIServiceBindingSpec, APIServiceBindingStatus, GroupResource, PermissionClaim},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

const NOW: i64 = 1_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn status(name: &str, known: Option<APIServiceBindingStatus>) -> BindingStatus {
    let mut binding = APIServiceBinding::new(name, APIServiceBindingSpec::default());
    binding.metadata.creation_timestamp = Some(Time(at(NOW - 600)));
    binding.status = known;
    BindingStatus {
        binding,
        bundle: None,
        credential: CredentialStatus {
            secret: format!("kube-bind/kubeconfig-{name}"),
            server: Some("https://api.example.com".to_owned()),
            expires: Some(at(NOW + 2_700)),
            renewable_until: Some(at(NOW + 600_000)),
            renewed: true,
            problem: None,
        },
    }
}

fn bound() -> APIServiceBindingStatus {
    APIServiceBindingStatus {
        provider_pretty_name: Some("MangoDB Inc.".to_owned()),
        provider_namespace: Some("kube-bind-x".to_owned()),
        bound_schemas: vec![GroupResource::new("wildwest.dev", "cowboys")],
        permission_claims: vec![PermissionClaim {
            group_resource: GroupResource::new("", "secrets"),
            ..PermissionClaim::default()
        }],
        ..APIServiceBindingStatus::default()
    }
}

fn ready(name: &str) -> BindingStatus {
    let mut status = status(name, Some(bound()));
    for condition in [true_condition("Ready"), true_condition("SecretValid")] {
        status.binding.set_condition(condition, at(NOW - 300));
    }
    status
}

fn broken(name: &str) -> BindingStatus {
    let mut status = status(name, Some(bound()));
    let expired = false_condition(
        "SecretValid",
        Severity::Error,
        "CredentialExpired",
        "run kubectl bind renew",
    );
    status.binding.set_condition(expired, at(NOW - 300));
    status.binding.set_ready_summary(at(NOW - 300));
    status.credential.expires = Some(at(NOW - 300));
    status.credential.renewable_until = Some(at(NOW - 240));
    status.credential.renewed = false;
    status
}

#[test]
fn what_is_rejected_is_told_from_what_is_given() {
    let mut some = ready("west");
    let all = crate::claims::tests::claim("configmaps", None);
    some.binding.status.as_mut().unwrap().permission_claims.push(all);
    some.binding.spec.rejected_permission_claims = vec![
        GroupResource::new("", "secrets"),
        GroupResource::new("", "serviceaccounts"),
    ];
    let text = render(&[some], at(NOW), false);
    assert!(
        text.contains(
            "claims: configmaps (EVERY ConfigMap), secrets (rejected, being withdrawn), serviceaccounts (rejected)\n"
        ),
        "{text}"
    );
}

#[test]
fn bindings_hang_below_their_provider() {
    let text = render(&[ready("cowboys"), broken("sheriffs")], at(NOW), false);
    assert_eq!(
        text,
        "\
MangoDB Inc., contract kube-bind-x at https://api.example.com
├─ ✓ cowboys  ready, 10m
│  ├─ apis: cowboys.wildwest.dev
│  ├─ claims: secrets
│  └─ credentials: Secret kube-bind/kubeconfig-cowboys, renewed by the konnector, expires in 45m, renewable for 6d
└─ ✗ sheriffs  not ready, 10m
   ├─ apis: cowboys.wildwest.dev
   ├─ claims: secrets
   ├─ credentials: Secret kube-bind/kubeconfig-sheriffs, expired 5m ago, renewable until 4m ago
   └─ SecretValid=False (CredentialExpired): run kubectl bind renew, since 5m
"
    );
}

#[test]
fn the_wide_view_shows_every_condition() {
    let text = render(&[ready("cowboys")], at(NOW), true);
    for line in ["├─ Ready=True, since 5m", "└─ SecretValid=True, since 5m"] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn what_is_not_known_is_said() {
    let mut fresh = status("new", None);
    fresh.credential = CredentialStatus {
        secret: "kube-bind/kubeconfig-new".to_owned(),
        problem: Some("Secret kube-bind/kubeconfig-new is not visible to you (forbidden)".to_owned()),
        ..CredentialStatus::default()
    };
    let wanted = (
        bindery_api::annotations::RESOURCES.to_owned(),
        "cowboys.wildwest.dev".to_owned(),
    );
    fresh.binding.annotations_mut().extend([wanted]);
    assert_eq!(
        render(&[fresh], at(NOW), false),
        "\
provider not known yet
└─ … new  not seen by the konnector yet, 10m
   ├─ apis: cowboys.wildwest.dev (not bound yet)
   └─ credentials: Secret kube-bind/kubeconfig-new is not visible to you (forbidden)
"
    );
}

#[test]
fn a_provider_cannot_draw_branches_of_its_own() {
    let mut hostile = ready("cowboys");
    let name = "Evil\n└─ ✓ all is well\u{1b}[2J".to_owned();
    hostile.binding.status.as_mut().unwrap().provider_pretty_name = Some(name);
    let text = render(&[hostile], at(NOW), false);
    assert!(text.starts_with("Evil └─ ✓ all is well [2J, contract"), "{text}");
}

#[test]
fn a_binding_that_is_going_says_so() {
    let mut going = ready("cowboys");
    going.binding.metadata.deletion_timestamp = Some(Time(at(NOW)));
    assert!(render(&[going], at(NOW), false).contains("… cowboys  being unbound, 10m"));
}

#[test]
fn a_binding_names_its_bundle() {
    let mut status = ready("west");
    status.bundle = Some("acme".to_owned());
    let shown = render(&[status], at(NOW), false);
    assert!(shown.contains("of bundle acme"), "{shown}");
}
