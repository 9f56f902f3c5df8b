//! An apply that is killed, after its first writes, in the middle and after its last: the next one finishes the job, and
//! nothing is there twice.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{Gate, eventually_ok, remains::COLLECTED};
use serde_json::{Value, json};

use crate::{
    case::{Case, SOON},
    config_map, look,
    world::case,
};

#[test]
fn a_first_apply_that_is_killed_is_finished_by_the_next() -> Result<()> {
    case("killed-first", async |case| {
        let set = set("1");
        // Right after its version was made; in the middle; after the last object.
        for nth in [1, 3, 6] {
            killed(case, &set, nth).await?;
            finished(case, &set).await?;
            case.delete().await?.done()?;
        }
        Ok(())
    })
}

#[test]
fn a_change_that_is_killed_is_finished_by_the_next() -> Result<()> {
    case("killed-change", async |case| {
        let mut first = set("1");
        first.push(config_map("leaves", "1"));
        case.apply(&first).await?.done()?;
        case.whole(1).await?;
        // How many writes a whole change takes, when nobody disturbs it.
        let since = case.now()?;
        case.apply(&set("2")).await?.done()?;
        let whole = case
            .asked(since)?
            .writes
            .iter()
            .filter(|asked| asked.resource != "leases")
            .count();
        finished(case, &set("2")).await?;
        for (round, nth) in [1, 2, 4, whole - 3, whole - 2, whole - 1].into_iter().enumerate() {
            let value = format!("round-{round}");
            let mut wide = set(&value);
            wide.push(config_map("leaves", &value));
            case.apply(&wide).await?.done()?;
            killed(case, &set(&value), nth).await?;
            finished(case, &set(&value))
                .await
                .with_context(|| format!("killed after write {nth} of {whole}"))?;
            case.gone("configmaps", "leaves").await?;
        }
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn a_deletion_that_is_killed_is_finished_by_the_next() -> Result<()> {
    case("killed-delete", async |case| {
        let again = ["delete", case.name, "-n", case.name];
        // Before the set was asked to go: it is there.
        killed_deletion(case, 1).await?;
        case.forget_lease(case.name).await?;
        case.run(&again).await?.done()?;
        case.nothing_left(&maps(case)).await?;

        // After that, while something holds it up: what that is, is told.
        case.apply(&set("1")).await?.done()?;
        finalizers(case, &json!(["example.com/hold"])).await?;
        killed_deletion(case, 2).await?;
        case.forget_lease(case.name).await?;
        let mut run = case.synk.start(&again)?;
        let told = run.wait_for_line("finalizer example.com/hold", SOON).await?;
        ensure!(told.contains("configmap/a"), "{told}");
        finalizers(case, &Value::Null).await?;
        let ended = run.wait(COLLECTED).await?;
        ensure!(ended.success(), "{ended}\n{}", run.log());
        case.nothing_left(&maps(case)).await
    })
}

#[test]
fn what_is_left_of_a_set_by_a_deletion_that_was_killed_goes_with_the_next() -> Result<()> {
    case("killed-late", async |case| {
        killed_deletion(case, 2).await?;
        eventually_ok("the set to be gone", COLLECTED, async || {
            let versions = case.versions().await?;
            ensure!(versions.is_empty(), "{versions:?}");
            Ok(())
        })
        .await?;
        // Nobody renews the Lease that is left.
        let again = ["delete", case.name, "-n", case.name, "--ignore-not-found"];
        case.run(&again).await?.done()?;
        case.nothing_left(&maps(case)).await
    })
}

/// A deletion that is killed right after its n-th write: the first takes the history away, the second the set.
async fn killed_deletion(case: &Case, nth: usize) -> Result<()> {
    case.apply(&set("1")).await?.done()?;
    let (gate, synk) = case.gated().await?;
    gate.shut_after(nth, counts);
    let mut run = synk.start(&["delete", case.name])?;
    let silent = tokio::time::timeout(SOON, gate.silent()).await;
    silent.with_context(|| format!("no write {nth}: {:#?}\n{}", gate.writes(), run.log()))?;
    run.kill9()?;
    run.hush();
    Ok(())
}

/// What holds one of the objects back.
async fn finalizers(case: &Case, finalizers: &Value) -> Result<()> {
    let patch = json!({"metadata": {"finalizers": finalizers}}).to_string();
    let patch = ["patch", "configmap", "a", "-n", case.name, "--type=merge", "-p", &patch];
    case.kubectl(&patch, "").await.map(drop)
}

fn maps(case: &Case) -> [String; 3] {
    let maps = look::path("configmaps", Some(case.name));
    ["a", "b", "c"].map(|name| format!("{maps}/{name}"))
}

fn set(value: &str) -> Vec<Value> {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": value}});
    let mut set = vec![secret];
    set.extend(["a", "b", "c"].map(|name| config_map(name, value)));
    set
}

/// Dry runs cannot be told apart at a gate; an apply makes none where all is clear.
fn counts(_: &str) -> bool {
    true
}

/// An apply that is killed right after its n-th write.
async fn killed(case: &Case, set: &[Value], nth: usize) -> Result<()> {
    let (gate, synk): (Gate, _) = case.gated().await?;
    gate.shut_after(nth, counts);
    let mut run = case.start_apply(&synk, set, &["--concurrency=1"])?;
    let silent = tokio::time::timeout(SOON, gate.silent()).await;
    silent.with_context(|| format!("no write {nth}: {:#?}\n{}", gate.writes(), run.log()))?;
    run.kill9()?;
    run.hush();
    case.forget_lease(case.name).await
}

/// The same again, after which all is there once.
async fn finished(case: &Case, set: &[Value]) -> Result<()> {
    case.apply(set).await?.done()?;
    let version = case.versions().await?.pop().context("no version")?;
    let there = case.whole(version).await?;
    ensure!(there == set.len(), "{there} objects instead of {}", set.len());
    let since = case.now()?;
    case.apply(set).await?.done()?;
    case.wrote_nothing(since)?;
    let lease = case
        .find("coordination.k8s.io/v1/leases", &format!("synk-{}", case.name))
        .await?;
    ensure!(lease.is_none(), "a Lease is left: {lease:?}");
    Ok(())
}
