//! A retained copy ends by the server at its time, or by its user's word, and a copy that has to be retained is not deleted instead.

use bindery_api::{annotations, retention::RetentionMark};
use bindery_simulator_apiserver::ObjectKey;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Account, Clusters, Invariant, Seen, Violation, contracts::Contracts, marks, relation};
use crate::topology::{group, offer_name};

/// A restore has a day, by the clock of the server, and its copy was retained before by the clock of the konnector.
const RESTORE_MIN: SignedDuration = SignedDuration::from_hours(23);

/// Checks a write on a provider.
pub(super) fn check<C: Clusters>(seen: &Seen<'_, C>, contracts: &mut Contracts) -> Option<Violation> {
    let change = seen.written.change;
    let (before, after) = (change.before.as_deref(), change.after.as_deref());
    let object = before.filter(|_| marks::has_ended(before, after))?;
    let copy = marks::copy_on_provider(object).filter(|copy| !copy.claimed && !copy.released)?;
    let provider = seen
        .provider()
        .filter(|provider| change.key.group == group(*provider))?;
    let consumer = contracts.consumer(seen.clusters, provider, copy.contract)?;
    let relation = relation(Some(consumer), Some(provider))?;
    let is_ordered = || seen.ledger.allows_end_of_retained(relation, copy.source);
    let message = match seen.account {
        Account::Server if copy.retained => {
            if has_time(object) {
                return None;
            }
            "the server ended a retained copy that had no time, or whose restore had none"
        }
        Account::Contract(_) if copy.retained && !is_ordered() => "a retained copy ended that nobody discarded",
        Account::Contract(_) if !copy.retained && !is_ordered() => {
            let export = ObjectKey::new(
                "kube-bind.io",
                "apiserviceexports",
                copy.contract,
                &offer_name(provider),
            );
            let export = seen.clusters.object(seen.written.on, &export)?;
            if export["spec"].get("retention").is_none() || marks::is_deleting(&export) {
                return None;
            }
            "a copy was deleted that had to be retained"
        }
        _ => return None,
    };
    Some(seen.violation(Invariant::RetainedCopyEnded, (Some(consumer), Some(provider)), message))
}

/// Whether a retained copy has a time at which it ends: one of its own if it is being restored.
fn has_time(copy: &Value) -> bool {
    let until = marks::annotation(copy, annotations::RETAINED_UNTIL);
    if marks::annotation(copy, annotations::RESTORING).is_none() {
        return until.is_some();
    }
    let until = until.and_then(|until| until.parse::<Timestamp>().ok());
    let mark = marks::annotation(copy, annotations::RETAINED).and_then(RetentionMark::read);
    mark.zip(until)
        .is_some_and(|(mark, until)| until.duration_since(mark.since) >= RESTORE_MIN)
}
