//! What the consumer gets.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bindery_api::{annotations, finalizers};
use kube::ResourceExt as _;
use serde_json::json;

use crate::side::{Side, shown};

/// Of the provider's cluster alone.
const LAST_WORDS: &str = "wildwest.dev/last-words";

pub(crate) async fn as_the_provider_has_it(side: &Side) -> Result<()> {
    let name = "as-it-is";
    let mut object = side.fresh(name, "ride");
    object.data["spec"]["skills"] = json!(["roping", "riding"]);
    object.data["spec"]["badge"] = json!("star");
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    let (labels, notes) = (map(&[("gang", "dalton")]), map(&[("note", "wanted")]));
    object.labels_mut().extend(labels.clone());
    object.labels_mut().extend(map(&[("kubernetes.io/own", "x")]));
    object.annotations_mut().extend(notes.clone());
    object
        .annotations_mut()
        .extend(map(&[("kubectl.kubernetes.io/own", "x")]));
    object.finalizers_mut().push(LAST_WORDS.to_owned());
    let source = side.put(&object).await?;
    let pair = side.adopted(name, &source).await?;
    let ours = &pair.ours;
    ensure!(ours.data["spec"] == source.data["spec"], "{}", shown(ours));
    ensure!(*ours.labels() == labels, "labels: {}", shown(ours));
    let mut carried = ours.annotations().clone();
    carried.retain(|key, _| !annotations::is_reserved(key));
    ensure!(carried == notes, "annotations: {}", shown(ours));
    ensure!(ours.finalizers() == [finalizers::SYNCER], "{}", shown(ours));
    // Of the provider's, nothing is lost.
    let copy = &pair.copy;
    ensure!(copy.data["spec"] == source.data["spec"], "{}", shown(copy));
    ensure!(copy.finalizers() == [LAST_WORDS], "{}", shown(copy));
    let kept = |all: &BTreeMap<String, String>, of: &BTreeMap<String, String>| {
        of.iter().all(|(key, value)| all.get(key) == Some(value))
    };
    ensure!(
        kept(copy.labels(), source.labels()) && kept(copy.annotations(), source.annotations()),
        "{}",
        shown(copy)
    );
    for result in ["riding", "tired"] {
        side.report(name, result).await?;
        side.reported(name, result).await?;
    }
    side.patch_copy(name, json!({"metadata": {"finalizers": null}})).await?;
    Ok(())
}

pub(crate) async fn the_wish_goes_with_its_fulfilment(side: &Side) -> Result<()> {
    let source = side.put(&side.opted("asked-for", "ride")).await?;
    let pair = side.adopted("asked-for", &source).await?;
    for object in [&pair.ours, &pair.copy] {
        ensure!(
            !object.annotations().contains_key(annotations::AUTOADOPT),
            "{}",
            shown(object)
        );
    }
    Ok(())
}
