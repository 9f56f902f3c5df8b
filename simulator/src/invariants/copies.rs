//! No copy ends or is retained without evidence that its source was deleted, or the user's explicit word.
//!
//! The server that ends a retained copy at its time knows nothing of the consumer: the evidence had to be there when the copy was retained.

use bindery_simulator_apiserver::ObjectKey;
use serde_json::Value;

use super::{
    Account, Clusters, Invariant, Seen, Violation, contracts::Contracts, marks, relation, rewinds::Rewinds,
    sources::Sources,
};
use crate::{topology::Cluster, users::Circumstance};

/// Checks a write on a provider.
pub(super) fn check<C: Clusters>(
    seen: &Seen<'_, C>,
    contracts: &mut Contracts,
    sources: &Sources,
    rewinds: &Rewinds,
) -> Option<Violation> {
    let change = seen.written.change;
    let (before, after) = (change.before.as_deref(), change.after.as_deref());
    let is_retained_now = marks::is_retained_now(before, after);
    let object = before.filter(|_| is_retained_now || marks::has_ended(before, after))?;
    let copy = marks::copy_on_provider(object)?;
    match seen.account {
        // The operator may do so on their own cluster.
        Account::User(_) => return None,
        Account::Server if copy.retained => return None,
        Account::Controller(_) if contracts.was_ended_by_operator(seen, &change.key) => return None,
        _ => {}
    }
    let provider = seen.provider();
    let consumer = contracts.consumer(seen.clusters, provider?, copy.contract);
    let relation = relation(consumer, provider)?;
    let (source, end) = (copy.source, sources.end(relation.consumer, copy.source));
    if sources.was_ended_by_user(relation.consumer, source) {
        return None;
    }
    // There was evidence, and nothing of the restored consumer had reached the process when it sent the request. Nothing calls the request
    // back when a restore overtakes it, or the last answer before it.
    if sources.was_taken_back_since(relation.consumer, source, seen.written.informed) {
        return None;
    }
    // A clone that holds the contract is its consumer, whose users decide. [`super::holders`] checks that it holds the contract.
    if seen.is_by_clone() && sources.was_ended_on_clone(relation.consumer, source) {
        return None;
    }
    let binding = seen.binding_uid(relation);
    if seen.ledger.allows_end_of_copy(relation, source, binding.as_deref()) {
        return None;
    }
    let live = sources.live(relation.consumer, source);
    // A clone from within one heartbeat that took the contract lacks the claimed sources and the references that came after its backup, and
    // its users claim others. It may withdraw copies until the first konnector contests it. [`super::holders`] checks that it took the contract.
    if seen.is_by_clone() && copy.claimed {
        return None;
    }
    if copy.claimed && (live.is_none() || !is_still_claimed(seen, relation.consumer, source, sources)) {
        // The source of a claimed object is never written, so a complete list without it is evidence enough.
        return None;
    }
    if is_in_namespace_given_up(seen, relation.consumer, copy.contract, object, live) {
        return None;
    }
    let name = if copy.released { "released copy" } else { "copy" };
    let what = if is_retained_now { "was retained" } else { "ended" };
    let why = match (end, live) {
        (None, Some(source)) => format!("its source {source} lives"),
        (Some(end), _) => format!("its source ended: {end:?}"),
        (None, None) => "its source was never seen to end".to_owned(),
    };
    let pair = (Some(relation.consumer), Some(relation.provider));
    let mut violation = seen.violation(
        Invariant::CopyEndedWithoutEvidence,
        pair,
        &format!("a {name} {what} although {why}"),
    );
    violation.circumstances.insert(match (end, live) {
        (None, Some(_)) => Circumstance::SourceLives,
        (Some(end), _) => end.circumstance(),
        (None, None) => Circumstance::SourceLost,
    });
    if seen.is_by_clone() {
        violation.circumstances.insert(Circumstance::WriterIsClone);
    }
    let (on, consumer) = (seen.written.on, Cluster::Consumer(relation.consumer));
    let circumstances = &mut violation.circumstances;
    circumstances.extend(seen.ending(Some((relation.consumer, relation.provider))));
    circumstances.extend(rewinds.of_source(consumer, source));
    circumstances.extend(rewinds.of_copy(on, &change.key, marks::uid(object)));
    let is_accepted = seen.ledger.accepts(relation, circumstances);
    (!is_accepted).then_some(violation)
}

/// Whether a claimed source that exists is still claimed for certain. Labels, references, claims and bindings change, and a
/// konnector may be late: so only a source whose label was never removed counts, under a binding that nobody ended.
fn is_still_claimed<C: Clusters>(seen: &Seen<'_, C>, consumer: u8, uid: &str, sources: &Sources) -> bool {
    let Some(key) = sources.live(consumer, uid) else {
        return false;
    };
    let known = seen.ledger.circumstances(Some(consumer), seen.provider());
    let ended = [
        Circumstance::Unbound,
        Circumstance::UnboundKeeping,
        Circumstance::UnboundDeleting,
    ];
    if ended.iter().any(|circumstance| known.contains(circumstance)) {
        return false;
    }
    // Without a bound object the provider namespace may be given back, and claimed copies with it.
    let group = crate::topology::group(seen.provider().unwrap_or_default());
    let bound = seen.clusters.objects(Cluster::Consumer(consumer));
    let is_mapped = bound
        .iter()
        .any(|(other, object)| other.group == group && other.namespace == key.namespace && !marks::is_deleting(object));
    if !is_mapped {
        return false;
    }
    let on = Cluster::Consumer(consumer);
    let object = seen.clusters.object(on, key);
    let steady = seen.provider().unwrap_or_default().to_string();
    object.is_some_and(|object| !marks::is_deleting(&object) && marks::annotation(&object, STEADY) == Some(&*steady))
}

/// Whether a copy ends with its provider namespace that was given up before the copy was made, or in the same second: the creation was on
/// its way then. The source is in a namespace of the consumer that a user forced to end.
fn is_in_namespace_given_up<C: Clusters>(
    seen: &Seen<'_, C>,
    consumer: u8,
    contract: &str,
    copy: &Value,
    source: Option<&ObjectKey>,
) -> bool {
    let (Account::Controller(_), Some(source)) = (seen.account, source) else {
        return false;
    };
    let namespace = ObjectKey::new("", "namespaces", "", &source.namespace);
    let is_there = seen.clusters.object(Cluster::Consumer(consumer), &namespace).is_some();
    let request = ObjectKey::new("kube-bind.io", "apiservicenamespaces", contract, &source.namespace);
    let request = seen.clusters.object(seen.written.on, &request);
    let given_up = request
        .as_ref()
        .and_then(|request| request["metadata"]["deletionTimestamp"].as_str());
    let made = copy["metadata"]["creationTimestamp"].as_str();
    !is_there && given_up.zip(made).is_some_and(|(given_up, made)| given_up <= made)
}

/// The annotation of sources that a history never deselects, with the number of the provider that claims them. Histories set it on objects
/// that a claim selects by name.
pub const STEADY: &str = "example.dev/always-claimed";
