use bindery_api::{
    Conditions as _,
    conditions::{Severity, false_condition},
    v1alpha2::{APIServiceBindingBundle, GroupResource, PermissionClaim},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::super::*;
use crate::{
    install::manifests::Kubeconfig,
    provider::kubeconfig::tests::{kubeconfig, parse},
};

fn bundle_mut(seen: &mut Installed) -> &mut APIServiceBindingBundle {
    match &mut seen.owner {
        Some(CredentialOwner::Bundle(bundle)) => bundle,
        other => panic!("{other:?}"),
    }
}

fn claim(resource: &str) -> PermissionClaim {
    PermissionClaim {
        group_resource: GroupResource::new("", resource),
        ..PermissionClaim::default()
    }
}

fn wanted(document: &Value, accepted: &[PermissionClaim], seen: &Installed) -> Manifests {
    Manifests::of_bundle(
        "acme",
        accepted,
        Kubeconfig::Document(document.to_string().into_bytes()),
        seen.owner.as_ref().and_then(CredentialOwner::bundle),
    )
}

/// After a first run.
fn installed(expires: i64) -> Installed {
    let document = kubeconfig(expires, expires);
    let wanted = wanted(&document, &[], &Installed::default());
    Installed {
        owner: Some(wanted.owner.into()),
        secret: Some(wanted.secret),
        credential: parse(&document).ok(),
        ..Installed::default()
    }
}

#[track_caller]
fn check(seen: &Installed, document: &Value, accepted: &[PermissionClaim], expect: &[&str]) {
    let now = Timestamp::from_second(50).unwrap();
    let judged = seen.refuse_answer(&parse(document).unwrap()).map_err(Failure::from);
    let ops = match judged.and_then(|()| plan(&wanted(document, accepted, seen), seen, now)) {
        Ok(ops) => ops.iter().map(ToString::to_string).collect(),
        Err(conflict) => vec![conflict.to_string()],
    };
    assert_eq!(ops.len(), expect.len(), "{ops:?}");
    for (op, expect) in ops.iter().zip(expect) {
        assert!(op.contains(expect), "{op}");
    }
}

const SECRET: &str = "Secret kube-bind/kubeconfig-bundle-acme";
const BUNDLE: &str = "APIServiceBindingBundle acme";

#[test]
fn only_what_is_missing_is_written() {
    let document = kubeconfig(100, 100);
    check(&Installed::default(), &document, &[], &[SECRET, BUNDLE]);
    check(&installed(100), &document, &[], &[]);
    check(&installed(100), &kubeconfig(200, 200), &[], &[]);
    check(&installed(40), &document, &[], &[SECRET]);
    check(&installed(100), &document, &[claim("secrets")], &[BUNDLE]);
}

#[test]
fn a_credential_that_fails_is_replaced() {
    let mut seen = installed(100);
    let refused = false_condition("ProviderReachable", Severity::Error, "ProviderUnauthorized", "401");
    bundle_mut(&mut seen).set_condition(refused, Timestamp::UNIX_EPOCH);
    check(&seen, &kubeconfig(100, 100), &[], &[SECRET]);
}

#[test]
fn what_stands_in_the_way_is_named() {
    let document = kubeconfig(100, 100);
    let mut elsewhere = document.clone();
    elsewhere["clusters"][0]["cluster"]["server"] = "https://other.example.com".into();
    check(&installed(100), &elsewhere, &[], &["https://other.example.com"]);
    let mut foreign = installed(40);
    foreign.secret.as_mut().unwrap().metadata.labels = None;
    check(&foreign, &document, &[], &["not made by kubectl bind"]);
    let mut going = installed(100);
    bundle_mut(&mut going).metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    check(&going, &document, &[], &["being deleted"]);
}

#[test]
fn somebody_elses_bundle_stays_as_it_is() {
    let mut seen = installed(100);
    bundle_mut(&mut seen).metadata.labels = None;
    check(&seen, &kubeconfig(100, 100), &[claim("secrets")], &[]);
}

#[test]
fn what_was_accepted_before_stays_accepted() {
    let mut seen = installed(100);
    bundle_mut(&mut seen).spec.accepted_claims = vec![claim("configmaps"), claim("secrets")];
    let wanted = wanted(&kubeconfig(100, 100), &[claim("secrets")], &seen);
    assert_eq!(
        CredentialOwner::from(wanted.owner)
            .bundle()
            .unwrap()
            .spec
            .accepted_claims,
        [claim("configmaps"), claim("secrets")]
    );
}
