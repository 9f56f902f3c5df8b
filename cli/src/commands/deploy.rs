//! `deploy`: installs the konnector, and binds what a provider answered.

mod answer;
mod bind;
mod bundle;
mod dry_run;
mod install;

use std::{collections::BTreeSet, io::Write, time::Duration};

use bindery_api::{adoption::Adoption, names, v1alpha2::GroupResource};
use k8s_openapi::api::{apps::v1::Deployment, rbac::v1::ClusterRole};
use kube::{Api, ResourceExt as _};
use serde_json::Value;
use tokio::time::Instant;

pub(super) use install::{known, stopped, tell};

use super::Context;
use crate::{
    applied::{Applied, Outcome, Report, reference},
    args::{DeployArgs, DryRun},
    consumer::Consumer,
    deploy::{self, Answer, Asked, Konnector},
    errors::Failure,
    manifests::is_ours,
    output::joined,
    plan::{Conflict, Op},
    steps::Steps,
    wait::Watched,
};

/// How long a deployment may take, unless a flag says otherwise.
const PATIENCE: Duration = Duration::from_mins(5);

/// What is to be bound.
enum Bound {
    Nothing,
    Single(Vec<bind::Bind>),
    Bundle(Box<bundle::Bundle>),
}

/// `kubectl bind deploy`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &DeployArgs) -> Result<(), Failure> {
    check(args)?;
    let answer = answer::read(args).await?;
    if args.dry_run == DryRun::Client {
        return dry_run::run(context, args, answer);
    }
    let start = Instant::now();
    let patience = context.settings.patience(PATIENCE);
    let consumer = Consumer::connect(&context.settings).await?;
    let steps = &mut context.steps;
    let seen = consumer.konnector().await?;
    let (konnector, kept) = deploy::choose(&asked(args), seen.as_ref())?;
    for kept in &kept {
        steps.note(kept);
    }
    // What stands in the way of a bind is found before anything is installed.
    let bound = prepare(&consumer, args, answer, steps).await?;
    let bundled = bundled(args, &bound);
    if bundled.is_empty() && matches!(bound, Bound::Bundle(_)) {
        steps.note(
            "a kubeconfig does not tell what it reaches: let the konnector have rights on what the bundle is to bind with \
             --bundle-resource RESOURCE.GROUP",
        );
    }
    install::known(&consumer, &deploy::target()?).await?;
    let manifests = manifests(&consumer, &konnector, &bundled, steps).await?;
    let mut report = Report::new(&mut context.printer);
    install::install(&consumer, manifests, &mut report, steps).await?;
    if args.adoption == Some(Adoption::Off) {
        install::end_adoption(&consumer, &mut report).await?;
    }
    for op in ops(&bound) {
        consumer.apply(&op).await?;
        let outcome = if op.exists {
            Outcome::Configured
        } else {
            Outcome::Created
        };
        report.tell(Applied::of(&op.object.manifest()?, outcome))?;
    }
    for manifest in unchanged(&bound)? {
        report.tell(Applied::of(&manifest, Outcome::Unchanged))?;
    }
    if args.wait {
        wait(&consumer, &bound, (start, patience), &context.steps).await?;
    }
    report.end()
}

/// What no parser sees.
fn check(args: &DeployArgs) -> Result<(), Failure> {
    args.bundle_resource
        .iter()
        .try_for_each(deploy::check_bundle_resource)?;
    if let Some(name) = args.bundle.as_ref().filter(|name| !names::is_subdomain(name)) {
        return Err(Failure::Usage(format!(
            "--bundle {name:?} cannot be the name of a bundle"
        )));
    }
    let answers = args.answers.accept_claims || !args.answers.reject_claims.is_empty();
    if answers && args.file.is_none() && args.secret.is_none() {
        return Err(Failure::Usage(
            "claims are accepted and rejected of what a provider answered: add -f FILE or --secret NAMESPACE/NAME"
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

/// Looks at what is to be bound, and asks whoever runs this. Writes nothing.
async fn prepare(
    consumer: &Consumer,
    args: &DeployArgs,
    answer: Option<(String, Answer)>,
    steps: &Steps,
) -> Result<Bound, Failure> {
    match (answer, &args.bundle) {
        (None, _) => Ok(Bound::Nothing),
        (Some((_, answer)), Some(name)) => {
            let bundle = bundle::Bundle::prepare(consumer, name, answer, &args.answers, steps).await?;
            Ok(Bound::Bundle(Box::new(bundle)))
        }
        (Some((from, answer)), None) => {
            let response = answer::response(&from, answer)?;
            let binds = bind::prepare(consumer, response, &args.answers, steps).await?;
            Ok(Bound::Single(binds))
        }
    }
}

/// What the konnector gets rights on for bundles.
fn bundled(args: &DeployArgs, bound: &Bound) -> BTreeSet<GroupResource> {
    let mut resources: BTreeSet<_> = args.bundle_resource.iter().cloned().collect();
    if let Bound::Bundle(bundle) = bound {
        resources.extend(bundle.resources.iter().cloned());
    }
    resources
}

/// The konnector's manifests, with the rights for bundles that it has already.
async fn manifests(
    consumer: &Consumer,
    konnector: &Konnector,
    bundled: &BTreeSet<GroupResource>,
    steps: &Steps,
) -> Result<Vec<Value>, Failure> {
    if konnector.adoption != Adoption::Off {
        free_role(consumer, deploy::ADOPTION_ROLE).await?;
    }
    let seen = if bundled.is_empty() {
        // One that somebody else applied stays theirs; one of a former release is ours.
        let roles = Api::<ClusterRole>::all(consumer.client());
        match consumer.find(roles, deploy::BUNDLES_ROLE).await? {
            Some(role) if deploy::is_in_set(&role.metadata) || deploy::was_deployed(&role.metadata) => Some(role),
            _ => return deploy::manifests(konnector, None),
        }
    } else {
        free_role(consumer, deploy::BUNDLES_ROLE).await?
    };
    let rules = seen.and_then(|role| role.rules).unwrap_or_default();
    let (rules, added) = deploy::merge_rules(&rules, bundled);
    if !added.is_empty() {
        steps.note(&format!(
            "bundles may bind {} from now on: the konnector gets rights on all their objects",
            joined(&added)
        ));
    }
    deploy::manifests(konnector, Some(&rules))
}

/// A role that is not that of a binding, which may be named `bundles` or `adoption`.
async fn free_role(consumer: &Consumer, name: &'static str) -> Result<Option<ClusterRole>, Failure> {
    let seen = consumer.find(Api::<ClusterRole>::all(consumer.client()), name).await?;
    match seen {
        Some(role) if is_ours(&role.metadata) => Err(Conflict::RoleOfBinding { name }.into()),
        seen => Ok(seen),
    }
}

/// What is to be written of what is bound.
fn ops(bound: &Bound) -> Vec<Op> {
    // The namespace is among the konnector's manifests.
    let is_left = |op: &Op| !matches!(op.object, crate::plan::Object::Namespace(_));
    match bound {
        Bound::Nothing => Vec::new(),
        Bound::Single(binds) => binds.iter().flat_map(|bind| bind.ops.clone()).filter(is_left).collect(),
        Bound::Bundle(bundle) => bundle.ops.clone(),
    }
}

/// What of it needs no write.
fn unchanged(bound: &Bound) -> Result<Vec<Value>, Failure> {
    let (wanted, ops) = match bound {
        Bound::Nothing => return Ok(Vec::new()),
        Bound::Single(binds) => {
            let mut wanted = Vec::new();
            for bind in binds {
                wanted.extend(
                    bind.manifests
                        .documents()?
                        .into_iter()
                        .filter(|it| it["kind"] != "Namespace"),
                );
            }
            (wanted, ops(bound))
        }
        Bound::Bundle(bundle) => (bundle.documents()?, ops(bound)),
    };
    let mut written = BTreeSet::new();
    for op in ops {
        written.insert(reference(&op.object.manifest()?));
    }
    Ok(wanted
        .into_iter()
        .filter(|it| !written.contains(&reference(it)))
        .collect())
}

async fn wait(
    consumer: &Consumer,
    bound: &Bound,
    (start, patience): (Instant, Duration),
    steps: &Steps,
) -> Result<(), Failure> {
    let left = || patience.saturating_sub(start.elapsed());
    let (namespace, name) = (names::KUBE_BIND_NAMESPACE, names::KONNECTOR);
    Watched::deployment(consumer, namespace, name, left())
        .available(steps)
        .await?;
    match bound {
        Bound::Nothing => {}
        Bound::Single(binds) => {
            for bind in binds {
                Watched::start(consumer, &bind.name, left()).ready(steps).await?;
            }
        }
        Bound::Bundle(bundle) => {
            let name = bundle.wanted.bundle.name_any();
            Watched::bundle(consumer, &name, left()).ready(steps).await?;
        }
    }
    Ok(())
}

impl Consumer {
    /// The konnector's Deployment.
    pub(super) async fn konnector(&self) -> Result<Option<Deployment>, Failure> {
        let deployments = Api::namespaced(self.client(), names::KUBE_BIND_NAMESPACE);
        self.find(deployments, names::KONNECTOR).await
    }
}
