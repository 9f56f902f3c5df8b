//! Selects what must be read to make a plan. The number of requests grows with kinds and namespaces, not with objects.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    input::Manifest,
    kinds::{Kinds, Resource},
    object::{Gvk, Identity, ObjectRef},
    versions::Versions,
};

/// One request: a list of a kind, or a single object if only one is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The kind, and the API version to read it with.
    pub resource: Resource,
    /// The namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Names of the needed objects. Other objects of a list are ignored.
    pub names: Vec<String>,
}

/// Returns the requests that read every object of the manifests and every object that the versions list.
pub fn reads(manifests: &[Manifest], versions: &Versions, kinds: &Kinds) -> Vec<Read> {
    let mut asked: BTreeMap<(Gvk, Option<String>), BTreeSet<String>> = BTreeMap::new();
    let mut known: BTreeSet<Identity> = BTreeSet::new();
    // The API version with which a kind is read in a namespace: one request serves wanted and unwanted objects.
    let mut by: BTreeMap<(String, String, Option<String>), Gvk> = BTreeMap::new();
    for manifest in manifests {
        let object = &manifest.object;
        if kinds.is_served(&object.gvk) && known.insert(object.identity()) {
            by.entry(key(object)).or_insert_with(|| object.gvk.clone());
            let place = (object.gvk.clone(), object.namespace.clone());
            asked.entry(place).or_default().insert(object.name.clone());
        }
    }
    for object in versions.iter().flat_map(|known| &known.objects) {
        if object.gvk.is_crd() || known.contains(&object.identity()) {
            continue;
        }
        let key = key(object);
        if !by.contains_key(&key) {
            let Some(resource) = listed(object, kinds) else {
                continue;
            };
            by.insert(key.clone(), resource.gvk.clone());
        }
        known.insert(object.identity());
        let place = (by[&key].clone(), object.namespace.clone());
        asked.entry(place).or_default().insert(object.name.clone());
    }
    asked
        .into_iter()
        .filter_map(|((gvk, namespace), names)| {
            Some(Read {
                resource: kinds.get(&gvk)?.clone(),
                namespace,
                names: names.into_iter().collect(),
            })
        })
        .collect()
}

fn key(object: &ObjectRef) -> (String, String, Option<String>) {
    let gvk = &object.gvk;
    (gvk.group.clone(), gvk.kind.clone(), object.namespace.clone())
}

/// Whether an object that a version lists can be read. The state of other objects is unknown.
pub fn is_read(object: &ObjectRef, kinds: &Kinds) -> bool {
    listed(object, kinds).is_some()
}

/// Returns how to read an object that a version lists, if its kind is still served.
fn listed<'a>(object: &ObjectRef, kinds: &'a Kinds) -> Option<&'a Resource> {
    let exact = kinds.get(&object.gvk).filter(|_| kinds.is_served(&object.gvk));
    let resource = exact.or_else(|| kinds.any_version(&object.gvk.group, &object.gvk.kind))?;
    (resource.namespaced == object.namespace.is_some()).then_some(resource)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::{config_map, kinds, manifest, versions};
    use serde_json::json;

    #[track_caller]
    fn check(wanted: &[Manifest], listed: &[ObjectRef], expect: &[(&str, Option<&str>, &[&str])]) {
        let versions = versions(&[(1, listed)]);
        let reads = reads(wanted, &versions, &kinds());
        let got: Vec<_> = reads
            .iter()
            .map(|read| {
                (
                    read.resource.gvk.to_string(),
                    read.namespace.as_deref(),
                    read.names.clone(),
                )
            })
            .collect();
        let expect: Vec<_> = expect
            .iter()
            .map(|(kind, namespace, names)| {
                (
                    (*kind).to_owned(),
                    *namespace,
                    names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(),
                )
            })
            .collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn one_request_is_made_for_a_kind_in_a_namespace() {
        let object = |api: &str, kind: &str, namespace: Option<&str>, name: &str| ObjectRef {
            gvk: Gvk::new(api, kind),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        let wanted = [config_map("a", "1"), config_map("b", "1")];
        let gone = object("v1", "ConfigMap", Some("shop"), "c");
        check(
            &wanted,
            &[wanted[0].object.clone(), gone],
            &[("v1 ConfigMap", Some("shop"), &["a", "b", "c"])],
        );
        let scaler = |version: &str| {
            manifest(&json!({
                "apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": version, "namespace": "shop"},
            }))
        };
        let old = object("autoscaling/v1", "HorizontalPodAutoscaler", Some("shop"), "v2");
        let older = object("autoscaling/v2beta1", "HorizontalPodAutoscaler", Some("shop"), "x");
        check(
            &[scaler("v2")],
            &[old, older.clone()],
            &[("autoscaling/v2 HorizontalPodAutoscaler", Some("shop"), &["v2", "x"])],
        );
        check(
            &[],
            &[older],
            &[("autoscaling/v1 HorizontalPodAutoscaler", Some("shop"), &["x"])],
        );
        check(&[], &[object("example.com/v1", "Gone", None, "x")], &[]);
        check(
            &[],
            &[object("apiextensions.k8s.io/v1", "CustomResourceDefinition", None, "x")],
            &[],
        );
    }
}
