//! The entry for programs: all operations on a set.

use std::time::Duration;

use bindery_runtime::{client::Clients, crds};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    apply::{self, Job, Options},
    delete::{self, Deleted, Deletion},
    discovery::discover,
    errors::Failure,
    history::{self, Stored},
    input::Manifest,
    live,
    object::ObjectRef,
    plan::{Plan, saved::Saved},
    report::{Listener, Report},
    rest::Rest,
    sets,
    status::{self, Status},
    target::Target,
    versions::Versions,
    wait,
    wire::{self, SetName, Version},
};

/// Greatest time until the API server must serve ResourceSets.
const INSTALLED: Duration = Duration::from_mins(1);

/// Applies sets to one cluster.
#[derive(Clone, Debug)]
pub struct Synk {
    rest: Rest,
}

impl Synk {
    /// Makes an instance for the cluster of these clients.
    pub fn new(clients: Clients) -> Self {
        Self {
            rest: Rest::new(clients),
        }
    }

    /// Installs the CRD of ResourceSets. Returns false if it was installed already.
    pub async fn init(&self) -> Result<bool, Failure> {
        let client = self.rest.clients().write.clone();
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        let existing = api
            .get_opt(wire::CRD_NAME)
            .await
            .map_err(Failure::api("read the definition of ResourceSets"))?;
        let is_there = existing.is_some_and(|existing| crds::is_established(&existing) && sets::serves(&existing));
        if !is_there {
            crds::install(&client, vec![wire::crd()]).await?;
        }
        let deadline = Instant::now() + INSTALLED;
        apply::served(&self.rest, &[&sets::resource().gvk], deadline).await?;
        Ok(!is_there)
    }

    /// Plans an apply, down to the fields. Writes nothing. The plan contains the reasons why it would be refused.
    pub async fn plan(&self, target: &Target, manifests: &[Manifest], options: &Options) -> Result<Plan, Failure> {
        let job = self.silent(target, manifests, options);
        let (_, plan) = job.unless_stopped(Box::pin(apply::read_and_plan(&job, true))).await?;
        Ok(plan)
    }

    /// Plans like [`Synk::plan`], and returns what is needed to apply this plan and no other.
    pub async fn plan_saved(
        &self,
        target: &Target,
        manifests: &[Manifest],
        options: &Options,
    ) -> Result<(Plan, Saved), Failure> {
        let job = self.silent(target, manifests, options);
        let work = async {
            let (cluster, (seen, plan)) =
                tokio::try_join!(apply::cluster(&self.rest), apply::read_and_plan(&job, true))?;
            let saved = Saved::of(&plan, &seen.input(&job), &cluster);
            Ok((plan, saved))
        };
        job.unless_stopped(Box::pin(work)).await
    }

    /// Applies a set. Writes nothing if nothing differs.
    pub async fn apply(
        &self,
        target: &Target,
        manifests: &[Manifest],
        options: &Options,
        on: &Listener<'_>,
    ) -> Result<Report, Failure> {
        let job = Job {
            rest: &self.rest,
            target,
            manifests,
            options,
            on,
        };
        apply::apply(&job, None).await
    }

    /// Applies a saved plan as it is, or not at all. The guards are those of the plan.
    pub async fn apply_saved(&self, saved: &Saved, options: &Options, on: &Listener<'_>) -> Result<Report, Failure> {
        let target = Target {
            set: saved.set.clone(),
            namespace: saved.namespace.clone(),
        };
        let options = Options {
            allowed: saved.allowed.clone(),
            ..options.clone()
        };
        let job = Job {
            rest: &self.rest,
            target: &target,
            manifests: &saved.manifests(),
            options: &options,
            on,
        };
        apply::apply(&job, Some(saved)).await
    }

    /// Finds the namespace of a set: the one that its newest version records, else the given one, else that of the
    /// kubeconfig, because some synks record none. The history of a deleted set may still be in its namespace.
    pub async fn target(&self, set: &SetName, namespace: Option<&str>) -> Result<Target, Failure> {
        let versions = self.versions(set).await?;
        if versions.is_empty() && namespace.is_none() {
            return Err(Failure::NoSet(set.clone()));
        }
        let known = versions.namespace_or(set, namespace)?;
        let usual = self.rest.clients().write.default_namespace();
        Ok(Target {
            set: set.clone(),
            namespace: known.unwrap_or(usual).to_owned(),
        })
    }

    /// Returns the versions of a set; none if the set does not exist.
    pub async fn versions(&self, set: &SetName) -> Result<Versions, Failure> {
        let sets = sets::list(&self.rest, Some(set)).await?;
        Ok(Versions::of(set, sets))
    }

    /// Returns the versions of all sets, sorted by name.
    pub async fn sets(&self) -> Result<Vec<Versions>, Failure> {
        let all = sets::list(&self.rest, None).await?;
        let mut names: Vec<SetName> = all.iter().filter_map(|set| Some(set.version()?.set)).collect();
        names.sort();
        names.dedup();
        let of = |name: SetName| {
            let own = all
                .iter()
                .filter(|set| set.version().is_some_and(|version| version.set == name));
            Versions::of(&name, own.cloned())
        };
        Ok(names.into_iter().map(of).collect())
    }

    /// Deletes a set and everything that it owns.
    pub async fn delete(&self, set: &SetName, how: &Deletion, on: &Listener<'_>) -> Result<Deleted, Failure> {
        delete::set(&self.deletion(how, on), set).await
    }

    /// Deletes a version of a set and what only that version owns.
    pub async fn delete_version(
        &self,
        version: &Version,
        how: &Deletion,
        on: &Listener<'_>,
    ) -> Result<Deleted, Failure> {
        delete::version(&self.deletion(how, on), version).await
    }

    /// Returns the versions whose manifests are kept, newest first.
    pub async fn history(&self, target: &Target) -> Result<Vec<Stored>, Failure> {
        history::list(self.rest.clients(), target).await
    }

    /// Returns the kept manifests of a version.
    pub async fn stored(&self, target: &Target, number: u64) -> Result<Vec<Manifest>, Failure> {
        history::load(self.rest.clients(), target, number).await
    }

    /// Returns the state of a set.
    pub async fn status(&self, target: &Target) -> Result<Status, Failure> {
        let set = &target.set;
        let (kinds, sets) = tokio::try_join!(discover(&self.rest), sets::list(&self.rest, Some(set)))?;
        if sets.is_empty() {
            return Err(Failure::NoSet(set.clone()));
        }
        let objects = status::objects(&sets);
        let live = live::objects(&self.rest, &kinds, &objects).await?;
        Ok(Status::of(set, &sets, &live))
    }

    /// Reads these objects, in this order; `None` for one that does not exist.
    pub async fn live(&self, objects: &[ObjectRef]) -> Result<Vec<Option<Value>>, Failure> {
        let kinds = discover(&self.rest).await?;
        live::objects(&self.rest, &kinds, objects).await
    }

    /// Waits until all of these objects are healthy.
    pub async fn wait(&self, objects: &[ObjectRef], timeout: Duration, on: &Listener<'_>) -> Result<(), Failure> {
        let kinds = discover(&self.rest).await?;
        let (rest, kinds) = (&self.rest, &kinds);
        let read = |objects: Vec<ObjectRef>| async move { live::objects(rest, kinds, &objects).await };
        wait::until_healthy(read, objects, timeout, on).await
    }

    fn silent<'a>(&'a self, target: &'a Target, manifests: &'a [Manifest], options: &'a Options) -> Job<'a> {
        Job {
            rest: &self.rest,
            target,
            manifests,
            options,
            on: &|_| {},
        }
    }

    fn deletion<'a>(&'a self, deletion: &'a Deletion, on: &'a Listener<'a>) -> delete::Job<'a> {
        delete::Job {
            rest: &self.rest,
            deletion,
            on,
        }
    }
}
