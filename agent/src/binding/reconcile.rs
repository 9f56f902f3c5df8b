//! Brings one binding a step further: observe, plan, apply, report.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bindery_api::v1alpha2::APIServiceBinding;
use bindery_runtime::errors;
use kube::{Resource as _, ResourceExt as _};

use super::{
    apply::ApplyOutcome,
    claims,
    controller::BindingController,
    observed::ObservedBinding,
    op::BindingOp,
    plan,
    runtime::{BindingKey, BindingRuntime},
    status, unbind,
};
use crate::{controller::requeue::Requeue, session::credential_secret};

/// Pause before the next check whether the session of an unused contract has ended.
const SWEEP_PAUSE: Duration = Duration::from_secs(5);

impl BindingController {
    /// Reconciles a binding, or deletes what is kept of a contract that is not used any more.
    pub(super) async fn reconcile(&self, key: &BindingKey) -> Requeue {
        match key {
            BindingKey::Binding(name) => {
                let binding = self.context.consumer.bindings.get("", name);
                let is_ours = |binding: &Arc<APIServiceBinding>| self.context.other_konnectors.serves_binding(binding);
                let Some(binding) = binding.filter(is_ours) else {
                    if let Some(runtime) = self.runtimes.lock().remove(name) {
                        self.context.object_counts.forget(runtime.connection.uid());
                    }
                    self.needed_crds.lock().remove(name);
                    return Requeue::OnChange;
                };
                // The queue gives each key to one worker at a time, so no other worker misses the runtime.
                let uid = binding.metadata.uid.as_ref();
                let known = self.runtimes.lock().remove(name);
                let mut runtime = known
                    .filter(|runtime| runtime.connection.is_for(uid))
                    .unwrap_or_else(|| BindingRuntime::new(uid.cloned(), &self.queue, key));
                let requeue = self.reconcile_binding(&binding, &mut runtime, key).await;
                self.runtimes.lock().insert(Arc::clone(name), runtime);
                requeue
            }
            BindingKey::Contract(uid) => self.sweep_contract(uid).await,
        }
    }

    /// Brings a binding a step further: observe, plan, apply, report.
    async fn reconcile_binding(
        &self,
        binding: &Arc<APIServiceBinding>,
        runtime: &mut BindingRuntime,
        key: &BindingKey,
    ) -> Requeue {
        if runtime.has_ended() {
            return Requeue::OnChange;
        }
        let seen = self.observe(binding, runtime, key);
        if let Some(message) = claims::abandoned_copies(&seen) {
            self.context
                .recorder
                .warn(&binding.object_ref(&()), "CopiesLeftOnProvider", message);
        }
        if binding.metadata.deletion_timestamp.is_some() {
            return self.unbind(&seen, runtime).await;
        }
        let plan = plan::plan(&seen);
        let changes_binding = plan.ops.iter().any(|op| {
            use BindingOp::{
                AcceptClaims, AcceptHolder, AddFinalizer, EndOrphans, EndRetention, RefuseHolder, RefuseOrphanOrder,
                RefuseRetentionOrder,
            };
            matches!(
                op,
                AddFinalizer
                    | AcceptClaims(_)
                    | EndOrphans { .. }
                    | RefuseOrphanOrder { .. }
                    | EndRetention(_)
                    | RefuseRetentionOrder { .. }
                    | AcceptHolder { .. }
                    | RefuseHolder { .. }
            )
        });
        let outcome = self.apply(binding, plan.ops.clone(), runtime).await;
        log_failure(binding, &outcome, "binding not reconciled, will retry");
        // A changed binding is reconciled again with what it says then.
        if !changes_binding {
            let status = status::live(&seen, &plan, &outcome.failures);
            if let (Some(session), Some(_)) = (runtime.connection.session(), seen.export()) {
                let report = status::export_report(&seen, &status, &plan);
                session.reports().export(seen.export_name(), &report);
                for (name, crd) in seen.owned() {
                    session.reports().schema(name, crd);
                }
            }
            let progress = status::is_mere_progress(binding.status.as_ref(), &status);
            let write = self.write_status(binding, &status);
            if !runtime.connection.report(progress, write).await {
                return Requeue::WithBackoff;
            }
        }
        Requeue::after_failure(!outcome.failures.is_empty() || outcome.problem.is_some())
    }

    /// Brings the deletion of a binding a step further.
    async fn unbind(&self, seen: &ObservedBinding, runtime: &mut BindingRuntime) -> Requeue {
        let binding = &seen.binding;
        let mut plan = unbind::plan(seen);
        let ends = plan.ops.contains(&BindingOp::RemoveFinalizer);
        let outcome = self.apply(binding, std::mem::take(&mut plan.ops), runtime).await;
        if ends && outcome.problem.is_none() {
            runtime.end();
            tracing::info!(binding = binding.name_any(), "unbound");
            let (recorder, object) = (&self.context.recorder, binding.object_ref(&()));
            match &plan.provider_keeps {
                Some(message) => recorder.warn(&object, "ProviderKeepsExport", message.clone()),
                None if seen.keeps_copies() => recorder.normal(
                    &object,
                    "Unbound",
                    "the binding has no object here any more that is synced; the provider keeps its own, marked as released",
                ),
                None => recorder.normal(&object, "Unbound", "all objects of the binding are removed"),
            }
            return Requeue::OnChange;
        }
        log_failure(binding, &outcome, "binding not unbound, will retry");
        if let Some(problem) = outcome.problem.as_ref().filter(|_| !outcome.is_stale) {
            plan.message.clone_from(problem);
        }
        if !binding.finalizers().is_empty() && !plan.message.is_empty() {
            let status = status::unbinding(seen, &plan);
            let progress = status::is_mere_progress(binding.status.as_ref(), &status);
            let write = self.write_status(binding, &status);
            if !runtime.connection.report(progress, write).await {
                return Requeue::WithBackoff;
            }
        }
        Requeue::after_failure(outcome.problem.is_some())
    }

    /// Deletes the stored credential of a contract that no binding and no bundle is pinned to, and its record on the Lease if that is not
    /// needed any more.
    async fn sweep_contract(&self, contract_uid: &Arc<str>) -> Requeue {
        let consumer = &self.context.consumer;
        let used = self.used_contracts();
        if used.contains(&**contract_uid) {
            return Requeue::OnChange;
        }
        if self.context.sessions.is_open(contract_uid) {
            return Requeue::After(SWEEP_PAUSE);
        }
        self.context.sessions.tidy_holders(&used);
        let stored = consumer
            .secrets
            .get(&consumer.namespace, &credential_secret::name(contract_uid));
        if stored.is_none() {
            return Requeue::OnChange;
        }
        match self.delete_stored_credential(contract_uid).await {
            Ok(()) => Requeue::OnChange,
            Err(error) => {
                tracing::warn!(contract_uid = &**contract_uid, error = %errors::explain(&error), "unused credential not deleted");
                Requeue::WithBackoff
            }
        }
    }

    /// The contracts that a binding or a bundle is pinned to.
    fn used_contracts(&self) -> BTreeSet<String> {
        let consumer = &self.context.consumer;
        let (bindings, bundles) = (consumer.bindings.list(|_| true), consumer.bundles.list(|_| true));
        let of_bindings = bindings.iter().filter_map(|binding| binding.contract_uid());
        let of_bundles = bundles.iter().filter_map(|bundle| bundle.contract_uid());
        of_bindings.chain(of_bundles).map(str::to_owned).collect()
    }
}

/// Logs why the steps of a plan were not all taken. That another writer was quicker is expected.
fn log_failure(binding: &APIServiceBinding, outcome: &ApplyOutcome, what: &str) {
    match &outcome.problem {
        Some(problem) if outcome.is_stale => tracing::debug!(binding = binding.name_any(), problem, "{what}"),
        Some(problem) => tracing::warn!(binding = binding.name_any(), problem, "{what}"),
        None => {}
    }
}
