//! Bound objects: what goes up, what comes down, and what stays.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bindery_api::annotations;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, DynamicObject},
};
use serde_json::json;

use crate::{bench::Bench, kinds::Kind};

const BOUND: Kind = Kind::Bound;

pub(crate) async fn spec_goes_up(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let twin = bench.twin(a, b, BOUND, "spec").await?;
    let ours = a
        .patch(
            BOUND,
            "spec",
            json!({"spec": {"intent": "rob a train", "badge": "none"}}),
        )
        .await?;
    let copy = a.copied(BOUND, "spec", "rob a train").await?;
    ensure!(copy.data["spec"]["badge"] == "none", "{}", copy.data);
    let mark = |key: &str| copy.annotations().get(key).cloned();
    let namespace = ours.namespace().unwrap_or_default();
    ensure!(
        mark(annotations::CONSUMER_UID) == ours.uid(),
        "{:?}",
        copy.annotations()
    );
    ensure!(
        mark(annotations::CONSUMER_NAMESPACE) == Some(namespace),
        "{:?}",
        copy.annotations()
    );
    ensure!(
        mark(annotations::BOUND).as_deref() == Some("true"),
        "{:?}",
        copy.annotations()
    );
    twin.left_the_other_alone().await
}

pub(crate) async fn status_comes_down(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let twin = bench.twin(b, a, BOUND, "status").await?;
    b.report("status", json!({"result": "caught"})).await?;
    b.reported("status", "caught").await?;
    // One that the user edits is put back.
    b.write_status(&b.ours(BOUND), "status", json!({"result": "escaped", "secretRefs": []}))
        .await?;
    let back = |object: &DynamicObject| object.data["status"] == json!({"result": "caught"});
    b.ours_is("to have its status back", BOUND, "status", back).await?;
    b.report("status", json!({"result": null})).await?;
    let empty = |object: &DynamicObject| object.data["status"]["result"].is_null();
    b.ours_is("to have no result", BOUND, "status", empty).await?;
    twin.left_the_other_alone().await
}

pub(crate) async fn labels_and_annotations(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let twin = bench.twin(b, a, BOUND, "labels").await?;
    let metadata = json!({"metadata": {
        "labels": {"gang": "dalton", "kubernetes.io/own": "x"},
        "annotations": {"note": "wanted", "kubectl.kubernetes.io/own": "x"},
    }});
    b.patch(BOUND, "labels", metadata).await?;
    let has = |map: &BTreeMap<String, String>, key: &str, value: &str| map.get(key).is_some_and(|is| is == value);
    let copy = b
        .copy_is("to have label and annotation", BOUND, "labels", |copy| {
            has(copy.labels(), "gang", "dalton") && has(copy.annotations(), "note", "wanted")
        })
        .await?;
    let own = |map: &BTreeMap<String, String>| map.keys().any(|key| key.ends_with("kubernetes.io/own"));
    ensure!(!own(copy.labels()) && !own(copy.annotations()), "{:?}", copy.metadata);
    // What the provider adds stays.
    let added = json!({"metadata": {"labels": {"provider": "was-here"}, "annotations": {"provider": "was-here"}}});
    b.patch_copy(BOUND, "labels", added).await?;
    let changed = json!({"metadata": {"labels": {"gang": null}, "annotations": {"note": "dead or alive"}}});
    b.patch(BOUND, "labels", changed).await?;
    b.copy_is("to lack the label", BOUND, "labels", |copy| {
        !copy.labels().contains_key("gang")
            && has(copy.annotations(), "note", "dead or alive")
            && has(copy.labels(), "provider", "was-here")
            && has(copy.annotations(), "provider", "was-here")
    })
    .await?;
    twin.left_the_other_alone().await
}

pub(crate) async fn a_removed_field_goes(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let twin = bench.twin(a, b, BOUND, "fields").await?;
    a.patch(
        BOUND,
        "fields",
        json!({"spec": {"badge": "star", "secretRefs": [{"name": "none"}]}}),
    )
    .await?;
    let there = |copy: &DynamicObject| copy.data["spec"]["badge"] == "star";
    a.copy_is("to have the field", BOUND, "fields", there).await?;
    a.patch_copy(BOUND, "fields", json!({"spec": {"brand": "provider's"}}))
        .await?;
    a.patch(BOUND, "fields", json!({"spec": {"badge": null, "secretRefs": null}}))
        .await?;
    let gone = |copy: &DynamicObject| {
        let spec = &copy.data["spec"];
        spec["badge"].is_null() && spec["secretRefs"].is_null() && spec["brand"] == "provider's"
    };
    a.copy_is("to lack the fields", BOUND, "fields", gone).await?;
    twin.left_the_other_alone().await
}

pub(crate) async fn a_lost_copy_comes_back(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let name = "lost";
    let object = BOUND.object(bench.cell, name, "ride");
    a.create(BOUND, &object).await?;
    let copy = a.settled(BOUND, name, "ride").await?;
    a.copies(BOUND)
        .delete(&a.copy_name(BOUND, name), &DeleteParams::default())
        .await?;
    let back = |now: &DynamicObject| now.uid() != copy.uid() && BOUND.is(now, "ride");
    a.copy_is("to come back", BOUND, name, back).await?;
    ensure!(
        b.ours(BOUND).get_opt(name).await?.is_none(),
        "it appeared at the other consumer"
    );
    Ok(())
}
