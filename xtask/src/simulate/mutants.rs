//! `cargo xtask simulate --mutants`: shows that the simulator finds what it is made to find.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};

use super::{
    mutant::{self, Mutant},
    program::{SeedsRun, Simulator},
    report::{self, Row},
    tree::TreeCopy,
};
use crate::{cargo::root, say::show};

/// Each mutant has to be found within this many seeds.
const SEEDS: u64 = 10_000;
/// How many seeds in a row may be found that violate the same without the mutant.
const COINCIDENCES_MAX: u32 = 5;

/// Where mutants are built.
struct Workshop {
    tree: TreeCopy,
    /// The build folder that all mutants share.
    target: PathBuf,
    logs: PathBuf,
    /// The simulator without a mutant.
    sound: Simulator,
}

/// Builds and runs these mutants, or all, and prints a table. Fails if one is not found.
pub(super) fn run(names: &[String]) -> Result<()> {
    let mutants = mutant::find(names)?;
    let workshop = Workshop::open()?;
    let mut rows = Vec::new();
    for mutant in &mutants {
        let row = workshop.try_mutant(mutant)?;
        eprintln!("==> {row}");
        rows.push(row);
    }
    workshop.tree.restore()?;
    show(&report::table(&rows))?;
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

impl Workshop {
    fn open() -> Result<Self> {
        let folder = root().join("target/mutants");
        let (target, logs) = (folder.join("target"), folder.join("logs"));
        fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
        let tree = TreeCopy::open(folder.join("tree"))?;
        eprintln!("==> the simulator without a mutant");
        let sound = Simulator::build_in(tree.folder(), &target, &logs.join("sound.build.log"))?;
        Ok(Self {
            sound: sound.keep(folder.join("sound"))?,
            tree,
            target,
            logs,
        })
    }

    /// Builds a mutant and runs it until it is found.
    fn try_mutant(&self, mutant: &Mutant) -> Result<Row> {
        self.tree.restore()?;
        mutant.apply(self.tree.folder())?;
        let start = Instant::now();
        let built = Simulator::build_in(self.tree.folder(), &self.target, &self.log(mutant, "build"))
            .with_context(|| format!("mutant {}", mutant.name))?;
        let build_time = start.elapsed();
        let mut row = Row::new(&mutant.name, build_time);
        let mut first = 1;
        for _ in 0..COINCIDENCES_MAX {
            let run = built.run_until_violation(first, SEEDS + 1 - first, &self.log(mutant, "run"))?;
            row.add(&run);
            let Some(violation) = run.violation.clone() else {
                return Ok(row);
            };
            // A seed that fails without the mutant too shows nothing of the mutant.
            if !self.is_violated_anyway(&run, &self.log(mutant, "sound"))? {
                row.violation = Some(violation);
                return Ok(row);
            }
            eprintln!(
                "==> seed {} violates {} without the mutant too",
                violation.seed, violation.invariant
            );
            first = violation.seed + 1;
        }
        Ok(row)
    }

    /// Whether the seed of a violation violates the same invariant without the mutant.
    fn is_violated_anyway(&self, run: &SeedsRun, log: &Path) -> Result<bool> {
        let Some(violation) = &run.violation else {
            return Ok(false);
        };
        let sound = self.sound.run_until_violation(violation.seed, 1, log)?;
        Ok(sound
            .violation
            .is_some_and(|other| other.invariant == violation.invariant))
    }

    fn log(&self, mutant: &Mutant, what: &str) -> PathBuf {
        self.logs.join(format!("{}.{what}.log", mutant.name))
    }
}
