//! A set that brings the namespace it is applied with.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{
    case::{Case, SOON},
    config_map, list,
    world::case,
};

#[test]
fn a_set_may_bring_its_own_namespace() -> Result<()> {
    case("brings", async |case| {
        let apply = ["apply", case.name, "-n", "brings-own", "-f", "-"];
        // Without it, there is none.
        let never = [&apply[..], &["--retries=0"]].concat();
        let without = case.synk.run(&never, &list(&[config_map("a", "1")])).await?;
        without.expect(1, &["brings-own"])?;
        ensure!(case.versions().await?.is_empty(), "a version was made");

        let set = list(&brought("brings-own", "1"));
        case.synk
            .run(&[&["plan"], &apply[1..]].concat(), &set)
            .await?
            .expect(3, &[])?;
        case.synk.run(&apply, &set).await?.done()?;
        ensure!(case.whole(1).await? == 3, "not all three");
        let since = case.now()?;
        case.synk.run(&apply, &set).await?.done()?;
        case.wrote_nothing(since)?;
        case.synk
            .run(&apply, &list(&brought("brings-own", "2")))
            .await?
            .done()?;
        case.whole(2).await?;
        // It is known where it lives.
        case.run(&["rollback", "brings.v1"]).await?.done()?;
        ensure!(case.whole(3).await? == 3, "not all three");
        case.run(&["delete", case.name]).await?.done()?;
        case.gone_from("/api/v1/namespaces/brings-own").await?;
        case.nothing_left(&[]).await
    })
}

#[test]
fn one_that_is_killed_while_it_makes_its_namespace_is_finished_by_the_next() -> Result<()> {
    case("brings-killed", async |case| {
        for nth in 1..=3 {
            let namespace = format!("brings-killed-{nth}");
            let set = brought(&namespace, "1");
            killed(case, &namespace, &set, nth).await?;
            let apply = ["apply", case.name, "-n", &namespace, "-f", "-"];
            case.synk.run(&apply, &list(&set)).await?.done()?;
            let version = case.versions().await?.pop().context("no version")?;
            ensure!(case.whole(version).await? == 3, "not all three");
            case.run(&["delete", case.name]).await?.done()?;
            case.gone_from(&format!("/api/v1/namespaces/{namespace}")).await?;
        }
        Ok(())
    })
}

/// A namespace, and what is in it.
fn brought(namespace: &str, value: &str) -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        config_map("a", value),
        config_map("b", value),
    ]
}

/// An apply that is killed right after its n-th write.
async fn killed(case: &Case, namespace: &str, set: &[Value], nth: usize) -> Result<()> {
    let (gate, synk) = case.gated().await?;
    gate.shut_after(nth, |_| true);
    let file = case.file("brought.json", &list(set))?.display().to_string();
    let mut run = synk.start(&["apply", case.name, "-n", namespace, "-f", &file])?;
    let silent = tokio::time::timeout(SOON, gate.silent()).await;
    silent.with_context(|| format!("no write {nth}: {:#?}\n{}", gate.writes(), run.log()))?;
    run.kill9()?;
    run.hush();
    case.forget_lease(namespace).await
}
