//! Brings the konnector to the cluster, and takes away what it does not need any more.

use std::io::Write;

use bindery_api::crds;
use bindery_runtime::shutdown;
use bindery_synk::{Event, Failure as SetFailure, Options, Target, versions::Versions, wire};
use k8s_openapi::{
    api::rbac::v1::{ClusterRole, ClusterRoleBinding},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Api;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    applied::{Applied, Outcome, Report},
    consumer::Consumer,
    deploy,
    errors::{Exit, Failure},
    manifests::is_ours,
    steps::Steps,
};

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const CRD: &str = "CustomResourceDefinition";
const CRD_VERSION: &str = "apiextensions.k8s.io/v1";

/// The definitions first, then the set.
pub(super) async fn install<W: Write>(
    consumer: &Consumer,
    manifests: Vec<Value>,
    report: &mut Report<'_, W>,
    steps: &mut Steps,
) -> Result<(), Failure> {
    for (definition, outcome) in consumer.install_definitions(crds::for_consumer()).await? {
        let definition = serde_json::to_value(definition).map_err(|error| Failure::Format(error.to_string()))?;
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

    let (target, manifests) = (deploy::target()?, deploy::set(manifests)?);
    let listener = |event: Event<'_>| tell(event, steps);
    // Whoever is stopped while the set is applied gives its Lease back first.
    let stop = shutdown::on_signal()?;
    let options = Options {
        stop: stop.clone(),
        ..deploy::options()
    };
    let applied = synk.apply(&target, &manifests, &options, &listener).await;
    let done = match &applied {
        Ok(report) => Some(report),
        // What was done is told all the same.
        Err(SetFailure::Incomplete(report)) => Some(report.as_ref()),
        Err(_) => None,
    };
    for applied in done.map(deploy::told).unwrap_or_default() {
        report.tell(applied)?;
    }
    let applied = applied?;
    stopped(stop, &target)?;
    if let Some(version) = applied.version.filter(|_| applied.changed) {
        steps.done(&format!("ResourceSet {version} lists what is installed"));
    }
    Ok(())
}

/// The konnector's set, if there is one.
pub(in crate::commands) async fn known(consumer: &Consumer, target: &Target) -> Result<Versions, Failure> {
    let versions = match consumer.synk().versions(&target.set).await {
        Err(SetFailure::NotInstalled) => Versions::default(),
        versions => versions?,
    };
    deploy::check_set(&versions)?;
    Ok(versions)
}

/// Once the Lease of the set is given back: ends it all if that was asked for meanwhile, and has whoever asks from now on
/// heard at once.
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

/// What somebody who waits wants to know.
pub(in crate::commands) fn tell(event: Event<'_>, steps: &Steps) {
    match event {
        Event::Retry {
            number,
            of,
            after,
            reason,
        } => steps.note(&format!("again in {} s ({number} of {of}): {reason}", after.as_secs())),
        Event::Held { holder } => steps.note(&format!("{holder} is at work on this as well; does it go on?")),
        Event::Waiting { object, reason, count } => {
            steps.note(&format!("waiting for {object}: {reason} ({count} in all)"));
        }
        Event::Planned(_) | Event::Object(_) | Event::Pruned(_) | Event::Establishing(_) | Event::Round { .. } => {}
    }
}

/// Takes the rights for adoption away, where the set did not have them: somebody else may have applied them.
pub(super) async fn end_adoption<W: Write>(consumer: &Consumer, report: &mut Report<'_, W>) -> Result<(), Failure> {
    let name = deploy::ADOPTION_ROLE;
    let is_that = |meta: &ObjectMeta| !is_ours(meta) && meta.deletion_timestamp.is_none();
    let grants = Api::<ClusterRoleBinding>::all(consumer.client());
    let grant = consumer.find(grants.clone(), name).await?;
    if let Some(grant) = grant.filter(|grant| is_that(&grant.metadata)) {
        consumer.delete(grants, &grant).await?;
        report.tell(Applied::global("ClusterRoleBinding", RBAC, name, Outcome::Deleted))?;
    }
    let roles = Api::<ClusterRole>::all(consumer.client());
    let role = consumer.find(roles.clone(), name).await?;
    if let Some(role) = role.filter(|role| is_that(&role.metadata)) {
        consumer.delete(roles, &role).await?;
        report.tell(Applied::global("ClusterRole", RBAC, name, Outcome::Deleted))?;
    }
    Ok(())
}
