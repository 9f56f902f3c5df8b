//! Sets and objects that others have made are continued, and ours are continued by others.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{
    case::Case,
    config_map,
    document::{definition, deployment},
    list, look,
    world::{case, rough},
};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[test]
fn fields_that_kubectl_applied_and_the_set_does_not_say_go() -> Result<()> {
    case("takes-over", async |case| {
        let mut theirs = config_map("settings", "theirs");
        theirs["data"]["extra"] = json!("kubectl's");
        let mut web = deployment("web", "web", 1);
        let containers = &mut web["spec"]["template"]["spec"]["containers"];
        containers[0]["env"] = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]);
        containers
            .as_array_mut()
            .context("containers")?
            .push(json!({"name": "sidecar", "image": "example.com/s:1"}));
        case.kubectl(&["apply", "-n", case.name, "-f", "-"], &list(&[theirs, web]))
            .await?;
        // What others than kubectl's apply wrote is theirs.
        case.kubectl(&["annotate", "configmap", "settings", "-n", case.name, "by=hand"], "")
            .await?;

        let mut web = deployment("web", "web", 1);
        web["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "1"}]);
        let set = [config_map("settings", "ours"), web];
        case.apply(&set).await?.done()?;
        case.whole(1).await?;
        let settings = case.get("configmaps", "settings").await?;
        ensure!(settings["data"] == json!({"key": "ours"}), "{settings:#}");
        ensure!(settings["metadata"]["annotations"]["by"] == "hand", "{settings:#}");
        let web = case.get("apps/v1/deployments", "web").await?;
        let containers = &web["spec"]["template"]["spec"]["containers"];
        ensure!(
            containers.as_array().is_some_and(|all| all.len() == 1),
            "{containers:#}"
        );
        ensure!(
            containers[0]["env"] == json!([{"name": "A", "value": "1"}]),
            "{containers:#}"
        );
        writes_by_apply(&web)?;

        let since = case.now()?;
        case.apply(&set).await?.done()?;
        case.wrote_nothing(since)?;
        case.delete().await?.done().map(drop)
    })
}

/// It leaves no note of what it applied: whose fields become the set's is said once, in a plan as well.
#[test]
fn fields_of_a_manager_that_is_named_become_the_sets() -> Result<()> {
    case("takes-fields", async |case| {
        let mut theirs = config_map("settings", "1");
        theirs["data"]["extra"] = json!("kubectl's");
        let apply = ["apply", "--server-side", "-n", case.name, "-f", "-"];
        case.kubectl(&apply, &list(&[theirs])).await?;
        case.kubectl(&["annotate", "configmap", "settings", "-n", case.name, "by=hand"], "")
            .await?;

        let set = [config_map("settings", "1")];
        case.apply(&set).await?.done()?;
        let settings = case.get("configmaps", "settings").await?;
        ensure!(settings["data"]["extra"] == "kubectl's", "{settings:#}");

        let path = case.file("saved.plan", "")?;
        let path = path.to_str().context("a path in UTF-8")?;
        let flags = ["--take-fields-of=helm", "--take-fields-of=kubectl", "--out", path];
        case.plan(&set, &flags).await?.expect(3, &["data.extra"])?;
        case.run(&["apply", case.name, "--plan", path]).await?.done()?;
        let settings = case.get("configmaps", "settings").await?;
        ensure!(settings["data"] == json!({"key": "1"}), "{settings:#}");
        ensure!(settings["metadata"]["annotations"]["by"] == "hand", "{settings:#}");

        let since = case.now()?;
        case.apply_with(&set, &["--take-fields-of=kubectl"]).await?.done()?;
        case.wrote_nothing(since)?;
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn a_set_of_the_other_synk_is_continued_and_goes_on_there() -> Result<()> {
    case("continued", async |case| {
        let mut a = config_map("a", "1");
        a["data"]["extra"] = json!("goes");
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "MQ=="}});
        let mut web = deployment("web", "web", 1);
        web["spec"]["template"]["spec"]["containers"][0]["env"] =
            json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]);
        applied_by_the_other(case, 3, &[secret.clone(), a, config_map("leaves", "1"), web.clone()]).await?;
        ensure!(case.whole(3).await? == 4, "the other synk's set is not whole");

        // Ours is the fourth.
        web["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "1"}]);
        let mut a = config_map("a", "2");
        a["data"]["ours"] = json!("goes next");
        let set = [secret.clone(), a, web.clone()];
        case.apply(&set).await?.done()?;
        ensure!(case.whole(4).await? == 3, "not three");
        case.gone("configmaps", "leaves").await?;
        let a = case.get("configmaps", "a").await?;
        ensure!(a["data"] == json!({"key": "2", "ours": "goes next"}), "{a:#}");
        let live = case.get("apps/v1/deployments", "web").await?;
        let env = &live["spec"]["template"]["spec"]["containers"][0]["env"];
        ensure!(*env == json!([{"name": "A", "value": "1"}]), "{env:#}");
        let remembered: Value =
            serde_json::from_str(a["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap_or_default())?;
        ensure!(remembered["data"] == a["data"], "{remembered:#}");
        writes_by_apply(&a)?;
        let since = case.now()?;
        case.apply(&set).await?.done()?;
        case.wrote_nothing(since)?;

        // The fifth is the other's again: what we said and it does not is gone, our owner reference as well.
        applied_by_the_other(
            case,
            5,
            &[secret.clone(), config_map("a", "3"), config_map("c", "1"), web.clone()],
        )
        .await?;
        ensure!(case.whole(5).await? == 4, "not four");
        let a = case.get("configmaps", "a").await?;
        ensure!(a["data"] == json!({"key": "3"}), "{a:#}");

        // And the sixth ours.
        let set = [secret, config_map("a", "4"), web];
        case.apply(&set).await?.done()?;
        ensure!(case.whole(6).await? == 3, "not three");
        case.gone("configmaps", "c").await?;
        let since = case.now()?;
        case.apply(&set).await?.done()?;
        case.wrote_nothing(since)?;
        ensure!(
            case.get("configmaps", "a").await?["data"] == json!({"key": "4"}),
            "not the fourth"
        );
        case.delete().await?.done()?;
        case.gone("configmaps", "a").await
    })
}

#[test]
fn custom_resources_of_the_other_synk_are_continued() -> Result<()> {
    rough("continued-crs", async |case| {
        let crd = definition("continued.example", "Lamp", "lamps");
        case.plane.apply(&crd.to_string()).await?;
        case.kubectl(
            &["wait", "--for=condition=Established", "crd/lamps.continued.example"],
            "",
        )
        .await?;
        let lamp = |spec: Value| json!({"apiVersion": "continued.example/v1", "kind": "Lamp", "metadata": {"name": "b"}, "spec": spec});
        applied_by_the_other(
            case,
            1,
            &[lamp(json!({"colour": "red", "bulbs": [1, 2], "extra": true}))],
        )
        .await?;
        case.apply(&[crd.clone(), lamp(json!({"colour": "red", "bulbs": [3]}))])
            .await?
            .done()?;
        ensure!(case.whole(2).await? == 2, "not both");
        let live = case.get("continued.example/v1/lamps", "b").await?;
        ensure!(live["spec"] == json!({"colour": "red", "bulbs": [3]}), "{live:#}");
        applied_by_the_other(case, 3, &[lamp(json!({"bulbs": [4]}))]).await?;
        let live = case.get("continued.example/v1/lamps", "b").await?;
        ensure!(live["spec"] == json!({"bulbs": [4]}), "{live:#}");
        ensure!(case.whole(3).await? == 1, "not one");
        case.apply(&[crd, lamp(json!({"colour": "green"}))]).await?.done()?;
        ensure!(case.whole(4).await? == 2, "not both");
        let live = case.get("continued.example/v1/lamps", "b").await?;
        ensure!(live["spec"] == json!({"colour": "green"}), "{live:#}");
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn a_version_that_the_other_synk_left_failed_is_continued() -> Result<()> {
    case("continued-failed", async |case| {
        applied_by_the_other(case, 1, &[config_map("a", "1"), config_map("b", "1")]).await?;
        let mut failed = resource_set(case, 2, &[config_map("a", "2"), config_map("b", "1")]);
        failed["status"]["phase"] = json!("Failed");
        case.kubectl(&["create", "-f", "-"], &failed.to_string()).await?;
        case.apply(&[config_map("a", "2"), config_map("b", "1")])
            .await?
            .done()?;
        ensure!(case.whole(3).await? == 2, "not both");
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn owners_that_are_no_sets_stay() -> Result<()> {
    case("other-owners", async |case| {
        let account = case
            .kubectl(&["create", "configmap", "owner", "-n", case.name, "-o", "json"], "")
            .await?;
        let account: Value = serde_json::from_str(&account)?;
        let theirs =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": account["metadata"]["uid"]});
        let mut object = config_map("a", "0");
        object["metadata"]["ownerReferences"] = json!([theirs]);
        case.kubectl(&["create", "-n", case.name, "-f", "-"], &object.to_string())
            .await?;
        for (version, value) in [(1, "1"), (2, "2")] {
            case.apply(&[config_map("a", value), config_map("b", "1")])
                .await?
                .done()?;
            let set = case.settles(version).await?;
            let live = case.get("configmaps", "a").await?;
            let owners = &live["metadata"]["ownerReferences"];
            ensure!(owners.as_array().is_some_and(|owners| owners.len() == 2), "{owners:#}");
            ensure!(owners[0] == theirs && owners[1] == look::owner(&set), "{owners:#}");
        }
        let since = case.now()?;
        case.apply(&[config_map("a", "2"), config_map("b", "1")])
            .await?
            .done()?;
        case.wrote_nothing(since)?;
        // With two owners, it only goes when both are gone.
        case.delete().await?.done()?;
        case.gone("configmaps", "b").await?;
        case.get("configmaps", "a").await?;
        case.kubectl(&["delete", "configmap", "owner", "-n", case.name], "")
            .await?;
        case.gone("configmaps", "a").await
    })
}

/// An apply as the Go synk makes it: a ResourceSet, objects patched three ways on the client that it owns, its status,
/// and the end of the versions before.
async fn applied_by_the_other(case: &Case, version: u64, manifests: &[Value]) -> Result<()> {
    let before = case.sets().await?;
    let mut set = resource_set(case, version, manifests);
    set["status"] = json!({"phase": "Pending", "startedAt": "2026-01-02T03:04:05Z"});
    let made = case
        .kubectl(&["create", "-o", "json", "-f", "-"], &set.to_string())
        .await?;
    let made: Value = serde_json::from_str(&made)?;
    let owned = |manifest: &Value| {
        let mut manifest = manifest.clone();
        manifest["metadata"]["namespace"] = json!(case.name);
        manifest["metadata"]["ownerReferences"] = json!([look::owner(&made)]);
        manifest
    };
    let objects: Vec<_> = manifests.iter().map(owned).collect();
    case.kubectl(&["apply", "--field-manager=synk", "-f", "-"], &list(&objects))
        .await?;
    let status = json!({"status": resource_set(case, version, manifests)["status"]}).to_string();
    let name = made["metadata"]["name"].as_str().context("a name")?;
    case.kubectl(&["patch", "resourceset", name, "--type=merge", "-p", &status], "")
        .await?;
    for set in before {
        let name = set["metadata"]["name"].as_str().context("a name")?;
        case.kubectl(
            &["delete", "resourceset", name, "--cascade=background", "--wait=true"],
            "",
        )
        .await?;
    }
    Ok(())
}

/// A ResourceSet that is settled.
fn resource_set(case: &Case, version: u64, manifests: &[Value]) -> Value {
    let group = |manifest: &Value, more: Value| {
        let api_version = manifest["apiVersion"].as_str().unwrap_or_default();
        let (group, api_version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut item = json!({"namespace": case.name, "name": manifest["metadata"]["name"]});
        if let (Some(item), Value::Object(more)) = (item.as_object_mut(), more) {
            item.extend(more);
        }
        let mut entry = json!({"version": api_version, "kind": manifest["kind"], "items": [item]});
        if !group.is_empty() {
            entry["group"] = json!(group);
        }
        entry
    };
    let listed: Vec<_> = manifests.iter().map(|manifest| group(manifest, json!({}))).collect();
    let applied: Vec<_> = manifests
        .iter()
        .map(|manifest| group(manifest, json!({"action": "Create"})))
        .collect();
    json!({
        "apiVersion": "apps.cloudrobotics.com/v1alpha1", "kind": "ResourceSet",
        "metadata": {"name": format!("{}.v{version}", case.name), "labels": {"name": case.name}},
        "spec": {"resources": listed},
        "status": {
            "phase": "Settled", "startedAt": "2026-01-02T03:04:05Z", "finishedAt": "2026-01-02T03:04:06Z", "applied": applied,
        },
    })
}

/// That `synk` owns fields by server-side apply.
fn writes_by_apply(object: &Value) -> Result<()> {
    let fields = object["metadata"]["managedFields"]
        .as_array()
        .context("no managed fields")?;
    let ours = fields
        .iter()
        .any(|entry| entry["manager"] == "synk" && entry["operation"] == "Apply");
    ensure!(ours, "{fields:#?}");
    Ok(())
}
