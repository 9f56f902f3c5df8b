//! Writes the queued status reports to the provider.

use std::{sync::Arc, time::Duration};

use bindery_api::v1alpha2::{APIServiceExport, BoundSchema};
use bindery_runtime::{backoff::Backoff, errors};
use jiff::Timestamp;
use kube::{
    Api,
    api::{Patch, PatchParams},
};

use super::{
    session_core::SessionCore,
    status_reports::{ReportSubject, export_patch, schema_patch},
};

/// Pauses between failed writes of a report.
const RETRY: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_mins(1));

/// Writes queued reports until dropped.
pub(super) async fn run(core: Arc<SessionCore>) {
    while let Some(work) = core.reports.queue.next().await {
        match write(&core, work.key()).await {
            Ok(()) => drop(work),
            Err(error) => {
                tracing::debug!(subject = ?work.key(), error = %errors::explain(&error), "report not written");
                if errors::is_forbidden(&error) {
                    core.reports_refused.send_replace(true);
                }
                work.retry(RETRY);
            }
        }
    }
}

/// Writes one report if the provider does not have it already.
async fn write(core: &SessionCore, subject: &ReportSubject) -> Result<(), kube::Error> {
    let holding = core.holder.holding();
    // A contract that this konnector does not hold, or that serves another cluster, is not written to.
    if !holding.standing().borrow().may_write() {
        return Ok(());
    }
    // Nor is any while a cluster may have gone back in time.
    holding.proven().await;
    if core.serves_other_cluster() {
        return Ok(());
    }
    let (client, namespace) = (core.sides.provider.write.clone(), &core.contract.namespace);
    let (ReportSubject::Export(name) | ReportSubject::Schema(name)) = subject;
    let (params, now) = (PatchParams::default(), Timestamp::now());
    let written = match subject {
        ReportSubject::Export(_) => {
            let report = core.reports.exports.lock().get(name).cloned();
            let export = core.exports.get(name);
            let known = export.present().zip(report);
            let Some(patch) = known.and_then(|(export, report)| export_patch(export, &report, now)) else {
                return Ok(());
            };
            let api: Api<APIServiceExport> = Api::namespaced(client, namespace);
            api.patch_status(name, &params, &Patch::Merge(patch)).await.map(drop)
        }
        ReportSubject::Schema(_) => {
            let crd = core.reports.schemas.lock().get(name).cloned();
            let known = core.schemas.get(namespace, name).zip(crd);
            let Some(patch) = known.and_then(|(schema, crd)| schema_patch(&schema, &crd, now)) else {
                return Ok(());
            };
            let api: Api<BoundSchema> = Api::namespaced(client, namespace);
            api.patch_status(name, &params, &Patch::Merge(patch)).await.map(drop)
        }
    };
    match written {
        // The export or schema was deleted meanwhile.
        Err(error) if errors::is_object_gone(&error, name) => Ok(()),
        written => written,
    }
}
