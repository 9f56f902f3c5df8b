//! Releases objects that stay on the provider when their export goes.

use bindery_api::{
    annotations,
    v1alpha2::{APIServiceExport, ConflictPolicy},
};
use bindery_runtime::errors;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    CONCURRENT, Leftovers, SyncedObject,
    list::{belongs_to, metadata},
    own_resources,
    resource::ServedResource,
};
use crate::{
    state::State,
    writes::{self, WriteError},
};

/// Releases a contract's objects by an annotation: they stay on the provider, without their source. `at` is when that began: the
/// annotation tells whether an export was made later, so that the clock of the API server should have said it.
pub async fn release(state: &State, contract: &str, leftovers: &Leftovers, at: Timestamp) -> Result<(), WriteError> {
    let unreleased = leftovers.objects.iter().filter(|object| !object.released);
    let mut releases = Vec::new();
    for object in unreleased {
        if let Some(served) = ServedResource::find(state, &object.resource).await? {
            releases.push(release_one(
                served.api(state, &object.namespace),
                contract,
                object.clone(),
                at,
            ));
        }
    }
    stream::iter(releases)
        .buffer_unordered(CONCURRENT)
        .map_ok(|is_released| {
            if is_released {
                state.metrics.released.inc();
            }
        })
        .try_collect::<()>()
        .await
}

/// Annotates the object as it was seen; returns whether this call released it. Several contracts may write one object, so that after a
/// conflict it is read again: it may belong to another contract by now.
async fn release_one(
    api: Api<DynamicObject>,
    contract: &str,
    mut object: SyncedObject,
    at: Timestamp,
) -> Result<bool, WriteError> {
    const LOOKS: u32 = 5;
    let mut looks = 0;
    loop {
        let patch = Patch::Merge(release_patch(&object, contract, at));
        let error = match api.patch_metadata(&object.name, &params(), &patch).await {
            Ok(_) => return Ok(true),
            Err(error) if errors::is_not_found(&error) => return Ok(false),
            Err(error) => error,
        };
        looks += 1;
        if !errors::is_conflict(&error) || looks == LOOKS {
            return Err(error.into());
        }
        let now = api.get_metadata_opt(&object.name).await?;
        let Some(now) = now.filter(|now| belongs_to(now, contract)) else {
            return Ok(false);
        };
        object = SyncedObject::of(object.resource, &object.namespace, &now.metadata, contract);
        if object.released {
            return Ok(false);
        }
    }
}

/// The patch that releases an object as it was seen.
fn release_patch(object: &SyncedObject, contract: &str, at: Timestamp) -> Value {
    let value = annotations::released(at, contract);
    json!({ "metadata": {
        "uid": object.uid,
        "resourceVersion": object.version,
        "annotations": { annotations::RELEASED: value },
    } })
}

/// Removes a contract's annotation from the cluster-scoped objects that it shared with other contracts under `LastWins`: they
/// belong to those now.
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
        let Some(served) = ServedResource::find(state, &resource)
            .await?
            .filter(ServedResource::is_cluster_scoped)
        else {
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

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::GroupResource;
    use kube::api::ObjectMeta;

    use super::*;

    #[track_caller]
    fn check_released(value: Option<&str>, expect: bool) {
        let metadata = ObjectMeta {
            name: Some("wyatt".to_owned()),
            uid: Some("u1".to_owned()),
            resource_version: Some("7".to_owned()),
            annotations: value.map(|value| [(annotations::RELEASED.to_owned(), value.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let object = SyncedObject::of(
            GroupResource::new("wildwest.dev", "sheriffs"),
            "",
            &metadata,
            "kube-bind-a",
        );
        assert_eq!(object.released, expect, "{value:?}");
        let patch = release_patch(&object, "kube-bind-a", Timestamp::UNIX_EPOCH);
        assert_eq!(patch["metadata"]["uid"], "u1");
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let value = patch["metadata"]["annotations"][annotations::RELEASED]
            .as_str()
            .unwrap();
        assert!(annotations::is_released(value, "kube-bind-a"));
        assert!(!annotations::is_released(value, "kube-bind-b"));
    }

    #[test]
    fn what_is_retained_is_not_released() {
        let marks = [
            (annotations::CONSUMER_UID, "u1"),
            (annotations::RETAINED, "u1/kube-bind-a/2026-01-01T00:00:00Z"),
        ];
        let metadata = ObjectMeta {
            annotations: Some(
                marks
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into_iter()
                    .collect(),
            ),
            ..ObjectMeta::default()
        };
        for (contract, expect) in [("kube-bind-a", true), ("kube-bind-b", false)] {
            let resource = GroupResource::new("wildwest.dev", "sheriffs");
            assert_eq!(SyncedObject::of(resource, "", &metadata, contract).released, expect);
        }
    }

    #[test]
    fn an_object_is_let_go_as_it_was_seen_and_by_one_contract() {
        check_released(None, false);
        check_released(Some("2026-01-01T00:00:00Z"), true);
        check_released(Some("2026-01-01T00:00:00Z/kube-bind-a"), true);
        check_released(Some("2026-01-01T00:00:00Z/kube-bind-b"), false);
    }
}
