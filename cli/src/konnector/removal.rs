//! Decides what keeps the konnector from being removed, and what stays in its namespace.

use bindery_api::{
    annotations, labels,
    names::{KONNECTOR, KUBE_BIND_NAMESPACE},
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle},
};
use bindery_runtime::preconditions::unchanged;
use bindery_synk::{Gvk, ObjectRef, SetName, wire};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    ResourceExt,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};

use crate::{
    errors::conflict::Conflict,
    install::{manifests::is_ours, owner::bundle_of},
    render::output::joined,
};

/// Name of the Lease that the leading konnector holds.
const LEASE: &str = "kube-bind";
/// Objects that Kubernetes puts into every namespace, as kind and name.
const EVERYWHERE: [(&str, &str); 2] = [("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")];

/// The objects of a namespace that are not in the konnector's set.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Objects of this command and of the konnector.
    pub(crate) ours: Vec<String>,
    /// Objects of others.
    pub(crate) others: Vec<String>,
    /// Number of contracts that the konnector's Lease records: the konnector has not given them up on their providers.
    pub(crate) held: usize,
}

/// Refuses while there are bindings or bundles, because only the konnector can end them.
pub(crate) fn nothing_bound(
    bindings: &[APIServiceBinding],
    bundles: &[APIServiceBindingBundle],
) -> Result<(), Conflict> {
    // The konnector deletes the bindings of a bundle with the bundle, so those are not named.
    let is_single = |binding: &&APIServiceBinding| {
        let uid = bundle_of(binding).map(|(_, uid)| uid);
        bundles.iter().all(|bundle| bundle.metadata.uid.as_deref() != uid)
    };
    let single: Vec<_> = bindings.iter().filter(is_single).map(ResourceExt::name_any).collect();
    let bundles: Vec<_> = bundles.iter().map(ResourceExt::name_any).collect();
    if single.is_empty() && bundles.is_empty() {
        return Ok(());
    }
    let of = |kind: &str, names: &[String]| (!names.is_empty()).then(|| format!("{kind} {}", joined(names)));
    let there = [
        of("APIServiceBinding", &single),
        of("APIServiceBindingBundle", &bundles),
    ];
    let unbind = single.iter().map(|name| format!("kubectl bind unbind {name}"));
    let delete = bundles
        .iter()
        .map(|name| format!("kubectl delete apiservicebindingbundle {name}"));
    Err(Conflict::StillBound {
        what: there.into_iter().flatten().collect::<Vec<_>>().join(" and "),
        first: unbind.chain(delete).collect::<Vec<_>>().join("\n  "),
    })
}

/// The objects of a namespace that are neither in the set nor go with it.
pub(crate) fn contents(found: &[(ApiResource, DynamicObject)], going: &[ObjectRef]) -> Contents {
    let mut contents = Contents::default();
    let is_there = |owner: &OwnerReference| found.iter().any(|(_, other)| other.uid().as_ref() == Some(&owner.uid));
    for (api, object) in found {
        let known = ObjectRef {
            gvk: Gvk::new(&api.api_version, &api.kind),
            namespace: object.namespace(),
            name: object.name_any(),
        };
        let is_going = going.iter().any(|going| going.identity() == known.identity());
        // The garbage collector deletes objects after their owner.
        let is_made = object.owner_references().iter().any(is_there);
        if is_going || is_made || is_of_the_cluster(api, object) || is_of_synk(api, object) {
            continue;
        }
        if is_lease_of_konnector(api, object) {
            let is_record = |key: &&String| {
                key.split_once('/')
                    .is_some_and(|(domain, _)| domain == annotations::HOLDER)
            };
            contents.held += object.annotations().keys().filter(is_record).count();
        }
        let names = if is_kept(api, object) {
            &mut contents.ours
        } else {
            &mut contents.others
        };
        names.push(known.short());
    }
    contents
}

fn is_of_the_cluster(api: &ApiResource, object: &DynamicObject) -> bool {
    let name = object.name_any();
    let of_account = object.annotations().get("kubernetes.io/service-account.name");
    EVERYWHERE.contains(&(api.kind.as_str(), name.as_str()))
        || of_account.is_some_and(|account| [KONNECTOR, "default"].contains(&account.as_str()))
}

/// Whether synk deletes the object with the set, although the set does not list it.
fn is_of_synk(api: &ApiResource, object: &DynamicObject) -> bool {
    match api.kind.as_str() {
        "Secret" => {
            let set = object.labels().get(wire::LABEL_SET).map(String::as_str);
            object.data["type"] == wire::HISTORY_TYPE && set == Some(KONNECTOR)
        }
        "Lease" => KONNECTOR
            .parse()
            .is_ok_and(|set: SetName| object.name_any() == set.lease()),
        _ => false,
    }
}

fn is_kept(api: &ApiResource, object: &DynamicObject) -> bool {
    match api.kind.as_str() {
        "Secret" => {
            let manager = object.labels().get(labels::MANAGED_BY).map(String::as_str);
            is_ours(&object.metadata) || manager == Some(KONNECTOR)
        }
        _ => is_lease_of_konnector(api, object),
    }
}

fn is_lease_of_konnector(api: &ApiResource, object: &DynamicObject) -> bool {
    api.kind == "Lease" && object.name_any() == LEASE
}

/// Whether the object is the konnector's namespace.
pub(crate) fn is_namespace(object: &ObjectRef) -> bool {
    object.gvk.kind == "Namespace" && object.gvk.group.is_empty() && object.name == KUBE_BIND_NAMESPACE
}

/// The patch that takes an object out of all sets; none if the object is in no set.
pub(crate) fn without_set(meta: &ObjectMeta) -> Option<Value> {
    let owners = meta.owner_references.iter().flatten();
    let others: Vec<_> = owners
        .clone()
        .filter(|owner| owner.kind != wire::KIND || owner.api_version != wire::API_VERSION)
        .collect();
    (others.len() < owners.count()).then(|| {
        let mut patch = json!({ "metadata": unchanged(meta) });
        patch["metadata"]["ownerReferences"] = json!(others);
        patch
    })
}

#[cfg(test)]
mod tests;
