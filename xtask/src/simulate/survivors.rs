//! The list of changes to planners that no unit test notices, each with the reason why none can, or need not.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result, bail, ensure};

use crate::cargo::root;

/// The file with the list. Each line is a change as cargo-mutants names it, without line and column, ` -- ` and the reason.
const LIST: &str = "simulator/mutants/survivors.txt";

/// Compares what cargo-mutants missed in these files with the list.
pub(super) fn check(missed: &str, files: &[&str]) -> Result<()> {
    let list = fs::read_to_string(root().join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    let explained = explained(&list)?;
    let missed: BTreeSet<_> = missed.lines().filter_map(without_place).collect();
    let new: Vec<_> = missed.difference(&explained).cloned().collect();
    let in_files = |change: &&String| files.iter().any(|file| change.starts_with(file));
    let stale: Vec<_> = explained.difference(&missed).filter(in_files).cloned().collect();
    ensure!(
        new.is_empty(),
        "no unit test notices these changes; write one, or explain them in {LIST}:\n{}",
        new.join("\n")
    );
    ensure!(
        stale.is_empty(),
        "{LIST} explains changes that are noticed or gone; remove them:\n{}",
        stale.join("\n")
    );
    eprintln!(
        "==> planners: every change is noticed, but for {} that are explained",
        missed.len()
    );
    Ok(())
}

/// Reads the changes of the list.
fn explained(list: &str) -> Result<BTreeSet<String>> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut changes = BTreeSet::new();
    for line in lines {
        match line.split_once(" -- ") {
            Some((change, reason)) if !reason.trim().is_empty() => changes.insert(change.to_owned()),
            _ => bail!("{LIST} does not say why this change may go unnoticed: {line}"),
        };
    }
    Ok(changes)
}

/// A change without its line and column, which move: `FILE:12:5: replace …` becomes `FILE: replace …`.
fn without_place(line: &str) -> Option<String> {
    let (file, rest) = line.split_once(':')?;
    let (_, rest) = rest.split_once(": ")?;
    Some(format!("{file}: {rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_known_without_its_place() {
        let line = "agent/src/bound/plan.rs:86:5: replace fresh -> Plan with Default::default()";
        let change = without_place(line).unwrap();
        assert_eq!(
            change,
            "agent/src/bound/plan.rs: replace fresh -> Plan with Default::default()"
        );
        let list = format!("# head\n\n{change} -- nothing depends on it\n");
        assert_eq!(explained(&list).unwrap(), BTreeSet::from([change.clone()]));
        assert!(explained(&change).is_err(), "without a reason");
    }

    #[test]
    fn the_list_can_be_read() {
        explained(&fs::read_to_string(root().join(LIST)).unwrap()).unwrap();
    }
}
