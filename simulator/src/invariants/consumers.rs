//! Nothing of the user's is deleted on the consumer by the konnector.

use bindery_api::{labels, names};
use serde_json::Value;

use super::{Account, Clusters, Invariant, Seen, Violation, marks, sources::SourceEnd};
use crate::{
    topology::{Cluster, provider_of_group},
    users::{Circumstance, Relation},
};

/// Checks a write on a consumer that left an object there: the konnector changes nothing of a Secret or ConfigMap of the user.
pub(super) fn check_data<C: Clusters>(seen: &Seen<'_, C>) -> Option<Violation> {
    let change = seen.written.change;
    let (before, after) = (change.before.as_deref()?, change.after.as_deref()?);
    let is_data = change.key.group.is_empty() && matches!(change.key.resource.as_str(), "secrets" | "configmaps");
    // In its own namespace the konnector renews the credentials that a user installed.
    let may_be_users = is_data && change.key.namespace != names::KUBE_BIND_NAMESPACE && is_users_data(before);
    if !may_be_users || seen.account != Account::Konnector || before["data"] == after["data"] {
        return None;
    }
    let message = "the konnector changed the data of an object that it had not made";
    let mut violation = seen.violation(
        Invariant::ConsumerObjectOverwritten,
        (seen.written.on.consumer(), None),
        message,
    );
    if seen.is_by_clone() {
        violation.circumstances.insert(Circumstance::WriterIsClone);
    }
    Some(violation)
}

/// Whether a Secret or ConfigMap of a consumer is the user's, and not the copy of a provider's object.
fn is_users_data(object: &Value) -> bool {
    !marks::is_copy_on_consumer(object) && marks::label(object, labels::CONTRACT_UID).is_none()
}

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
        "secrets" | "configmaps" => is_users_data(object),
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
        violation.circumstances.insert(Circumstance::WriterIsClone);
    }
    Some(violation)
}
