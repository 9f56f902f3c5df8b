//! Which consumer a contract belongs to; and that no contract writes what belongs to another.

use std::collections::{BTreeMap, BTreeSet};

use bindery_api::{annotations, labels};
use bindery_simulator_apiserver::ObjectKey;

use super::{Account, Clusters, Invariant, Seen, Violation, marks};
use crate::topology::Cluster;

/// The contracts of all providers.
#[derive(Debug, Default)]
pub(super) struct Contracts {
    identities: BTreeMap<String, u8>,
    consumers: BTreeMap<(u8, String), u8>,
    /// Namespaces and CRDs of providers that their operators deleted.
    ended: BTreeSet<(Cluster, ObjectKey)>,
}

impl Contracts {
    pub(super) fn identify(&mut self, consumer: u8, identity: &str) {
        self.identities.insert(identity.to_owned(), consumer);
    }

    /// The consumer of a contract. A contract that has ended is remembered.
    pub(super) fn consumer(&mut self, clusters: &impl Clusters, provider: u8, contract: &str) -> Option<u8> {
        let known = (provider, contract.to_owned());
        if let Some(consumer) = self.consumers.get(&known) {
            return Some(*consumer);
        }
        let key = ObjectKey::new("", "namespaces", "", contract);
        let namespace = clusters.object(Cluster::Provider(provider), &key)?;
        let identity = marks::annotation(&namespace, annotations::IDENTITY)?;
        let consumer = *self.identities.get(identity)?;
        self.consumers.insert(known, consumer);
        Some(consumer)
    }

    /// Whether an object of a provider went with a namespace or a CRD that the operator deleted.
    pub(super) fn was_ended_by_operator<C: Clusters>(&self, seen: &Seen<'_, C>, key: &ObjectKey) -> bool {
        let on = seen.written.on;
        let namespace = ObjectKey::new("", "namespaces", "", &key.namespace);
        let name = format!("{}.{}", key.resource, key.group);
        let definition = ObjectKey::new("apiextensions.k8s.io", "customresourcedefinitions", "", &name);
        [namespace, definition]
            .into_iter()
            .any(|key| self.ended.contains(&(on, key)))
    }
}

/// Checks a write on a provider.
pub(super) fn check<C: Clusters>(seen: &Seen<'_, C>, contracts: &mut Contracts) -> Option<Violation> {
    let change = seen.written.change;
    let (before, after) = (change.before.as_deref(), change.after.as_deref());
    if matches!(seen.account, Account::User(_))
        && matches!(change.key.resource.as_str(), "namespaces" | "customresourcedefinitions")
        && marks::has_ended(before, after)
    {
        contracts.ended.insert((seen.written.on, change.key.clone()));
    }
    let Account::Contract(own) = seen.account else {
        return None;
    };
    let mark = before.and_then(|before| marks::annotation(before, annotations::CLUSTER_NAMESPACE));
    let of_namespace = || {
        let key = ObjectKey::new("", "namespaces", "", &change.key.namespace);
        let namespace = seen.clusters.object(seen.written.on, &key)?;
        Some(marks::label(&namespace, labels::CONTRACT)?.to_owned())
    };
    let owner = mark
        .map(str::to_owned)
        .or_else(of_namespace)
        .filter(|owner| owner != own)?;
    let provider = seen.provider();
    let consumer = contracts.consumer(seen.clusters, provider?, own);
    let message = format!("contract {own} wrote what belongs to contract {owner}");
    Some(seen.violation(Invariant::WriteAcrossContracts, (consumer, provider), &message))
}
