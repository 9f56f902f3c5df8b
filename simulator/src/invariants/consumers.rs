//! Nothing of the user's is deleted on the consumer by the konnector.

use bindery_api::labels;

use super::{Account, Clusters, Invariant, Seen, Violation, marks, sources::SourceEnd};
use crate::{
    topology::{Cluster, provider_of_group},
    users::Relation,
};

/// Checks a write on a consumer that ended an object in this way.
pub(super) fn check<C: Clusters>(seen: &Seen<'_, C>, end: Option<SourceEnd>) -> Option<Violation> {
    end?;
    if seen.account != Account::Konnector {
        return None;
    }
    let change = seen.written.change;
    let object = change.before.as_deref()?;
    let provider = provider_of_group(&change.key.group);
    let consumer = seen.written.on.consumer();
    let is_users = match change.key.resource.as_str() {
        _ if provider.is_some() => true,
        "secrets" | "configmaps" => {
            !marks::is_copy_on_consumer(object) && marks::label(object, labels::CONTRACT_UID).is_none()
        }
        "namespaces" => true,
        _ => false,
    };
    let said = match (consumer, provider) {
        (Some(consumer), Some(provider)) => {
            let relation = Relation { consumer, provider };
            let binding = seen.binding_uid(relation);
            seen.ledger
                .allows_end_of_source(relation, marks::uid(object), binding.as_deref())
        }
        _ => false,
    };
    if !is_users || said {
        return None;
    }
    let mut violation = seen.violation(
        Invariant::ConsumerObjectDeleted,
        (consumer, provider),
        "the konnector deleted an object that it had not made",
    );
    violation.circumstances.extend(seen.ending(consumer.zip(provider)));
    if matches!(seen.written.on, Cluster::Clone(_)) {
        violation
            .circumstances
            .insert(crate::users::Circumstance::WriterIsClone);
    }
    Some(violation)
}
