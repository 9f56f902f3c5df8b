use bindery_api::{
    conditions::{Severity, false_condition, true_condition},
    v1alpha2::{APIServiceBindingBundleSpec, APIServiceBindingSpec},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

fn binding(condition: Option<Condition>) -> APIServiceBinding {
    let mut binding = APIServiceBinding::new("west", APIServiceBindingSpec::default());
    if let Some(condition) = condition {
        binding.set_condition(condition, Timestamp::UNIX_EPOCH);
    }
    binding
}

fn bundle(conditions: impl IntoIterator<Item = Condition>) -> APIServiceBindingBundle {
    let mut bundle = APIServiceBindingBundle::new("acme", APIServiceBindingBundleSpec::default());
    for condition in conditions {
        bundle.set_condition(condition, Timestamp::UNIX_EPOCH);
    }
    bundle
}

#[test]
fn says_what_it_waits_for() {
    let check = |binding: APIServiceBinding, expect: &str| {
        let news = CredentialOwner::from(binding).not_ready().unwrap();
        assert!(news.contains(expect), "{news}");
    };
    check(binding(None), "does it run?");
    check(
        binding(Some(true_condition("SecretValid"))),
        "waiting for the konnector",
    );
    let broken = false_condition(
        "Ready",
        Severity::Error,
        "KubeconfigSecretNotFound",
        "Secret x is missing",
    );
    check(binding(Some(broken)), "Secret x is missing (KubeconfigSecretNotFound)");
    check(
        binding(Some(false_condition("Ready", Severity::Error, "Why", ""))),
        "not ready: Why",
    );
}

#[test]
fn an_owner_that_is_going_or_was_changed_since_is_not_ready() {
    let mut ready = binding(Some(true_condition("Ready")));
    assert!(CredentialOwner::from(ready.clone()).is_ready());
    ready.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert!(!CredentialOwner::from(ready).is_ready());
    let mut acme = bundle([true_condition("Ready")]);
    acme.metadata.generation = Some(2);
    for (observed, expect) in [(None, false), (Some(1), false), (Some(2), true)] {
        acme.status.get_or_insert_default().observed_generation = observed;
        assert_eq!(CredentialOwner::from(acme.clone()).is_ready(), expect, "{observed:?}");
    }
}

#[test]
fn a_renewal_waits_for_the_access_and_for_nothing_else() {
    let missing = |conditions: &[Condition]| CredentialOwner::from(bundle(conditions.iter().cloned())).not_renewed();
    assert!(missing(&[]).unwrap().contains("does it run?"));
    let access = ["SecretValid", "ProviderReachable"].map(true_condition);
    let sync = false_condition("Synced", Severity::Warning, "SyncErrors", "");
    assert_eq!(missing(&[&access[..], &[sync]].concat()), None);
    let expired = false_condition("SecretValid", Severity::Error, "CredentialExpired", "renew");
    let expired = missing(&[&access[..], &[expired]].concat());
    assert_eq!(expired.as_deref(), Some("CredentialExpired: renew"));
    assert!(CredentialOwner::from(binding(None)).not_renewed().is_some());
    let mut renewed = binding(Some(true_condition("SecretValid")));
    for condition in [
        true_condition("Connected"),
        true_condition("Heartbeating"),
        false_condition(
            "Ready",
            Severity::Error,
            "Forbidden",
            "the konnector may not patch cowboys",
        ),
    ] {
        renewed.set_condition(condition, Timestamp::UNIX_EPOCH);
    }
    assert_eq!(CredentialOwner::from(renewed).not_renewed(), None);
}

#[test]
fn only_conditions_about_the_credential_say_that_it_fails() {
    let failing = |type_: &str| false_condition(type_, Severity::Error, "Why", "");
    for (owner, expect) in [
        (CredentialOwner::from(binding(Some(failing("Heartbeating")))), true),
        (binding(Some(failing("Synced"))).into(), false),
        (bundle([failing("ProviderReachable")]).into(), true),
        (bundle([failing("Heartbeating")]).into(), false),
    ] {
        assert_eq!(owner.credential_fails(), expect, "{owner:?}");
    }
}
