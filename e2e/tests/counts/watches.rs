//! The watches that are held once everything is in sync.

use anyhow::{Result, ensure};
use bindery_api::v1alpha2::InformerScope;
use bindery_e2e::NAMESPACE;

use crate::{
    asked::{self, Mark, Who},
    world::{PLACES, World},
};

/// What a contract itself is known by.
const OF_THE_CONTRACT: [&str; 3] = ["apiservicenamespaces", "boundschemas", "clusterbindings"];
/// What the konnector follows on its own cluster: what it is to do, what is bound and what is claimed.
const ON_THE_CONSUMER: [&str; 7] = [
    "apiservicebindingbundles",
    "apiservicebindings",
    "configmaps",
    "cowboys",
    "customresourcedefinitions",
    "namespaces",
    "secrets",
];

/// Those that were begun since both programs began, and no other, each once.
pub(crate) fn are_held_once(world: &World, scope: InformerScope, began: Mark) -> Result<()> {
    let requests = asked::between(world, began, None)?;
    let held = |who: Who| {
        let watches = requests
            .iter()
            .filter(|request| request.who == who && request.asked.is_watch());
        let mut held: Vec<_> = watches
            .map(|watch| (watch.asked.resource.clone(), watch.asked.namespace.clone()))
            .collect();
        held.sort();
        held
    };

    let mut wanted: Vec<_> = ON_THE_CONSUMER.iter().map(|resource| watch(resource, "")).collect();
    // Its own Secrets, which no claim selects.
    wanted.push(watch("secrets", NAMESPACE));
    check("the consumer", &held(Who::Konnector), wanted)?;

    let mut wanted: Vec<_> = OF_THE_CONTRACT
        .iter()
        .map(|resource| watch(resource, &world.contract))
        .collect();
    for resource in ["configmaps", "cowboys", "secrets"] {
        // Nobody may read all Secrets of a provider.
        if scope == InformerScope::Cluster && resource != "secrets" {
            wanted.push(watch(resource, ""));
        } else {
            wanted.extend(PLACES.map(|place| watch(resource, &world.there(place))));
        }
    }
    check("the provider", &held(Who::Binder), wanted)?;

    // The server's are as many however many contracts there are.
    let of_one: Vec<_> = held(Who::Server)
        .into_iter()
        .filter(|(_, namespace)| namespace.contains(&world.contract))
        .collect();
    ensure!(of_one.is_empty(), "the server watches for one contract: {of_one:?}");
    Ok(())
}

fn watch(resource: &str, namespace: &str) -> (String, String) {
    (resource.to_owned(), namespace.to_owned())
}

fn check(place: &str, held: &[(String, String)], mut wanted: Vec<(String, String)>) -> Result<()> {
    wanted.sort();
    ensure!(
        held == wanted,
        "watched on {place}: {held:#?}; this was to be: {wanted:#?}"
    );
    Ok(())
}
