//! Conditions of a binding about schemas and objects.

use bindery_api::{
    Condition, Conditions as _, Severity, annotations,
    conditions::{false_condition, true_condition},
};

use super::{CrdFailures, types};
use crate::{
    binding::{
        crd::CrdState,
        observed::{ObservedBinding, ObservedEngine},
        orphans,
        plan::BindingPlan,
    },
    controller::conditions::SOURCES_MISSING,
    engine::{Cause, Problem},
    rights,
};

/// The condition of that type as the status holds it now.
pub(super) fn before(seen: &ObservedBinding, kind: &str) -> Option<Condition> {
    seen.binding.condition(kind).cloned()
}

/// The condition Active.
pub(super) fn active(seen: &ObservedBinding) -> Condition {
    if !seen.is_paused() {
        return true_condition(types::ACTIVE);
    }
    let message = format!(
        "the binding is paused by its annotation, so nothing is written on either cluster; to resume: kubectl annotate apiservicebinding {} {}-",
        seen.name(),
        annotations::PAUSED
    );
    false_condition(types::ACTIVE, Severity::Info, "Paused", message)
}

/// The condition SchemaInSync.
pub(super) fn schema_in_sync(seen: &ObservedBinding, plan: &BindingPlan, failures: &CrdFailures) -> Option<Condition> {
    let of = |severity, reason: &str, message: &str| false_condition(types::SCHEMA_IN_SYNC, severity, reason, message);
    if plan.states.is_empty() {
        let known = before(seen, types::SCHEMA_IN_SYNC).filter(|_| seen.export_is_gone());
        let session = seen.session.as_ref().filter(|_| seen.export().is_some());
        // Another binding may have opened the session already. A binding that was not started yet is not Ready.
        let is_new = session.is_some_and(|session| seen.pinned() != Some(&*session.contract_uid));
        let starting = || {
            of(
                Severity::Info,
                "Starting",
                "waiting for the contract to be recorded in the status of the binding",
            )
        };
        return known.or_else(|| is_new.then(starting));
    }
    if let Some(failure) = failures.values().next() {
        return Some(of(Severity::Error, failure.reason, &failure.message));
    }
    if let Some((reason, message)) = plan.refused() {
        return Some(of(Severity::Error, reason, message));
    }
    if let Some(change) = plan.refused_changes.values().next() {
        return Some(of(Severity::Warning, change.reason, &change.message));
    }
    let pending = plan.states.values().find_map(|state| match state {
        CrdState::Pending { reason, message } => Some((reason, message)),
        CrdState::Refused { .. } | CrdState::Usable(_) => None,
    });
    Some(match pending {
        Some((reason, message)) => of(Severity::Info, reason, message),
        None => refused_by_provider(seen).unwrap_or_else(|| true_condition(types::SCHEMA_IN_SYNC)),
    })
}

/// The condition SchemaInSync that the provider reports for a schema change that it could not pass on. A change that the
/// provider holds back on purpose is not reported.
pub(super) fn refused_by_provider(seen: &ObservedBinding) -> Option<Condition> {
    let said = seen.export()?.condition(types::SCHEMA_IN_SYNC)?;
    let is_fault = !said.is_true() && matches!(said.severity, Severity::Warning | Severity::Error);
    is_fault.then(|| false_condition(types::SCHEMA_IN_SYNC, said.severity, &said.reason, &said.message))
}

/// The condition InformersSynced.
pub(super) fn informers_synced(seen: &ObservedBinding) -> Option<Condition> {
    if seen.engines.is_empty() {
        return None;
    }
    let waiting = seen
        .engines
        .values()
        .find(|engine| !engine.progress.consumer_synced || !engine.progress.provider_synced);
    let Some(engine) = waiting else {
        return Some(unwatched(seen).unwrap_or_else(|| true_condition(types::INFORMERS_SYNCED)));
    };
    let resource = &engine.spec.resource;
    let Some(problem) = &engine.progress.problem else {
        let message = format!("waiting for the first lists of {resource}");
        return Some(false_condition(
            types::INFORMERS_SYNCED,
            Severity::Info,
            "InformersSyncing",
            message,
        ));
    };
    let mend = if engine.progress.consumer_synced {
        String::new()
    } else {
        mend(seen, engine, problem)
    };
    let message = format!("{resource}: {}{mend}", problem.message);
    Some(false_condition(
        types::INFORMERS_SYNCED,
        Severity::Error,
        "InformerSyncTimeout",
        message,
    ))
}

/// The condition InformersSynced after a right was taken away: what was listed is known, and changes are not seen any more.
fn unwatched(seen: &ObservedBinding) -> Option<Condition> {
    let mut engines = seen.engines.values();
    let (engine, problem) = engines.find_map(|engine| Some((engine, engine.progress.unwatched.as_ref()?)))?;
    let message = format!(
        "{}: {}; objects and their copies stay as they are, and changes are not seen{}",
        engine.spec.resource,
        problem.message,
        mend(seen, engine, problem)
    );
    Some(false_condition(
        types::INFORMERS_SYNCED,
        Severity::Error,
        problem.reason,
        message,
    ))
}

/// How the user gives a right that the konnector lacks on this cluster, to be appended; empty if it lacks none.
fn mend(seen: &ObservedBinding, engine: &ObservedEngine, problem: &Problem) -> String {
    if problem.cause != Cause::ConsumerForbids {
        return String::new();
    }
    let (role, resource) = (seen.rights_role(), &engine.spec.resource);
    format!("; {}", rights::bound_resource(&role, &resource.group, &resource.plural))
}

/// The condition ObjectsInSync.
pub(super) fn objects_in_sync(seen: &ObservedBinding) -> Option<Condition> {
    if seen.engines.is_empty() {
        return None;
    }
    // The message has no count, which would change with every object.
    let failing = seen.engines.values().find(|engine| engine.progress.failing > 0);
    Some(match failing {
        None => true_condition(types::OBJECTS_IN_SYNC),
        Some(engine) => {
            let problem = engine.progress.problem.as_ref();
            let problem = problem.map_or("see their events", |problem| problem.message.as_str());
            let message = format!("some {} are not in sync: {problem}", engine.spec.resource);
            false_condition(types::OBJECTS_IN_SYNC, Severity::Warning, "ObjectsFailing", message)
        }
    })
}

/// The condition OrphanedObjects; `None` if there are no orphans.
pub(super) fn orphaned_objects(seen: &ObservedBinding) -> Option<Condition> {
    let Some(found) = orphans::orphans(seen) else {
        // A restarted konnector has to list first.
        return before(seen, types::ORPHANED_OBJECTS);
    };
    (found.set.count > 0).then(|| Condition {
        reason: SOURCES_MISSING.to_owned(),
        message: orphans::message(seen, &found),
        ..true_condition(types::ORPHANED_OBJECTS)
    })
}
