//! Many at once, and one that is too much: the others are not held up.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    bound::{self, Bound},
    eventually_ok,
    lease::PATIENT,
    run,
    wildwest::{self, Cowboys, SOON, cowboy},
};
use futures::{TryStreamExt as _, stream};
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, PostParams},
};
use serde_json::json;

const NAMESPACES: usize = 500;
const CONCURRENCY: usize = 16;
const GOOD: usize = 1000;
/// What etcd takes, with a little more than the konnector's marks left free.
const NEARLY: usize = 1_024 * 1_024;
/// Bytes of one reference: a name of 253 characters, and what is around it.
const REFERENCE: usize = 264;
/// More than any API server stores.
const TOO_MUCH: usize = 1_572_864;
const LATER: std::time::Duration = std::time::Duration::from_mins(3);

#[test]
fn five_hundred_namespaces_at_once() -> Result<()> {
    run(async {
        let bound = Bound::start("crowd", &PATIENT).await?;
        let client = bound.consumer.plane.client();
        let names: Vec<_> = (0..NAMESPACES).map(|number| format!("town-{number:03}")).collect();
        stream::iter(names.iter().map(Ok))
            .try_for_each_concurrent(CONCURRENCY, async |name| {
                wildwest::namespace(client.clone(), name).await?;
                let cowboys = Cowboys::of(&bound.provider, &bound.consumer, name).await?;
                cowboys.create("billy", "ride").await.map(drop)
            })
            .await?;
        let everywhere: Api<DynamicObject> = Api::all_with(bound.provider.plane.client(), &wildwest::resource());
        eventually_ok("a copy in each namespace", LATER, async || {
            let copies = everywhere.list_metadata(&ListParams::default()).await?.items;
            ensure!(copies.len() == NAMESPACES, "{} copies", copies.len());
            Ok(())
        })
        .await?;
        let contract = bound.contract.clone();
        let last = format!("{contract}-{}", names[NAMESPACES - 1]);
        let copy = everywhere.list(&ListParams::default()).await?.items;
        ensure!(
            copy.iter().any(|copy| copy.namespace().as_ref() == Some(&last)),
            "none in {last}"
        );
        bound.bound_once().await
    })
}

#[test]
fn one_that_is_refused_among_a_thousand_and_one_that_is_too_large() -> Result<()> {
    run(async {
        let mut bound = Bound::start("thousand", &PATIENT).await?;
        // The provider's API becomes stricter than the one that was bound.
        let strict = json!([{
            "op": "add",
            "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/intent/pattern",
            "value": "^[a-z ]*$",
        }]);
        bound
            .provider
            .plane
            .kubectl(&[
                "patch",
                "crd",
                "cowboys.wildwest.dev",
                "--type=json",
                "-p",
                &strict.to_string(),
            ])
            .await?;
        bound.cowboys.create("bad", "NO GOOD").await?;
        as_large_as_it_can_be(&bound).await?;
        bound.create(bound::names("good", 0..GOOD)).await?;
        let refused = ["bad", "large"];
        eventually_ok("a copy of each good one", LATER, async || {
            let copies = bound.cowboys.copies.list_metadata(&ListParams::default()).await?.items;
            ensure!(copies.len() == GOOD, "{} copies", copies.len());
            ensure!(!copies.iter().any(|copy| refused.contains(&&*copy.name_any())));
            Ok(())
        })
        .await?;
        for (name, reason) in [("bad", "Invalid"), ("large", "TooLarge")] {
            told(&bound, name, reason).await?;
        }
        // As large as an object may be.
        let nearly = self::large("nearly", NEARLY);
        bound.cowboys.ours.create(&PostParams::default(), &nearly).await?;
        let copy = bound.cowboys.copied("nearly", "carry").await?;
        ensure!(copy.data["spec"] == nearly.data["spec"], "the large copy differs");
        bound.cowboys.report("nearly", "heavy").await?;
        bound.cowboys.reported("nearly", "heavy").await?;
        bound.unbind().await
    })
}

/// Creates the largest object that the consumer takes: with our marks it is too much for either side.
async fn as_large_as_it_can_be(bound: &Bound) -> Result<()> {
    let mut bytes = TOO_MUCH;
    loop {
        let object = large("large", bytes);
        match bound.cowboys.ours.create(&PostParams::default(), &object).await {
            Ok(_) => return Ok(()),
            Err(error) => ensure!(error.to_string().contains("too large"), "{error}"),
        }
        bytes -= REFERENCE;
    }
}

/// A Cowboy of about so many bytes.
fn large(name: &str, bytes: usize) -> DynamicObject {
    let secrets: Vec<_> = (0..bytes / REFERENCE)
        .map(|number| json!({"name": format!("{number:0>253}")}))
        .collect();
    cowboy(name, &json!({"intent": "carry", "secretRefs": secrets}))
}

async fn told(bound: &Bound, object: &str, reason: &str) -> Result<()> {
    let events: Api<Event> = Api::namespaced(bound.consumer.plane.client(), "wild-west");
    eventually_ok(format!("an event {reason} on {object}"), SOON, async || {
        let events = events.list(&ListParams::default()).await?.items;
        let about = events.into_iter().filter(|event| {
            let name = event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref());
            name == Some(object)
        });
        let reasons: Vec<_> = about.filter_map(|event| event.reason).collect();
        ensure!(reasons.iter().any(|told| told == reason), "told: {reasons:?}");
        Ok(())
    })
    .await
    .context("the user is not told")
}
