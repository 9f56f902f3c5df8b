//! `undeploy`: removes the konnector.

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
    applied::{Outcome, Report},
    args::UndeployArgs,
    consumer::Consumer,
    deploy,
    errors::Failure,
    manifests::is_ours,
    output::joined,
    steps::Steps,
};

/// How long a removal may take, unless a flag says otherwise: a namespace goes last.
const PATIENCE: Duration = Duration::from_mins(5);

/// `kubectl bind undeploy`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &UndeployArgs) -> Result<(), Failure> {
    let consumer = Consumer::connect(&context.settings).await?;
    refuse_bound(&consumer).await?;
    let target = deploy::target()?;
    let Some(versions) = installed(&consumer, &target, args).await? else {
        return Ok(());
    };
    let listed = deploy::listed(&versions);
    let live = consumer.synk().live(&listed).await?;
    let (mut going, staying) = deploy::going(&versions, listed, &live);
    if !staying.is_empty() {
        context.steps.note(&format!(
            "this stays, for set {} does not own it, or not alone: {}",
            target.set,
            joined(staying.iter().map(ObjectRef::short))
        ));
    }
    let contents = deploy::contents(&consumer.in_namespace(KUBE_BIND_NAMESPACE).await?, &going);
    let is_owned = going.iter().any(deploy::is_namespace);
    let stays = !is_owned || !contents.others.is_empty();
    if !contents.others.is_empty() {
        going.retain(|object| !deploy::is_namespace(object));
        context.steps.note(&format!(
            "namespace {KUBE_BIND_NAMESPACE} stays, with what others keep in it: {}",
            joined(&contents.others)
        ));
    }
    if !contents.ours.is_empty() {
        let becomes = if stays { "is left in it too" } else { "goes with it" };
        context.steps.note(&format!(
            "what kubectl bind and the konnector kept {becomes}: {}",
            joined(&contents.ours)
        ));
    }
    say_which_rights_stay(&consumer, &context.steps).await?;
    if args.dry_run {
        let mut report = Report::dry_run(&mut context.printer);
        going
            .iter()
            .try_for_each(|object| report.tell(deploy::applied(object, Outcome::Deleted)))?;
        say_what_stays(&context.steps);
        return report.end();
    }
    if stays {
        leave_namespace(&consumer).await?;
    }
    delete(context, &consumer, &target, args.wait).await?;
    let mut report = Report::new(&mut context.printer);
    going
        .iter()
        .try_for_each(|object| report.tell(deploy::applied(object, Outcome::Deleted)))?;
    say_what_stays(&context.steps);
    report.end()
}

/// Without a konnector nobody would end what is bound.
async fn refuse_bound(consumer: &Consumer) -> Result<(), Failure> {
    let bindings = match consumer.bindings().await {
        // What is not served cannot be there.
        Err(Failure::NoKonnector) => Vec::new(),
        bindings => bindings?,
    };
    Ok(deploy::nothing_bound(&bindings, &consumer.bundles().await?)?)
}

/// What `deploy` installed; none where there is nothing to do.
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

/// Takes the namespace out of the set, with which it would go.
async fn leave_namespace(consumer: &Consumer) -> Result<(), Failure> {
    let namespaces = Api::<Namespace>::all(consumer.client());
    let found = consumer.find(namespaces.clone(), KUBE_BIND_NAMESPACE).await?;
    let Some(patch) = found.and_then(|namespace| deploy::without_set(&namespace.metadata)) else {
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
        // Somebody else was quicker.
        Ok(_) | Err(SetFailure::NoSet(_)) => {}
        Err(failure) => return Err(failure.into()),
    }
    let done = if wait { "is gone" } else { "is being deleted" };
    context.steps.done(&format!("the konnector {done}"));
    Ok(())
}

/// Rights that somebody else applied for the konnector outlive it, and would be those of the next one of its name.
async fn say_which_rights_stay(consumer: &Consumer, steps: &Steps) -> Result<(), Failure> {
    for name in [deploy::ADOPTION_ROLE, deploy::BUNDLES_ROLE] {
        let grants = Api::<ClusterRoleBinding>::all(consumer.client());
        let grant = consumer.find(grants, name).await?;
        if grant.is_some_and(|grant| !is_ours(&grant.metadata) && !deploy::is_in_set(&grant.metadata)) {
            steps.note(&format!(
                "rights that somebody else gave the konnector stay: kubectl delete clusterrolebinding,clusterrole {name}"
            ));
        }
    }
    Ok(())
}

fn say_what_stays(steps: &Steps) {
    let ours = crds::for_consumer();
    let names = ours.iter().map(ResourceExt::name_any);
    steps.note(&format!(
        "the definitions stay, for with them every object of their kinds would go: {}",
        joined(names.chain([wire::CRD_NAME.to_owned()]))
    ));
}
