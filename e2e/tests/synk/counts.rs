//! What an apply asks of the API server: how much depends on kinds and namespaces, not on objects, unless they are written.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{
    case::{Asks, Case},
    config_map,
    world::case,
};

/// Discovery, in two requests, and the versions of the set.
const CONSTANT: usize = 3;
/// Writes besides those of objects: versions, Lease and history.
const BOOKS: usize = 12;

/// Objects of four collections: ConfigMaps and Secrets, each in the case's namespace and in `kube-system`.
fn objects(case: &Case, each: usize) -> Vec<Value> {
    let name = |index: usize| format!("{}-{index}", case.name);
    let secret =
        |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"key": "dg=="}});
    let in_kube_system = |mut object: Value| {
        object["metadata"]["namespace"] = json!("kube-system");
        object
    };
    let all = (0..each).flat_map(|index| {
        let (map, secret) = (config_map(&name(index), "v"), secret(&name(index)));
        [in_kube_system(map.clone()), in_kube_system(secret.clone()), map, secret]
    });
    all.collect()
}

/// As many collections as [`objects`] has.
const COLLECTIONS: usize = 4;

fn reads(asks: &Asks) -> usize {
    asks.reads.len() + asks.discovery.len()
}

#[test]
fn an_unchanged_set_is_read_by_kind_and_namespace_and_not_written() -> Result<()> {
    case("counts-unchanged", async |case| {
        let objects = objects(case, 15);
        case.apply(&objects).await?.done()?;
        for command in ["apply", "plan"] {
            let since = case.now()?;
            let ran = match command {
                "apply" => case.apply(&objects).await?,
                _ => case.plan(&objects, &[]).await?,
            };
            ran.done()?;
            let asks = case.asked(since)?;
            ensure!(
                asks.writes.is_empty() && asks.dry_runs.is_empty(),
                "{command}: {asks:#?}"
            );
            ensure!(reads(&asks) <= COLLECTIONS + CONSTANT, "{command}: {asks:#?}");
        }
        case.settled(1).await?;
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn one_object_of_a_kind_and_namespace_is_read_alone() -> Result<()> {
    case("counts-alone", async |case| {
        let objects = objects(case, 1);
        case.apply(&objects).await?.done()?;
        let since = case.now()?;
        case.apply(&objects).await?.done()?;
        let asks = case.asked(since)?;
        let gets = asks.reads.iter().filter(|asked| asked.verb == "get").count();
        ensure!(
            gets == COLLECTIONS && reads(&asks) <= COLLECTIONS + CONSTANT,
            "{asks:#?}"
        );
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn a_change_is_a_write_for_each_object_and_reads_do_not_grow_with_the_set() -> Result<()> {
    case("counts-changed", async |case| {
        let mut read = Vec::new();
        let mut last = Vec::new();
        for each in [1, 5, 15] {
            last = objects(case, each);
            let since = case.now()?;
            case.apply(&last).await?.done()?;
            let asks = case.asked(since)?;
            ensure!(asks.dry_runs.is_empty(), "{asks:#?}");
            ensure!(
                (last.len()..=last.len() + BOOKS).contains(&asks.writes.len()),
                "{asks:#?}"
            );
            read.push(reads(&asks));
        }
        // Once before the Lease is taken, and once under it.
        ensure!(
            read.iter().all(|read| *read <= 3 * (COLLECTIONS + CONSTANT)),
            "{read:?} reads"
        );
        ensure!(read[1] == read[2], "{read:?} reads for 4, 20 and 60 objects");

        last[2]["data"]["key"] = json!("changed");
        let since = case.now()?;
        case.apply(&last).await?.done()?;
        let asks = case.asked(since)?;
        ensure!(asks.dry_runs.is_empty(), "{asks:#?}");
        ensure!(
            (last.len()..=last.len() + BOOKS).contains(&asks.writes.len()),
            "{asks:#?}"
        );
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn a_prune_is_a_delete_for_each_object() -> Result<()> {
    case("counts-pruned", async |case| {
        let objects = objects(case, 10);
        case.apply(&objects).await?.done()?;
        let left = &objects[..objects.len() / 2];
        let since = case.now()?;
        case.apply(left).await?.done()?;
        let asks = case.asked(since)?;
        let of_objects = |verb: &str| {
            let own = format!("{}-", case.name);
            let all = asks.writes.iter().filter(|asked| asked.verb == verb);
            all.filter(|asked| asked.name.starts_with(&own)).count()
        };
        ensure!(of_objects("delete") == left.len(), "{asks:#?}");
        ensure!(asks.writes.len() <= objects.len() + BOOKS, "{asks:#?}");
        case.delete().await?.done().map(drop)
    })
}
