//! Both programs end and begin anew, with everything in sync.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use crate::{
    asked::{self, Mark, Request, Tally, Who, tally},
    rest::is_routine,
    world::{PLACES, World},
};

/// What the konnector says on the way: of binding and export, in their status and by events. Of objects it says nothing.
const SAYS: [&str; 3] = [
    "Konnector patch apiservicebindings/status",
    "Konnector create events",
    "Binder patch apiserviceexports/status",
];
const SAYS_MAX: usize = 30;
/// What is read one by one: definitions, Leases, the contract's namespace.
const READS_MAX: usize = 40;
/// By so much each kind of request may differ from one restart to another, which depends on what comes first. Fewer than
/// there are objects more of any kind.
const CHANCE: usize = 8;
/// How the server probes its admission policies once when it starts, and then hourly: by dry runs. The fourth is probed as the
/// account of some contract.
const PROBES: [&str; 3] = [
    "Server create bindableresourcesrequests",
    "Server create roles",
    "Server create serviceaccounts/token",
];
/// Listed and not followed: the server looks once for what earlier versions left.
const LISTED_ONCE: &str = "Server list secrets";

const CLAIMED: [&str; 2] = ["configmaps", "secrets"];

/// How often who lists or watches what, by resource, namespace and name.
type Collections<'r> = BTreeMap<(&'r Who, &'r str, &'r str, &'r str), usize>;

/// Answers the moment before they began.
pub(crate) async fn of_both(world: &mut World) -> Result<Mark> {
    world.consumer.stop_konnectors().await?;
    world.stop_server().await?;
    let began = Mark::now(world)?;
    world.provider.restart_server().await?;
    world.consumer.start_konnector().await?;
    Ok(began)
}

/// Nothing is written and each watch began with one list. Answers what else was asked, which must not depend on objects.
pub(crate) fn asked_little(world: &World, began: Mark) -> Result<Tally> {
    let requests = asked::between(world, began, None)?;
    let (writes, reads): (Vec<_>, Vec<_>) = requests.iter().partition(|request| request.is_write());
    let mut written = tally(writes.into_iter().filter(|request| !is_routine(request)));
    let said: Tally = SAYS.iter().filter_map(|told| written.remove_entry(*told)).collect();
    let is_contract_probe = |told: &str| told.ends_with(" create apiservicenamespaces") && !told.starts_with("Server ");
    let probes: Tally = written
        .extract_if(.., |told, _| PROBES.contains(&&**told) || is_contract_probe(told))
        .collect();
    ensure!(
        probes.len() <= PROBES.len() + 1 && probes.values().all(|times| *times == 1),
        "the policies were probed at the restart: {probes:?}"
    );
    ensure!(written.is_empty(), "written at the restart: {written:?}");
    ensure!(
        said.values().sum::<usize>() <= SAYS_MAX,
        "of the binding and its export was said at the restart: {said:?}"
    );

    let mut listed = collections(&reads, "list");
    let watched = collections(&reads, "watch");
    for (collection, times) in &watched {
        let lists = listed.remove(collection);
        ensure!(
            lists == Some(*times),
            "{collection:?}: {times} watches and {lists:?} lists"
        );
    }
    // Where one watch shows what is claimed in all namespaces of the provider, each that is mapped is listed once more.
    let places = PLACES.map(|place| world.there(place));
    listed.retain(|(_, resource, namespace, _), times| {
        let is_watched_wide = watched.contains_key(&(&Who::Binder, *resource, "", ""));
        let is_claimed = CLAIMED.contains(resource) && places.iter().any(|place| place == namespace);
        !(is_watched_wide && is_claimed && *times == 1)
    });
    // The server looks once for copies that were retained before.
    let looked = listed.remove(&(&Who::Server, "cowboys", "", ""));
    ensure!(
        looked.is_none_or(|times| times == 1),
        "looked for retained copies {looked:?} times"
    );
    ensure!(listed.is_empty(), "listed and not watched: {listed:?}");
    let others = reads
        .iter()
        .filter(|request| !["list", "watch"].contains(&request.asked.verb.as_str()));
    let mut others = tally(others.copied());
    ensure!(
        others.values().sum::<usize>() <= READS_MAX,
        "read at the restart: {others:?}"
    );
    others.extend(said);
    Ok(others)
}

/// Whether as much was asked with few objects as with many.
pub(crate) fn is_as_little(few: &Tally, many: &Tally) -> Result<()> {
    let differ = |told: &String| {
        let times = |tally: &Tally| tally.get(told).copied().unwrap_or_default();
        times(few).abs_diff(times(many)) > CHANCE
    };
    let differ: Vec<_> = few.keys().chain(many.keys()).filter(|told| differ(told)).collect();
    ensure!(
        differ.is_empty(),
        "at a restart {differ:?} depend on objects: {few:?} with few of them, {many:?} with many"
    );
    Ok(())
}

fn collections<'r>(reads: &[&'r Request], verb: &str) -> Collections<'r> {
    let mut collections = Collections::new();
    for request in reads {
        let asked = &request.asked;
        if asked.verb == verb && !asked.continues && request.told() != LISTED_ONCE {
            let collection = (&request.who, &*asked.resource, &*asked.namespace, &*asked.name);
            *collections.entry(collection).or_default() += 1;
        }
    }
    collections
}
