//! The life of a binding beside the main job: it is paused, its export goes, it ends and leaves the provider's objects, it
//! ends without its provider.

#[path = "life_cycle/ends.rs"]
mod ends;

use std::time::Duration;

use anyhow::{Result, ensure};
use bindery_api::{
    Condition, Conditions as _, annotations,
    v1alpha2::{APIServiceBinding, APIServiceExport},
};
use bindery_e2e::{
    bound::Bound,
    eventually_ok, holds_for, lease, remains, run,
    wildwest::{self, Cowboys, SOON},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// How long something that must not happen is waited for.
const A_WHILE: Duration = Duration::from_secs(2);

#[test]
fn a_binding_is_paused_loses_its_export_and_ends_in_every_way() -> Result<()> {
    run(async {
        let bound = Bound::start("life", &lease::PATIENT).await?;
        a_paused_binding_writes_nothing_and_does_not_end(&bound).await?;
        bound.bind(&["cowboys"]).await?;
        without_its_export_a_binding_keeps_the_consumers_objects(&bound).await?;
        bound.bind(&["cowboys"]).await?;
        orphaned_objects_stay_on_the_provider(&bound).await?;
        bound.bind(&["cowboys"]).await?;
        without_its_provider_a_binding_ends_by_force(&bound).await
    })
}

#[test]
fn the_end_of_a_binding_or_its_crd_keeps_the_providers_objects() -> Result<()> {
    run(async {
        let bound = Bound::start("ends", &lease::PATIENT).await?;
        ends::whatever_ends_nothing_is_lost(&bound).await?;
        ends::a_deleted_crd_comes_back_with_its_copies(&bound).await?;
        ends::the_user_says_what_becomes_of_copies(&bound).await?;
        ends::the_providers_admin_ends_what_was_kept(&bound).await
    })
}

/// A konnector of kube-bind, say, under a field manager that follows the name of its binary.
#[test]
fn what_another_konnector_copied_is_taken_over_with_its_fields() -> Result<()> {
    run(async {
        let mut bound = Bound::start("taken-over", &lease::PATIENT).await?;
        bound.cowboys.create("billy", "ride").await?;
        bound.cowboys.copied("billy", "ride").await?;
        bound.consumer.konnectors[0].terminate(SOON).await?;
        bound.consumer.konnectors.clear();
        another_konnector_copies(&bound, "billy").await?;
        bound.consumer.start_konnector().await?;
        let cowboys = &bound.cowboys;
        wildwest::wait("billy to be ours", &cowboys.copies, "billy", |copy| {
            copy.annotations().contains_key(annotations::PROJECTION_HASH)
        })
        .await?;
        // What is removed from the source goes, whoever wrote it; what the provider's own programs wrote stays.
        let removed = Patch::Merge(json!({"spec": {"secretRefs": null}}));
        cowboys.ours.patch("billy", &PatchParams::default(), &removed).await?;
        let copy = wildwest::wait("the field to go from the copy", &cowboys.copies, "billy", |copy| {
            copy.data["spec"]["secretRefs"].is_null()
        })
        .await?;
        ensure!(copy.data["spec"]["intent"] == "ride", "{copy:?}");
        ensure!(copy.labels().contains_key("operators-own"), "{copy:?}");
        bound.unbind().await
    })
}

/// While our konnector is away, another one makes the copy anew, with a field that is new, and the provider's operator labels it.
async fn another_konnector_copies(bound: &Bound, name: &str) -> Result<()> {
    let cowboys = &bound.cowboys;
    let named = Patch::Merge(json!({"spec": {"secretRefs": [{"name": "colt"}]}}));
    let source = cowboys.ours.patch(name, &PatchParams::default(), &named).await?;
    cowboys.copies.delete(name, &DeleteParams::default()).await?;
    eventually_ok("the copy to be gone", SOON, async || {
        ensure!(cowboys.copies.get_opt(name).await?.is_none(), "{name} is left");
        Ok(())
    })
    .await?;
    let mut copy = wildwest::cowboy(name, &source.data["spec"]);
    copy.annotations_mut().extend([
        (annotations::CLUSTER_NAMESPACE.to_owned(), bound.contract.clone()),
        (annotations::CONSUMER_NAMESPACE.to_owned(), "wild-west".to_owned()),
        (annotations::CONSUMER_UID.to_owned(), source.uid().unwrap_or_default()),
    ]);
    let by_another = PostParams {
        field_manager: Some("another-konnector".to_owned()),
        ..PostParams::default()
    };
    cowboys.copies.create(&by_another, &copy).await?;
    let label = Patch::Merge(json!({"metadata": {"labels": {"operators-own": "true"}}}));
    let by_operator = PatchParams {
        field_manager: Some("operator".to_owned()),
        ..PatchParams::default()
    };
    cowboys.copies.patch(name, &by_operator, &label).await?;
    Ok(())
}

async fn a_paused_binding_writes_nothing_and_does_not_end(bound: &Bound) -> Result<()> {
    let cowboys = &bound.cowboys;
    cowboys.create("billy", "ride").await?;
    cowboys.copied("billy", "ride").await?;
    annotate(bound, annotations::PAUSED, &json!("true")).await?;
    condition(bound, "Active", |active| !active.is_true() && active.reason == "Paused").await?;
    cowboys.intend("billy", "rob a train").await?;
    cowboys.create("jesse", "ride").await?;
    cowboys.report("billy", "caught").await?;
    holds_for("nothing to be written", A_WHILE, async || {
        let copy = cowboys.copies.get("billy").await?;
        ensure!(copy.data["spec"]["intent"] == "ride", "spec went up");
        ensure!(cowboys.copies.get_opt("jesse").await?.is_none(), "a copy was made");
        let ours = cowboys.ours.get("billy").await?;
        ensure!(ours.data["status"]["result"] != "caught", "status came down");
        let new = cowboys.ours.get("jesse").await?;
        ensure!(new.finalizers().is_empty(), "jesse is held");
        Ok(())
    })
    .await?;
    annotate(bound, annotations::PAUSED, &Value::Null).await?;
    cowboys.copied("billy", "rob a train").await?;
    cowboys.copied("jesse", "ride").await?;
    cowboys.reported("billy", "caught").await?;
    condition(bound, "Ready", Condition::is_true).await?;

    annotate(bound, annotations::PAUSED, &json!("true")).await?;
    condition(bound, "Active", |active| !active.is_true()).await?;
    let paused = async {
        condition(bound, "Draining", |draining| draining.reason == "Paused").await?;
        holds_for("nothing to be deleted", A_WHILE, async || {
            for name in ["billy", "jesse"] {
                let deleting = cowboys.ours.get(name).await?.metadata.deletion_timestamp.is_some();
                ensure!(
                    !deleting && cowboys.copies.get_opt(name).await?.is_some(),
                    "{name} goes"
                );
            }
            Ok(())
        })
        .await?;
        annotate(bound, annotations::PAUSED, &Value::Null).await
    };
    tokio::try_join!(paused, bound.unbind())?;
    Ok(())
}

async fn without_its_export_a_binding_keeps_the_consumers_objects(bound: &Bound) -> Result<()> {
    let cowboys = &bound.cowboys;
    cowboys.create("frank", "ride").await?;
    cowboys.copied("frank", "ride").await?;
    let exports: Api<APIServiceExport> = Api::namespaced(bound.provider.plane.client(), &bound.contract);
    exports.delete("cowboys", &DeleteParams::default()).await?;
    condition(bound, "Connected", |connected| connected.reason == "ExportRemoved").await?;
    cowboys.create("doc", "ride").await?;
    cowboys.intend("frank", "hide").await?;
    holds_for("sync to have stopped", A_WHILE, async || {
        ensure!(cowboys.copies.get_opt("doc").await?.is_none(), "a copy was made");
        let copy = cowboys.copies.get("frank").await?;
        ensure!(copy.data["spec"]["intent"] == "ride", "spec went up");
        let ours = cowboys.ours.get("frank").await?;
        ensure!(ours.metadata.deletion_timestamp.is_none(), "frank goes");
        Ok(())
    })
    .await?;
    // Nobody will say that its copy is gone.
    cowboys.ours.delete("frank", &DeleteParams::default()).await?;
    let left = async || {
        let left = cowboys.ours.get_opt("frank").await?;
        ensure!(left.is_none(), "{left:?}");
        Ok(())
    };
    eventually_ok("frank to be let go", SOON, left).await?;
    is_released(&cowboys.copies, "frank").await?;
    bound.bind(&["unbind", "cowboys"]).await?;
    remains::on_consumer(&bound.consumer, "cowboys", "wildwest.dev").await
}

async fn orphaned_objects_stay_on_the_provider(bound: &Bound) -> Result<()> {
    let cowboys = in_namespace(bound, "orphans").await?;
    cowboys.create("annie", "ride").await?;
    cowboys.copied("annie", "ride").await?;
    let orphan = Patch::Merge(json!({"spec": {"deletionPolicy": "Orphan"}}));
    bindings(bound)
        .patch("cowboys", &PatchParams::default(), &orphan)
        .await?;
    bound.bind(&["unbind", "cowboys"]).await?;
    remains::on_consumer(&bound.consumer, "cowboys", "wildwest.dev").await?;
    is_released(&cowboys.copies, "annie").await?;
    let exports: Api<APIServiceExport> = Api::namespaced(bound.provider.plane.client(), &bound.contract);
    ensure!(exports.get_opt("cowboys").await?.is_none(), "the export is left");
    Ok(())
}

async fn without_its_provider_a_binding_ends_by_force(bound: &Bound) -> Result<()> {
    let cowboys = in_namespace(bound, "forced").await?;
    cowboys.create("calamity", "ride").await?;
    cowboys.copied("calamity", "ride").await?;
    bound.provider.plane.stop_api_server()?;
    bindings(bound).delete("cowboys", &DeleteParams::default()).await?;
    // What is the consumer's does not wait for the provider.
    eventually_ok("calamity to be let go", SOON, async || {
        let left = match cowboys.ours.get_opt("calamity").await {
            // Its API went with it.
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            left => left?,
        };
        ensure!(left.is_none(), "{left:?}");
        Ok(())
    })
    .await?;
    holds_for("the binding to wait for its provider", A_WHILE, async || {
        bindings(bound).get("cowboys").await?;
        Ok(())
    })
    .await?;
    bound.bind(&["unbind", "cowboys", "--force"]).await?;
    remains::on_consumer(&bound.consumer, "cowboys", "wildwest.dev").await?;
    bound.provider.plane.start_api_server().await?;
    let copy = cowboys.copies.get("calamity").await?;
    ensure!(
        copy.metadata.deletion_timestamp.is_none(),
        "the provider lost its object"
    );
    Ok(())
}

fn bindings(bound: &Bound) -> Api<APIServiceBinding> {
    Api::all(bound.consumer.plane.client())
}

/// Puts an annotation on the binding, or takes it off.
async fn annotate(bound: &Bound, annotation: &str, value: &Value) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value}}}));
    bindings(bound)
        .patch("cowboys", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Waits until a condition of the binding is as wanted.
async fn condition(bound: &Bound, kind: &str, is_so: impl Fn(&Condition) -> bool) -> Result<()> {
    eventually_ok(format!("condition {kind}"), SOON, async || {
        let binding = bindings(bound).get("cowboys").await?;
        let found = binding.condition(kind);
        ensure!(found.is_some_and(&is_so), "{found:?}");
        Ok(())
    })
    .await
}

/// Cowboys of a new namespace.
async fn in_namespace(bound: &Bound, namespace: &str) -> Result<Cowboys> {
    wildwest::namespace(bound.consumer.plane.client(), namespace).await?;
    Cowboys::of(&bound.provider, &bound.consumer, namespace).await
}

/// Waits until a copy is marked as released; it must be there all the time.
async fn is_released(copies: &Api<DynamicObject>, name: &str) -> Result<()> {
    eventually_ok(format!("{name} to be marked as released"), SOON, async || {
        let copy = copies.get(name).await?;
        ensure!(
            copy.annotations().contains_key(annotations::RELEASED),
            "{:?}",
            copy.annotations()
        );
        Ok(())
    })
    .await
}
