//! Counts the requests to the API server, and limits them.

use anyhow::{Result, ensure};
use bindery_e2e::{Asked, Audit, Moment};

use super::{
    Args, Step,
    contestant::Contestant,
    stage::{NAMESPACE, Turn},
};

/// Kinds of the set, times its namespaces.
const COLLECTIONS: usize = 1;
/// Discovery, in two requests, and the versions of the set.
const CONSTANT: usize = 3;
/// Writes of an apply besides those of objects: versions, Lease and history.
const BOOKS: usize = 12;

/// Requests of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) reads: usize,
    pub(super) writes: usize,
}

/// What a contestant asked since a moment.
pub(super) fn since(audit: &Audit, from: Moment, contestant: Contestant) -> Result<Counted> {
    let by = format!("system:serviceaccount:{NAMESPACE}:{}", contestant.account());
    let mut asked = audit.since(from)?;
    asked.retain(|asked| asked.by == by);
    let writes = asked.iter().filter(|asked| Asked::is_write(asked)).count();
    let reads = asked.len() - writes + audit.about_nothing_since(from, &by)?.len();
    Ok(Counted { reads, writes })
}

/// Fails where more was asked than has to be.
pub(super) fn check(turn: Turn, args: &Args, counted: &Counted) -> Result<()> {
    let objects = args.objects as usize;
    let Counted { reads, writes } = *counted;
    let holds = match (turn.contestant, turn.step) {
        (Contestant::Kubectl, _) => true,
        (Contestant::Bare, Step::Unchanged) => (reads, writes) == (1, 0),
        (Contestant::Bare, _) => (reads, writes) == (0, objects),
        (Contestant::Synk, Step::Unchanged) => writes == 0 && reads <= COLLECTIONS + CONSTANT,
        // Planned once before and once under the Lease, which is looked at as well.
        (Contestant::Synk, _) => writes <= objects + BOOKS && reads <= 4 * (COLLECTIONS + CONSTANT),
    };
    ensure!(
        holds,
        "{} by {}: {reads} reads and {writes} writes for {objects} objects",
        turn.step.name(),
        turn.contestant.name()
    );
    Ok(())
}
