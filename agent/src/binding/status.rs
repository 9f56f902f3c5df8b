//! Computes the status of a binding. Nothing is written here.

use std::collections::BTreeMap;

use bindery_api::{
    Condition, Conditions as _, Severity,
    conditions::{self, false_condition, true_condition},
    v1alpha2::APIServiceBindingStatus,
};
use serde_json::Value;

use super::{observed::ObservedBinding, plan::BindingPlan, retained, unbind::UnbindPlan};
use crate::{
    controller::{
        access::ContractAccess,
        conditions::{held, mismatch, provider_access, provider_data, status_changes},
    },
    session::status_reports::ExportReport,
};

mod access;
mod claims;
pub(super) mod sync;

/// Types of the conditions of a binding.
pub mod types {
    pub use bindery_api::conditions::{
        ACTIVE, CONNECTED, DELETIONS_SYNCED, DRAINING, HEARTBEATING, INFORMERS_SYNCED, OBJECTS_IN_SYNC,
        ORPHANED_OBJECTS, PERMISSION_CLAIMS_IN_SYNC, PROVIDER_ACCESS_COMPLETE, PROVIDER_DATA_ACCEPTED, SCHEMA_IN_SYNC,
        SECRET_VALID,
    };
    pub use bindery_api::holder::HELD;
}

/// A refused write of a CRD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrdFailure {
    /// Reason of the condition.
    pub reason: &'static str,
    /// What the API server answered, and what to do.
    pub message: String,
}

/// CrdFailures by name of the CRD.
pub type CrdFailures = BTreeMap<String, CrdFailure>;

/// The status of a binding that is not being deleted.
pub fn live(seen: &ObservedBinding, plan: &BindingPlan, failures: &CrdFailures) -> APIServiceBindingStatus {
    let mut status = seen.binding.status.clone().unwrap_or_default();
    let mut list = std::mem::take(&mut status.conditions);
    conditions::remove(&mut list, types::DRAINING);
    // A former version set it.
    conditions::remove(&mut list, types::DELETIONS_SYNCED);
    let mut set = |condition: Option<Condition>, kind: &str| match condition {
        Some(condition) => drop(conditions::set(&mut list, condition, seen.now)),
        None => drop(conditions::remove(&mut list, kind)),
    };
    set(Some(sync::active(seen)), types::ACTIVE);
    if matches!(seen.access, ContractAccess::Connecting) {
        // Until the provider answers, the conditions stay as they are.
        if seen.binding.condition(types::CONNECTED).is_none() {
            let connecting = false_condition(
                types::CONNECTED,
                Severity::Info,
                "Connecting",
                "waiting for the provider to answer",
            );
            set(Some(connecting), types::CONNECTED);
        }
    } else {
        set(Some(access::secret_valid(seen)), types::SECRET_VALID);
        let is_served = matches!(seen.access, ContractAccess::Reached(_)) && seen.session.is_some();
        set(access::connected(seen, plan, failures), types::CONNECTED);
        for (condition, kind) in [
            (sync::schema_in_sync(seen, plan, failures), types::SCHEMA_IN_SYNC),
            (sync::informers_synced(seen), types::INFORMERS_SYNCED),
            (sync::objects_in_sync(seen), types::OBJECTS_IN_SYNC),
            (sync::orphaned_objects(seen), types::ORPHANED_OBJECTS),
            (claims::in_sync(seen, plan), types::PERMISSION_CLAIMS_IN_SYNC),
            (
                // Bindings of a bundle follow its consent.
                provider_access(
                    &seen.access,
                    seen.session.as_ref(),
                    if seen.bundle.is_some() { "bundle" } else { "binding" },
                    &seen.takeover(),
                ),
                types::PROVIDER_ACCESS_COMPLETE,
            ),
            (provider_data(seen.session.as_ref()), types::PROVIDER_DATA_ACCEPTED),
        ] {
            set(condition.filter(|_| is_served), kind);
        }
        set(
            held(&seen.access, seen.session.as_ref(), seen.binding.conditions()),
            types::HELD,
        );
        // That the contract serves another cluster is known until it is found out again.
        let before = || mismatch(seen.binding.conditions(), types::HEARTBEATING).cloned();
        let heartbeating = access::heartbeating(seen).filter(|_| is_served).or_else(before);
        set(heartbeating, types::HEARTBEATING);
    }
    conditions::set_summary(&mut list, seen.now);
    status.conditions = list;
    facts(seen, plan, &mut status);
    status
}

/// The status of a binding that is being deleted.
pub fn unbinding(seen: &ObservedBinding, plan: &UnbindPlan) -> APIServiceBindingStatus {
    let mut status = seen.binding.status.clone().unwrap_or_default();
    let list = &mut status.conditions;
    let reason = match (seen.is_paused(), plan.stuck) {
        (true, _) => "Paused",
        (false, true) => "Stuck",
        (false, false) => "Unbinding",
    };
    conditions::set(list, sync::active(seen), seen.now);
    conditions::remove(list, types::DELETIONS_SYNCED);
    match sync::orphaned_objects(seen) {
        Some(orphaned) => drop(conditions::set(list, orphaned, seen.now)),
        None => drop(conditions::remove(list, types::ORPHANED_OBJECTS)),
    }
    match held(&seen.access, seen.session.as_ref(), seen.binding.conditions()) {
        Some(held) => drop(conditions::set(list, held, seen.now)),
        None => drop(conditions::remove(list, types::HELD)),
    }
    let draining = Condition {
        reason: reason.to_owned(),
        message: plan.message.clone(),
        ..true_condition(types::DRAINING)
    };
    conditions::set(list, draining, seen.now);
    // A binding that is being deleted is never Ready.
    let severity = if plan.stuck { Severity::Error } else { Severity::Info };
    conditions::set(
        list,
        false_condition(conditions::READY, severity, reason, &plan.message),
        seen.now,
    );
    status.bound_schemas = seen.bound();
    if let Some(listed) = &plan.listed {
        status.permission_claims.clone_from(listed);
    }
    status
}

/// Returns the fields of the status that have to be written; `None` if the status is unchanged.
pub fn changes(before: Option<&APIServiceBindingStatus>, after: &APIServiceBindingStatus) -> Option<Value> {
    let default = APIServiceBindingStatus::default();
    let before = before.unwrap_or(&default);
    (before != after).then(|| status_changes(before, after))
}

/// Whether two statuses differ in nothing but the messages of conditions and the list of retained copies.
pub fn is_mere_progress(before: Option<&APIServiceBindingStatus>, after: &APIServiceBindingStatus) -> bool {
    let unsaid = |status: &APIServiceBindingStatus| {
        let mut status = status.clone();
        status.retained = None;
        status
            .conditions
            .iter_mut()
            .for_each(|condition| condition.message.clear());
        status
    };
    before.is_some_and(|before| before != after && unsaid(before) == unsaid(after))
}

/// Returns the conditions that the export on the provider gets.
pub fn export_report(seen: &ObservedBinding, status: &APIServiceBindingStatus, plan: &BindingPlan) -> ExportReport {
    let connected = match plan.refused() {
        None => true_condition("Connected"),
        Some((_, message)) => false_condition("Connected", Severity::Warning, "BoundSchemasNotValid", message),
    };
    let repeated = sync::refused_by_provider(seen);
    let is_repeated = |condition: &Condition| {
        let is_same = |said: &Condition| (&said.reason, &said.message) == (&condition.reason, &condition.message);
        repeated.as_ref().is_some_and(is_same)
    };
    let in_sync = match conditions::get(&status.conditions, types::SCHEMA_IN_SYNC) {
        // A change that the provider itself refuses does not concern the consumer.
        Some(condition) if is_repeated(condition) => true_condition("ConsumerInSync"),
        Some(condition) => Condition {
            type_: "ConsumerInSync".to_owned(),
            ..condition.clone()
        },
        None => false_condition("ConsumerInSync", Severity::Info, "Unknown", ""),
    };
    ExportReport {
        connected,
        consumer_in_sync: in_sync,
    }
}

/// Sets the fields of the status that are no conditions.
fn facts(seen: &ObservedBinding, plan: &BindingPlan, status: &mut APIServiceBindingStatus) {
    status.bound_schemas = seen.bound();
    if let Some(retained) = retained::listed(seen) {
        status.retained = Some(retained).filter(|retained| retained.count > 0);
    }
    let (Some(session), ContractAccess::Reached(_)) = (&seen.session, &seen.access) else {
        return;
    };
    status.contract_uid = Some(session.contract_uid.to_string());
    status.provider_namespace = Some(session.contract.to_string());
    if let Some(name) = &session.pretty_name {
        status.provider_pretty_name = Some(name.clone());
    }
    if let Some(claims) = &plan.claims {
        status.permission_claims.clone_from(&claims.listed);
        status.claim_namespaces.clone_from(&claims.namespaces.listed);
    }
}

#[cfg(test)]
#[path = "tests/status.rs"]
mod tests;
