//! What was adopted is the consumer's own.

use anyhow::{Context as _, Result, ensure};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::{Value, json};

use crate::side::{Side, shown};

/// What the provider still has to do before its object may go.
const LAST_WORDS: &str = "wildwest.dev/last-words";

/// Also what the provider's admin had set with kubectl, and what some program of the provider's had.
pub(crate) async fn what_the_consumer_changes_goes_up(side: &Side) -> Result<()> {
    let name = "changed";
    let mut object = side.fresh(name, "ride");
    object.data["spec"]["badge"] = json!("star");
    object.metadata.namespace = side.copies_namespace();
    object.labels_mut().insert("gang".to_owned(), "dalton".to_owned());
    object.annotations_mut().insert("note".to_owned(), "wanted".to_owned());
    object
        .annotations_mut()
        .insert("kubectl.kubernetes.io/own".to_owned(), "x".to_owned());
    // Both in one moment: it must not be adopted between them.
    let paused = side.cell.object(name, "nothing yet");
    side.create(&marked_paused(paused)).await?;
    side.provider.plane.apply(&serde_json::to_string(&object)?).await?;
    let more = json!({"spec": {"skills": ["roping"]}, "metadata": {"labels": {"horse": "brown"}}});
    let source = side.patch_copy(name, more).await?;
    side.delete(name).await?;
    let pair = side.adopted(name, &source).await?;
    ensure!(pair.ours.data["spec"] == source.data["spec"], "{}", shown(&pair.ours));

    side.patch(name, json!({"spec": {"intent": "hide"}})).await?;
    side.copy_is(name, |copy| copy.data["spec"]["intent"] == "hide").await?;
    // What the provider adds from now on is its own.
    let added = json!({"spec": {"brand": "provider's"}, "metadata": {"labels": {"provider": "was-here"}}});
    side.patch_copy(name, added).await?;
    let removed = json!({
        "spec": {"badge": null, "skills": null},
        "metadata": {"labels": {"gang": null, "horse": null}, "annotations": {"note": null}},
    });
    side.patch(name, removed).await?;
    let is_removed = |copy: &DynamicObject| {
        let (spec, labels, notes) = (&copy.data["spec"], copy.labels(), copy.annotations());
        spec["badge"].is_null()
            && spec["skills"].is_null()
            && !labels.contains_key("gang")
            && !labels.contains_key("horse")
            && !notes.contains_key("note")
    };
    let copy = side.copy_is(name, is_removed).await?;
    ensure!(
        copy.data["spec"] == json!({"intent": "hide", "brand": "provider's"})
            && copy.labels().contains_key("provider")
            && copy.annotations().contains_key("kubectl.kubernetes.io/own"),
        "too much was removed: {}",
        shown(&copy)
    );
    ensure!(copy.uid() == source.uid(), "it was made anew: {}", shown(&copy));
    Ok(())
}

pub(crate) async fn a_lost_copy_comes_back(side: &Side) -> Result<()> {
    let name = "lost";
    let source = side.put(&side.fresh(name, "ride")).await?;
    let adopted = side.adopted(name, &source).await?;
    side.delete_copy(name).await?;
    side.copy_is(name, |now| now.uid() != source.uid()).await?;
    let pair = side.linked(name).await?;
    ensure!(
        pair.ours.uid() == adopted.ours.uid(),
        "made anew: {}",
        shown(&pair.ours)
    );
    ensure!(pair.copy.data["spec"] == source.data["spec"], "{}", shown(&pair.copy));
    Ok(())
}

pub(crate) async fn deleting_waits_for_the_provider(side: &Side) -> Result<()> {
    let name = "deleted";
    let mut object = side.fresh(name, "ride");
    object.finalizers_mut().push(LAST_WORDS.to_owned());
    let source = side.put(&object).await?;
    side.adopted(name, &source).await?;
    side.delete(name).await?;
    side.copy_is(name, |copy| copy.metadata.deletion_timestamp.is_some())
        .await?;
    let ours = side.ours().get_opt(name).await?;
    let ours = ours.context("the object went before the provider had done its part")?;
    ensure!(!ours.finalizers().is_empty(), "{}", shown(&ours));
    side.report(name, "last words").await?;
    side.reported(name, "last words").await?;
    side.patch_copy(name, json!({"metadata": {"finalizers": null}})).await?;
    side.gone(name).await?;
    // What the provider makes of that name is another one.
    let again = side.put(&side.fresh(name, "again")).await?;
    side.adopted(name, &again).await?;
    side.delete(name).await?;
    side.gone(name).await
}

/// The same object, of which nothing is written.
pub(super) fn marked_paused(mut object: DynamicObject) -> DynamicObject {
    let paused = (bindery_api::annotations::PAUSED.to_owned(), "true".to_owned());
    object.annotations_mut().extend([paused]);
    object
}

/// A change that lets it be written again.
pub(super) fn resumed() -> Value {
    json!({"metadata": {"annotations": {bindery_api::annotations::PAUSED: null}}})
}
