//! What cannot be changed is deleted and made anew, where the document says so, and nowhere else.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{
    case::Case,
    config_map,
    document::{actions, definition, deployment},
    world::{case, rough},
};

#[test]
fn a_deployment_with_another_selector_is_made_anew() -> Result<()> {
    case("selector", async |case| {
        let next = [deployment("web", "other", 1)];
        let set = replaced(
            case,
            "apps/v1/deployments",
            "web",
            &[deployment("web", "web", 1)],
            &next,
        )
        .await?;
        ensure!(actions(&set) == ["web Replace"], "{:#}", set["status"]);
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn a_daemon_set_with_another_selector_is_made_anew() -> Result<()> {
    case("daemons", async |case| {
        let daemons = |label: &str| {
            let mut set = deployment("agent", label, 1);
            set["kind"] = json!("DaemonSet");
            set["spec"].as_object_mut().map(|spec| spec.remove("replicas"));
            set
        };
        let set = replaced(case, "apps/v1/daemonsets", "agent", &[daemons("a")], &[daemons("b")]).await?;
        ensure!(actions(&set) == ["agent Replace"], "{:#}", set["status"]);
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn a_service_that_may_not_change_its_address_is_made_anew() -> Result<()> {
    case("address", async |case| {
        let service = |address: Option<&str>| {
            let mut service = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
                "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
            });
            if let Some(address) = address {
                service["spec"]["clusterIP"] = json!(address);
            }
            service
        };
        // An address to none.
        let set = replaced(case, "services", "web", &[service(None)], &[service(Some("None"))]).await?;
        ensure!(actions(&set) == ["web Replace"], "{:#}", set["status"]);
        let live = case.get("services", "web").await?;
        ensure!(live["spec"]["clusterIP"] == "None", "{live:#}");
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn a_volume_that_is_retained_is_made_anew() -> Result<()> {
    case("volume", async |case| {
        let volume = |policy: &str, path: &str| {
            json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "volume-e2e"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1024Mi"},
                    "persistentVolumeReclaimPolicy": policy, "hostPath": {"path": path}, "storageClassName": "none",
                },
            })
        };
        case.apply(&[volume("Retain", "/a")]).await?.done()?;
        case.whole(1).await?;
        case.apply(&[volume("Retain", "/b")]).await?.done()?;
        case.whole(2).await?;
        ensure!(
            actions(&case.settled(2).await?) == ["volume-e2e Replace"],
            "not made anew"
        );
        // What would be lost with the volume is not given up.
        case.apply(&[volume("Delete", "/b")]).await?.done()?;
        case.whole(3).await?;
        case.apply(&[volume("Delete", "/c")])
            .await?
            .expect(1, &["volume-e2e"])?;
        let live = case
            .find_global("persistentvolumes", "volume-e2e")
            .await?
            .unwrap_or_default();
        ensure!(live["spec"]["hostPath"]["path"] == "/b", "{live:#}");
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn other_kinds_are_not_deleted_to_be_changed() -> Result<()> {
    case("kept", async |case| {
        let immutable = |value: &str| {
            let mut map = config_map("fixed", value);
            map["immutable"] = json!(true);
            map
        };
        case.apply(&[immutable("1")]).await?.done()?;
        let first = case.get("configmaps", "fixed").await?;
        case.apply(&[immutable("2")])
            .await?
            .expect(1, &["fixed", "immutable"])?;
        let live = case.get("configmaps", "fixed").await?;
        ensure!(live["metadata"]["uid"] == first["metadata"]["uid"], "made anew");
        ensure!(live["data"]["key"] == "1", "{live:#}");
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn a_definition_is_never_deleted_to_be_changed() -> Result<()> {
    rough("fixed-crd", async |case| {
        let first = definition("fixed-crd.example", "Raft", "rafts");
        case.apply(std::slice::from_ref(&first)).await?.done()?;
        let path = "apiextensions.k8s.io/v1/customresourcedefinitions";
        let before = case
            .find_global(path, "rafts.fixed-crd.example")
            .await?
            .unwrap_or_default();
        let mut next = first;
        next["spec"]["scope"] = json!("Cluster");
        case.apply(&[next]).await?.expect(1, &["rafts.fixed-crd.example"])?;
        let after = case
            .find_global(path, "rafts.fixed-crd.example")
            .await?
            .unwrap_or_default();
        ensure!(before["metadata"]["uid"] == after["metadata"]["uid"], "made anew");
        ensure!(after["spec"]["scope"] == "Namespaced", "{after:#}");
        case.delete().await?.done().map(drop)
    })
}

/// Applies one and then the other; returns the second version, in which the object is another.
async fn replaced(case: &Case, resource: &str, name: &str, first: &[Value], next: &[Value]) -> Result<Value> {
    case.apply(first).await?.done()?;
    case.whole(1).await?;
    let before = case.get(resource, name).await?;
    // The plan knows it beforehand.
    let since = case.now()?;
    case.plan(next, &[]).await?.expect(3, &["recreate"])?;
    case.wrote_nothing(since)?;
    case.apply(next).await?.done()?;
    case.whole(2).await?;
    let after = case.get(resource, name).await?;
    ensure!(before["metadata"]["uid"] != after["metadata"]["uid"], "not made anew");
    case.settled(2).await
}
