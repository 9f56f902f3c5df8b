//! `deploy`: installs the konnector, and binds what a provider answered.

mod answer;
mod bind;
mod bundle;
mod dry_run;

use std::{collections::BTreeSet, io::Write, time::Duration};

use bindery_api::{adoption::Adoption, crds, names, v1alpha2::GroupResource};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Context;
use crate::{
    args::{DeployArgs, DryRun},
    consumer::{Consumer, Outcome},
    deploy::{self, Answer, Asked, Konnector},
    errors::Failure,
    manifests::is_ours,
    output::{Format, Printer, joined, printable},
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

/// What became of an object.
#[derive(Serialize)]
struct Applied {
    /// As kubectl names it.
    object: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    outcome: Outcome,
}

/// Says what became of each object, as kubectl does.
struct Report<'a, W> {
    printer: &'a mut Printer<W>,
    applied: Vec<Applied>,
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
    let manifests = manifests(&consumer, &konnector, &bundled, steps).await?;
    let mut report = Report {
        printer: &mut context.printer,
        applied: Vec::new(),
    };
    install(&consumer, &manifests, &mut report).await?;
    if args.adoption == Some(Adoption::Off) {
        end_adoption(&consumer, &mut report).await?;
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
    if bundled.is_empty() {
        return deploy::manifests(konnector, None);
    }
    let seen = free_role(consumer, deploy::BUNDLES_ROLE).await?;
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

async fn install<W: Write>(
    consumer: &Consumer,
    manifests: &[Value],
    report: &mut Report<'_, W>,
) -> Result<(), Failure> {
    for (definition, outcome) in consumer.install_definitions(crds::for_consumer()).await? {
        let definition = serde_json::to_value(definition).map_err(|error| Failure::Format(error.to_string()))?;
        report.tell(Applied::of(&definition, outcome))?;
    }
    for manifest in manifests {
        let outcome = consumer.apply_manifest(manifest, deploy::FIELD_MANAGER).await?;
        report.tell(Applied::of(manifest, outcome))?;
    }
    Ok(())
}

/// Takes the rights for adoption away, which the konnector does not use any more.
async fn end_adoption<W: Write>(consumer: &Consumer, report: &mut Report<'_, W>) -> Result<(), Failure> {
    let name = deploy::ADOPTION_ROLE;
    let is_that = |meta: &ObjectMeta| !is_ours(meta);
    let grants = Api::<ClusterRoleBinding>::all(consumer.client());
    let grant = consumer.find(grants.clone(), name).await?;
    if let Some(grant) = grant.filter(|grant| is_that(&grant.metadata)) {
        consumer.delete(grants, &grant).await?;
        report.tell(Applied::new("ClusterRoleBinding", RBAC, name, Outcome::Deleted))?;
    }
    let roles = Api::<ClusterRole>::all(consumer.client());
    let role = consumer.find(roles.clone(), name).await?;
    if let Some(role) = role.filter(|role| is_that(&role.metadata)) {
        consumer.delete(roles, &role).await?;
        report.tell(Applied::new("ClusterRole", RBAC, name, Outcome::Deleted))?;
    }
    Ok(())
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

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

/// `kind.group/name`, as kubectl writes it.
fn reference(manifest: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, version) = (text(&manifest["kind"]), text(&manifest["apiVersion"]));
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let dot = if group.is_empty() { "" } else { "." };
    let name = text(&manifest["metadata"]["name"]);
    format!("{}{dot}{group}/{name}", kind.to_ascii_lowercase())
}

impl Applied {
    fn of(manifest: &Value, outcome: Outcome) -> Self {
        Self {
            object: reference(manifest),
            namespace: manifest["metadata"]["namespace"].as_str().map(str::to_owned),
            outcome,
        }
    }

    fn new(kind: &str, api_version: &str, name: &str, outcome: Outcome) -> Self {
        let manifest = json!({ "kind": kind, "apiVersion": api_version, "metadata": { "name": name } });
        Self::of(&manifest, outcome)
    }
}

impl<W: Write> Report<'_, W> {
    /// At once for people, who see how far it is; programs get all of it at the end.
    fn tell(&mut self, applied: Applied) -> Result<(), Failure> {
        let object = printable(&applied.object);
        match self.printer.format() {
            Format::Json | Format::Yaml => {}
            Format::Name => self.printer.text(&format!("{object}\n"))?,
            Format::Table | Format::Wide => self.printer.text(&format!("{object} {}\n", applied.outcome))?,
        }
        self.applied.push(applied);
        Ok(())
    }

    fn end(self) -> Result<(), Failure> {
        match self.printer.format() {
            Format::Json | Format::Yaml => self.printer.document(&json!({ "items": self.applied })),
            _ => Ok(()),
        }
    }
}

impl Consumer {
    /// The konnector's Deployment.
    async fn konnector(&self) -> Result<Option<Deployment>, Failure> {
        let deployments = Api::namespaced(self.client(), names::KUBE_BIND_NAMESPACE);
        self.find(deployments, names::KONNECTOR).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_kubectl_names_them() {
        let name = |kind: &str, version: &str| Applied::new(kind, version, "a", Outcome::Created).object;
        assert_eq!(name("Namespace", "v1"), "namespace/a");
        assert_eq!(name("Deployment", "apps/v1"), "deployment.apps/a");
        assert_eq!(name("ClusterRole", RBAC), "clusterrole.rbac.authorization.k8s.io/a");
    }

    #[test]
    fn programs_get_one_document_and_people_a_line_each() {
        let told = |format: Format| {
            let mut out = Vec::new();
            let mut printer = Printer::new(format, &mut out);
            let mut report = Report {
                printer: &mut printer,
                applied: Vec::new(),
            };
            report
                .tell(Applied::new("Namespace", "v1", "a", Outcome::Created))
                .unwrap();
            report
                .tell(Applied::new("Secret", "v1", "b", Outcome::Unchanged))
                .unwrap();
            report.end().unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(told(Format::Table), "namespace/a created\nsecret/b unchanged\n");
        assert_eq!(told(Format::Name), "namespace/a\nsecret/b\n");
        let json: Value = serde_json::from_str(&told(Format::Json)).unwrap();
        assert_eq!(
            json["items"][1],
            json!({ "object": "secret/b", "outcome": "unchanged" })
        );
    }
}
