//! What keeps `dev up` from installing, and `dev down` from removing: objects that `dev up` did not make.

use bindery_api::{
    annotations, labels, meta,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle, APIServiceExport, BindableResourcesRequest, GroupResource},
};
use bindery_synk::ObjectRef;
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt as _;
use serde_json::Value;

use super::{EXAMPLE, EXAMPLE_DEFINITION, LABEL, LABELLED, PRETTY_NAME};
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
        mend: "end that first with `kubectl bind unbind NAME`, then run this again".to_owned(),
    })
}

/// What becomes of a request for the example that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It asks for this consumer.
    Same,
    /// It asks for another cluster, such as one of which the consumer has taken the place.
    ForOther,
}

/// Judges a request for the example that exists. Refuses one that `dev up` did not make.
pub(crate) fn asked(context: &str, identity: &str, request: &BindableResourcesRequest) -> Result<Asked, Conflict> {
    if !is_ours(&request.metadata) {
        return Err(Conflict::NotOfDev {
            context: context.to_owned(),
            objects: format!(
                "bindableresourcesrequest.kube-bind.io/{} in namespace {}",
                request.name_any(),
                request.namespace().unwrap_or_default()
            ),
        });
    }
    if request.spec.cluster_identity.identity == identity {
        Ok(Asked::Same)
    } else {
        Ok(Asked::ForOther)
    }
}

/// Whose contracts `dev down` ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending<'a> {
    /// Context of the provider.
    pub(crate) context: &'a str,
    /// The identity of the consumer, whose contract ends.
    pub(crate) identity: &'a str,
    /// Whether the contracts end too that `dev up` made for other consumers.
    pub(crate) all: bool,
    /// The command that ends these too.
    pub(crate) end_all: &'a str,
}

/// The contract namespaces that end. Refuses to remove the server while other clusters have contracts.
pub(crate) fn ending<'a>(of: &Ending<'_>, namespaces: &'a [Namespace]) -> Result<Vec<&'a Namespace>, Conflict> {
    let is_contract = |namespace: &&Namespace| namespace.labels().get(labels::CONTRACT) == Some(&namespace.name_any());
    let is_of_dev = |namespace: &Namespace| {
        let name = namespace.annotations().get(annotations::CLUSTER_PRETTY_NAME);
        name.is_some_and(|name| name == PRETTY_NAME)
    };
    let ends = |namespace: &&Namespace| {
        meta::identity(&namespace.metadata) == Some(of.identity) || of.all && is_of_dev(namespace)
    };
    let (ending, others): (Vec<_>, Vec<_>) = namespaces.iter().filter(is_contract).partition(ends);
    if others.is_empty() {
        return Ok(ending);
    }
    let named = others.iter().map(|namespace| {
        let identity = meta::identity(&namespace.metadata).unwrap_or("unknown");
        format!("contract {} of cluster {identity}", namespace.name_any())
    });
    let foreign = others.iter().filter(|namespace| !is_of_dev(namespace));
    let foreign: Vec<_> = foreign.map(|namespace| namespace.name_any()).collect();
    let mend = if foreign.is_empty() {
        format!(
            "`dev up` made these for other consumers; to end them too, with all their data, run `{}`",
            of.end_all
        )
    } else {
        format!(
            "end their bindings on their clusters with `kubectl bind unbind NAME`, delete what is left of them, with its data, with \
             `kubectl --context {} delete namespace {}`, then run this again",
            of.context,
            foreign.join(" ")
        )
    };
    Err(Conflict::BoundBeside {
        context: of.context.to_owned(),
        others: joined(named),
        mend,
    })
}

/// Refuses to end contracts with other exports than that of the example.
pub(crate) fn refuse_exports(context: &str, exports: &[APIServiceExport]) -> Result<(), Conflict> {
    let others: Vec<_> = exports.iter().filter(|export| export.name_any() != EXAMPLE).collect();
    if others.is_empty() {
        return Ok(());
    }
    let place = |export: &&APIServiceExport| export.namespace().unwrap_or_default();
    let named = others
        .iter()
        .map(|export| format!("APIServiceExport {}/{}", place(export), export.name_any()));
    let delete = others.iter().map(|export| {
        format!(
            "`kubectl --context {context} delete apiserviceexport {} -n {}`",
            export.name_any(),
            place(export)
        )
    });
    let delete: Vec<_> = delete.collect();
    Err(Conflict::BoundBeside {
        context: context.to_owned(),
        others: joined(named),
        mend: format!(
            "these, and the data that is kept for them, would go with the contract; if nobody needs them, delete them with {}, then run \
             this again",
            delete.join(" and ")
        ),
    })
}

/// Resources of which Kubernetes makes objects by itself; and that of the example, whose objects go when it is unbound.
const NOBODYS: [&str; 6] = [
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "endpoints",
    "endpointslices.discovery.k8s.io",
    EXAMPLE_DEFINITION,
];
/// Objects that Kubernetes makes in every namespace.
const EVERYWHERE: [(&str, &str); 2] = [("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")];
/// Annotation of a Secret with the token of a ServiceAccount, with which it goes.
const TOKEN_OF: &str = "kubernetes.io/service-account.name";

/// Whether somebody made an object that goes with a namespace of `dev up`.
pub(crate) fn is_of_others(resource: &GroupResource, meta: &ObjectMeta) -> bool {
    let resource = resource.to_string();
    let name = meta.name.as_deref().unwrap_or_default();
    let is_owned = meta.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
    let is_token = meta.annotations.as_ref().is_some_and(|all| all.contains_key(TOKEN_OF));
    !is_ours(meta)
        && !is_owned
        && !is_token
        && !NOBODYS.contains(&resource.as_str())
        && !EVERYWHERE.contains(&(resource.as_str(), name))
}

/// Refuses to delete a namespace with objects that others made.
pub(crate) fn refuse_inhabited(
    context: &str,
    namespace: &str,
    objects: &[(GroupResource, ObjectMeta)],
) -> Result<(), Conflict> {
    let others = objects.iter().filter(|(resource, meta)| is_of_others(resource, meta));
    let others: Vec<_> = others
        .map(|(resource, meta)| format!("{resource}/{}", meta.name.as_deref().unwrap_or_default()))
        .collect();
    if others.is_empty() {
        return Ok(());
    }
    Err(Conflict::BoundBeside {
        context: context.to_owned(),
        others: format!("{} in namespace {namespace}", joined(others)),
        mend: format!(
            "these would go with the namespace; move them elsewhere, or delete them (all at once with \
             `kubectl --context {context} delete namespace {namespace}`), then run this again"
        ),
    })
}

#[cfg(test)]
#[path = "guard/tests.rs"]
mod tests;
