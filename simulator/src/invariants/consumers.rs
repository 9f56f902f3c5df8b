//! Nothing of the user's is deleted on the consumer by the konnector.

use bindery_api::{labels, names};
use jiff::SignedDuration;
use serde_json::Value;

use super::{Account, Clusters, Invariant, Seen, Violation, marks, sources::SourceEnd};
use crate::{
    topology::{Cluster, provider_of_group},
    users::{Circumstance, Relation},
};

/// Between the look of a bundle at objects and the end of its binding there is less than this. API servers tell times in whole seconds.
const AROUND_AN_UNBIND: SignedDuration = SignedDuration::from_secs(1);

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
                || comes_with_an_unbind(seen, relation, object)
                || goes_with_an_earlier_binding(seen, relation, object)
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

/// Whether the binding of a cluster is one that a user had ended before the backup from which the cluster was made: it goes on with that.
fn goes_with_an_earlier_binding<C: Clusters>(seen: &Seen<'_, C>, relation: Relation, object: &Value) -> bool {
    let binding = seen.binding_on(seen.written.on, relation.provider);
    binding
        .filter(|binding| marks::is_deleting(binding))
        .is_some_and(|binding| {
            let (source, binding) = (marks::uid(object), marks::uid(&binding));
            seen.ledger.allows_end_with(relation, source, binding)
        })
}

/// Whether a user created this object while a bundle ended its binding as one without objects, because the owner had unbound the export by
/// a call. Kubernetes deletes no CRD on the condition that it has no objects, so that what comes between the look and the end goes with it.
fn comes_with_an_unbind<C: Clusters>(seen: &Seen<'_, C>, relation: Relation, object: &Value) -> bool {
    let of = (Some(relation.consumer), Some(relation.provider));
    let is_unbound = seen
        .ledger
        .circumstances(of.0, of.1)
        .contains(&Circumstance::UnboundByCall);
    let ends = seen
        .binding(relation)
        .and_then(|binding| marks::time(&binding, "deletionTimestamp"));
    let created = marks::time(object, "creationTimestamp");
    is_unbound
        && ends
            .zip(created)
            .is_some_and(|(ends, created)| created + AROUND_AN_UNBIND >= ends)
}
