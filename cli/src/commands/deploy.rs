//! `deploy`: installs the konnector, and binds what a provider's answer offers.

mod answer;
pub(in crate::commands) mod bind;
mod dry_run;
mod install;

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
    install::{manifests::is_ours, write::WriteKind},
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
    if let Some((namespace, release)) = seen.as_ref().and_then(konnector::release_of_helm) {
        return Err(Conflict::OfHelm { release, namespace }.into());
    }
    konnector::refuse_other(&consumer.konnector_grants().await?)?;
    let (konnector, kept) = konnector::choose(&asked(args), seen.as_ref())?;
    for kept in &kept {
        steps.note(kept);
    }
    // Conflicts of a bind are found before anything is installed.
    let bound = match answer {
        Some(answer) => Bound::prepare(&consumer, args, answer, steps).await?,
        None => Bound::default(),
    };
    let bundled = args
        .bundle_resource
        .iter()
        .chain(&bound.bundled)
        .cloned()
        .collect::<BTreeSet<_>>();
    if bundled.is_empty() && args.bundle.is_some() {
        steps.note(
            "a kubeconfig does not tell what it reaches: give the konnector rights on the resources of the bundle with \
             --bundle-resource RESOURCE.GROUP",
        );
    }
    install::known(&consumer, &konnector::target()?).await?;
    let manifests = manifests(&consumer, &konnector, &bundled, steps).await?;
    let mut report = Report::new(&mut context.printer);
    install::install(&consumer, manifests, &mut report, steps).await?;
    if args.adoption == Some(Adoption::Off) {
        install::end_adoption(&consumer, &mut report).await?;
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
    }
    for bind in &bound.binds {
        let written: Vec<_> = bind.writes.iter().map(|write| reference(&write.manifest)).collect();
        let documents = bind.manifests.documents()?.into_iter();
        for unchanged in documents.filter(|manifest| !written.contains(&reference(manifest))) {
            report.tell(Applied::of(&unchanged, Outcome::Unchanged))?;
        }
    }
    if args.wait {
        wait_ready(&consumer, &bound, (start, patience), &context.steps).await?;
    }
    report.end()
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
        wait::ready(consumer, &bind.manifests.owner, left(), steps).await?;
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
