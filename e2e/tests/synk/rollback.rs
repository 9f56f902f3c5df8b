//! History, and the way back.

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    case::{Case, SOON},
    config_map, look,
    world::case,
};

/// What is in Secrets of the sets here, and nowhere else.
const HIDDEN: &str = "hunter2";

#[test]
fn a_rollback_brings_back_what_was_and_takes_away_what_came() -> Result<()> {
    case("rollback", async |case| {
        let first = [secret(HIDDEN), config_map("a", "1"), config_map("left", "1")];
        let second = [
            secret("other"),
            config_map("a", "2"),
            config_map("came", "1"),
            config_map("came2", "1"),
        ];
        case.apply(&first).await?.done()?;
        case.apply(&second).await?.done()?;
        case.gone("configmaps", "left").await?;
        ensure!(
            stored(case).await? == [(2, true), (1, true)],
            "{:?}",
            stored(case).await?
        );

        let since = case.now()?;
        for command in [
            ["history", "rollback"],
            ["rollback", "rollback.v1"],
            ["delete", "rollback"],
        ] {
            let elsewhere = [&command[..], &["-n", "elsewhere"]].concat();
            case.run(&elsewhere).await?.expect(1, &["is in namespace rollback"])?;
        }
        case.wrote_nothing(since)?;

        let dry = case.run(&["rollback", "rollback.v1", "--dry-run=server"]).await?;
        dry.expect(3, &["configmap/came", "configmap/left"])?
            .without(&[HIDDEN])?;
        ensure!(case.whole(2).await? == 4, "a dry run did something");

        let ran = case.run(&["rollback", "rollback.v1", "-o", "json"]).await?.done()?;
        ensure!(ran.json()?["version"] == "rollback.v3", "{}", ran.stdout);
        ran.without(&[HIDDEN, &STANDARD.encode(HIDDEN)])?;
        ensure!(case.whole(3).await? == 3, "not three");
        case.gone("configmaps", "came").await?;
        case.gone("configmaps", "came2").await?;
        ensure!(
            case.get("configmaps", "a").await?["data"]["key"] == "1",
            "not rolled back"
        );
        case.get("configmaps", "left").await?;
        let live = case.get("secrets", "s").await?;
        ensure!(
            live["data"]["key"] == STANDARD.encode(HIDDEN),
            "the Secret is not what it was"
        );

        // The same once more changes nothing, and what was rolled back can be rolled forward.
        let since = case.now()?;
        case.run(&["rollback", "rollback.v1"]).await?.done()?;
        case.wrote_nothing(since)?;
        case.run(&["rollback", "rollback.v2"]).await?.done()?;
        ensure!(case.whole(4).await? == 4, "not four");
        case.gone("configmaps", "left").await?;

        // Three are kept, and no Secret of an older one.
        ensure!(
            stored(case).await? == [(4, true), (3, true), (2, true)],
            "{:?}",
            stored(case).await?
        );
        case.run(&["rollback", "rollback.v1"])
            .await?
            .expect(1, &["the manifests of rollback.v1 are not kept"])?;
        case.delete().await?.done()?;
        case.nothing_left(&[]).await?;
        case.run(&["rollback", "rollback.v4"])
            .await?
            .expect(1, &["there is no set rollback"])
            .map(drop)
    })
}

#[test]
fn as_much_is_kept_as_is_wanted() -> Result<()> {
    case("history-size", async |case| {
        for value in 1..=3 {
            let flags = ["--history=2"];
            case.apply_with(&[config_map("a", &value.to_string())], &flags)
                .await?
                .done()?;
        }
        ensure!(
            stored(case).await? == [(3, true), (2, true)],
            "{:?}",
            stored(case).await?
        );
        ensure!(secrets(case).await?.len() == 2, "{:?}", secrets(case).await?);
        let history = case.run(&["history", case.name]).await?.done()?;
        history
            .expect(0, &["history-size.v3", "history-size.v2"])?
            .without(&["history-size.v1"])?;

        case.apply_with(&[config_map("a", "4")], &["--history=0"])
            .await?
            .done()?;
        ensure!(secrets(case).await?.is_empty(), "{:?}", secrets(case).await?);
        ensure!(stored(case).await? == [(4, false)], "{:?}", stored(case).await?);
        case.run(&["rollback", "history-size.v4"])
            .await?
            .expect(1, &["the manifests of history-size.v4 are not kept"])?;
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn large_sets_are_kept_in_several_secrets() -> Result<()> {
    case("history-large", async |case| {
        let large: Vec<_> = (0..4)
            .map(|at| config_map(&format!("noise-{at}"), &noise(700_000)))
            .collect();
        case.apply(&large).await?.done()?;
        let chunks = secrets(case).await?;
        ensure!(chunks.len() >= 3, "{chunks:?}");
        for name in &chunks {
            let secret = case.get("secrets", name).await?;
            let size = secret.to_string().len();
            ensure!(size < 1_500_000, "{name} has {size} bytes");
            ensure!(
                secret["metadata"]["ownerReferences"].is_null(),
                "{:#}",
                secret["metadata"]
            );
        }
        let small: Vec<_> = (0..4).map(|at| config_map(&format!("noise-{at}"), "silence")).collect();
        case.apply(&small).await?.done()?;
        case.run(&["rollback", "history-large.v1"]).await?.done()?;
        case.whole(3).await?;
        for manifest in &large {
            let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
            let live = case.get("configmaps", name).await?;
            ensure!(live["data"] == manifest["data"], "{name} is not what it was");
        }
        case.delete().await?.done()?;
        case.nothing_left(&[]).await
    })
}

#[test]
fn damaged_history_is_named_and_not_applied() -> Result<()> {
    case("history-broken", async |case| {
        let large: Vec<_> = (0..2)
            .map(|at| config_map(&format!("noise-{at}"), &noise(700_000)))
            .collect();
        case.apply(&[&large[..], &[secret(HIDDEN)]].concat()).await?.done()?;
        case.apply(&[config_map("noise-0", "silence"), secret("other")])
            .await?
            .done()?;
        case.whole(2).await?;
        let back = ["rollback", "history-broken.v1"];
        let first = "synk-history-broken.v1-0";
        let mut chunk = case.get("secrets", first).await?;
        case.kubectl(&["delete", "secret", first, "-n", case.name], "").await?;
        let since = case.now()?;
        let refused = case.run(&back).await?;
        refused.expect(1, &["history-broken.v1", "cannot be read", "parts are there"])?;
        ensure!(
            stored(case).await? == [(2, true), (1, false)],
            "{:?}",
            stored(case).await?
        );

        // Somebody puts another one in its place.
        let changed = STANDARD.encode(format!("not what was there: {HIDDEN}"));
        chunk["data"]["manifests.json.gz"] = json!(changed);
        if let Some(metadata) = chunk["metadata"].as_object_mut() {
            metadata.retain(|key, _| ["name", "namespace", "labels", "annotations"].contains(&key.as_str()));
        }
        case.plane.apply(&chunk.to_string()).await?;
        let refused = case.run(&back).await?;
        refused
            .expect(1, &["cannot be read", "checksum"])?
            .without(&[HIDDEN, &changed])?;
        let refused = case.run(&[&back[..], &["-o", "json"]].concat()).await?;
        ensure!(refused.json()?["error"]["reason"] == "Unreadable", "{}", refused.all());
        case.wrote_nothing(since)?;
        ensure!(case.whole(2).await? == 2, "something was applied");
        case.delete().await?.done()?;
        case.nothing_left(&[]).await
    })
}

#[test]
fn history_that_was_cut_off_is_none_and_is_made_up_for() -> Result<()> {
    case("history-killed", async |case| {
        let set: Vec<_> = (0..3)
            .map(|at| config_map(&format!("noise-{at}"), &noise(700_000)))
            .collect();
        let (gate, synk) = case.gated().await?;
        gate.shut_after(1, |write| write.starts_with("POST") && write.ends_with("/secrets"));
        let mut run = case.start_apply(&synk, &set, &[])?;
        let silent = tokio::time::timeout(SOON, gate.silent()).await;
        silent.with_context(|| format!("no history is written: {:#?}\n{}", gate.writes(), run.log()))?;
        run.kill9()?;
        run.hush();
        ensure!(stored(case).await? == [(1, false)], "{:?}", stored(case).await?);
        case.run(&["rollback", "history-killed.v1"])
            .await?
            .expect(1, &["cannot be read"])?;

        case.apply(&set).await?.done()?;
        ensure!(case.whole(2).await? == 3, "not three");
        // What was cut off is gone.
        ensure!(stored(case).await? == [(2, true)], "{:?}", stored(case).await?);
        case.apply(&set[..2]).await?.done()?;
        case.run(&["rollback", "history-killed.v2"]).await?.done()?;
        ensure!(case.whole(4).await? == 3, "not three");
        case.delete().await?.done()?;
        case.nothing_left(&[]).await
    })
}

#[test]
fn secrets_of_others_are_no_history() -> Result<()> {
    case("history-forged", async |case| {
        case.apply(&[config_map("a", "1")]).await?.done()?;
        case.apply(&[config_map("a", "2")]).await?.done()?;
        // All as it should be, but for the type, which nobody can change.
        let name = "synk-history-forged.v1-0";
        let mut forged = case.get("secrets", name).await?;
        case.kubectl(&["delete", "secret", name, "-n", case.name], "").await?;
        forged["type"] = json!("Opaque");
        if let Some(metadata) = forged["metadata"].as_object_mut() {
            metadata.retain(|key, _| ["name", "namespace", "labels", "annotations"].contains(&key.as_str()));
        }
        case.plane.apply(&forged.to_string()).await?;
        ensure!(stored(case).await? == [(2, true)], "{:?}", stored(case).await?);
        case.run(&["rollback", "history-forged.v1"])
            .await?
            .expect(1, &["the manifests of history-forged.v1 are not kept"])?;
        case.delete().await?.done()?;
        // It is somebody's.
        case.get("secrets", name).await.map(drop)
    })
}

fn secret(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"key": value}})
}

/// Text that cannot be compressed to much less than three quarters.
fn noise(size: usize) -> String {
    let bytes: Vec<u8> = (0..size * 3 / 4).map(|_| rand::random()).collect();
    STANDARD.encode(bytes)
}

/// The versions that `synk history` lists, and whether they can be rolled back to.
async fn stored(case: &Case) -> Result<Vec<(u64, bool)>> {
    let ran = case.run(&["history", case.name, "-o", "json"]).await?.done()?;
    let history = ran.json()?;
    let versions = history["versions"]
        .as_array()
        .with_context(|| format!("no versions: {history:#}"))?;
    let each = versions.iter().map(|version| {
        let name = version["version"].as_str().unwrap_or_default();
        let number = name.rsplit_once(".v").and_then(|(_, number)| number.parse().ok());
        Ok((number.context("no number")?, version["rollback"] == true))
    });
    each.collect()
}

/// The names of the Secrets with the history.
async fn secrets(case: &Case) -> Result<Vec<String>> {
    let path = look::path("secrets", Some(case.name));
    let list = case
        .read(&format!(
            "{path}?labelSelector=synk.cloudrobotics.com%2Fset%3D{}",
            case.name
        ))
        .await?;
    let list = list.context("no Secrets")?;
    let names = look::items(&list).filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned));
    Ok(names.collect())
}
