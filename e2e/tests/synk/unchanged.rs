//! An apply of what is already so does nothing, and costs next to nothing.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{config_map, document::deployment, list, look, world::case};

#[test]
fn unchanged_input_makes_no_version_and_no_write() -> Result<()> {
    case("unchanged", async |case| {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}});
        let mut set: Vec<_> = (0..60)
            .map(|number| config_map(&format!("map-{number}"), "1"))
            .collect();
        set.extend((0..5).map(|number| deployment(&format!("web-{number}"), "web", 1)));
        let mut system = config_map("unchanged-system", "1");
        system["metadata"]["namespace"] = json!("kube-system");
        set.extend([secret, system.clone()]);
        case.apply(&set).await?.done()?;
        case.whole(1).await?;
        let before = case.settled(1).await?;

        // The order of the input and the way it is written are nothing that changes.
        let mut other = set.clone();
        other.reverse();
        for input in [list(&set), list(&other)] {
            let since = case.now()?;
            case.apply_text(&input, &[]).await?.done()?;
            let asks = case.asked(since)?;
            asks.are_few(&before)?;
            ensure!(asks.dry_runs.is_empty(), "{:#?}", asks.dry_runs);
            // ConfigMaps in two namespaces, Deployments, the Secret, and the versions.
            ensure!(asks.reads.len() <= 5, "{:#?}", asks.reads);
        }
        ensure!(case.settled(1).await? == before, "the version was written");
        case.plan(&set, &[]).await?.expect(0, &[])?;

        // One more write, for one more object that differs; the others only get their owner.
        set[7] = config_map("map-7", "2");
        case.apply(&set).await?.done()?;
        case.whole(2).await?;
        let actions = crate::document::actions(&case.settled(2).await?);
        let done: Vec<_> = actions.iter().filter(|action| !action.ends_with(" None")).collect();
        ensure!(done == ["map-7 Update"], "{done:?}");
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn what_others_changed_is_set_right_and_what_they_added_stays() -> Result<()> {
    case("drift", async |case| {
        let set = [config_map("a", "1"), deployment("web", "web", 2)];
        case.apply(&set).await?.done()?;
        case.whole(1).await?;
        let patch = async |kind: &str, name: &str, patch: Value| {
            let patch = patch.to_string();
            case.kubectl(
                &["patch", kind, name, "-n", case.name, "--type=merge", "-p", &patch],
                "",
            )
            .await
        };
        // Added beside what the set says.
        patch(
            "configmap",
            "a",
            json!({"data": {"more": "theirs"}, "metadata": {"labels": {"by": "hand"}}}),
        )
        .await?;
        patch("deployment", "web", json!({"spec": {"paused": true}})).await?;
        let since = case.now()?;
        case.apply(&set).await?.done()?;
        case.wrote_nothing(since)?;
        let a = case.get("configmaps", "a").await?;
        ensure!(
            a["data"] == json!({"key": "1", "more": "theirs"}) && a["metadata"]["labels"]["by"] == "hand",
            "{a:#}"
        );

        // Changed, and deleted.
        patch("configmap", "a", json!({"data": {"key": "theirs"}})).await?;
        patch("deployment", "web", json!({"spec": {"replicas": 7}})).await?;
        case.plan(&set, &[]).await?.expect(3, &["data.key", "spec.replicas"])?;
        case.apply(&set).await?.done()?;
        case.whole(2).await?;
        ensure!(
            case.get("configmaps", "a").await?["data"]["key"] == "1",
            "not set right"
        );
        let web = case.get("apps/v1/deployments", "web").await?;
        ensure!(web["spec"]["replicas"] == 2 && web["spec"]["paused"] == true, "{web:#}");
        case.kubectl(&["delete", "configmap", "a", "-n", case.name], "").await?;
        case.apply(&set).await?.done()?;
        ensure!(case.whole(3).await? == 2, "not both");
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn a_field_that_left_the_manifest_leaves_the_object() -> Result<()> {
    case("field-left", async |case| {
        let mut first = config_map("a", "1");
        first["data"]["gone"] = json!("1");
        first["metadata"]["labels"] = json!({"l": "1"});
        case.apply(&[first]).await?.done()?;
        case.apply(&[config_map("a", "1")]).await?.done()?;
        case.whole(2).await?;
        let live = case.get("configmaps", "a").await?;
        ensure!(
            live["data"] == json!({"key": "1"}) && live["metadata"]["labels"].is_null(),
            "{live:#}"
        );
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn many_objects_of_a_kind_are_read_at_once() -> Result<()> {
    case("many", async |case| {
        let set = crate::retries::many(250);
        case.apply(&set).await?.done()?;
        ensure!(case.whole(1).await? == 250, "not all");
        let since = case.now()?;
        case.apply(&set).await?.done()?;
        let asks = case.asked(since)?;
        ensure!(asks.writes.is_empty() && asks.dry_runs.is_empty(), "{:#?}", asks.writes);
        ensure!(asks.reads.len() <= 2, "{:#?}", asks.reads);
        case.delete().await?.done()?;
        let list = case
            .read(&look::path("configmaps", Some(case.name)))
            .await?
            .unwrap_or_default();
        let left = look::items(&list)
            .filter(|item| item["metadata"]["name"] != "kube-root-ca.crt")
            .count();
        ensure!(left == 0, "{left} are left");
        Ok(())
    })
}
