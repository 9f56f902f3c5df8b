//! A third consumer with all cells bound in one contract per provider, and with claims: its konnector is restarted.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use anyhow::{Context as _, Result, ensure};
use bindery_api::{names, v1alpha2::InformerScope};
use bindery_e2e::{Asked, Consumer, Moment, holds_for, run, wildwest::SOON};
use futures::future::try_join_all;
use kube::{
    ResourceExt as _,
    api::{DynamicObject, ListParams},
};

use crate::{
    aspects::{provider_owned, stretched::longest},
    cells::{self, Cell},
    counts::KONNECTOR,
    kinds::Kind,
    side::Side,
    world::{self, World},
};

/// How long nothing may be written.
const A_WHILE: std::time::Duration = std::time::Duration::from_secs(2);
const KINDS: [Kind; 4] = [Kind::Bound, Kind::Secret, Kind::ConfigMap, Kind::ServiceAccount];
/// The beginning of the names of all that is looked at: in shared namespaces there is more.
const MINE: &str = "restart-";
/// What is made after the restart.
const AFTER: &str = "restart-after";
/// Sessions of the konnector: one per contract, of which there is one per provider.
const SESSIONS: usize = 2;
/// Places that claims are served in: the mapped namespaces of each, and those of cells without isolation.
const PLACES: usize = SESSIONS + 1;

/// How often somebody watches a resource in a namespace; all of them if it is empty.
type Watches = BTreeMap<(String, String, String), usize>;

pub(crate) fn check() -> Result<()> {
    run(async {
        let world = world::get().await?;
        let mut consumer = world::consumer("matrix-c").await?;
        try_join_all(sides(world, &consumer).iter().map(fill)).await?;
        consumer.konnectors[0].terminate(SOON).await?;
        consumer.konnectors.clear();
        let before = picture(&sides(world, &consumer)).await?;
        let then = moments(&sides(world, &consumer))?;
        consumer.start_konnector().await?;

        let sides = sides(world, &consumer);
        try_join_all(sides.iter().map(|side| add(side, AFTER))).await?;
        holds_for("no write at rest", A_WHILE, async || {
            let after = picture(&sides).await?;
            let changed: Vec<_> = before.difference(&after).collect();
            ensure!(changed.is_empty(), "written at restart: {changed:?}");
            Ok(())
        })
        .await?;
        for (side, then) in sides.iter().zip(then) {
            let told = || format!("cell {}, aspect restart", side.cell.name);
            wrote_nothing_old(side, then).with_context(told)?;
            provider_is_watched_once(side, then).with_context(told)?;
            consumer_is_watched_once(side, then).with_context(told)?;
        }
        consumer.konnectors[0].hush();
        Ok(())
    })
}

fn sides<'w>(world: &'static World, consumer: &'w Consumer) -> Vec<Side<'w>> {
    let side = |cell: &'static Cell| {
        let token = world.token(cell, "c");
        Side::new("c", cell, world.provider(cell), consumer, token).of_identity("cluster-of-c")
    };
    cells::together().map(side).collect()
}

fn moments(sides: &[Side<'_>]) -> Result<Vec<[Moment; 2]>> {
    let moment = |side: &Side<'_>| Ok([side.provider.plane.audit()?.now()?, side.consumer.plane.audit()?.now()?]);
    sides.iter().map(moment).collect()
}

async fn fill(side: &Side<'_>) -> Result<()> {
    let told = || format!("cell {}, aspect restart", side.cell.name);
    side.bind().await.with_context(told)?;
    for number in 0..5 {
        add(side, &format!("{MINE}{number}")).await.with_context(told)?;
    }
    // And one that comes down.
    let name = format!("{MINE}down-{}", side.cell.name);
    let secret = Kind::Secret.labelled(side.cell, &name, "ride");
    provider_owned::put(side, &secret).await.with_context(told)?;
    let came = |copy: &DynamicObject| Kind::Secret.is(copy, "ride");
    side.ours_is("to come down", Kind::Secret, &name, came)
        .await
        .with_context(told)?;
    side.ready().await.with_context(told)
}

/// Makes one of each kind and waits until it is in sync.
async fn add(side: &Side<'_>, name: &str) -> Result<()> {
    for kind in KINDS {
        side.create(kind, &kind.labelled(side.cell, name, "ride")).await?;
    }
    for kind in KINDS {
        side.settled(kind, name, "ride").await?;
    }
    Ok(())
}

/// All that is there on both sides, with its versions.
async fn picture(sides: &[Side<'_>]) -> Result<BTreeSet<String>> {
    let mut picture = BTreeSet::new();
    for side in sides {
        for kind in KINDS {
            for (place, api) in [("consumer's", side.ours(kind)), ("copy", side.copies(kind))] {
                for object in api.list_metadata(&ListParams::default()).await? {
                    let (name, version) = (object.name_any(), object.resource_version().unwrap_or_default());
                    if name.starts_with(MINE) || name.starts_with(&side.copy_name(kind, MINE)) {
                        picture.insert(format!("{} {kind:?} {place} {name} {version}", side.cell.name));
                    }
                }
            }
        }
    }
    Ok(picture)
}

/// No request to write anything that was there before.
fn wrote_nothing_old(side: &Side<'_>, [on_provider, on_consumer]: [Moment; 2]) -> Result<()> {
    let provider = side.provider.plane.audit()?.since(on_provider)?;
    let consumer = side.consumer.plane.audit()?.since(on_consumer)?;
    let binder = binder(side);
    let all = provider.iter().filter(|asked| asked.by == binder);
    let all = all.chain(consumer.iter().filter(|asked| asked.by == KONNECTOR));
    let written = all.filter(|asked| asked.is_write() && asked.name.contains(MINE));
    let (new, old): (Vec<_>, Vec<_>) = written.partition(|asked| asked.name.contains(AFTER));
    ensure!(
        !new.is_empty(),
        "what was made after the restart was not seen to be written"
    );
    ensure!(old.is_empty(), "{old:?}");
    Ok(())
}

fn provider_is_watched_once(side: &Side<'_>, [then, _]: [Moment; 2]) -> Result<()> {
    let asked = side.provider.plane.audit()?.since(then)?;
    let watches = watches(&asked, &binder(side));
    let twice: Vec<_> = watches.iter().filter(|(_, count)| **count > 1).collect();
    ensure!(twice.is_empty(), "watched more than once on the provider: {twice:?}");
    let wide = side.cell.informers == InformerScope::Cluster;
    let bound_wide = side.cell.is_watched_wide();
    for (kind, wide) in [
        (Kind::Bound, bound_wide),
        (Kind::ConfigMap, wide),
        (Kind::Secret, false),
    ] {
        let namespaces = of(&watches, side, kind);
        if wide {
            ensure!(
                namespaces == [""],
                "{kind:?} is watched in {namespaces:?} and not cluster-wide alone"
            );
            continue;
        }
        let place = side.place(kind, side.cell.name);
        ensure!(
            !namespaces.contains(&""),
            "{kind:?} is watched cluster-wide: {namespaces:?}"
        );
        ensure!(
            namespaces.contains(&place.as_str()),
            "{kind:?} is watched in {namespaces:?}, not in {place}"
        );
    }
    Ok(())
}

fn consumer_is_watched_once(side: &Side<'_>, [_, then]: [Moment; 2]) -> Result<()> {
    let asked = side.consumer.plane.audit()?.since(then)?;
    let watches = watches(&asked, KONNECTOR);
    let long = longest(names::NAMESPACE_LENGTH_MAX);
    for kind in KINDS {
        let resource = kind.resource(side.cell);
        // Claims of all bindings of a session share one watch of a namespace. It begins anew if those of another place come later.
        let expected: &[(&str, RangeInclusive<usize>)] = match kind {
            Kind::Bound => &[("", 1..=1)],
            _ => &[
                ("", 0..=0),
                (side.cell.name, 1..=PLACES),
                (&long[0], SESSIONS..=PLACES),
                (&long[1], SESSIONS..=PLACES),
            ],
        };
        for (namespace, expected) in expected {
            let key = (resource.group.clone(), resource.plural.clone(), (*namespace).to_owned());
            let count = watches.get(&key).copied().unwrap_or_default();
            ensure!(
                expected.contains(&count),
                "{kind:?} is watched {count} times in namespace {namespace:?} of the consumer: {watches:?}"
            );
        }
    }
    Ok(())
}

fn watches(asked: &[Asked], by: &str) -> Watches {
    let mut watches = Watches::new();
    for asked in asked.iter().filter(|asked| asked.is_watch() && asked.by == by) {
        let key = (asked.group.clone(), asked.resource.clone(), asked.namespace.clone());
        *watches.entry(key).or_default() += 1;
    }
    watches
}

/// Namespaces in which a kind is watched.
fn of<'a>(watches: &'a Watches, side: &Side<'_>, kind: Kind) -> Vec<&'a str> {
    let resource = kind.resource(side.cell);
    let is_it = |(group, plural, _): &&(String, String, String)| *group == resource.group && *plural == resource.plural;
    // The contract namespace has Secrets of its own, which are not claimed.
    let claimed = |namespace: &&str| kind == Kind::Bound || *namespace != side.contract;
    let namespaces = watches.keys().filter(is_it).map(|(_, _, namespace)| namespace.as_str());
    namespaces.filter(claimed).collect()
}

fn binder(side: &Side<'_>) -> String {
    format!("system:serviceaccount:{}:kube-binder", side.contract)
}
