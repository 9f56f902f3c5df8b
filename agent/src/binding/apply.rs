//! Takes the steps of a plan for a binding. The plan decides; this module only writes.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc};

use bindery_api::{
    Condition, Conditions as _, annotations, conditions, finalizers, names,
    v1alpha2::{APIServiceBinding, APIServiceBindingStatus, PermissionClaim},
};
use bindery_runtime::{errors, preconditions::same_uid};
use k8s_openapi::{
    api::{
        core::v1::Secret,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{
    claims::recorded_namespaces,
    controller::BindingController,
    export_deletion,
    observed::EngineSpec,
    op::BindingOp,
    retained,
    runtime::BindingRuntime,
    status::{self, CrdFailure, CrdFailures},
};
use crate::{
    bound::{Engine, Target},
    controller::{
        conditions::turned,
        crd_objects,
        ownership::{orphans_crd, owns_crd},
    },
    drain::Drain,
    engine::Deletions,
    patch, rights,
    session::{Session, credential_secret},
};

const CRDS: &str = "customresourcedefinitions";
const CRD_GROUP: &str = "apiextensions.k8s.io";
/// Reason of the event about an order for a retained copy that cannot be carried out.
const REFUSED: &str = "RetentionOrderRefused";

/// The failures of the steps of a plan.
#[derive(Debug, Default)]
pub(super) struct ApplyOutcome {
    /// Refused writes of CRDs, by name of the CRD.
    pub(super) failures: CrdFailures,
    /// The last other write that failed.
    pub(super) problem: Option<String>,
    /// Whether all failures were conflicts with another writer.
    pub(super) is_stale: bool,
}

impl ApplyOutcome {
    /// Notes a failed write that is not about a CRD, or a conflict.
    fn fail(&mut self, error: &kube::Error) {
        self.is_stale = errors::code(error) == Some(409) && (self.is_stale || self.problem.is_none());
        self.problem = Some(errors::explain(error));
    }
}

impl BindingController {
    /// Takes the steps in their order. A failed write of a CRD does not stop the steps; any other failure does.
    pub(super) async fn apply(
        &self,
        binding: &APIServiceBinding,
        ops: Vec<BindingOp>,
        runtime: &mut BindingRuntime,
    ) -> ApplyOutcome {
        let mut outcome = ApplyOutcome::default();
        for op in ops {
            let (name, reason, verb) = match &op {
                BindingOp::CreateCrd(crd) => (crd.name_any(), "CustomResourceDefinitionCreateFailed", "create"),
                BindingOp::PatchCrd { name, .. } => (name.clone(), "CustomResourceDefinitionUpdateFailed", "patch"),
                BindingOp::DeleteCrd { name, .. } if self.still_has_objects(name, &mut outcome).await => {
                    return outcome;
                }
                BindingOp::RemoveFinalizer if self.still_owns_crds(binding, runtime, &mut outcome).await => {
                    return outcome;
                }
                _ => match self.step(binding, op, runtime).await {
                    Ok(()) => continue,
                    Err(error) => {
                        outcome.fail(&error);
                        // Later steps depend on this one.
                        return outcome;
                    }
                },
            };
            if let Err(error) = self.step(binding, op, runtime).await {
                // Another writer was quicker: the cache will show what it wrote.
                if errors::code(&error) == Some(409) {
                    outcome.fail(&error);
                    continue;
                }
                let message = rights::refused(&error, &format!("CRD {name}"), CRD_GROUP, CRDS, verb);
                outcome.failures.insert(name, CrdFailure { reason, message });
            }
        }
        outcome
    }

    /// Whether a CRD that is to be deleted still has objects, or may have. It is kept then.
    async fn still_has_objects(&self, name: &str, outcome: &mut ApplyOutcome) -> bool {
        let consumer = &self.context.consumer;
        let Some(crd) = consumer.crds.get("", name) else {
            return false;
        };
        match crd_objects::any(&consumer.clients.write, &crd).await {
            Ok(false) => false,
            Ok(true) => {
                outcome.is_stale = true;
                outcome.problem = Some(format!("CRD {name} has objects that the watch has not shown yet"));
                true
            }
            Err(error) => {
                outcome.fail(&error);
                true
            }
        }
    }

    /// Whether a binding that ends has a CRD that the cache does not show, as after a restore of the cluster, or may have one. The garbage
    /// collector would end that CRD after the binding, and the objects of the CRD would keep the konnector's finalizer for ever. A CRD whose
    /// objects were let go may end after the binding: a user who first deleted the binding with propagation policy Orphan, and then with
    /// another one, wants that.
    async fn still_owns_crds(
        &self,
        binding: &APIServiceBinding,
        runtime: &BindingRuntime,
        outcome: &mut ApplyOutcome,
    ) -> bool {
        let crds: Api<CustomResourceDefinition> = Api::all(self.context.consumer.clients.write.clone());
        let mut names = self
            .needed_crds
            .lock()
            .get(&*binding.name_any())
            .cloned()
            .unwrap_or_default();
        names.extend(
            binding
                .status
                .iter()
                .flat_map(|status| &status.bound_schemas)
                .map(names::bound_schema),
        );
        for name in names.iter().filter(|name| !runtime.has_let_go(name)) {
            match crds.get_opt(name).await {
                Ok(Some(crd)) if owns_crd(binding, &crd) && !orphans_crd(binding, &crd) => {
                    outcome.is_stale = true;
                    outcome.problem = Some(format!("the binding has CRD {name}, which the watch has not shown yet"));
                    return true;
                }
                Ok(_) => {}
                Err(error) => {
                    outcome.fail(&error);
                    return true;
                }
            }
        }
        false
    }

    /// Takes one step.
    async fn step(
        &self,
        binding: &APIServiceBinding,
        op: BindingOp,
        runtime: &mut BindingRuntime,
    ) -> Result<(), kube::Error> {
        let consumer = &self.context.consumer;
        let crds: Api<CustomResourceDefinition> = Api::all(consumer.clients.write.clone());
        match op {
            BindingOp::AddFinalizer => self.set_finalizer(binding, true).await?,
            BindingOp::RemoveFinalizer => self.set_finalizer(binding, false).await?,
            BindingOp::CreateCrd(crd) => drop(crds.create(&PostParams::default(), &crd).await?),
            BindingOp::PatchCrd { name, patch } => {
                let patch = Patch::Merge(patch);
                crds.patch(&name, &PatchParams::default(), &patch).await?;
            }
            BindingOp::DeleteCrd { name, uid } => delete(&crds, &name, Some(uid)).await?,
            BindingOp::StartEngine { name, spec } => {
                if let Some(session) = runtime.connection.session().cloned() {
                    let engine = self.engine(binding, &session, &spec, runtime.deletions());
                    runtime.run_engine(name, *spec, engine);
                }
            }
            BindingOp::StopEngine(name) => runtime.stop_engine(&name),
            BindingOp::DrainEngine(name) => runtime.drain_engine(&name),
            BindingOp::Pause(paused) => runtime.pause(paused),
            BindingOp::EndOrphans { action, message } => {
                self.remove_annotation(binding, annotations::END_ORPHANS).await?;
                runtime.end_orphans(&binding.name_any(), action);
                self.context
                    .recorder
                    .normal(&binding.object_ref(&()), "OrphansEnding", message);
            }
            BindingOp::RefuseOrphanOrder { message } => {
                self.remove_annotation(binding, annotations::END_ORPHANS).await?;
                self.context
                    .recorder
                    .warn(&binding.object_ref(&()), "OrphanOrderRefused", message);
            }
            BindingOp::AcceptHolder { order, message } => {
                self.remove_annotation(binding, annotations::ACCEPT_HOLDER).await?;
                if let Some(session) = runtime.connection.session() {
                    session.order_holder(order);
                }
                self.context
                    .recorder
                    .normal(&binding.object_ref(&()), "HolderAccepted", message);
            }
            BindingOp::RefuseHolder { message } => {
                self.remove_annotation(binding, annotations::ACCEPT_HOLDER).await?;
                self.context
                    .recorder
                    .warn(&binding.object_ref(&()), "HolderOrderRefused", message);
            }
            BindingOp::EndHolding => {
                if let Some(session) = runtime.connection.session() {
                    session.end_holding();
                }
            }
            BindingOp::EndRetention(order) => {
                self.remove_annotation(binding, annotations::END_RETENTION).await?;
                let (recorder, object) = (&self.context.recorder, binding.object_ref(&()));
                match runtime.end_retention(&order) {
                    Ok(()) => recorder.normal(&object, "RetentionEnding", retained::ending(&order)),
                    Err(error) => recorder.warn(&object, REFUSED, retained::refused(&order, error)),
                }
            }
            BindingOp::RefuseRetentionOrder { message } => {
                self.remove_annotation(binding, annotations::END_RETENTION).await?;
                self.context.recorder.warn(&binding.object_ref(&()), REFUSED, message);
            }
            BindingOp::AcceptClaims(claims) => self.accept_claims(binding, &claims).await?,
            BindingOp::SetClaims(spec) => runtime.set_claims(&binding.name_any(), *spec),
            BindingOp::RemoveClaims => runtime.remove_claims(),
            BindingOp::StartCleanup {
                contract_uid,
                resources,
            } => {
                let list = resources.iter().cloned().collect();
                let namespaces = recorded_namespaces(binding);
                let cleanup = Drain::of_copies(&consumer.clients, &contract_uid, list, namespaces.as_ref());
                runtime.run_cleanup(resources, cleanup);
            }
            BindingOp::StopCleanup => runtime.stop_cleanup(),
            BindingOp::StartReleaser { name, mode } => {
                let crd = consumer.crds.get("", &name);
                if let Some(releaser) = crd.and_then(|crd| Drain::of_crd(&consumer.clients, binding, &crd, mode)) {
                    runtime.run_releaser(name, releaser);
                }
            }
            BindingOp::StopReleaser(name) => runtime.stop_releaser(&name),
            BindingOp::DeleteExport { uid, force } => {
                if let Some(session) = runtime.connection.session() {
                    let (name, pause_max) = (binding.export_name().to_owned(), self.context.options.polling_interval);
                    let attempt = export_deletion::start(session, name, uid, force, pause_max);
                    runtime.run_export_deletion(attempt);
                }
            }
            BindingOp::StopExportDeletion => runtime.stop_export_deletion(),
            BindingOp::DeleteStoredCredential(contract_uid) => self.delete_stored_credential(&contract_uid).await?,
            BindingOp::DeleteRoles => self.delete_roles(binding).await?,
        }
        Ok(())
    }

    /// Starts an engine in a session.
    fn engine(
        &self,
        binding: &APIServiceBinding,
        session: &Session,
        spec: &EngineSpec,
        deletions: Arc<Deletions>,
    ) -> Engine {
        let context = &self.context;
        let target = Target {
            binding: binding.name_any().into(),
            contract: Arc::clone(&session.contract().namespace),
            export: spec.export.clone(),
            since: spec.since,
            installed: spec.installed,
            resource: spec.resource.clone(),
            placement: spec.placement.clone(),
            informer_scope: spec.informer_scope,
            last_wins: spec.last_wins,
            retention: spec.retention.clone(),
            adoption: context.options.adoption,
            own_namespace: Arc::clone(&context.consumer.namespace),
        };
        let (sides, around) = (session.sides().clone(), session.surroundings().clone());
        Engine::start(target, sides, around, deletions, session.claims().references())
    }

    /// The bindings of the consumer cluster.
    fn bindings(&self) -> Api<APIServiceBinding> {
        Api::all(self.context.consumer.clients.write.clone())
    }

    /// Patches the metadata of a binding.
    async fn patch_binding(&self, name: &str, patch: Value) -> Result<(), kube::Error> {
        let patch = Patch::Merge(patch);
        let patched = self.bindings().patch(name, &PatchParams::default(), &patch).await;
        patched.map(drop)
    }

    /// Adds or removes the konnector's finalizer.
    async fn set_finalizer(&self, binding: &APIServiceBinding, wanted: bool) -> Result<(), kube::Error> {
        let mut list: Vec<_> = binding.finalizers().to_vec();
        list.retain(|finalizer| finalizer != finalizers::KONNECTOR);
        if wanted {
            list.push(finalizers::KONNECTOR.to_owned());
        }
        let mut patch = patch::unchanged(&binding.metadata);
        patch["metadata"]["finalizers"] = json!(list);
        let name = binding.name_any();
        match self.patch_binding(&name, patch).await {
            Err(error) if !wanted && errors::is_object_gone(&error, &name) => Ok(()),
            patched => patched,
        }
    }

    /// Records accepted claims in an annotation of the binding.
    async fn accept_claims(&self, binding: &APIServiceBinding, claims: &[PermissionClaim]) -> Result<(), kube::Error> {
        let record = serde_json::to_string(claims).map_err(kube::Error::SerdeError)?;
        let record = Map::from_iter([(annotations::ACCEPTED_CLAIMS.to_owned(), Value::String(record))]);
        let patch = patch::annotations(&binding.metadata, record);
        self.patch_binding(&binding.name_any(), patch).await
    }

    /// Removes a user's order, by the annotation that holds it. It is removed before it is carried out: a konnector that ends in between
    /// does nothing, and what the order is about is still shown.
    async fn remove_annotation(&self, binding: &APIServiceBinding, order: &str) -> Result<(), kube::Error> {
        let removed = Map::from_iter([(order.to_owned(), Value::Null)]);
        let patch = patch::annotations(&binding.metadata, removed);
        self.patch_binding(&binding.name_any(), patch).await
    }

    /// Writes the status of a binding if it differs, and publishes events for conditions that turned. Returns whether it
    /// was written.
    pub(super) async fn write_status(
        &self,
        binding: &APIServiceBinding,
        status: &APIServiceBindingStatus,
    ) -> Result<bool, kube::Error> {
        let Some(changes) = status::changes(binding.status.as_ref(), status) else {
            return Ok(false);
        };
        let patch = Patch::Merge(patch::status(&binding.metadata, changes));
        self.bindings()
            .patch_status(&binding.name_any(), &PatchParams::default(), &patch)
            .await?;
        let turned = turned(binding.conditions(), &status.conditions);
        let (recorder, object) = (&self.context.recorder, binding.object_ref(&()));
        recorder.turned(&object, turned);
        // An event about an orphan needs its namespace, which may be lost too.
        if let Some(told) = first_orphans(binding.conditions(), &status.conditions) {
            recorder.warn(&object, told.reason.clone(), told.message.clone());
        }
        Ok(true)
    }

    /// Deletes the konnector's own Secret with the credential of a contract. Foreign Secrets of that name are kept.
    pub(super) async fn delete_stored_credential(&self, contract_uid: &str) -> Result<(), kube::Error> {
        let consumer = &self.context.consumer;
        let name = credential_secret::name(contract_uid);
        let existing = consumer.secrets.get(&consumer.namespace, &name);
        let Some(existing) = existing.filter(|existing| credential_secret::is_ours(existing, contract_uid)) else {
            return Ok(());
        };
        let api: Api<Secret> = Api::namespaced(consumer.clients.write.clone(), &consumer.namespace);
        delete(&api, &name, existing.metadata.uid.clone()).await
    }

    /// Deletes the roles that were made for the binding: those of the namespaces that its claims concern, and at last the ClusterRole, which
    /// has the right to. Each role owns its grant, so the garbage collector deletes that even if the konnector is killed in between or may
    /// no longer delete it.
    async fn delete_roles(&self, binding: &APIServiceBinding) -> Result<(), kube::Error> {
        let name = names::konnector_cluster_role(&binding.name_any());
        let client = &self.context.consumer.clients.write;
        let roles: Api<ClusterRole> = Api::all(client.clone());
        let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
        let recorded = binding.status.iter().flat_map(|status| &status.claim_namespaces);
        let namespaces: BTreeSet<_> = binding.spec.claim_namespaces.iter().chain(recorded).collect();
        for namespace in namespaces {
            let roles: Api<Role> = Api::namespaced(client.clone(), namespace);
            let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
            delete_both(&roles, &bindings, &name).await?;
        }
        delete_both(&roles, &bindings, &name).await
    }
}

/// The condition that tells orphans, if there were none before.
fn first_orphans<'a>(before: &[Condition], after: &'a [Condition]) -> Option<&'a Condition> {
    let told = conditions::get(after, status::types::ORPHANED_OBJECTS)?;
    conditions::get(before, status::types::ORPHANED_OBJECTS)
        .is_none()
        .then_some(told)
}

/// Deletes a role and its grant of the same name, the grant also if the role could not be deleted. What this konnector may not delete is
/// left: it is gone, or the garbage collector or an admin deletes it.
async fn delete_both<R, B>(roles: &Api<R>, bindings: &Api<B>, name: &str) -> Result<(), kube::Error>
where
    R: Resource + Clone + DeserializeOwned + Debug,
    B: Resource + Clone + DeserializeOwned + Debug,
{
    for outcome in [delete(roles, name, None).await, delete(bindings, name, None).await] {
        match outcome {
            Err(error) if errors::is_forbidden(&error) => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Deletes an object by name, and by UID if one is given. An object that is gone or was replaced counts as deleted.
async fn delete<K>(api: &Api<K>, name: &str, uid: Option<String>) -> Result<(), kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let params = DeleteParams {
        preconditions: uid.map(same_uid),
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        // It is gone, or another object has its name.
        Err(error) if errors::is_object_gone(&error, name) || errors::is_conflict(&error) => Ok(()),
        deleted => deleted.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_conflicts_count_as_stale() {
        let check = |codes: &[u16], expect: bool| {
            let mut outcome = ApplyOutcome::default();
            for code in codes {
                let status = json!({"code": code, "message": "refused"});
                let status = serde_json::from_value(status).expect("a status");
                outcome.fail(&kube::Error::Api(Box::new(status)));
            }
            assert_eq!(outcome.is_stale, expect, "{codes:?}");
        };
        check(&[409], true);
        check(&[409, 409], true);
        check(&[500], false);
        check(&[409, 500], false);
        check(&[500, 409], false);
    }
}
