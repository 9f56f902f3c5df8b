//! Counts the requests of a contestant to the API server, and fails if there are more than needed.

use anyhow::{Result, ensure};
use bindery_e2e::{Asked, Audit, Moment};

use super::{
    Args, Step,
    contestant::Contestant,
    stage::{NAMESPACE, Turn},
};

/// Collections that synk lists: kinds of the set times its namespaces.
const COLLECTIONS: usize = 1;
/// Reads that do not depend on the set's objects: two for discovery, and one for the versions of the set.
const CONSTANT: usize = 3;
/// Writes of an apply besides those of objects: versions, Lease and history.
const BOOKS: usize = 12;

/// Numbers of requests of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) reads: usize,
    pub(super) writes: usize,
}

/// Counts the requests of a contestant since a moment.
pub(super) fn since(audit: &Audit, from: Moment, contestant: Contestant) -> Result<Counted> {
    let by = format!("system:serviceaccount:{NAMESPACE}:{}", contestant.account());
    let mut asked = audit.since(from)?;
    asked.retain(|asked| asked.by == by);
    let writes = asked.iter().filter(|asked| Asked::is_write(asked)).count();
    let reads = asked.len() - writes + audit.about_nothing_since(from, &by)?.len();
    Ok(Counted { reads, writes })
}

/// Fails if a contestant made more requests than its turn needs.
pub(super) fn check(turn: Turn, args: &Args, counted: &Counted) -> Result<()> {
    let objects = args.objects as usize;
    let Counted { reads, writes } = *counted;
    let holds = match (turn.contestant, turn.step) {
        (Contestant::Kubectl, _) => true,
        (Contestant::Bare, Step::Unchanged) => (reads, writes) == (1, 0),
        (Contestant::Bare, _) => (reads, writes) == (0, objects),
        (Contestant::Synk, Step::Unchanged) => writes == 0 && reads <= COLLECTIONS + CONSTANT,
        // Synk plans once before it takes the Lease and once under it, and reads the Lease as well.
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
