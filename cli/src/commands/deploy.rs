//! `deploy`: installs the konnector, and binds what a provider's answer offers.

mod answer;
pub(in crate::commands) mod bind;
mod dry_run;
mod install;
mod proof;

use std::{collections::BTreeSet, io::Write, time::Duration};

use bindery_api::{adoption::Adoption, names, v1alpha2::GroupResource};
use k8s_openapi::api::{apps::v1::Deployment, rbac::v1::ClusterRole};
use kube::Api;
use serde_json::Value;
use tokio::time::Instant;

use bind::Bound;
pub(super) use install::{known, stopped, tell};

use super::Context;
use crate::{
    args::{DeployArgs, DryRun},
    consumer::{
        Consumer,
        wait::{self, Watched},
    },
    errors::{Failure, conflict::Conflict},
    install::{
        manifests::{documents, is_ours},
        write::WriteKind,
    },
    konnector::{self, Asked, Konnector},
    render::{
        applied::{Applied, Outcome, Report, reference},
        output::joined,
        steps::Steps,
    },
};

/// How long `deploy --wait` may take, unless `--timeout` says otherwise.
const PATIENCE: Duration = Duration::from_mins(5);

/// `kubectl bind deploy`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &DeployArgs) -> Result<(), Failure> {
    check(args)?;
    let answer = answer::read(args).await?;
    if args.dry_run == DryRun::Client {
        return dry_run::run(context, args, answer.as_ref());
    }
    let start = Instant::now();
    let patience = context.settings.patience(PATIENCE);
    let consumer = Consumer::connect(&context.settings).await?;
    let steps = &mut context.steps;
    let seen = consumer.konnector().await?;
    let release = seen.as_ref().and_then(konnector::release_of_helm);
    if let Some((namespace, release)) = &release {
        if answer.is_none() || asks_for_konnector(args) {
            let (namespace, release) = (namespace.clone(), release.clone());
            return Err(Conflict::OfHelm { release, namespace }.into());
        }
        steps.note(&format!("the konnector is left to release {release} of Helm"));
    } else {
        konnector::refuse_other(&consumer.konnector_grants().await?)?;
    }
    // Conflicts of a bind are found before anything is installed.
    let bound = match answer {
        Some(answer) => Box::pin(Bound::prepare(&consumer, args, answer, steps)).await?,
        None => Bound::default(),
    };
    let mut report = Report::new(&mut context.printer);
    match &release {
        Some(release) => note_bundled(release, &bound.bundled, steps),
        None => install_konnector(&consumer, args, seen.as_ref(), &bound.bundled, &mut report, steps).await?,
    }
    for bind in &bound.binds {
        for write in &bind.writes {
            consumer.write(write).await?;
            let outcome = match write.kind {
                WriteKind::Create => Outcome::Created,
                WriteKind::Change | WriteKind::RecordClaims => Outcome::Configured,
            };
            report.tell(Applied::of(&write.manifest, outcome))?;
        }
        for role in &bind.obsolete_roles {
            consumer.delete_obsolete_role(role, steps).await?;
        }
    }
    for bind in &bound.binds {
        let written: Vec<_> = bind.writes.iter().map(|write| reference(&write.manifest)).collect();
        let documents = documents(&bind.manifests)?.into_iter();
        for unchanged in documents.filter(|manifest| !written.contains(&reference(manifest))) {
            report.tell(Applied::of(&unchanged, Outcome::Unchanged))?;
        }
    }
    if args.wait {
        wait_ready(&consumer, &bound, (start, patience), &context.steps).await?;
    }
    report.end()
}

/// Whether flags say how the konnector is to run, which is Helm's to decide if Helm installed it.
fn asks_for_konnector(args: &DeployArgs) -> bool {
    asked(args) != Asked::default() || !args.bundle_resource.is_empty()
}

/// Says which value of the chart gives the konnector the rights that a bundle needs.
fn note_bundled((namespace, release): &(String, String), bundled: &BTreeSet<GroupResource>, steps: &Steps) {
    if !bundled.is_empty() {
        let resources: Vec<_> = bundled.iter().map(ToString::to_string).collect();
        steps.note(&format!(
            "a bundle needs rights of the konnector: name {} in value bundleResources of release {release} in namespace {namespace}",
            resources.join(", ")
        ));
    }
}

/// Applies the konnector's definitions and manifests. `bundled` are the resources of the bundle that is bound too.
async fn install_konnector<W: Write>(
    consumer: &Consumer,
    args: &DeployArgs,
    seen: Option<&Deployment>,
    bundled: &BTreeSet<GroupResource>,
    report: &mut Report<'_, W>,
    steps: &mut Steps,
) -> Result<(), Failure> {
    let (konnector, kept) = konnector::choose(&asked(args), seen)?;
    for kept in &kept {
        steps.note(kept);
    }
    let bundled = args
        .bundle_resource
        .iter()
        .chain(bundled)
        .cloned()
        .collect::<BTreeSet<_>>();
    if bundled.is_empty() && args.bundle.is_some() {
        steps.note(
            "a kubeconfig does not tell what it reaches: give the konnector rights on the resources of the bundle with \
             --bundle-resource RESOURCE.GROUP",
        );
    }
    install::known(consumer, &konnector::target()?).await?;
    let manifests = manifests(consumer, &konnector, &bundled, steps).await?;
    install::install(consumer, manifests, report, steps).await?;
    if args.adoption == Some(Adoption::Off) {
        install::end_adoption(consumer, report).await?;
    }
    Ok(())
}

/// Refuses flags that clap cannot check.
fn check(args: &DeployArgs) -> Result<(), Failure> {
    args.bundle_resource
        .iter()
        .try_for_each(konnector::check_bundle_resource)?;
    if let Some(name) = args.bundle.as_ref().filter(|name| !names::is_subdomain(name)) {
        return Err(Failure::Usage(format!(
            "--bundle {name:?} cannot be the name of a bundle"
        )));
    }
    let answers = args.answers.accept_claims || !args.answers.reject_claims.is_empty();
    if answers && args.file.is_none() && args.secret.is_none() {
        return Err(Failure::Usage(
            "claims are part of a provider's answer: add -f FILE or --secret NAMESPACE/NAME, or leave out the flags for claims"
                .to_owned(),
        ));
    }
    Ok(())
}

fn asked(args: &DeployArgs) -> Asked {
    Asked {
        image: args.konnector_image.clone(),
        replicas: args.replicas,
        adoption: args.adoption,
    }
}

/// The konnector's manifests. Rights for bundles that the konnector has already are kept.
async fn manifests(
    consumer: &Consumer,
    konnector: &Konnector,
    bundled: &BTreeSet<GroupResource>,
    steps: &Steps,
) -> Result<Vec<Value>, Failure> {
    if konnector.adoption != Adoption::Off {
        free_role(consumer, konnector::ADOPTION_ROLE).await?;
    }
    let seen = if bundled.is_empty() {
        // A role of the set or of a former release of this command is kept; any other is left alone.
        let roles = Api::<ClusterRole>::all(consumer.client());
        match consumer.find(roles, konnector::BUNDLES_ROLE).await? {
            Some(role) if konnector::is_in_set(&role.metadata) || konnector::was_deployed(&role.metadata) => Some(role),
            _ => return konnector::manifests(konnector, None),
        }
    } else {
        free_role(consumer, konnector::BUNDLES_ROLE).await?
    };
    let rules = seen.and_then(|role| role.rules).unwrap_or_default();
    let (rules, added) = konnector::merge_rules(&rules, bundled);
    if !added.is_empty() {
        steps.note(&format!(
            "bundles may bind {} from now on: the konnector gets rights on all objects of these resources",
            joined(&added)
        ));
    }
    konnector::manifests(konnector, Some(&rules))
}

/// Reads a role of the konnector; refuses one that belongs to a binding named `bundles` or `adoption`.
async fn free_role(consumer: &Consumer, name: &'static str) -> Result<Option<ClusterRole>, Failure> {
    let seen = consumer.find(Api::<ClusterRole>::all(consumer.client()), name).await?;
    match seen {
        Some(role) if is_ours(&role.metadata) => Err(Conflict::RoleOfBinding { name }.into()),
        seen => Ok(seen),
    }
}

async fn wait_ready(
    consumer: &Consumer,
    bound: &Bound,
    (start, patience): (Instant, Duration),
    steps: &Steps,
) -> Result<(), Failure> {
    let left = || patience.saturating_sub(start.elapsed());
    Watched::<Deployment>::start(consumer, names::KUBE_BIND_NAMESPACE, names::KONNECTOR, left())
        .available(steps)
        .await?;
    for bind in &bound.binds {
        wait::ready(consumer, &bind.manifests.owner.clone().into(), left(), steps).await?;
    }
    Ok(())
}

impl Consumer {
    /// Reads the konnector's Deployment; none if it does not exist.
    pub(super) async fn konnector(&self) -> Result<Option<Deployment>, Failure> {
        let deployments = Api::namespaced(self.client(), names::KUBE_BIND_NAMESPACE);
        self.find(deployments, names::KONNECTOR).await
    }
}
