//! `cargo xtask simulate --mutants`: shows that the simulator finds what it is made to find.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};

use super::{
    mutant::{self, Mutant},
    program::{Simulator, Violation},
    report::{self, Row, Verdict},
    tree::TreeCopy,
};
use crate::{cargo::root, say::show};

/// Each mutant has to be found within this many seeds.
const SEEDS: u64 = 10_000;

/// Where mutants are built, one after the other.
struct Workshop {
    tree: TreeCopy,
    /// The build folder that all mutants share.
    target: PathBuf,
    logs: PathBuf,
    sound: Sound,
}

/// The simulator without a mutant, and what its seeds violate that the track record does not list.
struct Sound {
    simulator: Simulator,
    /// The last seed that ran.
    last: u64,
    violations: Vec<Violation>,
}

/// Builds and runs these mutants, or all, and prints a table. Fails if one is not found.
pub(super) fn run(names: &[String]) -> Result<()> {
    let mutants = mutant::find(names)?;
    let mut workshop = Workshop::open()?;
    let mut rows = Vec::new();
    for mutant in &mutants {
        let row = workshop.judge(mutant);
        eprintln!("==> {row}");
        rows.push(row);
    }
    show(&report::table(&rows))?;
    workshop.tree.restore()?;
    let lost: Vec<_> = rows.iter().filter(|row| !row.is_found()).collect();
    let lost: Vec<_> = lost.iter().map(|row| row.mutant.as_str()).collect();
    ensure!(
        lost.is_empty(),
        "{} of {} mutants were not found: {}",
        lost.len(),
        rows.len(),
        lost.join(", ")
    );
    Ok(())
}

/// The first violation up to whose seed more than twice as many seeds violate its invariant as without the mutant. A mutant moves the
/// schedule of a seed, so a violation that the sound program shows as often is chance.
fn shown_by<'a>(found: &'a BTreeSet<Violation>, sound: &[Violation]) -> Option<&'a Violation> {
    found.iter().find(|violation| {
        let is_counted = |other: &&Violation| other.invariant == violation.invariant && other.seed <= violation.seed;
        seeds_of(found.iter().filter(is_counted)) > 2 * seeds_of(sound.iter().filter(is_counted))
    })
}

/// How many seeds show these violations.
fn seeds_of<'a>(violations: impl Iterator<Item = &'a Violation>) -> usize {
    violations
        .map(|violation| violation.seed)
        .collect::<BTreeSet<_>>()
        .len()
}

// === impl Workshop ===

impl Workshop {
    fn open() -> Result<Self> {
        let folder = root().join("target/mutants");
        let (target, logs) = (folder.join("target"), folder.join("logs"));
        fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
        let tree = TreeCopy::open(folder.join("tree"))?;
        eprintln!("==> the simulator without a mutant");
        let simulator = Simulator::build_in(tree.folder(), &target, &logs.join("sound.build.log"))?;
        Ok(Self {
            sound: Sound {
                simulator: simulator.keep(folder.join("sound"))?,
                last: 0,
                violations: Vec::new(),
            },
            tree,
            target,
            logs,
        })
    }

    /// Builds a mutant and runs it until it is found. One that cannot be built or run does not stop the others.
    fn judge(&mut self, mutant: &Mutant) -> Row {
        let mut row = Row::new(&mutant.name);
        row.verdict = match self.find(mutant, &mut row) {
            Ok(Some(violation)) => Verdict::Found(violation),
            Ok(None) => Verdict::NotFound,
            Err(error) => Verdict::Failed(format!("{error:#}")),
        };
        row
    }

    /// Returns the violation that shows a mutant, if a seed has one.
    fn find(&mut self, mutant: &Mutant, row: &mut Row) -> Result<Option<Violation>> {
        self.tree.restore()?;
        mutant.apply(self.tree.folder())?;
        let log = |what| self.logs.join(format!("{}.{what}.log", mutant.name));
        let (build_log, run_log) = (log("build"), log("run"));
        let start = Instant::now();
        let built = Simulator::build_in(self.tree.folder(), &self.target, &build_log);
        row.build = start.elapsed();
        let built = built.with_context(|| format!("see {}", build_log.display()))?;
        let mut found = BTreeSet::new();
        let mut first = 1;
        while first <= SEEDS {
            let run = built.run_seeds(first, SEEDS, &mutant.finders, &run_log)?;
            row.add(&run);
            let is_named = |violation: &Violation| violation.is_of(&mutant.finders);
            let named: Vec<_> = run.violations.into_iter().filter(is_named).collect();
            let Some(seed) = named.first().map(|violation| violation.seed) else {
                break;
            };
            found.extend(named.into_iter().filter(|violation| violation.seed == seed));
            let sound = self.sound.until(seed, &self.logs.join("sound.run.log"))?;
            if let Some(violation) = shown_by(&found, sound) {
                return Ok(Some(violation.clone()));
            }
            eprintln!(
                "==> {}: seed {seed} may be chance: without the mutant, seeds violate the same",
                mutant.name
            );
            first = seed + 1;
        }
        Ok(None)
    }
}

// === impl Sound ===

impl Sound {
    /// How many seeds run at once: each run has to prepare its clusters first.
    const BLOCK: u64 = 100;

    /// What the seeds violate at least up to this one.
    fn until(&mut self, seed: u64, log: &Path) -> Result<&[Violation]> {
        if seed > self.last {
            let last = seed.next_multiple_of(Self::BLOCK);
            let run = self.simulator.run_seeds(self.last + 1, last, &[], log)?;
            self.violations.extend(run.violations);
            self.last = last;
        }
        Ok(&self.violations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A violation of this invariant for each of these seeds.
    fn violations(invariant: &str, seeds: &[u64]) -> Vec<Violation> {
        let of = |seed: &u64| Violation {
            seed: *seed,
            invariant: invariant.to_owned(),
            sentence: String::new(),
        };
        seeds.iter().map(of).collect()
    }

    #[track_caller]
    fn check(found: &[u64], sound: &[Violation], expect: Option<u64>) {
        let found: BTreeSet<_> = violations("Evidence", found).into_iter().collect();
        let seed = shown_by(&found, sound).map(|violation| violation.seed);
        assert_eq!(seed, expect, "{sound:?}");
    }

    #[test]
    fn what_seeds_violate_as_often_without_the_mutant_is_chance() {
        check(&[], &[], None);
        check(&[7], &[], Some(7));
        check(&[7], &violations("Other", &[3]), Some(7));
        check(&[7], &violations("Evidence", &[9]), Some(7));
        let sound = violations("Evidence", &[3]);
        check(&[7], &sound, None);
        check(&[7, 8], &sound, None);
        check(&[7, 8, 20], &sound, Some(20));
        check(&[2], &sound, Some(2));
    }
}
