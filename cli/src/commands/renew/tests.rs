use bindery_api::v1alpha2::{APIServiceBindingBundle, APIServiceBindingBundleSpec};

use super::*;
use crate::{
    install::manifests::tests::{binding_of, manifests},
    provider::kubeconfig::tests::{kubeconfig, parse},
};

fn binding() -> APIServiceBinding {
    binding_of(manifests(Kubeconfig::Hidden("x")))
}

fn bundle() -> APIServiceBindingBundle {
    APIServiceBindingBundle::new("acme", APIServiceBindingBundleSpec::default())
}

fn installed() -> Installed {
    Installed {
        credential: parse(&kubeconfig(100, 100)).ok(),
        ..Installed::default()
    }
}

#[test]
fn a_secret_of_somebody_else_stays_theirs() {
    let fresh = || manifests(Kubeconfig::Hidden("x")).secret().clone();
    assert!(is_ours(&new_secret(Some(&fresh()), fresh()).metadata));
    assert!(is_ours(&new_secret(None, fresh()).metadata));
    let mut foreign = fresh();
    foreign.metadata.labels = None;
    assert!(!is_ours(&new_secret(Some(&foreign), fresh()).metadata));
}

#[test]
fn nothing_is_bound_again_where_renewing_is_enough_or_binding_no_help() {
    for reason in ErrorReason::all() {
        let expect =
            ["RENEWAL_STOPPED", "RENEWAL_LOCKED", "CONTRACT_DENIED", "METHOD_DENIED"].contains(&reason.reason_str());
        assert_eq!(needs_bind(Some(reason)), expect, "{}", reason.reason_str());
    }
    assert!(!needs_bind(None));
}

/// Checks the export and the contract that are renewed for an owner.
#[track_caller]
fn check(owner: impl Into<CredentialOwner>, seen: &Installed, export: Option<&str>, contract: Option<&str>) {
    let owner = owner.into();
    let args = RenewArgs {
        name: owner.name().to_owned(),
        bundle: false,
        cluster_identity: None,
        wait: false,
    };
    let renewal = Renewal::of(&owner, seen, &args);
    assert_eq!((renewal.export, renewal.contract), (export, contract), "{owner}");
}

#[test]
fn the_contract_is_the_reported_one() {
    let nothing = Installed::default();
    let mut west = binding();
    check(west.clone(), &installed(), Some("west"), Some("kube-bind-x"));
    west.status.get_or_insert_default().provider_namespace = Some("kube-bind-y".to_owned());
    check(west.clone(), &installed(), Some("west"), Some("kube-bind-y"));
    west.status = None;
    check(west, &nothing, Some("west"), None);
    let mut acme = bundle();
    check(acme.clone(), &installed(), None, Some("kube-bind-x"));
    acme.status.get_or_insert_default().provider_namespace = Some("kube-bind-y".to_owned());
    check(acme, &nothing, None, Some("kube-bind-y"));
}

#[test]
fn a_binding_is_bound_again_under_the_name_of_its_export() {
    let mut west = binding();
    west.spec.export_name = Some("cowboys".to_owned());
    check(west, &installed(), Some("cowboys"), Some("kube-bind-x"));
}

#[test]
fn a_bundle_is_renewed_for_the_contract_that_it_is_pinned_to() {
    let accepts = |pinned: Option<&str>, server: &str| {
        let mut acme = bundle();
        acme.status.get_or_insert_default().contract_uid = pinned.map(str::to_owned);
        let seen = Installed {
            owner: Some(acme.into()),
            ..installed()
        };
        let mut document = kubeconfig(200, 200);
        document["clusters"][0]["cluster"]["server"] = server.into();
        let sent = bindery_proto::v1alpha2::Kubeconfig {
            kubeconfig: document.to_string().into_bytes().into(),
            contract_uid: "u".to_owned(),
            ..Default::default()
        };
        seen.accept("kube-bind-x", Some(&sent)).is_ok()
    };
    let (same, other) = ("https://api.example.com:6443", "https://moved.example.com");
    assert!(accepts(None, same) && !accepts(None, other));
    assert!(accepts(Some("u"), other));
}
