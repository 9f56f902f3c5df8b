//! What is checked in every cell.

mod claims;
mod deletion;
mod objects;
mod paused;
pub(crate) mod provider_owned;
mod refused;
mod rejected;
pub(crate) mod stretched;
mod unbind;

use std::pin::Pin;

use anyhow::{Result, bail};
use bindery_api::v1alpha2::Scope;
use bindery_e2e::run;
use futures::future::join_all;

use crate::{bench::Bench, cells::Cell, counts, isolation, kinds::Kind, world};

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
    let mut aspects = vec![
        aspect("spec up", objects::spec_goes_up(bench)),
        aspect("status down", objects::status_comes_down(bench)),
        aspect("labels and annotations", objects::labels_and_annotations(bench)),
        aspect("field removal", objects::a_removed_field_goes(bench)),
        aspect("copy deleted on the provider", objects::a_lost_copy_comes_back(bench)),
        aspect("pause", paused::object(bench)),
        aspect("deletion", deletion::deleting_waits_for_the_provider(bench)),
        aspect("long names", stretched::names_that_do_not_fit(bench)),
        aspect("isolation", isolation::out_of_reach(bench, Kind::Bound)),
        aspect("write counts", counts::each_change_is_written_once(bench)),
        aspect("claims by label", claims::by_label(bench)),
        aspect("claims by name", claims::by_name(bench)),
        aspect("claims by reference", claims::by_reference(bench)),
        aspect("claims of the provider's", provider_owned::by_label(bench)),
        aspect(
            "claims of the provider's by reference",
            provider_owned::by_reference(bench),
        ),
        aspect("claims in conflict", claims::in_conflict(bench)),
        aspect("claims: token Secrets", refused::token_secrets(bench)),
        aspect("claims: isolation", isolation::out_of_reach(bench, Kind::Secret)),
        aspect("claims: write counts", counts::each_change_of_a_claimed_one_too(bench)),
    ];
    if bench.cell.is_preseeded() {
        aspects.push(aspect(
            "claims in a preseeded namespace",
            provider_owned::preseeded(bench),
        ));
    }
    if bench.cell.consumer_scope() == Scope::Namespaced {
        aspects.push(aspect(
            "claims in long namespaces",
            stretched::claims_in_long_namespaces(bench),
        ));
    }
    aspects
}

fn one_by_one(bench: &Bench) -> Vec<Aspect<'_>> {
    vec![
        aspect("claims: token Secrets, in the end", refused::were_never_copied(bench)),
        aspect("pause of the binding", paused::binding(bench)),
        aspect("claims: rejected", rejected::its_copies_are_withdrawn(bench)),
        aspect("unbind", unbind::nothing_is_left_of_one_and_all_of_the_other(bench)),
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
