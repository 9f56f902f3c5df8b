//! Reports the state of exports and schemas on the consumer to the provider, as conditions there.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bindery_api::{
    Condition, Severity, conditions,
    v1alpha2::{APIServiceExport, BoundSchema, BoundSchemaStatus},
};
use bindery_runtime::{
    backoff::Backoff,
    errors,
    queue::{Priority, Queue},
};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{exports::ExportLookup, session_core::SessionCore};
use crate::patch;

/// Pauses between failed writes of a report.
const RETRY: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_mins(1));

/// The reports to write, one per export and schema.
#[derive(Debug, Default)]
pub struct StatusReports {
    queue: Queue<ReportSubject>,
    exports: Mutex<HashMap<Arc<str>, ExportReport>>,
    schemas: Mutex<HashMap<Arc<str>, Arc<CustomResourceDefinition>>>,
}

/// The export or schema that a report is about, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ReportSubject {
    Export(Arc<str>),
    Schema(Arc<str>),
}

/// The report about an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportReport {
    /// Whether a binding uses the export.
    pub connected: Condition,
    /// Whether the consumer's schemas match the provider's.
    pub consumer_in_sync: Condition,
}

impl StatusReports {
    /// Sets the report about an export, and queues it if it changed.
    pub fn export(&self, name: &str, report: &ExportReport) {
        let name: Arc<str> = name.into();
        let before = self.exports.lock().insert(Arc::clone(&name), report.clone());
        if before.as_ref() != Some(report) {
            self.queue.add(ReportSubject::Export(name), Priority::Live);
        }
    }

    /// Sets the CRD that a schema became on the consumer, and queues the schema if the CRD's status changed.
    pub fn schema(&self, name: &str, crd: &Arc<CustomResourceDefinition>) {
        let name: Arc<str> = name.into();
        let before = self.schemas.lock().insert(Arc::clone(&name), Arc::clone(crd));
        if before.is_none_or(|before| before.status != crd.status) {
            self.queue.add(ReportSubject::Schema(name), Priority::Live);
        }
    }

    /// Queues all reports, since exports or schemas changed on the provider.
    pub(super) fn requeue_all(&self) {
        for name in self.exports.lock().keys() {
            self.queue
                .add(ReportSubject::Export(Arc::clone(name)), Priority::Backlog);
        }
        for name in self.schemas.lock().keys() {
            self.queue
                .add(ReportSubject::Schema(Arc::clone(name)), Priority::Backlog);
        }
    }
}

/// Returns the patch that writes the report to an export; `None` if the export has it already.
pub fn export_patch(export: &APIServiceExport, report: &ExportReport, now: Timestamp) -> Option<Value> {
    let mut list = export
        .status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default();
    let mut changed = conditions::set(&mut list, report.connected.clone(), now);
    changed |= conditions::set(&mut list, report.consumer_in_sync.clone(), now);
    changed.then(|| patch::status(&export.metadata, json!({"conditions": list})))
}

/// Returns the patch that writes the status of a CRD to its schema; `None` if the schema has it already.
pub fn schema_patch(schema: &BoundSchema, crd: &CustomResourceDefinition, now: Timestamp) -> Option<Value> {
    let before = schema.status.clone().unwrap_or_default();
    let source = crd.status.clone().unwrap_or_default();
    let mut list = before.conditions.clone();
    for condition in source.conditions.unwrap_or_default() {
        if condition.type_ != conditions::READY {
            conditions::set(&mut list, from_crd(condition), now);
        }
    }
    conditions::set_summary(&mut list, now);
    let after = BoundSchemaStatus {
        // A CRD without accepted names was not processed by its API server yet.
        accepted_names: source
            .accepted_names
            .filter(|names| !names.plural.is_empty())
            .or_else(|| before.accepted_names.clone()),
        stored_versions: source.stored_versions.unwrap_or_else(|| before.stored_versions.clone()),
        instantiations: before.instantiations,
        conditions: list,
    };
    (after != before).then(|| patch::status(&schema.metadata, json!(after)))
}

/// Returns a condition of a CRD as a condition of its schema.
fn from_crd(
    condition: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionCondition,
) -> Condition {
    let status = condition.status.into();
    let severity = match status {
        bindery_api::ConditionStatus::True => Severity::None,
        _ => Severity::Error,
    };
    Condition {
        status,
        severity,
        reason: condition.reason.unwrap_or_default(),
        message: condition.message.unwrap_or_default(),
        ..conditions::true_condition(condition.type_)
    }
}

/// Writes queued reports until dropped.
pub(super) async fn run(core: Arc<SessionCore>) {
    while let Some(work) = core.reports.queue.next().await {
        match write(&core, work.key()).await {
            Ok(()) => drop(work),
            Err(error) => {
                tracing::debug!(subject = ?work.key(), error = %errors::explain(&error), "report not written");
                work.retry(RETRY);
            }
        }
    }
}

/// Writes one report if the provider does not have it already.
async fn write(core: &SessionCore, subject: &ReportSubject) -> Result<(), kube::Error> {
    // A contract that serves another cluster is not written to.
    if core.serves_other_cluster() {
        return Ok(());
    }
    let (client, namespace) = (core.sides.provider.write.clone(), &core.contract.namespace);
    let params = PatchParams::default();
    let (ReportSubject::Export(object) | ReportSubject::Schema(object)) = subject;
    let written = match subject {
        ReportSubject::Export(name) => {
            let report = core.reports.exports.lock().get(name).cloned();
            let (Some(report), ExportLookup::Present(export)) = (report, core.exports.get(name)) else {
                return Ok(());
            };
            let Some(patch) = export_patch(&export, &report, Timestamp::now()) else {
                return Ok(());
            };
            let api: Api<APIServiceExport> = Api::namespaced(client, namespace);
            api.patch_status(name, &params, &Patch::Merge(patch)).await.map(|_| ())
        }
        ReportSubject::Schema(name) => {
            let crd = core.reports.schemas.lock().get(name).cloned();
            let (Some(crd), Some(schema)) = (crd, core.schemas.get(namespace, name)) else {
                return Ok(());
            };
            let Some(patch) = schema_patch(&schema, &crd, Timestamp::now()) else {
                return Ok(());
            };
            let api: Api<BoundSchema> = Api::namespaced(client, namespace);
            api.patch_status(name, &params, &Patch::Merge(patch)).await.map(|_| ())
        }
    };
    match written {
        // The export or schema was deleted meanwhile.
        Err(error) if errors::is_object_gone(&error, object) => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::{
        Conditions as _,
        v1alpha2::{APIServiceExportSpec, BoundSchemaSpec},
    };

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn crd(established: bool) -> CustomResourceDefinition {
        serde_json::from_value(json!({
            "metadata": {"name": "cowboys.wildwest.dev"},
            "spec": {"group": "wildwest.dev", "scope": "Namespaced", "names": {"kind": "Cowboy", "plural": "cowboys"}, "versions": []},
            "status": {
                "acceptedNames": {"kind": "Cowboy", "plural": "cowboys"}, "storedVersions": ["v1"],
                "conditions": [{
                    "type": "Established", "status": if established { "True" } else { "False" },
                    "reason": "NotAccepted", "message": "names taken",
                }],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_schema_is_reported_once() {
        let mut schema = BoundSchema::new("cowboys.wildwest.dev", BoundSchemaSpec::default());
        let patch = schema_patch(&schema, &crd(false), NOW).expect("a patch");
        schema.status = Some(serde_json::from_value(patch["status"].clone()).unwrap());
        assert_eq!(schema_patch(&schema, &crd(false), NOW), None);
        let established = schema.condition("Established").unwrap();
        assert_eq!(
            (established.severity, established.message.as_str()),
            (Severity::Error, "names taken")
        );
        assert!(!schema.is_condition_true("Ready"));
        let patch = schema_patch(&schema, &crd(true), NOW).expect("a patch");
        schema.status = Some(serde_json::from_value(patch["status"].clone()).unwrap());
        assert!(schema.is_condition_true("Ready"));
    }

    #[test]
    fn an_export_is_reported_once_and_the_providers_conditions_stay() {
        let mut export = APIServiceExport::new("cowboys", APIServiceExportSpec::default());
        export.set_condition(conditions::true_condition("ProviderInSync"), NOW);
        let report = ExportReport {
            connected: conditions::true_condition("Connected"),
            consumer_in_sync: conditions::unknown_condition("ConsumerInSync", "Unknown", ""),
        };
        let patch = export_patch(&export, &report, NOW).expect("a patch");
        export.status = Some(serde_json::from_value(patch["status"].clone()).unwrap());
        assert!(export.is_condition_true("ProviderInSync"));
        assert_eq!(export_patch(&export, &report, NOW), None);
    }
}
