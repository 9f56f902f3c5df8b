//! What is checked in every cell, where all is adopted.

mod adopted;
mod conflicts;
mod ending;
mod names;
mod owned;
mod refused;

use std::pin::Pin;

use anyhow::{Result, bail};
use bindery_e2e::run;
use futures::future::join_all;

use crate::{
    bench::Bench,
    cells::{Cell, NN, Place},
    counts, world,
};

/// An aspect under way.
pub(crate) type Aspect<'a> = (&'static str, Pin<Box<dyn Future<Output = Result<()>> + 'a>>);

/// Checks all aspects of a cell. Those that do not disturb one another run at the same time.
pub(crate) fn check(cell: &'static Cell) -> Result<()> {
    run(async {
        let world = world::get().await?;
        let outcome = async {
            let bench = Bench::start(world, cell).await?;
            all(cell, together(&bench)).await?;
            for aspect in one_by_one(&bench) {
                all(cell, vec![aspect]).await?;
            }
            Ok(())
        };
        let outcome: Result<()> = outcome.await;
        outcome.map_err(|error| world.tails(&error.context(format!("cell {}", cell.name))))
    })
}

fn together(bench: &Bench) -> Vec<Aspect<'_>> {
    let side = &bench.side;
    let mut aspects = vec![
        aspect("as the provider has it", adopted::as_the_provider_has_it(side)),
        aspect("asked for", adopted::the_wish_goes_with_its_fulfilment(side)),
        aspect("owned", owned::what_the_consumer_changes_goes_up(side)),
        aspect("copy deleted on the provider", owned::a_lost_copy_comes_back(side)),
        aspect("deletion", owned::deleting_waits_for_the_provider(side)),
        aspect("never adopted", refused::what_has_other_marks_stays(side)),
        aspect("conflict", conflicts::two_that_differ_are_left(side)),
        aspect("link", conflicts::two_that_say_the_same_are_one(side)),
    ];
    if bench.cell.name == NN.name {
        // It takes a while, and is the same in all of them.
        aspects.push(aspect(
            "namespace deleted",
            names::a_namespace_takes_its_objects_along(side),
        ));
    }
    match bench.cell.place {
        Place::Mapped => aspects.push(aspect("namespaces", names::namespaces_come_as_they_are_needed(side))),
        Place::Prefixed => aspects.push(aspect("long names", names::a_shortened_name_is_not_guessed(side))),
        Place::None | Place::Contract | Place::Beside => {}
    }
    aspects
}

fn one_by_one(bench: &Bench) -> Vec<Aspect<'_>> {
    let side = &bench.side;
    vec![
        aspect("write counts", counts::an_adoption_costs_few_writes(side)),
        aspect("pause of the binding", ending::nothing_is_adopted_while_paused(side)),
        aspect("unbind", ending::nothing_is_adopted_while_it_drains(side)),
    ]
}

pub(crate) fn aspect<'a>(name: &'static str, future: impl Future<Output = Result<()>> + 'a) -> Aspect<'a> {
    (name, Box::pin(future))
}

/// Runs aspects at the same time and tells of all that failed.
pub(crate) async fn all(cell: &Cell, aspects: Vec<Aspect<'_>>) -> Result<()> {
    let running = aspects.into_iter().map(async |(name, aspect)| (name, aspect.await));
    let outcomes = join_all(running).await;
    let failed: Vec<_> = outcomes
        .into_iter()
        .filter_map(|(name, outcome)| outcome.err().map(|error| format!("aspect {name}: {error:#}")))
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    bail!("cell {}, {} failed:\n{}", cell.name, failed.len(), failed.join("\n"))
}
