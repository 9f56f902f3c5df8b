//! What keeps `dev up` from installing, and `dev down` from removing: objects that `dev up` did not make.

use bindery_api::{
    labels, meta,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle},
};
use bindery_synk::ObjectRef;
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt as _;
use serde_json::Value;

use super::{LABEL, LABELLED};
use crate::{errors::conflict::Conflict, install::owner::bundle_of, text::joined};

/// Whether `dev up` made an object.
pub(crate) fn is_ours(meta: &ObjectMeta) -> bool {
    meta.labels
        .as_ref()
        .and_then(|labels| labels.get(LABEL))
        .is_some_and(|value| value == LABELLED)
}

/// Whether a ClusterRole is nothing but what the controller of aggregated roles wrote, which makes one again that was just deleted.
pub(crate) fn is_made_again(meta: &ObjectMeta) -> bool {
    let mut managers = meta
        .managed_fields
        .iter()
        .flatten()
        .map(|entry| entry.manager.as_deref());
    let has_fields = meta.managed_fields.as_ref().is_some_and(|fields| !fields.is_empty());
    has_fields && managers.all(|manager| manager == Some("clusterrole-aggregation-controller"))
}

/// Refuses to install where an object exists that `dev up` did not make. `live` is in the order of `wanted`.
pub(crate) fn refuse_foreign(context: &str, wanted: &[ObjectRef], live: &[Option<Value>]) -> Result<(), Conflict> {
    let is_foreign = |live: &Option<Value>| {
        let live = live.as_ref();
        live.is_some_and(|live| live["metadata"]["labels"][LABEL] != LABELLED)
    };
    let foreign = wanted.iter().zip(live).filter(|(_, live)| is_foreign(live));
    let foreign: Vec<_> = foreign.map(|(object, _)| object.short()).collect();
    if foreign.is_empty() {
        return Ok(());
    }
    Err(Conflict::NotOfDev {
        context: context.to_owned(),
        objects: joined(foreign),
    })
}

/// Refuses to remove the konnector while there are bindings or bundles that `dev up` did not make.
pub(crate) fn refuse_bound(
    context: &str,
    bindings: &[APIServiceBinding],
    bundles: &[APIServiceBindingBundle],
) -> Result<(), Conflict> {
    // Deleting a bundle deletes its bindings.
    let bindings = bindings
        .iter()
        .filter(|binding| !is_ours(&binding.metadata) && bundle_of(binding).is_none());
    let bundles = bundles.iter().filter(|bundle| !is_ours(&bundle.metadata));
    let bindings = bindings.map(|binding| format!("APIServiceBinding {}", binding.name_any()));
    let bundles = bundles.map(|bundle| format!("APIServiceBindingBundle {}", bundle.name_any()));
    let others: Vec<_> = bindings.chain(bundles).collect();
    if others.is_empty() {
        return Ok(());
    }
    Err(Conflict::BoundBeside {
        context: context.to_owned(),
        others: joined(others),
    })
}

/// The contract namespaces of the cluster with this identity. Refuses to remove the server while other clusters have contracts.
pub(crate) fn own_contracts<'a>(
    context: &str,
    identity: &str,
    namespaces: &'a [Namespace],
) -> Result<Vec<&'a Namespace>, Conflict> {
    let is_contract = |namespace: &&Namespace| namespace.labels().get(labels::CONTRACT) == Some(&namespace.name_any());
    let is_own = |namespace: &&Namespace| meta::identity(&namespace.metadata) == Some(identity);
    let (own, others): (Vec<_>, Vec<_>) = namespaces.iter().filter(is_contract).partition(is_own);
    if others.is_empty() {
        return Ok(own);
    }
    let named = others.iter().map(|namespace| {
        let identity = meta::identity(&namespace.metadata).unwrap_or("unknown");
        format!("contract {} of cluster {identity}", namespace.name_any())
    });
    Err(Conflict::BoundBeside {
        context: context.to_owned(),
        others: joined(named),
    })
}

#[cfg(test)]
#[path = "guard/tests.rs"]
mod tests;
