//! Reads a set and its objects, and plans. Writes nothing.

use futures::{StreamExt as _, stream};
use serde_json::Value;

use super::Job;
use crate::{
    discovery::discover,
    errors::Failure,
    input::{self, Manifest},
    kinds::{Kinds, Resource},
    live::{self, Live},
    object::Gvk,
    plan::{self, Plan, PlanInput, Refusal},
    rest::{Place, Rest},
    sets,
    versions::Versions,
    wire::{ResourceSet, Version},
};

/// Greatest number of reads while another apply is at work.
const ATTEMPTS: u32 = 5;

/// A set as given and as read from the cluster, at one moment.
pub(crate) struct Seen {
    /// The kinds that are served, and those that the CRDs of the set define.
    pub kinds: Kinds,
    /// The ResourceSets of the set.
    pub sets: Vec<ResourceSet>,
    pub versions: Versions,
    /// The manifests, in the order of their application.
    pub manifests: Vec<Manifest>,
    /// The live objects of the manifests and of every version.
    pub live: Live,
}

// === impl Seen ===

impl Seen {
    pub(crate) fn input<'a>(&'a self, job: &Job<'a>) -> PlanInput<'a> {
        PlanInput {
            set: &job.target.set,
            namespace: &job.target.namespace,
            manifests: &self.manifests,
            kinds: &self.kinds,
            versions: &self.versions,
            live: &self.live,
            allowed: &job.options.allowed,
        }
    }
}

/// Reads everything that a plan needs.
async fn observe(job: &Job<'_>) -> Result<Seen, Failure> {
    let (rest, target) = (job.rest, job.target);
    let (kinds, sets) = tokio::try_join!(discover(rest), sets::list(rest, Some(&target.set)))?;
    let versions = Versions::of(&target.set, sets.iter().cloned());
    usable(&versions)?;
    let kinds = kinds.with_definitions(job.manifests);
    let manifests = input::resolve(
        job.manifests,
        &kinds,
        &target.namespace,
        &job.options.allowed.namespaces,
    )?;
    let live = live::read(rest, &plan::reads(&manifests, &versions, &kinds)).await?;
    Ok(Seen {
        kinds,
        sets,
        versions,
        manifests,
        live,
    })
}

/// Refuses to build on versions that are being deleted, because their objects go with them, or that list objects that
/// cannot be read, because pruning would miss them.
fn usable(versions: &Versions) -> Result<(), Failure> {
    if let Some(known) = versions.going() {
        return Err(Failure::Going(known.version.clone()));
    }
    match versions.iter().find(|known| known.odd) {
        Some(known) => Err(Failure::Unreadable {
            what: format!("what ResourceSet {} lists", known.version),
            problem: "its spec is not as a synk writes it: mend it, or delete the version with all that it owns"
                .to_owned(),
        }),
        None => Ok(()),
    }
}

/// Reads and plans. If an object belongs to a version that was not there when versions were read, another apply is at
/// work, and everything is read again.
pub(crate) async fn read_and_plan(job: &Job<'_>, exact: bool) -> Result<(Seen, Plan), Failure> {
    let mut attempts = 1;
    loop {
        let seen = Box::pin(observe(job)).await?;
        let plan = Box::pin(planned(job, &seen, exact)).await?;
        if attempts == ATTEMPTS || !plan.refusals.iter().any(|refusal| is_of_newer(refusal, job)) {
            return Ok((seen, plan));
        }
        let known = sets::list(job.rest, Some(&job.target.set)).await?;
        if Versions::of(&job.target.set, known).highest() <= seen.versions.highest() {
            return Ok((seen, plan));
        }
        attempts += 1;
    }
}

/// Whether no apply of the set has worked since it was read. Writes of others to its objects show up later, because
/// each write names the version of the object that was seen.
pub(crate) async fn is_current(job: &Job<'_>, seen: &Seen) -> Result<bool, Failure> {
    let sets = sets::list(job.rest, Some(&job.target.set)).await?;
    Ok(sets == seen.sets)
}

/// Whether a refusal says that an object belongs to a newer version of this set.
fn is_of_newer(refusal: &Refusal, job: &Job<'_>) -> bool {
    let Refusal::Owned { owner, .. } = refusal else {
        return false;
    };
    let version: Option<Version> = owner.parse().ok();
    version.is_some_and(|version| version.set == job.target.set)
}

/// Makes the plan. If the read state does not show whether an object differs, a dry run asks the API server. An `exact`
/// plan asks for every object that is to be written.
async fn planned(job: &Job<'_>, seen: &Seen, exact: bool) -> Result<Plan, Failure> {
    let input = seen.input(job);
    let mut plan = plan::plan(&input);
    let asked = plan::asks(&plan, &seen.kinds, exact);
    // Whether objects can be sent as dry runs depends on the steps of their CRDs.
    let (definitions, _): (Vec<_>, Vec<_>) = asked.into_iter().partition(|index| is_definition(&plan, *index));
    answered(job, seen, &mut plan, &definitions, exact).await;
    plan::presume(&mut plan, &seen.kinds);
    let mut asked = plan::asks(&plan, &seen.kinds, exact);
    asked.retain(|index| !definitions.contains(index));
    answered(job, seen, &mut plan, &asked, exact).await;
    plan::conclude(&mut plan, &input);
    Ok(plan)
}

fn is_definition(plan: &Plan, index: usize) -> bool {
    plan.steps[index].object.gvk.is_crd()
}

/// Sends these steps as dry runs and records the answers in the plan.
async fn answered(job: &Job<'_>, seen: &Seen, plan: &mut Plan, asked: &[usize], exact: bool) {
    let questions = asked.iter().filter_map(|index| {
        let resource = seen.kinds.get(&seen.manifests[*index].object.gvk)?;
        Some(ask(job, seen, *index, resource))
    });
    let questions: Vec<_> = questions.collect();
    let mut answers = stream::iter(questions).buffer_unordered(job.options.concurrency.max(1));
    while let Some((index, answer)) = answers.next().await {
        let manifest = &seen.manifests[index];
        let live = seen.live.get(&manifest.object.identity());
        let fields_of = job.options.allowed.fields_of.as_slice();
        plan::settle(
            &mut plan.steps[index],
            manifest,
            live,
            (fields_of, exact),
            answer.as_ref(),
        );
    }
}

async fn ask(job: &Job<'_>, seen: &Seen, index: usize, resource: &Resource) -> (usize, Result<Value, kube::Error>) {
    let manifest = &seen.manifests[index];
    let newest = seen.versions.newest();
    let owner = newest.map(|known| (&known.version, known.uid.as_str()));
    let body = plan::desired(manifest, owner);
    (
        index,
        job.rest.dry_run(Place::of(resource, &manifest.object), &body).await,
    )
}

/// Returns the identity of the cluster: the UID of namespace `kube-system`, which every cluster has and keeps.
pub(crate) async fn cluster(rest: &Rest) -> Result<String, Failure> {
    let namespaces = Resource {
        gvk: Gvk::new("v1", "Namespace"),
        plural: "namespaces".to_owned(),
        namespaced: false,
    };
    let place = Place {
        resource: &namespaces,
        namespace: None,
        name: "kube-system",
    };
    let namespace = rest
        .get(place)
        .await
        .map_err(Failure::api("read namespace kube-system"))?;
    let uid = namespace
        .as_ref()
        .and_then(|namespace| namespace["metadata"]["uid"].as_str());
    Ok(uid.unwrap_or_default().to_owned())
}
