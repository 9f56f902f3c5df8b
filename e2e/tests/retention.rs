//! The copy of a deleted object is retained: its object is restored with its status, its name is blocked meanwhile, and the server ends
//! it at its time, or the user before that.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    annotations,
    v1alpha2::{APIServiceBinding, APIServiceExportTemplate, RetainedObjects},
};
use bindery_e2e::{
    Provider,
    bound::Bound,
    eventually_ok, holds_for, lease, run,
    wildwest::{self, SOON},
};
use k8s_openapi::api::{core::v1::Namespace, events::v1::Event};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::json;

/// How long something that must not happen is waited for.
const A_WHILE: Duration = Duration::from_secs(2);

#[test]
fn a_deleted_object_is_retained_restored_discarded_and_ends_at_its_time() -> Result<()> {
    run(async {
        let bound = Bound::start("retained", &lease::PATIENT).await?;
        retain_for(&bound, "1h").await?;
        an_object_is_restored_with_its_status(&bound).await?;
        a_name_is_blocked_until_the_copy_is_discarded(&bound).await?;
        an_unbind_with_the_objects_retains_and_a_bind_restores(&bound).await?;
        beyond_the_limit_the_first_end_early(&bound).await?;
        retain_for(&bound, "4s").await?;
        the_server_ends_what_has_expired(&bound).await?;
        bound.unbind().await
    })
}

/// Offers the template with this retention, and binds it anew.
async fn retain_for(bound: &Bound, time: &str) -> Result<()> {
    bound.bind(&["unbind", "cowboys"]).await?;
    let templates: Api<APIServiceExportTemplate> = Api::all(bound.provider.plane.client());
    let retention = json!({"for": time, "suspend": {"spec": {"intent": "wait in jail"}}});
    let patch = Patch::Merge(json!({"spec": {"retention": retention}}));
    templates.patch("cowboys", &PatchParams::default(), &patch).await?;
    bound.bind(&["cowboys"]).await?;
    Ok(())
}

/// Deletes an object, and waits until its copy is retained, suspended and told.
async fn retained(bound: &Bound, name: &str) -> Result<DynamicObject> {
    let cowboys = &bound.cowboys;
    cowboys.ours.delete(name, &DeleteParams::default()).await?;
    eventually_ok(format!("{name} to be let go"), SOON, async || {
        ensure!(cowboys.ours.get_opt(name).await?.is_none(), "{name} is left");
        Ok(())
    })
    .await?;
    let copy = wildwest::wait("the server to say until when", &cowboys.copies, name, |copy| {
        copy.annotations().contains_key(annotations::RETAINED_UNTIL)
    })
    .await?;
    ensure!(copy.annotations().contains_key(annotations::RETAINED), "{copy:?}");
    ensure!(copy.data["spec"]["intent"] == "wait in jail", "{copy:?}");
    ensure!(copy.metadata.deletion_timestamp.is_none(), "{copy:?}");
    told(bound, name).await?;
    Ok(copy)
}

/// Waits until the binding lists the retained copy of an object, with the time of its end.
async fn told(bound: &Bound, name: &str) -> Result<()> {
    eventually_ok(format!("{name} to be listed"), SOON, async || {
        let listed = listed(bound).await?.context("nothing is listed")?;
        let found = listed.first.iter().find(|object| object.name == name);
        let found = found.context("it is not listed")?;
        ensure!(found.namespace == "wild-west" && found.until.is_some(), "{found:?}");
        Ok(())
    })
    .await
}

async fn listed(bound: &Bound) -> Result<Option<RetainedObjects>> {
    let bindings: Api<APIServiceBinding> = Api::all(bound.consumer.plane.client());
    let binding = bindings.get("cowboys").await?;
    Ok(binding.status.and_then(|status| status.retained))
}

async fn an_object_is_restored_with_its_status(bound: &Bound) -> Result<()> {
    let cowboys = &bound.cowboys;
    cowboys.create("billy", "rob a train").await?;
    cowboys.copied("billy", "rob a train").await?;
    cowboys.report("billy", "rich").await?;
    cowboys.reported("billy", "rich").await?;
    let copy = retained(bound, "billy").await?;
    let listed = bound.bind(&["retained"]).await?;
    ensure!(listed.contains("billy") && listed.contains("wild-west"), "{listed}");

    bound.bind(&["restore", "cowboy/billy", "-n", "wild-west"]).await?;
    let ours = cowboys.reported("billy", "rich").await?;
    ensure!(ours.data["spec"]["intent"] == "rob a train", "{ours:?}");
    let now = cowboys.copied("billy", "rob a train").await?;
    ensure!(now.uid() == copy.uid(), "another copy was made");
    let unmarked = async || {
        let copy = cowboys.copies.get("billy").await?;
        ensure!(!copy.annotations().contains_key(annotations::RETAINED), "{copy:?}");
        Ok(())
    };
    eventually_ok("billy not to be retained any more", SOON, unmarked).await?;
    lists_nothing(bound).await?;
    cowboys.intend("billy", "retire").await?;
    cowboys.copied("billy", "retire").await?;
    Ok(())
}

/// Waits until the binding lists no retained copy. What it listed before an order may be shown for a moment after it.
async fn lists_nothing(bound: &Bound) -> Result<()> {
    eventually_ok("nothing to be listed", SOON, async || {
        let count = listed(bound).await?.map_or(0, |listed| listed.count);
        ensure!(count == 0, "{count} are listed");
        Ok(())
    })
    .await
}

/// An admin lowers the limit of the contract; then the copy that would end first ends at once, and an Event says so.
async fn beyond_the_limit_the_first_end_early(bound: &Bound) -> Result<()> {
    let client = bound.provider.plane.client();
    let contract = Provider::contract(&bound.consumer.identity().await?);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let limit = async |limits: Option<&str>| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {annotations::LIMITS: limits}}}));
        namespaces.patch(&contract, &PatchParams::default(), &patch).await
    };
    limit(Some(r#"{"retainedObjects": 1}"#)).await?;
    let cowboys = &bound.cowboys;
    for name in ["early", "late"] {
        cowboys.create(name, "rob a bank").await?;
        cowboys.copied(name, "rob a bank").await?;
        retained(bound, name).await?;
    }
    eventually_ok("the first copy to end", SOON, async || {
        ensure!(cowboys.copies.get_opt("early").await?.is_none(), "it is there");
        Ok(())
    })
    .await?;
    ensure!(cowboys.copies.get_opt("late").await?.is_some(), "both ended");
    let events: Api<Event> = Api::namespaced(client, &contract);
    eventually_ok("an Event about the limit", SOON, async || {
        let events = events.list(&ListParams::default()).await?;
        let told = events
            .iter()
            .find(|event| event.reason.as_deref() == Some("LimitReached"));
        let note = told.and_then(|event| event.note.clone()).context("no Event")?;
        ensure!(note.contains("limit of 1 retained objects"), "{note}");
        Ok(())
    })
    .await?;
    limit(None).await?;
    cowboys.copies.delete("late", &DeleteParams::default()).await?;
    lists_nothing(bound).await
}

async fn a_name_is_blocked_until_the_copy_is_discarded(bound: &Bound) -> Result<()> {
    let cowboys = &bound.cowboys;
    let copy = retained(bound, "billy").await?;
    cowboys.create("billy", "be another").await?;
    eventually_ok("the binding to say why", SOON, async || {
        let in_sync = bound.condition("ObjectsInSync").await?;
        ensure!(in_sync.message.contains("retains the copy"), "{in_sync:?}");
        Ok(())
    })
    .await?;
    holds_for("the copy to stay as it is", A_WHILE, async || {
        let now = cowboys.copies.get("billy").await?;
        ensure!(now.uid() == copy.uid() && now.data == copy.data, "{now:?}");
        Ok(())
    })
    .await?;
    bound
        .bind(&["discard", "cowboy/billy", "-n", "wild-west", "--yes"])
        .await?;
    let now = cowboys.copied("billy", "be another").await?;
    ensure!(now.uid() != copy.uid(), "the old copy was given to another object");
    lists_nothing(bound).await?;
    cowboys.ours.delete("billy", &DeleteParams::default()).await?;
    retained_again(bound).await
}

/// Discards what the object before left.
async fn retained_again(bound: &Bound) -> Result<()> {
    told(bound, "billy").await?;
    bound
        .bind(&["discard", "cowboy/billy", "-n", "wild-west", "--yes"])
        .await?;
    bound.cowboys.gone("billy").await
}

async fn an_unbind_with_the_objects_retains_and_a_bind_restores(bound: &Bound) -> Result<()> {
    let cowboys = &bound.cowboys;
    cowboys.create("annie", "hit the bullseye").await?;
    let before = cowboys.copied("annie", "hit the bullseye").await?;
    bound.bind(&["unbind", "cowboys", "--delete-objects"]).await?;
    let copy = cowboys.copies.get("annie").await?;
    ensure!(copy.annotations().contains_key(annotations::RETAINED), "{copy:?}");
    bound.bind(&["cowboys"]).await?;
    told(bound, "annie").await?;
    bound.bind(&["restore", "cowboy/annie", "-n", "wild-west"]).await?;
    let now = cowboys.copied("annie", "hit the bullseye").await?;
    ensure!(now.uid() == before.uid(), "another copy was made");
    lists_nothing(bound).await?;
    cowboys.ours.delete("annie", &DeleteParams::default()).await?;
    told(bound, "annie").await?;
    bound
        .bind(&["discard", "cowboy/annie", "-n", "wild-west", "--yes"])
        .await?;
    cowboys.gone("annie").await
}

async fn the_server_ends_what_has_expired(bound: &Bound) -> Result<()> {
    let cowboys = &bound.cowboys;
    cowboys.create("doc", "play poker").await?;
    cowboys.copied("doc", "play poker").await?;
    cowboys.ours.delete("doc", &DeleteParams::default()).await?;
    cowboys.gone("doc").await?;
    lists_nothing(bound).await
}
