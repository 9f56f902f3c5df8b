use bindery_api::{
    conditions::{Severity, false_condition},
    v1alpha2::{APIServiceBindingBundleSpec, APIServiceBindingSpec},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource as _;

use super::*;
use crate::install::manifests::secret_ref;

fn binding(name: &str, secret: &str) -> APIServiceBinding {
    let spec = APIServiceBindingSpec {
        kubeconfig_secret_ref: secret_ref(secret, "kube-bind"),
        ..APIServiceBindingSpec::default()
    };
    APIServiceBinding::new(name, spec)
}

#[test]
fn a_shared_secret_is_told_from_an_own_one() {
    let all = [binding("a", "a"), binding("b", "b"), binding("c", "b")];
    let shared = |bundles: &[APIServiceBindingBundle]| all.each_ref().map(|one| is_shared(one, &all, bundles));
    assert_eq!(shared(&[]), [false, true, true]);
    let mut acme = bundle();
    acme.spec.kubeconfig_secret_ref = secret_ref("a", "kube-bind");
    assert_eq!(shared(&[acme]), [true, true, true]);
    assert!(is_shared(&of_bundle("a"), &[], &[]));
}

fn bundle() -> APIServiceBindingBundle {
    let mut bundle = APIServiceBindingBundle::new("acme", APIServiceBindingBundleSpec::default());
    bundle.metadata.uid = Some("u".to_owned());
    bundle
}

fn of_bundle(name: &str) -> APIServiceBinding {
    let mut binding = binding(name, name);
    binding.metadata.owner_references = bundle().controller_owner_ref(&()).map(|owner| vec![owner]);
    binding
}

#[test]
fn the_binding_of_a_bundle_would_come_back() {
    let check = |binding: &APIServiceBinding, bundles: &[APIServiceBindingBundle], refused: bool| {
        let outcome = refuse_rebound(binding, bundles);
        assert_eq!(outcome.is_err(), refused, "{outcome:?}");
    };
    check(&of_bundle("a"), &[bundle()], true);
    check(&binding("a", "a"), &[bundle()], false);
    // Its bundle is gone, or another one has its name.
    check(&of_bundle("a"), &[], false);
    let mut other = bundle();
    other.metadata.uid = Some("v".to_owned());
    check(&of_bundle("a"), &[other], false);
    let mut going = bundle();
    going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    check(&of_bundle("a"), &[going], false);
    for (reason, refused) in [
        ("ExportRemoved", false),
        ("ExportNotSelected", false),
        ("ProviderUnreachable", true),
    ] {
        let mut away = of_bundle("a");
        away.set_condition(
            false_condition("Connected", Severity::Error, reason, ""),
            Timestamp::UNIX_EPOCH,
        );
        check(&away, &[bundle()], refused);
    }
}

#[test]
fn says_what_is_deleted() {
    assert_eq!(deleting("a", &[], Some(0), Fate::Kept), "asked to unbind a");
    let cowboys = GroupResource::new("wildwest.dev", "cowboys");
    assert_eq!(
        deleting("a", &[&cowboys], Some(1), Fate::Kept),
        "asked to unbind a, with 1 object of cowboys.wildwest.dev; the provider keeps its copies, marked as released"
    );
    assert_eq!(
        deleting("a", &[&cowboys], None, Fate::Deleted),
        "asked to unbind a, with objects of cowboys.wildwest.dev; the provider's copies are deleted too"
    );
}
