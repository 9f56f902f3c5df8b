//! What there is, and what is to be done about it. Writes nothing.

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

/// How often is looked at most while another is at work.
const LOOKS: u32 = 5;

/// A set as it is given and as it is, at one moment.
pub(crate) struct Seen {
    /// All that is served, and what the definitions of the set add.
    pub kinds: Kinds,
    /// The versions of the set.
    pub sets: Vec<ResourceSet>,
    pub versions: Versions,
    /// What is to be, in the order in which it is applied.
    pub manifests: Vec<Manifest>,
    /// What is, of what is to be and of what any version lists.
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

/// Reads all that a plan needs.
async fn observe(job: &Job<'_>) -> Result<Seen, Failure> {
    let (rest, target) = (job.rest, job.target);
    let (kinds, sets) = tokio::try_join!(discover(rest), sets::list(rest, Some(&target.set)))?;
    let versions = Versions::of(&target.set, sets.iter().cloned());
    usable(&versions)?;
    let kinds = kinds.with_definitions(job.manifests);
    let mut manifests = input::resolve(
        job.manifests,
        &kinds,
        &target.namespace,
        &job.options.allowed.namespaces,
    )?;
    plan::order::sort(&mut manifests);
    let live = live::read(rest, &plan::reads(&manifests, &versions, &kinds)).await?;
    Ok(Seen {
        kinds,
        sets,
        versions,
        manifests,
        live,
    })
}

/// What is said of a set is to be built upon: no version goes, and takes what is there along; none lists what nobody can read,
/// so that what left the set would go unseen.
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

/// Looks and plans. Another apply of the set may be at work between the two looks at versions and objects: if an object
/// belongs to a version that was not there yet, all is looked at again.
pub(crate) async fn look(job: &Job<'_>, exact: bool) -> Result<(Seen, Plan), Failure> {
    let mut looks = 1;
    loop {
        let seen = Box::pin(observe(job)).await?;
        let plan = Box::pin(planned(job, &seen, exact)).await?;
        if looks == LOOKS || !plan.refusals.iter().any(|refusal| is_of_newer(refusal, job)) {
            return Ok((seen, plan));
        }
        let known = sets::list(job.rest, Some(&job.target.set)).await?;
        if Versions::of(&job.target.set, known).highest() <= seen.versions.highest() {
            return Ok((seen, plan));
        }
        looks += 1;
    }
}

/// Whether no apply of the set has been at work since it was looked at. What others wrote of its objects meanwhile shows
/// when they are written, for each write names the version of the object that was seen.
pub(crate) async fn is_current(job: &Job<'_>, seen: &Seen) -> Result<bool, Failure> {
    let sets = sets::list(job.rest, Some(&job.target.set)).await?;
    Ok(sets == seen.sets)
}

/// Whether an object is said to belong to a version of this set.
fn is_of_newer(refusal: &Refusal, job: &Job<'_>) -> bool {
    let Refusal::Owned { owner, .. } = refusal else {
        return false;
    };
    let version: Option<Version> = owner.parse().ok();
    version.is_some_and(|version| version.set == job.target.set)
}

/// Plans. Where it does not show from what was read whether an object differs, the API server is asked; `exact` asks of
/// all that is to be written, so that the plan says what will come of it.
async fn planned(job: &Job<'_>, seen: &Seen, exact: bool) -> Result<Plan, Failure> {
    let input = seen.input(job);
    let mut plan = plan::plan(&input);
    let asked = plan::asks(&plan, &seen.kinds, exact);
    // Whether other objects can be asked for depends on what becomes of their definitions.
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

/// Asks for these steps, and takes in the answers.
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

/// What tells a cluster from all others: the UID of a namespace that each has and none loses.
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
