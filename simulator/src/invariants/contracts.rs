//! Which consumer a contract belongs to; and that no contract writes what belongs to another.

use std::collections::{BTreeMap, BTreeSet};

use bindery_api::{annotations, labels};
use bindery_simulator_apiserver::ObjectKey;
use serde_json::Value;

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

    /// The consumer that an object of a provider is for: its label names the contract, or the contract's name is its namespace, its
    /// name, or a prefix of either.
    pub(super) fn consumer_of(
        &mut self,
        clusters: &impl Clusters,
        provider: u8,
        (key, object): (&ObjectKey, Option<&Value>),
    ) -> Option<u8> {
        let of_label = object.and_then(|object| marks::label(object, labels::CONTRACT));
        if let Some(consumer) = of_label.and_then(|contract| self.consumer(clusters, provider, contract)) {
            return Some(consumer);
        }
        let place = if key.namespace.is_empty() {
            &key.name
        } else {
            &key.namespace
        };
        let is_of = |contract: &str| {
            let rest = place.strip_prefix(contract);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let mut known = self.consumers.iter();
        let (_, consumer) = known.find(|((of, contract), _)| *of == provider && is_of(contract))?;
        Some(*consumer)
    }

    /// The contract whose name is the prefix of a cluster-scoped object's name.
    fn of_name(&self, provider: u8, key: &ObjectKey) -> Option<String> {
        if !key.namespace.is_empty() {
            return None;
        }
        let is_prefix = |contract: &&String| {
            let rest = key.name.strip_prefix(contract.as_str());
            rest.is_some_and(|rest| rest.starts_with('-'))
        };
        let mut contracts = self.of_provider(provider);
        contracts.find(is_prefix).cloned()
    }

    /// Whether the namespace of a known contract of any provider has this UID, and is not being deleted.
    fn lives(&self, clusters: &impl Clusters, uid: &str) -> bool {
        self.consumers.keys().any(|(provider, contract)| {
            let key = ObjectKey::new("", "namespaces", "", contract);
            let namespace = clusters.object(Cluster::Provider(*provider), &key);
            namespace.is_some_and(|object| marks::uid(&object) == uid && !marks::is_deleting(&object))
        })
    }

    /// The names of the known contracts of a provider.
    fn of_provider(&self, provider: u8) -> impl Iterator<Item = &String> {
        let known = self.consumers.keys();
        known
            .filter(move |(of, _)| *of == provider)
            .map(|(_, contract)| contract)
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
    let provider = seen.provider();
    let mark = |object| marks::annotation(object, annotations::CLUSTER_NAMESPACE);
    let namespace = ObjectKey::new("", "namespaces", "", &change.key.namespace);
    let namespace = seen.clusters.object(seen.written.on, &namespace);
    let of_namespace = namespace
        .as_deref()
        .and_then(|object| marks::label(object, labels::CONTRACT));
    let of_name = contracts.of_name(provider?, &change.key);
    let owners = [
        before.and_then(mark),
        after.and_then(mark),
        of_namespace,
        of_name.as_deref(),
    ];
    let owner = owners.into_iter().flatten().find(|owner| *owner != own)?;
    let consumer = contracts.consumer(seen.clusters, provider?, own);
    let message = format!("contract {own} wrote what belongs to contract {owner}");
    Some(seen.violation(Invariant::WriteAcrossContracts, (consumer, provider), &message))
}

/// Checks a write on a consumer: the session of one contract does not take the copy of a claimed object that the session of another
/// contract made, while that contract lives.
pub(super) fn check_on_consumer<C: Clusters>(seen: &Seen<'_, C>, contracts: &Contracts) -> Option<Violation> {
    let change = seen.written.change;
    let (before, after) = (change.before.as_deref()?, change.after.as_deref()?);
    let is_copy = marks::is_copy_on_consumer(before) && seen.account == Account::Konnector;
    let owner = marks::label(before, labels::CONTRACT_UID).filter(|_| is_copy)?;
    let own = marks::label(after, labels::CONTRACT_UID).filter(|own| *own != owner)?;
    if !contracts.lives(seen.clusters, owner) {
        return None;
    }
    let message = format!("the contract with UID {own} took a copy of the contract with UID {owner}");
    Some(seen.violation(
        Invariant::WriteAcrossContracts,
        (seen.written.on.consumer(), None),
        &message,
    ))
}
