//! Takes the steps of a plan for a bundle. The plan decides; this module only writes.

use bindery_api::{
    Conditions as _,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle, APIServiceBindingBundleStatus},
};
use bindery_runtime::{errors, preconditions::unchanged};
use jiff::Timestamp;
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};

use super::{
    controller::BundleController,
    plan::BundleOp,
    status::{self, ExportFailures},
};
use crate::{
    controller::{conditions::turned, crd_objects, ownership::owns_crd},
    patch, rights,
};

/// The failures of the steps of a plan.
#[derive(Debug, Default)]
pub(super) struct ApplyOutcome {
    /// Messages of refused writes, by name of the export.
    pub(super) failures: ExportFailures,
    /// Whether a write conflicted with another writer, which the cache will show.
    pub(super) is_stale: bool,
}

impl BundleController {
    /// Takes the steps. A failed step does not stop the others.
    pub(super) async fn apply(&self, bundle: &APIServiceBindingBundle, ops: Vec<BundleOp>) -> ApplyOutcome {
        let mut outcome = ApplyOutcome::default();
        for op in ops {
            if let BundleOp::Delete {
                binding,
                only_unused: true,
                ..
            } = &op
            {
                match self.has_objects(binding).await {
                    Ok(false) => {}
                    // The objects will be counted.
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
                BundleOp::Create(binding) => (binding.export_name().to_owned(), "create"),
                BundleOp::Patch { export, .. } => (export.clone(), "patch"),
                BundleOp::Delete { binding, .. } => (binding.export_name().to_owned(), "delete"),
            };
            match self.step(bundle, op).await {
                Ok(()) => {}
                Err(error) if errors::code(&error) == Some(409) => outcome.is_stale = true,
                Err(error) => {
                    let message = rights::refused(&error, "its binding", "kube-bind.io", "apiservicebindings", verb);
                    outcome.failures.insert(export, message);
                }
            }
        }
        outcome
    }

    /// Asks the API server whether a binding that is to be deleted has objects.
    async fn has_objects(&self, binding: &APIServiceBinding) -> Result<bool, kube::Error> {
        let consumer = &self.context.consumer;
        for crd in consumer.crds.list(|crd| owns_crd(binding, crd)) {
            if crd_objects::any(&consumer.clients.write, &crd).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes one step.
    async fn step(&self, bundle: &APIServiceBindingBundle, op: BundleOp) -> Result<(), kube::Error> {
        let api: Api<APIServiceBinding> = Api::all(self.context.consumer.clients.write.clone());
        let (recorder, metrics) = (&self.context.recorder, &self.context.metrics);
        match op {
            BundleOp::Create(binding) => {
                let (name, export) = (binding.name_any(), binding.export_name().to_owned());
                api.create(&PostParams::default(), &binding).await?;
                tracing::info!(bundle = bundle.name_any(), export, binding = name, "export is bound");
                metrics.bundle_binding("created");
                let message = format!("APIServiceExport {export} is bound by APIServiceBinding {name}");
                recorder.normal(&bundle.object_ref(&()), "Bound", message);
            }
            BundleOp::Patch { name, patch, .. } => {
                api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
            BundleOp::Delete { binding, why, .. } => {
                let name = binding.name_any();
                let params = DeleteParams {
                    preconditions: Some(unchanged(&binding.metadata)),
                    ..DeleteParams::default()
                };
                match api.delete(&name, &params).await {
                    Err(error) if errors::is_object_gone(&error, &name) => return Ok(()),
                    deleted => drop(deleted?),
                }
                tracing::info!(bundle = bundle.name_any(), binding = name, why, "binding deleted");
                metrics.bundle_binding("deleted");
                let message = format!("APIServiceBinding {name} is deleted: {why}");
                recorder.normal(&bundle.object_ref(&()), "Unbound", message);
            }
        }
        Ok(())
    }

    /// Writes the status of a bundle if it differs, and publishes events for conditions that turned. Returns whether it was
    /// written.
    pub(super) async fn write_status(
        &self,
        bundle: &APIServiceBindingBundle,
        status: &APIServiceBindingBundleStatus,
        now: Timestamp,
    ) -> Result<bool, kube::Error> {
        let Some(changes) = status::changes(bundle.status.as_ref(), status, now) else {
            return Ok(false);
        };
        let patch = patch::status(&bundle.metadata, changes);
        let api: Api<APIServiceBindingBundle> = Api::all(self.context.consumer.clients.write.clone());
        api.patch_status(&bundle.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        let turned = turned(bundle.conditions(), &status.conditions);
        self.context.recorder.turned(&bundle.object_ref(&()), turned);
        Ok(true)
    }
}
