//! Objects that the operator of a provider made, and that nothing claims, end only by the operator.

use bindery_api::labels;
use bindery_simulator_apiserver::ObjectKey;
use jiff::SignedDuration;
use serde_json::Value;

use super::{
    Account, Clusters, Invariant, Seen, Violation, contracts::Contracts, finalizers, marks, relation, rewinds::Rewinds,
    sources::Sources,
};
use crate::{
    topology::{Cluster, PLURAL, group},
    users::{Circumstance, Relation},
};

/// The label of objects that operators of a history put beside copies.
pub const BESIDE: &str = "example.dev/operators-own";

/// A server deletes a provider namespace within this time after it has begun to look at what is in it. API servers tell times in seconds.
const LOOK: SignedDuration = SignedDuration::from_secs(2);

/// Checks a write on a provider.
pub(super) fn check<C: Clusters>(
    seen: &Seen<'_, C>,
    contracts: &mut Contracts,
    sources: &Sources,
    rewinds: &Rewinds,
) -> Option<Violation> {
    let change = seen.written.change;
    let (before, after) = (change.before.as_deref(), change.after.as_deref());
    let object = before.filter(|_| marks::has_ended(before, after))?;
    marks::label(object, BESIDE)?;
    let by_operator = match seen.account {
        Account::User(_) => true,
        Account::Controller(_) => contracts.was_ended_by_operator(seen, &change.key),
        Account::Konnector | Account::Contract(_) | Account::Server => false,
    };
    if by_operator {
        return None;
    }
    let (on, provider) = (seen.written.on, seen.provider());
    let place = &change.key.namespace;
    let namespace = ObjectKey::new("", "namespaces", "", place);
    let namespace = seen.clusters.object(on, &namespace);
    let is_late = |namespace: &Value| came_late(object, namespace);
    if namespace.as_deref().is_some_and(is_late) {
        return None;
    }
    let contract = namespace
        .as_deref()
        .and_then(|object| marks::label(object, labels::CONTRACT));
    let consumer = contract.and_then(|contract| contracts.consumer(seen.clusters, provider?, contract));
    let message = format!("the operator's own object ended with {place}");
    let mut violation = seen.violation(Invariant::OperatorObjectDeleted, (consumer, provider), &message);
    violation
        .circumstances
        .extend(rewinds.of_copy(on, &change.key, marks::uid(object)));
    let own = contract.and_then(|contract| place.strip_prefix(contract)?.strip_prefix('-'));
    if let (Some(relation), Some(own)) = (relation(consumer, provider), own)
        && is_given_back(seen, contracts, sources, relation, own)
    {
        violation.circumstances.insert(Circumstance::ObjectsBeside);
    }
    Some(violation)
}

/// Whether an object came when the server had looked already at what is in its namespace. No request deletes a namespace on condition that
/// nothing came into it.
fn came_late(object: &Value, namespace: &Value) -> bool {
    let (came, ended) = (
        marks::time(object, "creationTimestamp"),
        marks::time(namespace, "deletionTimestamp"),
    );
    came.zip(ended)
        .is_some_and(|(came, ended)| ended.duration_since(came) <= LOOK)
}

/// Whether the product gives the provider namespace of a consumer's namespace back: the use of the API ends, a user deleted the
/// consumer's namespace, or the namespace has no bound object that the konnector knows.
fn is_given_back<C: Clusters>(
    seen: &Seen<'_, C>,
    contracts: &mut Contracts,
    sources: &Sources,
    relation: Relation,
    namespace: &str,
) -> bool {
    let Relation { consumer, provider } = relation;
    let is_ending = seen.ending(Some((consumer, provider))).is_some()
        || !finalizers::is_in_use(seen, contracts, consumer, provider);
    if is_ending || sources.has_user_deleted_namespace(consumer, namespace) {
        return true;
    }
    let group = group(provider);
    let objects = seen.clusters.objects(Cluster::Consumer(consumer));
    // The konnector may not know yet of an object without its finalizer.
    !objects.iter().any(|(key, object)| {
        let is_bound = key.group == group && key.resource == PLURAL && key.namespace == namespace;
        is_bound && marks::is_held(object) && !marks::is_deleting(object)
    })
}
