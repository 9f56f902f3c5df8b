//! What is left of claimed resources in a namespace that the server made: copies that carry our marks, and sources of the
//! provider's own. Asked of the API server itself, as a namespace goes on the strength of the answer.

use std::collections::BTreeSet;

use bindery_api::{annotations, claims::TOKEN_SECRET_TYPES, v1alpha2::GroupResource};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, ObjectMeta},
};

use crate::{
    rbac::claims,
    remaining::{self, Object},
    state::State,
    writes::WriteError,
};

/// What Kubernetes, and widespread parts of clusters, put into every namespace: it is nobody's source.
const PLACED: [(&str, &[&str]); 2] = [
    (
        "configmaps",
        &["istio-ca-root-cert", "kube-root-ca.crt", "openshift-service-ca.crt"],
    ),
    ("serviceaccounts", &["builder", "default", "deployer"]),
];

/// An object of a claimed resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    /// The object.
    pub(super) object: Object,
    /// The contract that it is a copy for; `None` if it is the provider's own, and so a source.
    pub(super) copy_for: Option<String>,
}

/// Every resource that was ever claimed in a namespace.
pub(super) fn recorded(namespace: &Namespace) -> BTreeSet<GroupResource> {
    let record = namespace.annotations().get(annotations::GRANTED_CLAIMS);
    let names = record.map_or("", String::as_str).split(',');
    names
        .filter(|name| !name.is_empty())
        .map(|name| {
            let (resource, group) = name.split_once('.').unwrap_or((name, ""));
            GroupResource::new(group, resource)
        })
        .collect()
}

/// Whether the server needs to be let in to see what is claimed in a namespace.
pub(super) fn needs_sight(claimed: &BTreeSet<GroupResource>) -> bool {
    claimed.iter().any(claims::is_core)
}

/// All objects of these resources in a namespace, but those that are put into every namespace, and tokens.
pub(super) async fn list(
    state: &State,
    namespace: &str,
    resources: &BTreeSet<GroupResource>,
) -> Result<Vec<Claimed>, WriteError> {
    let client = || state.clients.write.clone();
    let all = ListParams::default;
    let mut found = Vec::new();
    for resource in resources {
        let of = |metadata: &ObjectMeta| claimed(resource, namespace, metadata);
        match (claims::is_core(resource), resource.resource.as_str()) {
            (true, "configmaps") => {
                let maps = remaining::metadata(&Api::<ConfigMap>::namespaced(client(), namespace), all()).await?;
                found.extend(maps.iter().filter_map(|map| of(&map.metadata)));
            }
            (true, "serviceaccounts") => {
                let api = Api::<ServiceAccount>::namespaced(client(), namespace);
                let accounts = remaining::metadata(&api, all()).await?;
                found.extend(accounts.iter().filter_map(|account| of(&account.metadata)));
            }
            (true, _) => {
                let api = Api::<Secret>::namespaced(client(), namespace);
                let secrets = remaining::metadata(&api, all().fields(&no_tokens())).await?;
                found.extend(secrets.iter().filter_map(|secret| of(&secret.metadata)));
            }
            (false, _) => {
                let Some(api) = remaining::api(state, resource, namespace).await? else {
                    // No CRD, no objects.
                    continue;
                };
                let objects = remaining::metadata(&api, all()).await?;
                found.extend(objects.iter().filter_map(|object| of(&object.metadata)));
            }
        }
    }
    Ok(found)
}

/// What an object counts as; `None` if it is nobody's.
fn claimed(resource: &GroupResource, namespace: &str, metadata: &ObjectMeta) -> Option<Claimed> {
    let marks = metadata.annotations.as_ref();
    let copy_for = marks
        .and_then(|marks| marks.get(annotations::CLUSTER_NAMESPACE))
        .cloned();
    let contract = copy_for.as_deref().unwrap_or_default();
    let object = Object::of(resource.clone(), namespace, metadata, contract);
    // A consumer may have claimed one of its own of that name.
    let is_nobodys = copy_for.is_none() && is_placed(resource, &object.name);
    (!is_nobodys).then_some(Claimed { object, copy_for })
}

/// The field selector of Secrets that may be claimed: tokens never are.
fn no_tokens() -> String {
    TOKEN_SECRET_TYPES.map(|kind| format!("type!={kind}")).join(",")
}

fn is_placed(resource: &GroupResource, name: &str) -> bool {
    let mut placed = PLACED.iter().filter(|(plural, _)| resource.resource == *plural);
    resource.is_core() && placed.any(|(_, names)| names.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(record: &str, expect: &[(&str, &str)], sight: bool) {
        let mut namespace = Namespace::default();
        let mark = (annotations::GRANTED_CLAIMS.to_owned(), record.to_owned());
        namespace.annotations_mut().extend([mark]);
        let recorded = recorded(&namespace);
        let expect: BTreeSet<_> = expect
            .iter()
            .map(|(group, plural)| GroupResource::new(*group, *plural))
            .collect();
        assert_eq!(recorded, expect);
        assert_eq!(remaining::granted_record(&recorded), record);
        assert_eq!(needs_sight(&recorded), sight);
    }

    #[test]
    fn what_was_claimed_reads_back() {
        check("", &[], false);
        check("safes.bank.dev", &[("bank.dev", "safes")], false);
        check(
            "configmaps,secrets,safes.bank.dev",
            &[("", "configmaps"), ("", "secrets"), ("bank.dev", "safes")],
            true,
        );
        assert!(recorded(&Namespace::default()).is_empty());
    }

    #[test]
    fn a_copy_is_told_from_a_source_by_its_mark() {
        let secrets = GroupResource::new("", "secrets");
        let with = |key: &str, value: &str| claimed(&secrets, "team1", &named("permit", &[(key, value)])).unwrap();
        assert_eq!(
            with(annotations::CLUSTER_NAMESPACE, "kube-bind-a").copy_for.as_deref(),
            Some("kube-bind-a")
        );
        let source = with("kube-bind.io/owner", "provider");
        assert_eq!((source.copy_for, source.object.released), (None, false));
        assert!(with(annotations::RELEASED, "2026-01-01T00:00:00Z").object.released);
    }

    fn named(name: &str, marks: &[(&str, &str)]) -> ObjectMeta {
        let marks = marks
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some(marks.collect()),
            ..ObjectMeta::default()
        }
    }

    #[track_caller]
    fn check_placed((group, plural): (&str, &str), name: &str, copy: bool, counts: bool) {
        let marks = [(annotations::CLUSTER_NAMESPACE, "kube-bind-a")];
        let metadata = named(name, if copy { &marks } else { &[] });
        let claimed = claimed(&GroupResource::new(group, plural), "team1", &metadata);
        assert_eq!(claimed.is_some(), counts, "{plural}.{group} {name}");
    }

    #[test]
    fn what_is_put_into_every_namespace_keeps_none_of_them() {
        for name in ["kube-root-ca.crt", "istio-ca-root-cert", "openshift-service-ca.crt"] {
            check_placed(("", "configmaps"), name, false, false);
            check_placed(("", "configmaps"), name, true, true);
            check_placed(("", "secrets"), name, false, true);
        }
        for name in ["default", "builder", "deployer"] {
            check_placed(("", "serviceaccounts"), name, false, false);
            check_placed(("", "configmaps"), name, false, true);
            check_placed(("bank.dev", "serviceaccounts"), name, false, true);
        }
        check_placed(("", "configmaps"), "menu", false, true);
    }
}
