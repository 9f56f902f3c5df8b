//! Objects that cannot be synced, among others that can.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{eventually, wildwest};
use k8s_openapi::api::{core::v1::Namespace, events::v1::Event};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    expect::tells,
    world::{Case, case, kubeconfig},
};

/// Waits for the one event about an object.
async fn event(case: &Case, namespace: &str, object: &str, reason: &str) -> Result<Event> {
    let events: Api<Event> = Api::namespaced(case.consumer().plane.client(), namespace);
    let about = ListParams::default().fields(&format!("regarding.name={object}"));
    eventually(format!("an event of {object}"), wildwest::SOON, || async {
        let events = events.list(&about).await?.items;
        ensure!(events.len() <= 1, "told more than once: {events:?}");
        Ok(events.into_iter().find(|event| event.reason.as_deref() == Some(reason)))
    })
    .await
}

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
        let ours = case.ours(offer, "objects");
        let copies = case.copies(offer, "objects");
        for (name, color) in [("a-good", "red"), ("b-bad", "mauve"), ("c-good", "blue")] {
            ours.create(&PostParams::default(), &offer.widget(name, color)).await?;
        }
        for name in ["a-good", "c-good"] {
            wildwest::wait("a good one's copy", &copies, name, |_| true).await?;
        }

        let note = event(case, "objects", "b-bad", "Invalid").await?;
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

#[test]
fn what_stands_in_the_way_on_the_provider_is_left_alone_and_told_of() -> Result<()> {
    case("in-the-way", async |case| {
        let offer = case.offer().await?;
        let principal = case.principal("in-the-way", &["in-the-way"]).await?;
        case.bind(&principal, &[]).await?;
        let (consumer, provider) = (case.consumer().plane.client(), case.provider().plane.client());
        let create = PostParams::default();
        wildwest::namespace(consumer.clone(), "shared").await?;
        wildwest::namespace(consumer, "taken").await?;
        let (ours, copies) = (case.ours(offer, "shared"), case.copies(offer, "shared"));
        ours.create(&create, &offer.widget("first", "red")).await?;
        wildwest::wait("the first copy", &copies, "first", |_| true).await?;

        // An object of the provider's own, in the namespace that was made for the consumer.
        let theirs = copies.create(&create, &offer.widget("theirs", "black")).await?;
        ours.create(&create, &offer.widget("theirs", "white")).await?;
        let note = event(case, "shared", "theirs", "Conflict").await?;
        tells(
            &note.note.unwrap_or_default(),
            &["not managed by this binding", "left alone"],
        )?;
        let now = copies.get("theirs").await?;
        ensure!(now.resource_version() == theirs.resource_version(), "{now:?}");

        // A whole namespace of the provider's own, under the name that the consumer's would get.
        let place = bindery_api::names::provider_namespace(&case.contract(), "taken");
        wildwest::namespace(provider.clone(), &place).await?;
        let before = Api::<Namespace>::all(provider.clone()).get(&place).await?;
        case.ours(offer, "taken")
            .create(&create, &offer.widget("homeless", "red"))
            .await?;
        let note = event(case, "taken", "homeless", "NoProviderNamespace").await?;
        tells(&note.note.unwrap_or_default(), &[&place, "taken"])?;
        let says = ["taken/homeless", place.as_str()];
        ensure!(case.copies(offer, "taken").get_opt("homeless").await?.is_none());
        let after = Api::<Namespace>::all(provider).get(&place).await?;
        ensure!(after.resource_version() == before.resource_version(), "{after:?}");

        // Each ends with what stood in the way.
        copies.delete("theirs", &DeleteParams::default()).await?;
        wildwest::wait("the copy", &copies, "theirs", |copy| {
            copy.data["spec"]["color"] == "white"
        })
        .await?;
        case.refused_binding("in-the-way", "ObjectsInSync", "ObjectsFailing", &says)
            .await?;
        // The server looks again once a minute, and when the request for the namespace changes.
        let (contract, cluster) = (case.contract(), &case.provider().plane);
        cluster.kubectl(&["delete", "namespace", &place]).await?;
        let look = [
            "annotate",
            "apiservicenamespace",
            "taken",
            "-n",
            &contract,
            "look=again",
        ];
        cluster.kubectl(&look).await?;
        wildwest::wait("the copy", &case.copies(offer, "taken"), "homeless", |_| true).await?;
        case.ready_binding("in-the-way").await
    })
}

#[test]
fn a_konnector_without_rights_on_a_resource_prints_the_rule() -> Result<()> {
    case("no-role", async |case| {
        let offer = case.offer().await?;
        let principal = case.principal("no-role", &["no-role"]).await?;
        let bound = principal.bind("no-role", &case.identity()).await?;
        case.plant_binding("no-role", &kubeconfig(&bound)?).await?;
        let says = [
            "forbidden",
            "ClusterRole kube-bind-konnector-no-role",
            "widgets/status",
            &offer.group(),
        ];
        case.refused_binding("no-role", "InformersSynced", "InformerSyncTimeout", &says)
            .await?;
        // The command makes what is missing, and all goes on by itself.
        let identity = case.identity();
        let args = ["no-role", "--cluster-identity", &identity, "--dry-run"];
        let manifests = case.consumer().bind(case.provider(), &principal.token, &args).await?;
        let role = |kind: &str| {
            let mut documents = manifests.split("---\n");
            documents
                .find(|document| document.contains(&format!("kind: {kind}\n")))
                .with_context(|| manifests.clone())
        };
        for kind in ["ClusterRole", "ClusterRoleBinding"] {
            case.consumer().plane.apply(role(kind)?).await?;
        }
        case.ready_binding("no-role").await
    })
}
