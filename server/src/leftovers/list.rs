//! Lists the synced objects of a contract.

use std::{collections::BTreeSet, fmt::Debug};

use bindery_api::{adoption::Candidate, annotations, v1alpha2::GroupResource};
use bindery_runtime::errors;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Api, Resource,
    api::{DynamicObject, ListParams},
    core::PartialObjectMeta,
};
use serde::de::DeserializeOwned;

use super::{CONCURRENT, Leftovers, SyncedObject, resource::ServedResource};
use crate::{state::State, writes::WriteError};

/// How many objects one page of a list holds.
const PAGE: u32 = 500;

/// Where to look for objects.
pub(super) struct SearchArea {
    /// The namespaces to look in for objects of namespaced resources.
    pub(super) namespaces: Vec<String>,
    /// Whether to look for objects of cluster-scoped resources.
    pub(super) cluster: bool,
}

/// Lists the objects of these resources in an area that belong to a contract, or that the provider created for it.
pub(super) async fn list(
    state: &State,
    contract: &str,
    resources: &BTreeSet<GroupResource>,
    area: &SearchArea,
) -> Result<Leftovers, WriteError> {
    let mut lists = Vec::new();
    for resource in resources {
        // No CRD, no objects.
        let Some(served) = ServedResource::find(state, resource).await? else {
            continue;
        };
        for namespace in area.of(&served) {
            lists.push(list_one(served.api(state, namespace), contract, resource, namespace));
        }
    }
    let found: Vec<Vec<SyncedObject>> = stream::iter(lists).buffer_unordered(CONCURRENT).try_collect().await?;
    let mut objects = found.concat();
    objects.sort_unstable();
    Ok(Leftovers { objects })
}

/// Lists all objects of these resources in a namespace, of every owner. Cluster-scoped and core resources have none there.
pub(super) async fn everything(
    state: &State,
    contract: &str,
    resources: &BTreeSet<GroupResource>,
    namespace: &str,
) -> Result<Vec<SyncedObject>, WriteError> {
    let mut found = Vec::new();
    for resource in resources {
        let served = ServedResource::find(state, resource).await?;
        let Some(served) = served.filter(|served| !served.is_cluster_scoped()) else {
            continue;
        };
        let objects = metadata(&served.api(state, namespace), ListParams::default()).await?;
        let objects = objects.iter().map(|object| &object.metadata);
        found.extend(objects.map(|object| SyncedObject::of(resource.clone(), namespace, object, contract)));
    }
    found.sort_unstable();
    Ok(found)
}

async fn list_one(
    api: Api<DynamicObject>,
    contract: &str,
    resource: &GroupResource,
    namespace: &str,
) -> Result<Vec<SyncedObject>, WriteError> {
    let found = metadata(&api, ListParams::default()).await?.into_iter();
    Ok(found
        .filter_map(|item| {
            let is_for_adoption = is_for_adoption(&item, namespace, contract);
            let object = SyncedObject::of(resource.clone(), namespace, &item.metadata, contract);
            (is_for_adoption || belongs_to(&item, contract)).then_some(SyncedObject {
                released: object.released || is_for_adoption,
                ..object
            })
        })
        .collect())
}

/// Whether the provider created an object for a contract to adopt: the object names the contract, or is in a namespace of it.
fn is_for_adoption(object: &impl Resource, namespace: &str, contract: &str) -> bool {
    let annotations = object.meta().annotations.as_ref();
    let value = |key: &str| {
        annotations
            .and_then(|annotations| annotations.get(key))
            .map(String::as_str)
    };
    matches!(
        Candidate::of(value, contract, namespace.is_empty()),
        Candidate::Fresh { .. }
    )
}

/// Whether an object belongs to a contract, by its annotation. Its name does not tell, since contracts may share names.
pub(super) fn belongs_to(object: &impl Resource, contract: &str) -> bool {
    let annotations = object.meta().annotations.as_ref();
    let owner = annotations.and_then(|annotations| annotations.get(annotations::CLUSTER_NAMESPACE));
    owner.is_some_and(|owner| owner == contract)
}

/// The metadata of all objects of a resource, listed page by page. A resource that is not served has no objects.
pub(crate) async fn metadata<K>(api: &Api<K>, params: ListParams) -> Result<Vec<PartialObjectMeta<K>>, WriteError>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = params.limit(PAGE);
    let mut items = Vec::new();
    loop {
        let page = match api.list_metadata(&params).await {
            Ok(page) => page,
            Err(error) if errors::is_not_found(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        items.extend(page.items);
        match page.metadata.continue_ {
            Some(next) if !next.is_empty() => params = params.continue_token(&next),
            _ => return Ok(items),
        }
    }
}

// === impl SearchArea ===

impl SearchArea {
    /// The namespaces to list a resource in. A cluster-scoped resource is listed once, for which an empty name stands.
    fn of(&self, served: &ServedResource) -> &[String] {
        const CLUSTER: &[String] = &[String::new()];
        match served {
            ServedResource::Cluster(_) if self.cluster => CLUSTER,
            ServedResource::Cluster(_) => &[],
            ServedResource::Namespaced(_) => &self.namespaces,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;

    use super::*;
    use crate::template::tests::definition;

    #[test]
    fn what_is_a_contracts_is_told_by_its_mark_alone() {
        let marked = |name: &str, mark: Option<&str>| {
            let mut object = Namespace::default();
            object.metadata.name = Some(name.to_owned());
            object.metadata.annotations =
                mark.map(|mark| [(annotations::CLUSTER_NAMESPACE.to_owned(), mark.to_owned())].into());
            belongs_to(&object, "kube-bind-a")
        };
        assert!(marked("wyatt", Some("kube-bind-a")));
        assert!(!marked("kube-bind-a-wyatt", None));
        assert!(!marked("kube-bind-a-wyatt", Some("kube-bind-b")));
        assert!(!marked("wyatt", Some("kube-bind-a-b")));
    }

    #[test]
    fn what_the_provider_made_for_a_contract_is_told_by_mark_or_place() {
        let made = |marks: &[(&str, &str)], namespace| {
            let mut object = Namespace::default();
            let marks = marks
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            object.metadata.annotations = Some(marks.collect());
            is_for_adoption(&object, namespace, "kube-bind-a")
        };
        let ours = (annotations::CLUSTER_NAMESPACE, "kube-bind-a");
        assert!(made(&[], "kube-bind-a-team") && made(&[ours], "kube-bind-a-team") && made(&[ours], ""));
        assert!(!made(&[], ""), "of whom, nobody says");
        assert!(!made(
            &[(annotations::CLUSTER_NAMESPACE, "kube-bind-b")],
            "kube-bind-a-team"
        ));
        assert!(!made(&[ours, (annotations::CONSUMER_UID, "u")], "kube-bind-a-team"));
    }

    #[track_caller]
    fn check_area(scope: &str, cluster: bool, expect: &[&str]) {
        let area = SearchArea {
            namespaces: vec!["kube-bind-a-ranch".to_owned(), "kube-bind-a-town".to_owned()],
            cluster,
        };
        let served = ServedResource::of(&definition("wildwest.dev", "sheriffs", scope)).unwrap();
        assert_eq!(area.of(&served), expect);
    }

    /// Or a cluster-scoped object would be counted for every namespace, and hold each of them up.
    #[test]
    fn cluster_scoped_objects_are_counted_once_and_in_no_namespace() {
        let both = ["kube-bind-a-ranch", "kube-bind-a-town"];
        check_area("Namespaced", true, &both);
        check_area("Namespaced", false, &both);
        check_area("Cluster", true, &[""]);
        check_area("Cluster", false, &[]);
    }
}
