//! Which synced objects of a contract are left on the provider, asked of the API server itself: what is deleted on the
//! strength of the answer must not rest on a cache.

use std::{collections::BTreeSet, fmt};

use bindery_api::{
    adoption::Candidate,
    annotations,
    v1alpha2::{APIServiceExport, ConflictPolicy, GroupResource, Isolation},
};
use bindery_runtime::errors;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DynamicObject, ListParams, ObjectMeta, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    contract,
    state::State,
    writes::{self, WriteError},
};

mod served;

use served::{Area, Served, served};
pub(crate) use served::{api, metadata};

/// Lists that run at a time.
const CONCURRENT: usize = 8;

/// Objects that are left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    /// Which.
    pub objects: Vec<Object>,
}

/// A synced object on the provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Its resource.
    pub resource: GroupResource,
    /// Its namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether it holds up nothing: it was let go, or the provider made it and no consumer ever had it.
    pub released: bool,
    /// Which object of that name it is.
    pub uid: Option<String>,
    /// As which it was seen.
    pub version: Option<String>,
}

/// The objects that the deletion of an export is about: those of its resources that carry the contract's mark, unless
/// another export of the contract offers the resource too. Those that the provider made, to be adopted, and those that were
/// let go count as released, and hold it up no longer.
pub async fn remaining_objects(state: &State, export: &APIServiceExport) -> Result<Remaining, WriteError> {
    let contract = export.namespace().unwrap_or_default();
    let resources = own_resources(state, export);
    // Cluster-scoped objects of the consumer may stand in the contract namespace itself.
    let within = export.spec.isolation == Isolation::Namespaced;
    of_contract(state, &contract, &resources, within).await
}

/// The objects of a contract that nothing offers any more, wherever they are.
pub async fn of_resources(
    state: &State,
    contract: &str,
    resources: &BTreeSet<GroupResource>,
) -> Result<Remaining, WriteError> {
    of_contract(state, contract, resources, true).await
}

/// The objects of these resources that carry a contract's mark, or that the provider made for it; `within` says whether those in the contract namespace count.
async fn of_contract(
    state: &State,
    contract: &str,
    resources: &BTreeSet<GroupResource>,
    within: bool,
) -> Result<Remaining, WriteError> {
    let namespaces = state
        .caches
        .namespaces
        .list(|namespace| contract::of(namespace) == Some(contract) && (within || !contract::is_contract(namespace)));
    let area = Area {
        namespaces: namespaces.iter().map(|namespace| namespace.name_any()).collect(),
        cluster: true,
    };
    list(state, contract, resources, &area).await
}

/// The objects that hold up the deletion of a provider namespace: those of any resource the contract may have.
pub async fn in_namespace(state: &State, contract: &str, namespace: &str) -> Result<Remaining, WriteError> {
    let mut resources = known_resources(state, contract);
    // Nobody else remembers what was unbound while the template that offered it went.
    if let Some(namespace) = state.caches.namespaces.get("", namespace) {
        resources.extend(granted(&namespace));
    }
    let area = Area {
        namespaces: vec![namespace.to_owned()],
        cluster: false,
    };
    list(state, contract, &resources, &area).await
}

/// Every resource that a consumer was ever given rights on in a provider namespace.
pub fn granted(namespace: &Namespace) -> BTreeSet<GroupResource> {
    let record = namespace.annotations().get(annotations::GRANTED_RESOURCES);
    let names = record.map_or("", String::as_str).split(',');
    names
        .filter_map(|name| name.split_once('.'))
        .map(|(resource, group)| GroupResource::new(group, resource))
        .collect()
}

/// The record of granted resources, as its annotation holds it.
pub fn granted_record(resources: &BTreeSet<GroupResource>) -> String {
    let names: Vec<_> = resources.iter().map(ToString::to_string).collect();
    names.join(",")
}

/// Marks a contract's objects as let go: they stay, without their source.
pub async fn release(state: &State, contract: &str, remaining: &Remaining) -> Result<(), WriteError> {
    let held = remaining.objects.iter().filter(|object| !object.released);
    let mut releases = Vec::new();
    for object in held {
        if let Some(served) = served(state, &object.resource).await? {
            releases.push(release_one(
                served.api(state, &object.namespace),
                contract,
                object.clone(),
            ));
        }
    }
    stream::iter(releases)
        .buffer_unordered(CONCURRENT)
        .try_collect::<()>()
        .await
}

/// Marks the very object that was seen. Where several contracts write one, it may be another's by now: it is looked at again
/// after every change.
async fn release_one(api: Api<DynamicObject>, contract: &str, mut object: Object) -> Result<(), WriteError> {
    const LOOKS: u32 = 5;
    let mut looks = 0;
    loop {
        let patch = Patch::Merge(released(&object, contract));
        let error = match api.patch_metadata(&object.name, &params(), &patch).await {
            Ok(_) => return Ok(()),
            Err(error) if errors::is_not_found(&error) => return Ok(()),
            Err(error) => error,
        };
        looks += 1;
        if !errors::is_conflict(&error) || looks == LOOKS {
            return Err(error.into());
        }
        let now = api.get_metadata_opt(&object.name).await?;
        let Some(now) = now.filter(|now| is_marked(now, contract)) else {
            return Ok(());
        };
        object = Object::of(object.resource, &object.namespace, &now.metadata, contract);
        if object.released {
            return Ok(());
        }
    }
}

fn released(object: &Object, contract: &str) -> Value {
    let value = annotations::released(Timestamp::now(), contract);
    json!({ "metadata": {
        "uid": object.uid,
        "resourceVersion": object.version,
        "annotations": { annotations::RELEASED: value },
    } })
}

/// Takes what a contract last wrote off the objects that it shares with others under `LastWins`, and that are theirs now.
pub async fn withdraw(state: &State, export: &APIServiceExport) -> Result<(), WriteError> {
    if export.spec.conflict_policy != Some(ConflictPolicy::LastWins) {
        return Ok(());
    }
    let key = format!(
        "{}/{}",
        annotations::PROJECTION_OF,
        export.namespace().unwrap_or_default()
    );
    for resource in own_resources(state, export) {
        let Some(served) = served(state, &resource).await?.filter(Served::is_cluster_scoped) else {
            continue;
        };
        let api = served.api(state, "");
        for object in metadata(&api, ListParams::default()).await? {
            if !object.annotations().contains_key(&key) {
                continue;
            }
            let patch = json!({ "metadata": { "uid": object.uid(), "annotations": { &key: null } } });
            match api
                .patch_metadata(&object.name_any(), &params(), &Patch::Merge(patch))
                .await
            {
                Ok(_) => {}
                // Gone, or made anew by another.
                Err(error) if errors::is_not_found(&error) || errors::is_conflict(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(writes::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn own_resources(state: &State, export: &APIServiceExport) -> BTreeSet<GroupResource> {
    let mut others = state
        .caches
        .exports
        .list_in(export.metadata.namespace.as_deref().unwrap_or_default());
    others.retain(|other| other.uid() != export.uid() && other.metadata.deletion_timestamp.is_none());
    let shared: BTreeSet<_> = others.iter().flat_map(|other| resources_of(other)).collect();
    resources_of(export)
        .filter(|resource| !shared.contains(resource))
        .cloned()
        .collect()
}

/// What the contract has, had not long ago, or may get: exports, their schemas, and the templates granted to it.
fn known_resources(state: &State, contract: &str) -> BTreeSet<GroupResource> {
    let mut known = BTreeSet::new();
    for export in state.caches.exports.list_in(contract) {
        known.extend(resources_of(&export).cloned());
    }
    for schema in state.caches.bound_schemas.list_in(contract) {
        known.insert(GroupResource::new(&schema.spec.group, &schema.spec.names.plural));
    }
    let Some(namespace) = state.contract(contract) else {
        // Nobody is left who knows what was offered here: anything may have been.
        let offered = state.caches.definitions.list(|_| true);
        known.extend(
            offered
                .iter()
                .map(|definition| GroupResource::new(&definition.spec.group, &definition.spec.names.plural)),
        );
        return known;
    };
    for name in contract::granted_templates(&namespace) {
        if let Some(template) = state.caches.templates.get("", &name) {
            let resources = template.spec.resources.iter();
            known.extend(resources.map(|resource| resource.group_resource.clone()));
        }
    }
    known
}

fn resources_of(export: &APIServiceExport) -> impl Iterator<Item = &GroupResource> {
    export.spec.resources.iter().map(|resource| &resource.group_resource)
}

async fn list(
    state: &State,
    contract: &str,
    resources: &BTreeSet<GroupResource>,
    area: &Area,
) -> Result<Remaining, WriteError> {
    let mut lists = Vec::new();
    for resource in resources {
        // No CRD, no objects.
        let Some(served) = served(state, resource).await? else {
            continue;
        };
        for namespace in area.of(&served) {
            lists.push(list_one(served.api(state, namespace), contract, resource, namespace));
        }
    }
    let found: Vec<Vec<Object>> = stream::iter(lists).buffer_unordered(CONCURRENT).try_collect().await?;
    let mut objects = found.concat();
    objects.sort_unstable();
    Ok(Remaining { objects })
}

async fn list_one(
    api: Api<DynamicObject>,
    contract: &str,
    resource: &GroupResource,
    namespace: &str,
) -> Result<Vec<Object>, WriteError> {
    let found = metadata(&api, ListParams::default()).await?.into_iter();
    Ok(found
        .filter_map(|item| {
            let is_providers = is_providers(&item, namespace, contract);
            let object = Object::of(resource.clone(), namespace, &item.metadata, contract);
            (is_providers || is_marked(&item, contract)).then_some(Object {
                released: object.released || is_providers,
                ..object
            })
        })
        .collect())
}

/// Whether the provider made an object for a contract to adopt: by its mark, or in a namespace of the contract's.
fn is_providers(object: &impl Resource, namespace: &str, contract: &str) -> bool {
    let marks = object.meta().annotations.as_ref();
    let mark = |key: &str| marks.and_then(|marks| marks.get(key)).map(String::as_str);
    matches!(
        Candidate::of(mark, contract, namespace.is_empty()),
        Candidate::Fresh { .. }
    )
}

/// Whether an object is a contract's. Nothing else tells it: names do not where they are shared.
fn is_marked(object: &impl Resource, contract: &str) -> bool {
    let mark = object
        .meta()
        .annotations
        .as_ref()
        .and_then(|marks| marks.get(annotations::CLUSTER_NAMESPACE));
    mark.is_some_and(|mark| mark == contract)
}

// === impl Remaining ===

impl Remaining {
    /// How many objects hold things up.
    pub fn count(&self) -> usize {
        self.objects.iter().filter(|object| !object.released).count()
    }

    /// Whether objects are left that were let go.
    pub fn has_released(&self) -> bool {
        self.objects.iter().any(|object| object.released)
    }
}

impl fmt::Display for Remaining {
    /// How many objects are left, and the first of them by name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMED: usize = 3;
        let held: Vec<_> = self.objects.iter().filter(|object| !object.released).collect();
        let named: Vec<_> = held.iter().take(NAMED).map(ToString::to_string).collect();
        let more = if held.len() > NAMED { ", ..." } else { "" };
        let remain = if held.len() == 1 {
            "object remains"
        } else {
            "objects remain"
        };
        write!(f, "{} {remain}: {}{more}", held.len(), named.join(", "))
    }
}

// === impl Object ===

impl Object {
    /// As its metadata tells, of the contract whose copy it is.
    pub fn of(resource: GroupResource, namespace: &str, metadata: &ObjectMeta, contract: &str) -> Self {
        let marks = metadata.annotations.as_ref();
        let released = marks.and_then(|marks| marks.get(annotations::RELEASED));
        Self {
            resource,
            namespace: namespace.to_owned(),
            name: metadata.name.clone().unwrap_or_default(),
            released: released.is_some_and(|value| annotations::is_released(value, contract)),
            uid: metadata.uid.clone(),
            version: metadata.resource_version.clone(),
        }
    }
}

impl fmt::Display for Object {
    /// The resource and where the object is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            namespace,
            name,
            ..
        } = self;
        match namespace.as_str() {
            "" => write!(f, "{resource} {name}"),
            namespace => write!(f, "{resource} {namespace}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_contracts_is_told_by_its_mark_alone() {
        let marked = |name: &str, mark: Option<&str>| {
            let mut object = Namespace::default();
            object.metadata.name = Some(name.to_owned());
            object.metadata.annotations =
                mark.map(|mark| [(annotations::CLUSTER_NAMESPACE.to_owned(), mark.to_owned())].into());
            is_marked(&object, "kube-bind-a")
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
            is_providers(&object, namespace, "kube-bind-a")
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
    fn check_released(value: Option<&str>, expect: bool) {
        let metadata = ObjectMeta {
            name: Some("wyatt".to_owned()),
            uid: Some("u1".to_owned()),
            resource_version: Some("7".to_owned()),
            annotations: value.map(|value| [(annotations::RELEASED.to_owned(), value.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let object = Object::of(
            GroupResource::new("wildwest.dev", "sheriffs"),
            "",
            &metadata,
            "kube-bind-a",
        );
        assert_eq!(object.released, expect, "{value:?}");
        let patch = released(&object, "kube-bind-a");
        assert_eq!(patch["metadata"]["uid"], "u1");
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let value = patch["metadata"]["annotations"][annotations::RELEASED]
            .as_str()
            .unwrap();
        assert!(annotations::is_released(value, "kube-bind-a"));
        assert!(!annotations::is_released(value, "kube-bind-b"));
    }

    #[test]
    fn an_object_is_let_go_as_it_was_seen_and_by_one_contract() {
        check_released(None, false);
        check_released(Some("2026-01-01T00:00:00Z"), true);
        check_released(Some("2026-01-01T00:00:00Z/kube-bind-a"), true);
        check_released(Some("2026-01-01T00:00:00Z/kube-bind-b"), false);
    }

    #[test]
    fn what_remains_is_named_with_its_place() {
        let object = |namespace: &str, name: &str, released| Object {
            resource: GroupResource::new("wildwest.dev", "sheriffs"),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            released,
            uid: None,
            version: None,
        };
        let mut remaining = Remaining {
            objects: vec![object("", "wyatt", false), object("kube-bind-a", "bat", true)],
        };
        assert_eq!(remaining.to_string(), "1 object remains: sheriffs.wildwest.dev wyatt");
        remaining.objects[1].released = false;
        assert_eq!(
            remaining.to_string(),
            "2 objects remain: sheriffs.wildwest.dev wyatt, sheriffs.wildwest.dev kube-bind-a/bat"
        );
    }

    #[track_caller]
    fn check_record(record: Option<&str>, expect: &[(&str, &str)]) {
        let mut namespace = Namespace::default();
        if let Some(record) = record {
            let marks = namespace.annotations_mut();
            marks.insert(annotations::GRANTED_RESOURCES.to_owned(), record.to_owned());
        }
        let resources = granted(&namespace);
        let expect: BTreeSet<_> = expect
            .iter()
            .map(|(group, resource)| GroupResource::new(*group, *resource))
            .collect();
        assert_eq!(resources, expect);
        assert_eq!(granted_record(&resources), record.unwrap_or_default());
    }

    #[test]
    fn what_was_granted_reads_back() {
        check_record(None, &[]);
        check_record(Some("cowboys.wildwest.dev"), &[("wildwest.dev", "cowboys")]);
        check_record(
            Some("cowboys.wildwest.dev,sheriffs.wildwest.dev"),
            &[("wildwest.dev", "cowboys"), ("wildwest.dev", "sheriffs")],
        );
    }
}
