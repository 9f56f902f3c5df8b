//! One invalid object among good ones.

use anyhow::{Result, ensure};
use bindery_e2e::{eventually, wildwest};
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::world::{case, tells};

#[test]
fn an_object_that_the_provider_refuses_is_told_of_and_the_others_sync() -> Result<()> {
    case("objects", async |case| {
        let offer = case.offer().await?;
        let principal = case.principal("objects", &["objects"]).await?;
        case.bind(&principal, &[]).await?;
        // The provider's API becomes stricter than the one that was bound.
        let mut strict = offer.crd()["spec"]["versions"].clone();
        strict[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"]["enum"] =
            json!(["red", "blue"]);
        let patch = json!({"spec": {"versions": strict}}).to_string();
        let provider = &case.provider().plane;
        provider
            .kubectl(&["patch", "crd", &offer.crd_name(), "--type=merge", "-p", &patch])
            .await?;

        let client = case.consumer().plane.client();
        wildwest::namespace(client.clone(), "objects").await?;
        let ours = Api::namespaced_with(client.clone(), "objects", &offer.resource());
        let place = bindery_api::names::provider_namespace(&case.contract(), "objects");
        let copies = Api::namespaced_with(provider.client(), &place, &offer.resource());
        for (name, color) in [("a-good", "red"), ("b-bad", "mauve"), ("c-good", "blue")] {
            ours.create(&PostParams::default(), &offer.widget(name, color)).await?;
        }
        for name in ["a-good", "c-good"] {
            wildwest::wait("a good one's copy", &copies, name, |_| true).await?;
        }

        let events: Api<Event> = Api::namespaced(client, "objects");
        let about = ListParams::default().fields("regarding.name=b-bad");
        let note = eventually("an event of the bad one", wildwest::SOON, || async {
            let events = events.list(&about).await?;
            ensure!(events.items.len() <= 1, "told more than once: {events:?}");
            Ok(events
                .items
                .into_iter()
                .find(|event| event.reason.as_deref() == Some("Invalid")))
        })
        .await?;
        ensure!(note.type_.as_deref() == Some("Warning"), "{note:?}");
        let uid = note.regarding.as_ref().and_then(|object| object.uid.clone());
        ensure!(uid == ours.get("b-bad").await?.uid(), "{note:?}");
        tells(
            &note.note.unwrap_or_default(),
            &["provider refused", "mauve", "spec.color"],
        )?;
        let says = ["objects/b-bad", "mauve"];
        case.refused_binding("objects", "ObjectsInSync", "ObjectsFailing", &says)
            .await?;
        ensure!(copies.get_opt("b-bad").await?.is_none());

        // What is written meanwhile is not held up, and mending the object mends the binding.
        ours.create(&PostParams::default(), &offer.widget("d-later", "red"))
            .await?;
        wildwest::wait("a later one's copy", &copies, "d-later", |_| true).await?;
        let mended = Patch::Merge(json!({"spec": {"color": "blue"}}));
        ours.patch("b-bad", &PatchParams::default(), &mended).await?;
        wildwest::wait("the mended one's copy", &copies, "b-bad", |copy| {
            copy.data["spec"]["color"] == "blue"
        })
        .await?;
        case.ready_binding("objects").await
    })
}
