//! Whose an object is, outside a contract's own namespaces.

use anyhow::{Context as _, Result};
use bindery_api::annotations::{CLUSTER_NAMESPACE, PROJECTION_OF};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::world::{
    A, AB, LAST, NOT_OWN, SHARED, case, change, cowboy, cowboys, dry_run, mark, named, refused, sheriff, sheriffs,
};

#[test]
fn names_under_its_own_prefix_are_a_contracts() -> Result<()> {
    case(async |world| {
        let api = sheriffs(&world.a);
        let own = named(A, "wyatt");
        api.create(&PostParams::default(), &sheriff(&own, None)).await?;
        api.patch(&own, &PatchParams::default(), &change("watch")).await?;
        let mut read = api.get(&own).await?;
        read.data["spec"] = json!({"intent": "replace"});
        api.replace(&own, &PostParams::default(), &read).await?;
        let others = sheriffs(&world.ab);
        let stolen = others.patch(&own, &PatchParams::default(), &change("steal")).await;
        refused(stolen, &[NOT_OWN])?;
        let stolen = others.patch(&own, &PatchParams::default(), &mark(Some(AB))).await;
        refused(stolen, &[NOT_OWN])?;
        refused(others.delete(&own, &DeleteParams::default()).await, &[NOT_OWN])?;
        api.delete(&own, &DeleteParams::default()).await?;
        for name in [
            "wyatt",
            A,
            "kube-bind-awyatt",
            &named(AB, "wyatt"),
            "x-kube-bind-a-wyatt",
        ] {
            let outcome = api.create(&dry_run(), &sheriff(name, None)).await;
            refused(outcome, &["sheriffs", NOT_OWN]).context(name.to_owned())?;
        }
        let shared = cowboys(&world.a, SHARED);
        shared.create(&dry_run(), &cowboy(&named(A, "billy"), None)).await?;
        let outcome = shared.create(&dry_run(), &cowboy("billy", None)).await;
        refused(outcome, &[SHARED, NOT_OWN])
    })
}

#[test]
fn what_it_marked_is_a_contracts_before_and_after() -> Result<()> {
    case(async |world| {
        let (ours, theirs) = (sheriffs(&world.a), sheriffs(&world.ab));
        let params = PatchParams::default();
        ours.create(&PostParams::default(), &sheriff("marked", Some(A))).await?;
        ours.patch("marked", &params, &change("watch")).await?;
        for contract in [None, Some(AB)] {
            refused(ours.patch("marked", &params, &mark(contract)).await, &[NOT_OWN])?;
        }
        refused(theirs.patch("marked", &params, &change("steal")).await, &[NOT_OWN])?;
        refused(theirs.patch("marked", &params, &mark(Some(AB))).await, &[NOT_OWN])?;
        refused(theirs.delete("marked", &DeleteParams::default()).await, &[NOT_OWN])?;
        ours.delete("marked", &DeleteParams::default()).await?;
        // What is nobody's is not taken by marking it.
        world.plant("nobodys", None).await?;
        refused(ours.patch("nobodys", &params, &mark(Some(A))).await, &[NOT_OWN])?;
        refused(ours.delete("nobodys", &DeleteParams::default()).await, &[NOT_OWN])?;
        let shared = cowboys(&world.a, SHARED);
        shared
            .create(&PostParams::default(), &cowboy("marked", Some(A)))
            .await?;
        let theirs = cowboys(&world.ab, SHARED);
        let outcome = theirs.delete("marked", &DeleteParams::default()).await;
        refused(outcome, &[SHARED, NOT_OWN])?;
        shared.delete("marked", &DeleteParams::default()).await?;
        Ok(())
    })
}

#[test]
fn nothing_is_marked_as_anothers() -> Result<()> {
    case(async |world| {
        let api = sheriffs(&world.a);
        let own = named(A, "planted");
        let planted = api.create(&dry_run(), &sheriff(&own, Some(AB))).await;
        refused(planted, &["marks nothing as kube-bind-ab's"])?;
        api.create(&PostParams::default(), &sheriff(&own, Some(A))).await?;
        let planted = api.patch(&own, &PatchParams::default(), &mark(Some(AB))).await;
        refused(planted, &["marks nothing as kube-bind-ab's"])
    })
}

#[test]
fn a_status_is_written_by_whose_object_it_is() -> Result<()> {
    case(async |world| {
        let ours = sheriffs(&world.a);
        world.plant("status", Some(AB)).await?;
        let patch = Patch::Merge(json!({"status": {"result": "done"}}));
        let outcome = ours.patch_status("status", &PatchParams::default(), &patch).await;
        refused(outcome, &[NOT_OWN])?;
        world.plant(&named(A, "status"), None).await?;
        ours.patch_status(&named(A, "status"), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    })
}

#[test]
fn who_may_overwrite_overwrites_and_plants_nothing() -> Result<()> {
    case(async |world| {
        let api = sheriffs(&world.last);
        let params = PatchParams::default();
        world.plant_shared("overwritten", A).await?;
        api.patch("overwritten", &params, &change("last")).await?;
        let planted = api.patch("overwritten", &params, &mark(Some(AB))).await;
        refused(planted, &["marks nothing as kube-bind-ab's"])?;
        api.patch("overwritten", &params, &mark(Some(LAST))).await?;
        let planted = api.create(&dry_run(), &sheriff("planted-by-last", Some(A))).await;
        refused(planted, &["marks nothing as kube-bind-a's"])?;
        // On that resource, and on no other.
        let cowboys = cowboys(&world.last, SHARED);
        refused(cowboys.create(&dry_run(), &cowboy("last", None)).await, &[NOT_OWN])
    })
}

/// One resource may be offered in several ways: what others have of it by another way is not shared.
#[test]
fn who_may_overwrite_does_so_to_what_is_shared_by_choice() -> Result<()> {
    case(async |world| {
        let api = sheriffs(&world.last);
        // The first who used a name owns it, or it is under the prefix of its contract, whatever the object carries.
        world.plant("not-shared", Some(A)).await?;
        world.plant(&named(A, "marked"), Some(A)).await?;
        world.plant(&named(A, "unmarked"), None).await?;
        world.plant_shared(&named(A, "noted"), A).await?;
        let others = [
            "not-shared",
            &named(A, "marked"),
            &named(A, "unmarked"),
            &named(A, "noted"),
        ];
        let note = Patch::Merge(json!({"metadata": {"annotations": {
            CLUSTER_NAMESPACE: LAST, format!("{PROJECTION_OF}/{LAST}"): "written",
        }}}));
        for name in others {
            for patch in [change("steal"), mark(Some(LAST)), mark(None), note.clone()] {
                let stolen = api.patch(name, &PatchParams::default(), &patch).await;
                refused(stolen, &[NOT_OWN]).with_context(|| format!("{name}: {patch:?}"))?;
            }
            let status = Patch::Merge(json!({"status": {"result": "done"}}));
            let stolen = api.patch_status(name, &PatchParams::default(), &status).await;
            refused(stolen, &[NOT_OWN]).context(name.to_owned())?;
            refused(api.delete(name, &DeleteParams::default()).await, &[NOT_OWN]).context(name.to_owned())?;
            let alone = ListParams::default().fields(&format!("metadata.name={name}"));
            let stolen = api.delete_collection(&DeleteParams::default(), &alone).await;
            refused(stolen, &[NOT_OWN]).context(name.to_owned())?;
        }
        // Nor does it plant anything there, marked or not.
        for name in [named(A, "new"), A.to_owned(), "kube-bind-nobodys".to_owned()] {
            let planted = api.create(&dry_run(), &sheriff(&name, None)).await;
            refused(planted, &[NOT_OWN]).context(name.clone())?;
            let planted = api.create(&dry_run(), &sheriff(&name, Some(LAST))).await;
            refused(planted, &["as names of contracts do"]).context(name)?;
        }
        // What is shared, by whomever, may go too.
        world.plant_shared("shared-by-choice", A).await?;
        api.delete("shared-by-choice", &DeleteParams::default()).await?;
        Ok(())
    })
}

#[test]
fn namespaces_and_what_is_kubernetes_own_are_held_to_the_same() -> Result<()> {
    case(async |world| {
        let label = Patch::Merge(json!({"metadata": {"labels": {"mine": "true"}}}));
        let namespaces: Api<Namespace> = Api::all(world.a.clone());
        for name in [A, AB, SHARED, "kube-system"] {
            let outcome = namespaces.patch(name, &PatchParams::default(), &label).await;
            refused(outcome, &[NOT_OWN]).context(name)?;
        }
        let maps: Api<ConfigMap> = Api::namespaced(world.a.clone(), "kube-system");
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some("planted".to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        refused(
            maps.create(&dry_run(), &map).await,
            &["in namespace kube-system", NOT_OWN],
        )
    })
}
