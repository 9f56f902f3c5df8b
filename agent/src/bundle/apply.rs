//! Takes the steps that were decided. Nothing here decides.

use bindery_api::{
    Conditions as _,
    v1alpha2::{API_VERSION, APIServiceBinding, APIServiceBindingBundle, APIServiceBindingBundleStatus},
};
use bindery_runtime::errors;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::json;

use super::{
    Controller,
    plan::Op,
    status::{self, Failures},
};
use crate::{
    binding::{left, resource::is_owned, status as binding_status},
    rights,
};

/// What did not work.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// What was refused, by names of exports.
    pub(super) failures: Failures,
    /// Somebody else was quicker in one of them: the cache will show it.
    pub(super) is_stale: bool,
}

impl Controller {
    /// Takes the steps. One that fails keeps no other from being taken.
    pub(super) async fn apply(&self, bundle: &APIServiceBindingBundle, ops: Vec<Op>) -> Outcome {
        let mut outcome = Outcome::default();
        for op in ops {
            if let Op::Delete {
                binding, unused: true, ..
            } = &op
            {
                match self.has_objects(binding).await {
                    Ok(false) => {}
                    // They will be counted.
                    Ok(true) => {
                        outcome.is_stale = true;
                        continue;
                    }
                    Err(error) => {
                        let message = format!("its objects cannot be listed: {}", errors::explain(&error));
                        outcome.failures.insert(binding.export_name().to_owned(), message);
                        continue;
                    }
                }
            }
            let (export, verb) = match &op {
                Op::Create(binding) => (binding.export_name().to_owned(), "create"),
                Op::Patch { export, .. } => (export.clone(), "patch"),
                Op::Delete { binding, .. } => (binding.export_name().to_owned(), "delete"),
            };
            match self.step(bundle, op).await {
                Ok(()) => {}
                Err(error) if errors::code(&error) == Some(409) => outcome.is_stale = true,
                Err(error) => {
                    let mend = if errors::is_forbidden(&error) {
                        let rule = rights::rule("kube-bind.io", &["apiservicebindings"], &[verb]);
                        format!("; the konnector needs {rule}")
                    } else {
                        String::new()
                    };
                    let message = format!("cannot {verb} its binding: {}{mend}", errors::explain(&error));
                    outcome.failures.insert(export, message);
                }
            }
        }
        outcome
    }

    /// Whether a binding that is about to end without objects has some after all.
    async fn has_objects(&self, binding: &APIServiceBinding) -> Result<bool, kube::Error> {
        let consumer = &self.common.consumer;
        for crd in consumer.crds.list(|crd| is_owned(crd, binding)) {
            if left::any(&consumer.clients.write, &crd).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn step(&self, bundle: &APIServiceBindingBundle, op: Op) -> Result<(), kube::Error> {
        let api: Api<APIServiceBinding> = Api::all(self.common.consumer.clients.write.clone());
        let (recorder, metrics) = (&self.common.recorder, &self.common.metrics);
        match op {
            Op::Create(binding) => {
                let (name, export) = (binding.name_any(), binding.export_name().to_owned());
                api.create(&PostParams::default(), &binding).await?;
                tracing::info!(bundle = bundle.name_any(), export, binding = name, "export is bound");
                metrics.bundle_binding("created");
                let message = format!("APIServiceExport {export} is bound by APIServiceBinding {name}");
                recorder.normal(&reference(bundle), "Bound", message);
            }
            Op::Patch { name, patch, .. } => {
                api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
            Op::Delete { binding, why, .. } => {
                let name = binding.name_any();
                let params = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: binding.metadata.uid.clone(),
                        resource_version: binding.metadata.resource_version.clone(),
                    }),
                    ..DeleteParams::default()
                };
                match api.delete(&name, &params).await {
                    Err(error) if errors::is_object_gone(&error, &name) => return Ok(()),
                    deleted => drop(deleted?),
                }
                tracing::info!(bundle = bundle.name_any(), binding = name, why, "binding ends");
                metrics.bundle_binding("deleted");
                let message = format!("APIServiceBinding {name} ends: {why}");
                recorder.normal(&reference(bundle), "Unbound", message);
            }
        }
        Ok(())
    }

    /// Writes a status where it differs, and tells of conditions that turned; whether it was written.
    pub(super) async fn write_status(
        &self,
        bundle: &APIServiceBindingBundle,
        status: &APIServiceBindingBundleStatus,
        now: Timestamp,
    ) -> Result<bool, kube::Error> {
        let Some(mut patch) = status::patch(bundle.status.as_ref(), status, now) else {
            return Ok(false);
        };
        patch["metadata"] = json!({
            "uid": bundle.metadata.uid, "resourceVersion": bundle.metadata.resource_version,
        });
        let api: Api<APIServiceBindingBundle> = Api::all(self.common.consumer.clients.write.clone());
        api.patch_status(&bundle.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        let turned = binding_status::turned(bundle.conditions(), &status.conditions);
        self.common.recorder.turned(&reference(bundle), turned);
        Ok(true)
    }
}

/// The bundle, for events about it.
fn reference(bundle: &APIServiceBindingBundle) -> ObjectReference {
    ObjectReference {
        api_version: Some(API_VERSION.to_owned()),
        kind: Some("APIServiceBindingBundle".to_owned()),
        name: bundle.metadata.name.clone(),
        uid: bundle.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}
