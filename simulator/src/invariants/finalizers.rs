//! A source keeps our finalizer until its copy is gone.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Account, Clusters, Invariant, Seen, Violation, contracts::Contracts, marks, rewinds::Rewinds};
use crate::{
    topology::{Cluster, offer_name, provider_of_group},
    users::Circumstance,
};

/// A restore that did this to a copy may bring it back after the konnector saw that it was gone.
const REVIVING: [Circumstance; 2] = [Circumstance::CopyRevived, Circumstance::CopyRewound];

/// Checks a write on a consumer.
pub(super) fn check<C: Clusters>(
    seen: &Seen<'_, C>,
    contracts: &mut Contracts,
    rewinds: &Rewinds,
    made_late: &BTreeSet<String>,
) -> Option<Violation> {
    let (written, change) = (seen.written, seen.written.change);
    let (Cluster::Consumer(consumer), Account::Konnector) = (written.on, seen.account) else {
        return None;
    };
    let provider = provider_of_group(&change.key.group)?;
    let source = change.before.as_deref().filter(|before| marks::is_held(before))?;
    if change.after.as_deref().is_some_and(marks::is_held) {
        return None;
    }
    if !is_in_use(seen, contracts, consumer, provider) {
        return None;
    }
    let is_its_copy = |object: &Value, contracts: &mut Contracts| {
        let copy = marks::copy_on_provider(object);
        copy.is_some_and(|copy| {
            let of = contracts.consumer(seen.clusters, provider, copy.contract);
            copy.source == marks::uid(source) && !copy.released && !copy.retained && of == Some(consumer)
        })
    };
    let objects = seen.clusters.objects(Cluster::Provider(provider));
    let mut copies = objects.iter().filter(|(key, _)| key.group == change.key.group);
    let (key, copy) = copies.find(|(_, object)| is_its_copy(object, contracts))?;
    let of_copy = rewinds.of_copy(Cluster::Provider(provider), key, marks::uid(copy));
    if of_copy.iter().any(|circumstance| REVIVING.contains(circumstance)) {
        return None;
    }
    // A clone that has not seen yet that another konnector holds the contract makes the copy again that this one has ended.
    if rewinds.is_made_again(Cluster::Provider(provider), marks::uid(copy)) {
        return None;
    }
    // The konnector deletes it when it sees it.
    if made_late.contains(marks::uid(copy)) {
        return None;
    }
    let message = format!("the konnector let a source go while its copy {key} exists");
    let pair = (Some(consumer), Some(provider));
    let mut violation = seen.violation(Invariant::SourceReleasedEarly, pair, &message);
    let of_source = rewinds.of_source(written.on, marks::uid(source));
    violation.circumstances.extend(of_source.into_iter().chain(of_copy));
    Some(violation)
}

/// Whether the consumer has a binding of the provider's API that stays, and its contract the export. Otherwise sources are let go
/// without their copies.
pub(super) fn is_in_use<C: Clusters>(
    seen: &Seen<'_, C>,
    contracts: &mut Contracts,
    consumer: u8,
    provider: u8,
) -> bool {
    let name = offer_name(provider);
    let bindings = seen.clusters.objects(Cluster::Consumer(consumer));
    let is_bound = bindings
        .iter()
        .any(|(key, object)| marks::is_binding_of(key, object, &name) && !marks::is_deleting(object));
    let exports = seen.clusters.objects(Cluster::Provider(provider));
    let mut exports = exports
        .iter()
        .filter(|(key, object)| key.resource == "apiserviceexports" && key.name == name && !marks::is_deleting(object));
    is_bound && exports.any(|(key, _)| contracts.consumer(seen.clusters, provider, &key.namespace) == Some(consumer))
}
