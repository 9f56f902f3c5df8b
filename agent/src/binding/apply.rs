//! Takes the steps that were decided. Nothing here decides.

use std::{sync::Arc, time::Duration};

use bindery_api::{
    Conditions as _, annotations, finalizers, names,
    v1alpha2::{API_VERSION, APIServiceBinding, APIServiceBindingStatus, PermissionClaim},
};
use bindery_proto::v1alpha2::DeleteExportRequest;
use bindery_runtime::{backoff::Backoff, errors};
use k8s_openapi::{
    api::{
        core::v1::{ObjectReference, Secret},
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{
    Controller, Key, left,
    observe::{self, EngineSpec},
    plan::Op,
    runtime::Runtime,
    status::{self, Failure, Failures},
};
use crate::{
    attempt::Attempt,
    bound::{Engine, Target},
    claims::Cleanup,
    connection::Sides,
    engine::{Deletions, Surroundings},
    release::Releaser,
    rights,
    session::{Session, secret},
};

/// How long the provider may take to see an export gone, within one call.
const DELETE_WAIT_SECONDS: i64 = 10;
const CRDS: &str = "customresourcedefinitions";
const CRD_GROUP: &str = "apiextensions.k8s.io";

/// What did not work.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Writes of CRDs that were refused.
    pub failures: Failures,
    /// Any other write that failed, in words.
    pub problem: Option<String>,
    /// All that was wrong is that somebody else was quicker.
    pub is_stale: bool,
}

impl Outcome {
    fn fail(&mut self, error: &kube::Error) {
        self.is_stale = errors::code(error) == Some(409) && (self.is_stale || self.problem.is_none());
        self.problem = Some(errors::explain(error));
    }
}

impl Controller {
    /// Takes the steps in their order. One that fails keeps no other CRD from being written.
    pub(super) async fn apply(&self, binding: &APIServiceBinding, ops: Vec<Op>, runtime: &mut Runtime) -> Outcome {
        let mut outcome = Outcome::default();
        for op in ops {
            let (name, reason, verb) = match &op {
                Op::CreateCrd(crd) => (crd.name_any(), "CustomResourceDefinitionCreateFailed", "create"),
                Op::PatchCrd { name, .. } => (name.clone(), "CustomResourceDefinitionUpdateFailed", "patch"),
                Op::DeleteCrd { name, .. } if self.keeps_objects(name, &mut outcome).await => return outcome,
                _ => match self.step(binding, op, runtime).await {
                    Ok(()) => continue,
                    Err(error) => {
                        outcome.fail(&error);
                        // Later steps rest on this one.
                        return outcome;
                    }
                },
            };
            if let Err(error) = self.step(binding, op, runtime).await {
                // Somebody else was quicker: the cache will show what is there.
                if errors::code(&error) == Some(409) {
                    outcome.fail(&error);
                    continue;
                }
                let mend = if errors::is_forbidden(&error) {
                    format!("; the konnector needs {}", rights::rule(CRD_GROUP, &[CRDS], &[verb]))
                } else {
                    String::new()
                };
                let message = format!("cannot {verb} CRD {name}: {}{mend}", errors::explain(&error));
                outcome.failures.insert(name, Failure { reason, message });
            }
        }
        outcome
    }

    /// Whether a CRD that is about to go has objects after all, or that cannot be told: then it stays for now.
    async fn keeps_objects(&self, name: &str, outcome: &mut Outcome) -> bool {
        let Some(crd) = self.consumer.crds.get("", name) else {
            return false;
        };
        match left::any(&self.consumer.clients.write, &crd).await {
            Ok(false) => false,
            Ok(true) => {
                outcome.is_stale = true;
                outcome.problem = Some(format!("CRD {name} has objects that were not seen yet"));
                true
            }
            Err(error) => {
                outcome.fail(&error);
                true
            }
        }
    }

    async fn step(&self, binding: &APIServiceBinding, op: Op, runtime: &mut Runtime) -> Result<(), kube::Error> {
        let key = Key::Binding(binding.name_any().into());
        match op {
            Op::SetFinalizer => self.set_finalizer(binding, true).await?,
            Op::ClearFinalizer => self.set_finalizer(binding, false).await?,
            Op::CreateCrd(crd) => {
                let params = PostParams::default();
                self.crds().create(&params, &crd).await?;
            }
            Op::PatchCrd { name, patch } => {
                self.crds()
                    .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                    .await?;
            }
            Op::DeleteCrd { name, uid } => delete(&self.crds(), &name, Some(uid)).await?,
            Op::StartEngine { name, spec } => {
                if let Some(session) = runtime.session().cloned() {
                    let deletions = runtime.deletions(&self.queue, &key);
                    let engine = self.engine(binding, &session, &spec, deletions);
                    runtime.run(name, spec, engine, &self.queue, &key);
                }
            }
            Op::StopEngine { name } => runtime.stop(&name),
            Op::DrainEngine { name } => runtime.drain(&name),
            Op::Pause(paused) => runtime.pause(paused),
            Op::StopDeletion => runtime.stop_deletion(),
            Op::AcceptClaims(claims) => self.accept_claims(binding, &claims).await?,
            Op::Claim(spec) => runtime.claim(&binding.name_any(), *spec, &self.queue, &key),
            Op::Unclaim => runtime.unclaim(),
            Op::Cleanup {
                contract_uid,
                resources,
            } => {
                let list = resources.iter().cloned().collect();
                let cleanup = Cleanup::start(&self.consumer.clients, &contract_uid, list);
                runtime.clean_up(resources, cleanup, &self.queue, &key);
            }
            Op::StopCleanup => runtime.stop_cleanup(),
            Op::StartReleaser { name, mode } => {
                let crd = self.consumer.crds.get("", &name);
                if let Some(releaser) = crd.and_then(|crd| Releaser::start(&self.consumer.clients, &crd, mode)) {
                    runtime.release(name, releaser, &self.queue, &key);
                }
            }
            Op::StopReleaser { name } => runtime.stop_release(&name),
            Op::DeleteExport { uid, force } => {
                if let Some(session) = runtime.session().cloned() {
                    let attempt = delete_export(
                        &session,
                        binding.export_name().to_owned(),
                        uid,
                        force,
                        self.settings.polling_interval,
                    );
                    runtime.deleting(attempt, &self.queue, &key);
                }
            }
            Op::DeleteStored { contract_uid } => self.delete_stored(&contract_uid).await?,
            Op::DeleteRoles => self.delete_roles(binding).await?,
        }
        Ok(())
    }

    fn crds(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.consumer.clients.write.clone())
    }

    fn engine(
        &self,
        binding: &APIServiceBinding,
        session: &Session,
        spec: &EngineSpec,
        deletions: Arc<Deletions>,
    ) -> Engine {
        let contract = session.contract();
        let target = Target {
            binding: binding.name_any().into(),
            contract: Arc::clone(&contract.namespace),
            export: observe::owner(&spec.export.0, &spec.export.1),
            since: spec.since,
            resource: spec.resource.clone(),
            placement: spec.placement.clone(),
            informer_scope: spec.informer_scope,
            last_wins: spec.last_wins,
            adoption: self.settings.adoption,
            home: Arc::clone(&self.consumer.home),
        };
        let sides = Sides {
            consumer: self.consumer.clients.clone(),
            provider: session.clients().clone(),
        };
        let around = Surroundings {
            namespaces: session.namespaces().clone(),
            consumer_namespaces: self.consumer.namespaces.clone(),
            recorder: self.recorder.clone(),
            metrics: Arc::clone(&self.sync_metrics),
            budget: session.budget().clone(),
        };
        Engine::start(target, sides, around, deletions, session.claims().references())
    }

    async fn set_finalizer(&self, binding: &APIServiceBinding, wanted: bool) -> Result<(), kube::Error> {
        let mut list: Vec<_> = binding.finalizers().to_vec();
        list.retain(|finalizer| finalizer != finalizers::KONNECTOR);
        if wanted {
            list.push(finalizers::KONNECTOR.to_owned());
        }
        let patch = json!({"metadata": {
            "uid": binding.metadata.uid, "resourceVersion": binding.metadata.resource_version, "finalizers": list,
        }});
        let api: Api<APIServiceBinding> = Api::all(self.consumer.clients.write.clone());
        match api
            .patch(&binding.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            Err(error) if !wanted && errors::is_object_gone(&error, &binding.name_any()) => Ok(()),
            patched => patched.map(|_| ()),
        }
    }

    async fn accept_claims(&self, binding: &APIServiceBinding, claims: &[PermissionClaim]) -> Result<(), kube::Error> {
        let record = serde_json::to_string(claims).map_err(kube::Error::SerdeError)?;
        let patch = json!({"metadata": {
            "uid": binding.metadata.uid, "resourceVersion": binding.metadata.resource_version,
            "annotations": {annotations::ACCEPTED_CLAIMS: record},
        }});
        let api: Api<APIServiceBinding> = Api::all(self.consumer.clients.write.clone());
        api.patch(&binding.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(|_| ())
    }

    /// Writes a status where it differs, and tells of conditions that turned; whether it was written.
    pub(super) async fn write_status(
        &self,
        binding: &APIServiceBinding,
        status: &APIServiceBindingStatus,
    ) -> Result<bool, kube::Error> {
        let Some(mut patch) = status::patch(binding.status.as_ref(), status) else {
            return Ok(false);
        };
        patch["metadata"] = json!({
            "uid": binding.metadata.uid, "resourceVersion": binding.metadata.resource_version,
        });
        let api: Api<APIServiceBinding> = Api::all(self.consumer.clients.write.clone());
        api.patch_status(&binding.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        self.tell(binding, status);
        Ok(true)
    }

    fn tell(&self, binding: &APIServiceBinding, status: &APIServiceBindingStatus) {
        let object = reference(binding);
        self.recorder
            .turned(&object, status::turned(binding.conditions(), &status.conditions));
    }

    /// Deletes the konnector's own Secret of a contract, and no other.
    pub(super) async fn delete_stored(&self, contract_uid: &str) -> Result<(), kube::Error> {
        let home = &self.consumer.home;
        let name = secret::name(contract_uid);
        let existing = self.consumer.secrets.get(home, &name);
        let Some(existing) = existing.filter(|existing| secret::is_ours(existing, contract_uid)) else {
            return Ok(());
        };
        let api: Api<Secret> = Api::namespaced(self.consumer.clients.write.clone(), home);
        delete(&api, &name, existing.metadata.uid.clone()).await
    }

    /// Deletes the role that was made for the binding. Its ClusterRoleBinding is owned by it and goes with it: without the
    /// one, the konnector may not delete the other any more, and what is left would stay if it were killed in between.
    async fn delete_roles(&self, binding: &APIServiceBinding) -> Result<(), kube::Error> {
        let name = names::konnector_cluster_role(&binding.name_any());
        let client = &self.consumer.clients.write;
        let roles: Api<ClusterRole> = Api::all(client.clone());
        let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
        for outcome in [delete(&roles, &name, None).await, delete(&bindings, &name, None).await] {
            match outcome {
                // It has gone, goes by itself, or was never made for this konnector to delete.
                Err(error) if errors::is_forbidden(&error) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

/// The binding, for events about it.
pub(super) fn reference(binding: &APIServiceBinding) -> ObjectReference {
    ObjectReference {
        api_version: Some(API_VERSION.to_owned()),
        kind: Some("APIServiceBinding".to_owned()),
        name: binding.metadata.name.clone(),
        uid: binding.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

async fn delete<K>(api: &Api<K>, name: &str, uid: Option<String>) -> Result<(), kube::Error>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = DeleteParams {
        preconditions: uid.map(|uid| Preconditions {
            uid: Some(uid),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        // Gone, or another one lives under the name.
        Err(error) if errors::is_object_gone(&error, name) || errors::is_conflict(&error) => Ok(()),
        deleted => deleted.map(|_| ()),
    }
}

/// Asks the provider to delete an export, until it has taken that.
fn delete_export(
    session: &Arc<Session>,
    name: String,
    uid: String,
    force: bool,
    pause_max: Duration,
) -> Attempt<(), String> {
    let credential = session.credential().clone();
    let request = DeleteExportRequest {
        contract: session.contract().namespace.to_string(),
        name,
        uid,
        allow_missing: true,
        force,
        wait: Some(prost_types::Duration {
            seconds: DELETE_WAIT_SECONDS,
            nanos: 0,
        }),
        ..DeleteExportRequest::default()
    };
    Attempt::start(
        Backoff::new(Duration::from_millis(250).min(pause_max), pause_max),
        move || {
            let (credential, request) = (credential.clone(), request.clone());
            async move {
                let client = credential.backend().ok_or("the kubeconfig names no usable backend")?;
                let answer = client.delete_export(request).await.map_err(|error| error.to_string())?;
                let meta = answer.export.map(|export| export.metadata.unwrap_or_default());
                match meta {
                    Some(meta) if meta.deletion_timestamp.is_none() => {
                        Err(format!("{} objects are left there", answer.remaining_objects))
                    }
                    _ => Ok(()),
                }
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_conflicts_alone_are_no_matter() {
        let check = |codes: &[u16], expect: bool| {
            let mut outcome = Outcome::default();
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
