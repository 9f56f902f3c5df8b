//! Judges an installation: a pure function from facts to findings. `commands::check` gathers the facts.

mod bindings;
mod catalog;
mod certificate;
mod cluster;
mod contracts;
pub(crate) mod facts;
mod finding;
mod login;
mod policies;
mod program;
mod render;
mod rights;
mod versions;

pub(crate) use catalog::Check;
pub(crate) use finding::{Finding, Outcome, summary};
pub(crate) use render::{Marks, render};
pub(crate) use rights::{Right, rights};

use facts::Facts;
use finding::Findings;

/// Judges the facts, in the order in which findings are shown.
pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Findings::default();
    cluster::consumer(&facts.consumer, &facts.flags.consumer, &mut found);
    program::konnector(facts, &mut found);
    bindings::judge(facts, &mut found);
    contracts::judge(facts, &mut found);
    contracts::backends(facts, &mut found);
    if let Some(provider) = &facts.provider {
        cluster::provider(&provider.cluster, &mut found);
        program::server(provider, facts, &mut found);
        contracts::revocations(provider, &facts.flags.consumer, &mut found);
        login::judge(provider, &mut found);
    }
    found.into_list()
}

#[cfg(test)]
mod tests;
