//! `undeploy`: removes the konnector from this cluster.

use std::{io::Write, time::Duration};

use bindery_api::{
    crds,
    names::{KONNECTOR, KUBE_BIND_NAMESPACE},
};
use bindery_runtime::shutdown;
use bindery_synk::{Event, Failure as SetFailure, ObjectRef, Target, delete::Deletion, versions::Versions, wire};
use k8s_openapi::api::{core::v1::Namespace, rbac::v1::ClusterRoleBinding};
use kube::{Api, ResourceExt};

use super::Context;
use crate::{
    args::UndeployArgs,
    consumer::Consumer,
    errors::{Failure, conflict::Conflict},
    install::manifests::is_ours,
    konnector,
    render::{
        applied::{Outcome, Report},
        output::joined,
        steps::Steps,
    },
};

/// How long a removal may take, unless `--timeout` says otherwise. A namespace is deleted last.
const PATIENCE: Duration = Duration::from_mins(5);

/// `kubectl bind undeploy`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &UndeployArgs) -> Result<(), Failure> {
    let consumer = Consumer::connect(&context.settings).await?;
    refuse_bound(&consumer).await?;
    let seen = consumer.konnector().await?;
    if let Some((namespace, release)) = seen.as_ref().and_then(konnector::release_of_helm) {
        return Err(Conflict::OfHelm { release, namespace }.into());
    }
    let target = konnector::target()?;
    let Some(versions) = installed(&consumer, &target, args).await? else {
        return Ok(());
    };
    let listed = konnector::listed(&versions);
    let live = consumer.synk().live(&listed).await?;
    let (mut going, staying) = konnector::going(&versions, listed, &live);
    if !staying.is_empty() {
        context.steps.note(&format!(
            "these objects stay, because set {} does not own them, or not alone: {}",
            target.set,
            joined(staying.iter().map(ObjectRef::short))
        ));
    }
    let contents = konnector::contents(&consumer.in_namespace(KUBE_BIND_NAMESPACE).await?, &going);
    let is_owned = going.iter().any(konnector::is_namespace);
    let stays = !is_owned || !contents.others.is_empty();
    if !contents.others.is_empty() {
        going.retain(|object| !konnector::is_namespace(object));
        context.steps.note(&format!(
            "namespace {KUBE_BIND_NAMESPACE} stays, because it holds objects of others: {}",
            joined(&contents.others)
        ));
    }
    if !contents.ours.is_empty() {
        let becomes = if stays { "stays in it too" } else { "is deleted with it" };
        context.steps.note(&format!(
            "what kubectl bind and the konnector kept in the namespace {becomes}: {}",
            joined(&contents.ours)
        ));
    }
    if contents.held > 0 && !stays {
        context.steps.note(&format!(
            "providers may still record this konnector as the holder of contracts, as after an unbind that did not wait for them ({} on \
             the konnector's Lease, which is deleted); a konnector that is installed later and bound to one of them waits, with condition \
             Held for reason SecondInstall, until you run: kubectl bind accept BINDING",
            contents.held
        ));
    }
    say_which_rights_stay(&consumer, &context.steps).await?;
    if !args.dry_run {
        if stays {
            leave_namespace(&consumer).await?;
        }
        delete(context, &consumer, &target, args.wait).await?;
    }
    let new = if args.dry_run { Report::dry_run } else { Report::new };
    let mut report = new(&mut context.printer);
    for object in &going {
        report.tell(konnector::applied(object, Outcome::Deleted))?;
    }
    say_what_stays(&context.steps);
    report.end()
}

/// Refuses while something is bound, because only a konnector can end it.
async fn refuse_bound(consumer: &Consumer) -> Result<(), Failure> {
    let bindings = match consumer.bindings().await {
        // Where bindings are not served, none exist.
        Err(Failure::NoKonnector) => Vec::new(),
        bindings => bindings?,
    };
    Ok(konnector::nothing_bound(&bindings, &consumer.bundles().await?)?)
}

/// The versions of the set that `deploy` installed; none if the konnector is not installed and flags allow that.
async fn installed(consumer: &Consumer, target: &Target, args: &UndeployArgs) -> Result<Option<Versions>, Failure> {
    let versions = super::deploy::known(consumer, target).await?;
    if !versions.is_empty() {
        return Ok(Some(versions));
    }
    if consumer.konnector().await?.is_some() {
        return Err(Failure::NotDeployed);
    }
    if args.ignore_not_found {
        return Ok(None);
    }
    Err(Failure::NotInstalled)
}

/// Takes the namespace out of the set, so that it is not deleted with the set.
async fn leave_namespace(consumer: &Consumer) -> Result<(), Failure> {
    let namespaces = Api::<Namespace>::all(consumer.client());
    let found = consumer.find(namespaces.clone(), KUBE_BIND_NAMESPACE).await?;
    let Some(patch) = found.and_then(|namespace| konnector::without_set(&namespace.metadata)) else {
        return Ok(());
    };
    let doing = format!("take Namespace {KUBE_BIND_NAMESPACE} out of set {KONNECTOR}");
    consumer.merge(&namespaces, KUBE_BIND_NAMESPACE, &patch, doing).await
}

async fn delete<W: Write>(
    context: &mut Context<W>,
    consumer: &Consumer,
    target: &Target,
    wait: bool,
) -> Result<(), Failure> {
    let stop = shutdown::on_signal()?;
    let deletion = Deletion {
        wait,
        timeout: context.settings.patience(PATIENCE),
        stop: stop.clone(),
        ..Deletion::default()
    };
    let steps = &context.steps;
    let listener = |event: Event<'_>| super::deploy::tell(event, steps);
    let deleted = consumer.synk().delete(&target.set, &deletion, &listener).await;
    super::deploy::stopped(stop, target)?;
    match deleted {
        // Another process has deleted the set meanwhile.
        Ok(_) | Err(SetFailure::NoSet(_)) => {}
        Err(failure) => return Err(failure.into()),
    }
    let done = if wait { "is gone" } else { "is being deleted" };
    context.steps.done(&format!("the konnector {done}"));
    Ok(())
}

/// Notes rights that were applied outside of the set: they stay, and the next konnector would have them.
async fn say_which_rights_stay(consumer: &Consumer, steps: &Steps) -> Result<(), Failure> {
    for name in [konnector::ADOPTION_ROLE, konnector::BUNDLES_ROLE] {
        let grants = Api::<ClusterRoleBinding>::all(consumer.client());
        let grant = consumer.find(grants, name).await?;
        if grant.is_some_and(|grant| !is_ours(&grant.metadata) && !konnector::is_in_set(&grant.metadata)) {
            steps.note(&format!(
                "rights that were not given by kubectl bind stay; to end them: kubectl delete clusterrolebinding,clusterrole {name}"
            ));
        }
    }
    Ok(())
}

fn say_what_stays(steps: &Steps) {
    let ours = crds::for_consumer();
    let names = ours.iter().map(ResourceExt::name_any);
    steps.note(&format!(
        "the definitions stay, because deleting them would delete every object of their kinds: {}",
        joined(names.chain([wire::CRD_NAME.to_owned()]))
    ));
}
