//! What stands in the way of a removal, and what it leaves behind.

use bindery_api::{
    labels,
    names::{KONNECTOR, KUBE_BIND_NAMESPACE},
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle},
};
use bindery_synk::{Gvk, ObjectRef, SetName, wire};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    ResourceExt,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};

use crate::{consumer::bundle_of, manifests::is_ours, output::joined, plan::Conflict};

/// Of which konnector leads.
const LEASE: &str = "kube-bind";
/// What Kubernetes puts into every namespace, as kind and name.
const EVERYWHERE: [(&str, &str); 2] = [("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")];

/// What a namespace holds beside the set.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Kept there by this command and by the konnector.
    pub(crate) ours: Vec<String>,
    /// Everybody else's.
    pub(crate) others: Vec<String>,
}

/// Whether all bindings and bundles are ended, which only the konnector can do.
pub(crate) fn nothing_bound(
    bindings: &[APIServiceBinding],
    bundles: &[APIServiceBindingBundle],
) -> Result<(), Conflict> {
    // Those of a bundle go with it.
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

/// What of a namespace is nobody's of the set.
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
        // What a controller made goes when that goes which it was made for.
        let is_made = object.owner_references().iter().any(is_there);
        if is_going || is_made || is_of_the_cluster(api, object) || is_of_synk(api, object) {
            continue;
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

/// What goes with the set although it is not in it.
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
        "Lease" => object.name_any() == LEASE,
        _ => false,
    }
}

/// The namespace among what goes.
pub(crate) fn is_namespace(object: &ObjectRef) -> bool {
    object.gvk.kind == "Namespace" && object.gvk.group.is_empty() && object.name == KUBE_BIND_NAMESPACE
}

/// The patch that takes an object out of all sets; `None` if it is in none.
pub(crate) fn without_set(meta: &ObjectMeta) -> Option<Value> {
    let owners = meta.owner_references.iter().flatten();
    let others: Vec<_> = owners
        .clone()
        .filter(|owner| owner.kind != wire::KIND || owner.api_version != wire::API_VERSION)
        .collect();
    (others.len() < owners.count()).then(|| {
        json!({ "metadata": {
            "uid": meta.uid, "resourceVersion": meta.resource_version, "ownerReferences": others,
        } })
    })
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{APIServiceBindingBundleSpec, APIServiceBindingSpec};
    use kube::{Resource as _, core::GroupVersionKind};

    use super::*;

    fn bundle(name: &str) -> APIServiceBindingBundle {
        let mut bundle = APIServiceBindingBundle::new(name, APIServiceBindingBundleSpec::default());
        bundle.metadata.uid = Some(name.to_owned());
        bundle
    }

    fn binding(name: &str, of: Option<&str>) -> APIServiceBinding {
        let mut binding = APIServiceBinding::new(name, APIServiceBindingSpec::default());
        let owner = of.and_then(|of| bundle(of).controller_owner_ref(&()));
        binding.metadata.owner_references = owner.map(|owner| vec![owner]);
        binding
    }

    #[test]
    fn whatever_only_the_konnector_can_end_is_named_with_what_ends_it() {
        let check = |bindings: &[APIServiceBinding], bundles: &[APIServiceBindingBundle], says: &[&str]| {
            let refused = nothing_bound(bindings, bundles)
                .err()
                .map(|conflict| conflict.to_string());
            let refused = refused.unwrap_or_default();
            assert_eq!(refused.is_empty(), says.is_empty(), "{refused}");
            for words in says {
                assert!(refused.contains(words), "{words:?}: {refused}");
            }
            refused
        };
        check(&[], &[], &[]);
        check(
            &[binding("a", None), binding("b", None)],
            &[],
            &["APIServiceBinding a,b", "unbind a\n", "unbind b"],
        );
        let both = check(
            &[binding("a", None), binding("b", Some("acme"))],
            &[bundle("acme")],
            &[
                "APIServiceBinding a and APIServiceBindingBundle acme",
                "kubectl delete apiservicebindingbundle acme",
            ],
        );
        assert!(!both.contains("unbind b"), "{both}");
        // Its bundle is gone.
        check(&[binding("b", Some("acme"))], &[], &["unbind b"]);
    }

    fn object(api_version: &str, kind: &str, name: &str, more: &Value) -> (ApiResource, DynamicObject) {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let api = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let mut value =
            json!({ "metadata": { "name": name, "namespace": "kube-bind", "uid": format!("{kind}-{name}") } });
        for (key, more) in more.as_object().unwrap() {
            match key.as_str() {
                "type" => value["type"] = more.clone(),
                key => value["metadata"][key] = more.clone(),
            }
        }
        (api, serde_json::from_value(value).unwrap())
    }

    fn made_for(kind: &str, name: &str) -> Value {
        json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": kind, "name": name, "uid": format!("{kind}-{name}") }] })
    }

    #[test]
    fn nothing_of_others_is_taken_for_ours() {
        let going = [ObjectRef {
            gvk: Gvk::new("apps/v1", "Deployment"),
            namespace: Some("kube-bind".to_owned()),
            name: "konnector".to_owned(),
        }];
        let history = |set: &str| json!({ "type": wire::HISTORY_TYPE, "labels": { wire::LABEL_SET: set } });
        let label = |manager: &str| json!({ "labels": { labels::MANAGED_BY: manager } });
        let found = [
            object("apps/v1", "Deployment", "konnector", &json!({})),
            object(
                "apps/v1",
                "ReplicaSet",
                "konnector-1",
                &made_for("Deployment", "konnector"),
            ),
            object("v1", "Pod", "konnector-1-x", &made_for("ReplicaSet", "konnector-1")),
            object("v1", "ServiceAccount", "default", &json!({})),
            object("v1", "ConfigMap", "kube-root-ca.crt", &json!({})),
            object("coordination.k8s.io/v1", "Lease", "kube-bind", &json!({})),
            object("coordination.k8s.io/v1", "Lease", "synk-konnector", &json!({})),
            object("v1", "Secret", "kubeconfig-a", &label("kubectl-bind")),
            object("v1", "Secret", "kubeconfig-renewed-a", &label("konnector")),
            object("v1", "Secret", "synk-konnector.v1-0", &history(KONNECTOR)),
            object("v1", "Secret", "synk-web.v1-0", &history("web")),
            object("v1", "Secret", "west", &json!({ "type": "Opaque" })),
            object("coordination.k8s.io/v1", "Lease", "bindery-server", &json!({})),
            object("apps/v1", "Deployment", "bindery-server", &json!({})),
            object(
                "apps/v1",
                "ReplicaSet",
                "bindery-server-1",
                &made_for("Deployment", "bindery-server"),
            ),
            object("v1", "ConfigMap", "c", &made_for("Node", "elsewhere")),
        ];
        let contents = contents(&found, &going);
        assert_eq!(
            contents.others,
            [
                "secret/synk-web.v1-0",
                "secret/west",
                "lease.coordination.k8s.io/bindery-server",
                "deployment.apps/bindery-server",
                "configmap/c"
            ]
        );
        assert_eq!(
            contents.ours,
            [
                "lease.coordination.k8s.io/kube-bind",
                "secret/kubeconfig-a",
                "secret/kubeconfig-renewed-a"
            ]
        );
    }

    #[test]
    fn a_namespace_is_taken_out_of_its_set_alone() {
        let owner = |kind: &str, api_version: &str| OwnerReference {
            kind: kind.to_owned(),
            api_version: api_version.to_owned(),
            ..OwnerReference::default()
        };
        let meta = |owners: Vec<OwnerReference>| ObjectMeta {
            owner_references: Some(owners),
            ..ObjectMeta::default()
        };
        let ours = owner(wire::KIND, wire::API_VERSION);
        let other = owner("Team", "example.com/v1");
        assert_eq!(without_set(&ObjectMeta::default()), None);
        assert_eq!(without_set(&meta(vec![other.clone()])), None);
        let patch = without_set(&meta(vec![ours, other])).unwrap();
        assert_eq!(patch["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
        assert_eq!(patch["metadata"]["ownerReferences"][0]["kind"], "Team");
    }
}
