//! Drains consumer objects without the provider's word: for a binding whose export is gone, whose unbind the user forces, which ends
//! while its provider cannot be reached, or whose objects stay.
//!
//! A [`Drain`] watches its resources. `plan`, a pure function, decides what to write to one object; `state` holds what was seen
//! and makes the progress of it; `worker` sends the requests and tries again what failed. A drain that deletes or lets go what is not
//! being deleted reads its binding after each list: a restore of the consumer may have brought the objects back, and the binding as it was
//! before its end, which the caches show later.

mod plan;
mod state;
mod worker;

use std::{collections::BTreeSet, sync::Arc};

use bindery_api::{
    labels,
    v1alpha2::{APIServiceBinding, GroupResource, Owner, Scope},
};
use bindery_runtime::client::Clients;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::model::BoundResource;
use state::{Collection, DrainState};
use worker::{Drained, Ending, Shared};

/// Which objects a drain ends, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainMode {
    /// The drain takes the konnector's finalizer off objects that are being deleted. It waits for no copy on the provider.
    Deleted,
    /// The drain also deletes all other objects.
    All,
    /// The drain deletes no object, and takes the konnector's finalizer off all.
    LetGo,
    /// The drain deletes the copies that a contract brought, which have no finalizer of the konnector.
    Copies,
}

/// How far a drain has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainProgress {
    /// The number of objects that are still there, or of those that still have the konnector's finalizer if the drain deletes none;
    /// `None` until all resources are listed.
    pub remaining: Option<usize>,
    /// What keeps the drain from going on, in one sentence; `None` as soon as its cause has ended.
    pub problem: Option<String>,
}

/// Drains objects until it is dropped.
#[derive(Debug)]
pub struct Drain {
    mode: DrainMode,
    progress: watch::Receiver<DrainProgress>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

// === impl Drain ===

impl Drain {
    /// Starts to drain the objects of a CRD of a binding. `None` if the CRD serves no version.
    pub fn of_crd(
        consumer: &Clients,
        binding: &APIServiceBinding,
        crd: &CustomResourceDefinition,
        mode: DrainMode,
    ) -> Option<Self> {
        let version = crd.spec.versions.iter().find(|version| version.served)?;
        let names = &crd.spec.names;
        let served = BoundResource {
            group: crd.spec.group.as_str().into(),
            version: version.name.as_str().into(),
            plural: names.plural.as_str().into(),
            kind: names.kind.as_str().into(),
            scope: Scope::Cluster,
            status_subresource: false,
        };
        let collection = Collection {
            resource: GroupResource::new(crd.spec.group.as_str(), names.plural.as_str()),
            namespace: None,
        };
        let drained = Drained {
            collection,
            served: Some(served),
            selector: None,
        };
        // An object that is being deleted goes by its own timestamp.
        let ending = (mode != DrainMode::Deleted).then(|| Ending::of(binding));
        Some(Self::start(consumer, mode, ending, vec![drained]))
    }

    /// Starts to delete the copies of these resources that the contract of this UID brought, in these namespaces or, with `None`, in all.
    pub fn of_copies(
        consumer: &Clients,
        contract_uid: &str,
        resources: Vec<GroupResource>,
        namespaces: Option<&BTreeSet<String>>,
    ) -> Self {
        let (owner, contract) = (labels::OWNER, labels::CONTRACT_UID);
        let selector = format!("{owner}={},{contract}={contract_uid}", Owner::Provider);
        let namespaces: Vec<_> = match namespaces {
            None => vec![None],
            Some(namespaces) => namespaces.iter().cloned().map(Some).collect(),
        };
        let collections = resources.into_iter().flat_map(|resource| {
            let of = move |namespace: &Option<String>| Collection {
                resource: resource.clone(),
                namespace: namespace.clone(),
            };
            namespaces.iter().map(of).collect::<Vec<_>>()
        });
        let drained = collections.map(|collection| Drained {
            collection,
            served: None,
            selector: Some(selector.clone()),
        });
        Self::start(consumer, DrainMode::Copies, None, drained.collect())
    }

    fn start(consumer: &Clients, mode: DrainMode, ending: Option<Ending>, drained: Vec<Drained>) -> Self {
        let collections = drained.iter().map(|drained| drained.collection.clone());
        let state = DrainState::new(mode, collections);
        let shared = Arc::new(Shared::new(consumer.clone(), mode, ending, state));
        let progress = shared.progress.subscribe();
        let publisher = tokio::spawn(worker::publish(Arc::clone(&shared)));
        let workers = drained
            .into_iter()
            .map(|drained| tokio::spawn(worker::drain(Arc::clone(&shared), drained)));
        Self {
            mode,
            progress,
            _tasks: workers.chain([publisher]).map(AbortOnDropHandle::new).collect(),
        }
    }

    /// Which objects the drain ends.
    pub fn mode(&self) -> DrainMode {
        self.mode
    }

    /// How far the drain has come, to read or to wait for.
    pub fn progress(&self) -> watch::Receiver<DrainProgress> {
        self.progress.clone()
    }
}

#[cfg(test)]
mod tests;
