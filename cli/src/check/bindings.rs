//! Judges what the konnector reports about bindings and bundles.

use bindery_api::{
    Condition,
    conditions::{ConditionStatus, ORPHANED_OBJECTS, READY, Severity},
    holder::HELD,
};
use kube::ResourceExt as _;

use super::{
    Check,
    facts::{Fact, Facts},
    finding::Findings,
};

pub(super) fn judge(facts: &Facts, found: &mut Findings) {
    if found.has_failed(Check::ConsumerApi) {
        return;
    }
    for secret in &facts.unusable_secrets {
        let owners = crate::text::joined(&secret.owners);
        if secret.is_hidden {
            found.skip(
                Check::CredentialSecret,
                format!("{}; the provider of {owners} is not checked from here", secret.why),
            );
        } else {
            found.fail(
                Check::CredentialSecret,
                format!("{} ({owners})", secret.why),
                "bind again, or put the kubeconfig that the provider gave into the Secret",
            );
        }
    }
    let flags = &facts.flags.consumer;
    owners(Check::BindingReady, "APIServiceBinding", &facts.bindings, flags, found);
    owners(
        Check::BundleReady,
        "APIServiceBindingBundle",
        &facts.bundles,
        flags,
        found,
    );
}

fn owners<K>(check: Check, kind: &str, listed: &Fact<Vec<K>>, flags: &str, found: &mut Findings)
where
    K: kube::Resource<DynamicType = ()>,
    K: bindery_api::Conditions,
{
    let listed = match listed {
        Ok(listed) => listed,
        Err(unread) => return found.unread(check, &format!("list {kind}s"), unread, &format!("list {kind}s")),
    };
    if listed.is_empty() {
        return found.passed(check, format!("there is no {kind}"));
    }
    for object in listed {
        let name = object.name_any();
        let named = format!("{kind} {name}");
        let status = format!("kubectl bind status {name}{flags}");
        if object.meta().deletion_timestamp.is_some() {
            found.warn(check, format!("{named} is being deleted"), status);
            continue;
        }
        match object.condition(READY) {
            Some(ready) if ready.is_true() => found.passed(check, format!("{named} is ready")),
            Some(ready) if is_error(ready) && object.condition(HELD).is_some_and(is_error) => found.fail(
                check,
                not_ready(&named, ready),
                format!("kubectl bind accept{flags} shows what waits, and lets this cluster go on"),
            ),
            Some(ready) if is_error(ready) => found.fail(check, not_ready(&named, ready), status),
            Some(ready) => found.warn(check, not_ready(&named, ready), status),
            None => found.warn(
                check,
                format!("the konnector has not seen {named} yet"),
                "see whether the konnector runs: check konnector-lease",
            ),
        }
        if let Some(orphaned) = object.condition(ORPHANED_OBJECTS).filter(|orphaned| orphaned.is_true()) {
            found.warn(
                check,
                format!("{named} has orphans: {}", orphaned.message),
                format!("kubectl bind orphans {name}{flags}"),
            );
        }
    }
}

/// Whether somebody has to act.
fn is_error(ready: &Condition) -> bool {
    ready.status == ConditionStatus::False && matches!(ready.severity, Severity::Error | Severity::None)
}

fn not_ready(named: &str, ready: &Condition) -> String {
    format!(
        "{named} is not ready since {}: {} ({})",
        ready.last_transition_time.0, ready.message, ready.reason
    )
}
