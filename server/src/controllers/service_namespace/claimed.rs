//! What is left of claimed resources in a namespace that the server made: copies that carry our marks, and sources of the
//! provider's own. Asked of the API server itself, as a namespace goes on the strength of the answer.

use std::collections::BTreeSet;

use bindery_api::{annotations, v1alpha2::GroupResource};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use kube::{Api, ResourceExt as _, api::ListParams};

use crate::{
    rbac::claims,
    remaining::{self, Object},
    state::State,
    writes::WriteError,
};

/// ConfigMap and ServiceAccount that Kubernetes puts into every namespace.
const ROOT_CA: &str = "kube-root-ca.crt";
const DEFAULT_ACCOUNT: &str = "default";
/// Secrets that are tokens are never synced.
const NO_TOKENS: &str = "type!=kubernetes.io/service-account-token,type!=bootstrap.kubernetes.io/token";

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

/// All objects of these resources in a namespace, but those that Kubernetes puts there and that are never synced.
pub(super) async fn list(
    state: &State,
    namespace: &str,
    resources: &BTreeSet<GroupResource>,
) -> Result<Vec<Claimed>, WriteError> {
    let client = || state.clients.write.clone();
    let all = ListParams::default;
    let mut found = Vec::new();
    for resource in resources {
        let of = |name: String, marks: &Marks| claimed(resource, namespace, name, marks);
        match (claims::is_core(resource), resource.resource.as_str()) {
            (true, "configmaps") => {
                let maps = remaining::metadata(&Api::<ConfigMap>::namespaced(client(), namespace), all()).await?;
                let maps = maps.iter().filter(|map| map.name_any() != ROOT_CA);
                found.extend(maps.map(|map| of(map.name_any(), map.annotations())));
            }
            (true, "serviceaccounts") => {
                let api = Api::<ServiceAccount>::namespaced(client(), namespace);
                let accounts = remaining::metadata(&api, all()).await?;
                let accounts = accounts.iter().filter(|account| account.name_any() != DEFAULT_ACCOUNT);
                found.extend(accounts.map(|account| of(account.name_any(), account.annotations())));
            }
            (true, _) => {
                let api = Api::<Secret>::namespaced(client(), namespace);
                let secrets = remaining::metadata(&api, all().fields(NO_TOKENS)).await?;
                found.extend(secrets.iter().map(|secret| of(secret.name_any(), secret.annotations())));
            }
            (false, _) => {
                let Some(api) = remaining::api(state, resource, namespace).await? else {
                    // No CRD, no objects.
                    continue;
                };
                let objects = remaining::metadata(&api, all()).await?;
                found.extend(objects.iter().map(|object| of(object.name_any(), object.annotations())));
            }
        }
    }
    Ok(found)
}

type Marks = std::collections::BTreeMap<String, String>;

fn claimed(resource: &GroupResource, namespace: &str, name: String, marks: &Marks) -> Claimed {
    Claimed {
        object: Object {
            resource: resource.clone(),
            namespace: namespace.to_owned(),
            name,
            released: marks.contains_key(annotations::RELEASED),
        },
        copy_for: marks.get(annotations::CLUSTER_NAMESPACE).cloned(),
    }
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
        let with = |key: &str, value: &str| {
            let marks = Marks::from([(key.to_owned(), value.to_owned())]);
            claimed(&secrets, "team1", "permit".to_owned(), &marks)
        };
        assert_eq!(
            with(annotations::CLUSTER_NAMESPACE, "kube-bind-a").copy_for.as_deref(),
            Some("kube-bind-a")
        );
        let source = with("kube-bind.io/owner", "provider");
        assert_eq!((source.copy_for, source.object.released), (None, false));
        assert!(with(annotations::RELEASED, "2026-01-01T00:00:00Z").object.released);
    }
}
