//! `cargo xtask simulate --mutants`: shows that the simulator finds what it is made to find.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{
    mutant::{self, Mutant},
    program::{Simulator, Violation},
    report::{self, Row, Verdict},
};
use crate::{cargo::root, say::show, tree::TreeCopy};

/// Each mutant has to be found within this many seeds, if nothing else is said.
pub(super) const SEEDS: u64 = 10_000;

/// Where mutants are built, one after the other.
struct Workshop {
    tree: TreeCopy,
    folder: PathBuf,
    /// The build folder that all mutants share.
    target: PathBuf,
}

/// A mutant that was built, or could not be.
struct Built<'a> {
    mutant: &'a Mutant,
    simulator: Result<Simulator>,
    /// How long the build took.
    time: Duration,
}

/// The simulator without a mutant, and what its seeds violate that the track record does not list.
struct Sound {
    simulator: Simulator,
    log: PathBuf,
    /// The last seed that ran.
    last: u64,
    violations: Vec<Violation>,
}

/// Builds and runs these mutants, or all, and prints a table. While the seeds of one run, the next is built. Fails if one is not found
/// within this many seeds.
pub(super) fn run(names: &[String], seeds: u64) -> Result<()> {
    let mutants = &mutant::find(names)?;
    let workshop = &Workshop::open()?;
    let mut sound = workshop.sound()?;
    let (sender, built) = mpsc::sync_channel(1);
    let rows: Vec<_> = thread::scope(|scope| {
        // Sending fails if nobody judges any more.
        scope.spawn(move || {
            let mut all = mutants.iter();
            all.try_for_each(|mutant| sender.send(workshop.build(mutant)))
        });
        let judge = |built: Built<'_>| {
            let row = built.judge(seeds, &mut sound, workshop);
            eprintln!("==> {row}");
            row
        };
        built.iter().map(judge).collect()
    });
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
        for folder in [folder.join("logs"), folder.join("built")] {
            fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        Ok(Self {
            tree: TreeCopy::open(folder.join("tree"))?,
            target: folder.join("target"),
            folder,
        })
    }

    /// Builds the simulator without a mutant.
    fn sound(&self) -> Result<Sound> {
        eprintln!("==> the simulator without a mutant");
        Ok(Sound {
            simulator: self.build_as("sound")?,
            log: self.log("sound", "run"),
            last: 0,
            violations: Vec::new(),
        })
    }

    /// Builds a mutant. One that cannot be built does not stop the others.
    fn build<'a>(&self, mutant: &'a Mutant) -> Built<'a> {
        let start = Instant::now();
        let applied = self.tree.restore().and_then(|()| mutant.apply(self.tree.folder()));
        Built {
            mutant,
            simulator: applied.and_then(|()| self.build_as(mutant.name())),
            time: start.elapsed(),
        }
    }

    /// Builds the program of the copy as it is now, which stays under this name.
    fn build_as(&self, name: &str) -> Result<Simulator> {
        let log = self.log(name, "build");
        let built = Simulator::build_in(self.tree.folder(), &self.target, &log);
        let built = built.with_context(|| format!("see {}", log.display()))?;
        built.keep(self.folder.join("built").join(name))
    }

    /// Where what a program says about a mutant goes.
    fn log(&self, name: &str, what: &str) -> PathBuf {
        self.folder.join("logs").join(format!("{name}.{what}.log"))
    }
}

// === impl Built ===

impl Built<'_> {
    /// Runs a mutant until it is found. One that cannot be run does not stop the others.
    fn judge(self, seeds: u64, sound: &mut Sound, workshop: &Workshop) -> Row {
        let mut row = Row::new(self.mutant.name(), self.time);
        let log = workshop.log(self.mutant.name(), "run");
        let found = self.simulator.and_then(|simulator| {
            for finding in &self.mutant.reverts {
                let is_shown = simulator.is_violated_by(finding, &workshop.log(self.mutant.name(), finding))?;
                ensure!(is_shown, "scenario {finding} does not show that its mend is reverted");
            }
            row.reverted = self.mutant.reverts.join(", ");
            let found = find(&simulator, self.mutant, seeds, sound, &log, &mut row);
            simulator.remove()?;
            found
        });
        row.verdict = match found {
            Ok(Some(violation)) => Verdict::Found(violation),
            Ok(None) => Verdict::NotFound,
            Err(error) => Verdict::Failed(format!("{error:#}")),
        };
        row
    }
}

/// Returns the violation that shows a mutant, if a seed has one. The seed that found it last is tried before all others.
fn find(
    simulator: &Simulator,
    mutant: &Mutant,
    seeds: u64,
    sound: &mut Sound,
    log: &Path,
    row: &mut Row,
) -> Result<Option<Violation>> {
    let finders = &mutant.finders;
    if let Some(seed) = mutant.seen_by {
        let run = simulator.run_seeds(seed, seed, finders, log)?;
        row.add(&run);
        let of_sound = sound.simulator.run_seeds(seed, seed, finders, &sound.log)?.violations;
        let mut named = run.violations.into_iter().filter(|violation| violation.is_of(finders));
        let is_chance = |found: &Violation| of_sound.iter().any(|violation| violation.invariant == found.invariant);
        if let Some(violation) = named.find(|found| !is_chance(found)) {
            return Ok(Some(violation));
        }
    }
    let mut found = BTreeSet::new();
    let mut first = 1;
    while first <= seeds {
        let run = simulator.run_seeds(first, seeds, finders, log)?;
        row.add(&run);
        let named = run.violations.into_iter().filter(|violation| violation.is_of(finders));
        let named: Vec<_> = named.collect();
        let Some(seed) = named.first().map(|violation| violation.seed) else {
            break;
        };
        found.extend(named.into_iter().filter(|violation| violation.seed == seed));
        if let Some(violation) = shown_by(&found, sound.until(seed)?) {
            return Ok(Some(violation.clone()));
        }
        eprintln!(
            "==> {}: seed {seed} may be chance: without the mutant, seeds violate the same",
            row.mutant
        );
        first = seed + 1;
    }
    Ok(None)
}

// === impl Sound ===

impl Sound {
    /// How many seeds run at once: each run has to prepare its clusters first.
    const BLOCK: u64 = 100;

    /// What the seeds violate at least up to this one.
    fn until(&mut self, seed: u64) -> Result<&[Violation]> {
        if seed > self.last {
            let last = seed.next_multiple_of(Self::BLOCK);
            let run = self.simulator.run_seeds(self.last + 1, last, &[], &self.log)?;
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
