//! Applies the konnector's CustomResourceDefinitions and its set.

use std::io::Write;

use bindery_api::crds;
use bindery_runtime::shutdown;
use bindery_synk::{Event, Failure as SetFailure, Options, Target, versions::Versions, wire};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::proof;
use crate::{
    consumer::Consumer,
    errors::{Exit, Failure},
    install::{manifests::is_ours, write::manifest},
    konnector,
    render::{
        applied::{Applied, Outcome, Report},
        steps::Steps,
    },
};

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const CRD: &str = "CustomResourceDefinition";
const CRD_VERSION: &str = "apiextensions.k8s.io/v1";

/// Applies the definitions, then the set, and reports each object.
pub(super) async fn install<W: Write>(
    consumer: &Consumer,
    manifests: Vec<Value>,
    report: &mut Report<'_, W>,
    steps: &mut Steps,
) -> Result<(), Failure> {
    for (definition, outcome) in consumer.install_definitions(crds::for_consumer()).await? {
        let definition = manifest(&definition)?;
        report.tell(Applied::of(&definition, outcome))?;
    }
    let synk = consumer.synk();
    let was_there = consumer.definition(wire::CRD_NAME).await?.is_some();
    let outcome = match (synk.init().await?, was_there) {
        (false, _) => Outcome::Unchanged,
        (true, false) => Outcome::Created,
        (true, true) => Outcome::Configured,
    };
    report.tell(Applied::global(CRD, CRD_VERSION, wire::CRD_NAME, outcome))?;

    let (target, manifests) = (konnector::target()?, konnector::set(manifests)?);
    let listener = |event: Event<'_>| tell(event, steps);
    // Ctrl-C while the set is applied releases the Lease first.
    let stop = shutdown::on_signal()?;
    let options = Options {
        stop: stop.clone(),
        proof: Some(proof::of_policies(consumer.client())),
        ..konnector::options()
    };
    let applied = synk.apply(&target, &manifests, &options, &listener).await;
    let done = match &applied {
        Ok(report) => Some(report),
        // The objects that were applied are reported too.
        Err(SetFailure::Incomplete(report)) => Some(report.as_ref()),
        Err(_) => None,
    };
    for applied in done.map(konnector::told).unwrap_or_default() {
        report.tell(applied)?;
    }
    let applied = applied?;
    stopped(stop, &target)?;
    if let Some(version) = applied.version.filter(|_| applied.changed) {
        steps.done(&format!("ResourceSet {version} lists what is installed"));
    }
    Ok(())
}

/// Reads the versions of the konnector's set; empty if there are none. Refuses a set that this command did not apply.
pub(in crate::commands) async fn known(consumer: &Consumer, target: &Target) -> Result<Versions, Failure> {
    let versions = match consumer.synk().versions(&target.set).await {
        Err(SetFailure::NotInstalled) => Versions::default(),
        versions => versions?,
    };
    konnector::check_set(&versions)?;
    Ok(versions)
}

/// Called once the Lease of the set is released: fails if Ctrl-C was pressed meanwhile, and lets Ctrl-C end the process at
/// once from now on.
pub(in crate::commands) fn stopped(stop: CancellationToken, target: &Target) -> Result<(), Failure> {
    if stop.is_cancelled() {
        return Err(SetFailure::Stopped(target.set.clone()).into());
    }
    tokio::spawn(async move {
        stop.cancelled().await;
        std::process::exit(i32::from(Exit::Interrupted.number()));
    });
    Ok(())
}

/// Prints those events of synk that tell a user what the command waits for.
pub(in crate::commands) fn tell(event: Event<'_>, steps: &Steps) {
    match event {
        Event::Retry {
            number,
            of,
            after,
            reason,
            ..
        } => steps.note(&format!("again in {} s ({number} of {of}): {reason}", after.as_secs())),
        Event::Held { holder } => steps.note(&format!("{holder} is at work on this as well; does it go on?")),
        Event::Waiting { object, reason, count } => {
            steps.note(&format!("waiting for {object}: {reason} ({count} in all)"));
        }
        Event::Planned(_) | Event::Object(_) | Event::Pruned(_) | Event::Establishing(_) | Event::Round { .. } => {}
    }
}

/// Deletes role and grant for adoption that were applied outside of the set. synk prunes those of the set.
pub(super) async fn end_adoption<W: Write>(consumer: &Consumer, report: &mut Report<'_, W>) -> Result<(), Failure> {
    let name = konnector::ADOPTION_ROLE;
    let is_meant = |meta: &ObjectMeta| !is_ours(meta) && meta.deletion_timestamp.is_none();
    for kind in consumer.delete_rights(name, is_meant).await? {
        report.tell(Applied::global(kind, RBAC, name, Outcome::Deleted))?;
    }
    Ok(())
}
