//! The objects of claimed resources in a namespace that the server created: copies of a consumer's objects, and sources of the
//! provider's own. The API server is asked for them and not a cache, since the namespace is deleted on the strength of the
//! answer.

use std::collections::BTreeSet;

use bindery_api::{
    annotations,
    claims::{SECRETS, TOKEN_SECRET_TYPES, is_claimable_core},
    v1alpha2::GroupResource,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams, ObjectMeta},
    core::PartialObjectMeta,
};

use crate::{
    leftovers::{self, SyncedObject},
    state::State,
    writes::WriteError,
};

/// Objects that Kubernetes, and widespread parts of clusters, create in every namespace. They are never sources.
const PLACED: [(&str, &[&str]); 2] = [
    (
        "configmaps",
        &["istio-ca-root-cert", "kube-root-ca.crt", "openshift-service-ca.crt"],
    ),
    ("serviceaccounts", &["builder", "default", "deployer"]),
];

/// Annotations of Secrets with the name of the ServiceAccount that Kubernetes or OpenShift made them for.
const ACCOUNT_OF_SECRET: [&str; 2] = [
    "kubernetes.io/service-account.name",
    "openshift.io/internal-registry-auth-token.service-account",
];

/// An object of a claimed resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimedObject {
    /// Where the object is, and whether it was released.
    pub(super) object: SyncedObject,
    /// The contract whose object it is a copy of; `None` if it is the provider's own, and so a source.
    pub(super) copy_for: Option<String>,
}

/// Whether the server needs a role binding of its own in a namespace to list what is claimed there.
pub(super) fn needs_server_binding(claimed: &BTreeSet<GroupResource>) -> bool {
    claimed.iter().any(is_claimable_core)
}

/// The objects of these resources in a namespace, without those that are created in every namespace, and without tokens.
pub(super) async fn list(
    state: &State,
    namespace: &str,
    resources: &BTreeSet<GroupResource>,
) -> Result<Vec<ClaimedObject>, WriteError> {
    let mut found = Vec::new();
    for resource in resources {
        let (api, params) = if let Some(kind) = core_kind(resource) {
            let is_secret = kind.kind == "Secret";
            let params = ListParams {
                field_selector: is_secret.then(no_tokens),
                ..ListParams::default()
            };
            (
                Api::namespaced_with(state.clients.write.clone(), namespace, &kind),
                params,
            )
        } else if let Some(api) = leftovers::api(state, resource, namespace).await? {
            (api, ListParams::default())
        } else {
            // No CRD, no objects.
            continue;
        };
        let objects: Vec<PartialObjectMeta<DynamicObject>> = leftovers::metadata(&api, params).await?;
        found.extend(
            objects
                .iter()
                .filter_map(|object| claimed(resource, namespace, &object.metadata)),
        );
    }
    Ok(found)
}

/// How the API server serves a core resource that can be claimed; `None` for any other resource.
fn core_kind(resource: &GroupResource) -> Option<ApiResource> {
    let kinds = [
        ApiResource::erase::<ConfigMap>(&()),
        ApiResource::erase::<Secret>(&()),
        ApiResource::erase::<ServiceAccount>(&()),
    ];
    let mut kinds = kinds.into_iter().filter(|_| is_claimable_core(resource));
    kinds.find(|kind| kind.plural == resource.resource)
}

/// An object of a claimed resource; `None` if it is one that every namespace has.
fn claimed(resource: &GroupResource, namespace: &str, metadata: &ObjectMeta) -> Option<ClaimedObject> {
    let annotations = metadata.annotations.as_ref();
    let copy_for = annotations.and_then(|annotations| annotations.get(annotations::CLUSTER_NAMESPACE));
    let copy_for = copy_for.cloned();
    let contract = copy_for.as_deref().unwrap_or_default();
    let object = SyncedObject::of(resource.clone(), namespace, metadata, contract);
    (!is_in_every_namespace(resource, metadata)).then_some(ClaimedObject { object, copy_for })
}

/// Whether an object is one that every namespace has. A copy of that name is not: a consumer's own object may have it.
pub(super) fn is_in_every_namespace(resource: &GroupResource, metadata: &ObjectMeta) -> bool {
    let value = |key: &str| metadata.annotations.as_ref()?.get(key).map(String::as_str);
    if value(annotations::CLUSTER_NAMESPACE).is_some() || !resource.is_core() {
        return false;
    }
    let accounts = GroupResource::new("", "serviceaccounts");
    let is_of_account = |key: &&str| value(key).is_some_and(|account| is_placed(&accounts, account));
    is_placed(resource, metadata.name.as_deref().unwrap_or_default())
        || resource.resource == SECRETS && ACCOUNT_OF_SECRET.iter().any(is_of_account)
}

/// The field selector of Secrets that may be claimed: tokens never are.
pub(super) fn no_tokens() -> String {
    TOKEN_SECRET_TYPES.map(|kind| format!("type!={kind}")).join(",")
}

fn is_placed(resource: &GroupResource, name: &str) -> bool {
    let mut placed = PLACED.iter().filter(|(plural, _)| resource.resource == *plural);
    resource.is_core() && placed.any(|(_, names)| names.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_needs_a_binding_for_core_resources_alone() {
        let claimed = |resources: &[(&str, &str)]| {
            let resources = resources
                .iter()
                .map(|(group, plural)| GroupResource::new(*group, *plural));
            needs_server_binding(&resources.collect())
        };
        assert!(!claimed(&[]));
        assert!(!claimed(&[("bank.dev", "safes")]));
        assert!(claimed(&[("", "configmaps"), ("bank.dev", "safes")]));
        for plural in bindery_api::claims::CORE_PLURALS {
            assert_eq!(core_kind(&GroupResource::new("", plural)).unwrap().plural, plural);
            assert_eq!(core_kind(&GroupResource::new("bank.dev", plural)), None);
        }
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
        let token = named("token", &[("kubernetes.io/service-account.name", "default")]);
        assert!(is_in_every_namespace(&GroupResource::new("", "secrets"), &token));
        assert!(!is_in_every_namespace(&GroupResource::new("", "configmaps"), &token));
        for name in ["default", "builder", "deployer"] {
            check_placed(("", "serviceaccounts"), name, false, false);
            check_placed(("", "configmaps"), name, false, true);
            check_placed(("bank.dev", "serviceaccounts"), name, false, true);
        }
        check_placed(("", "configmaps"), "menu", false, true);
    }
}
