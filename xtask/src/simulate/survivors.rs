//! The list of changes to planners that no unit test notices, each with the reason why none can, or need not.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, bail, ensure};

use crate::cargo::root;

/// The file with the list. Each line is a change as cargo-mutants names it, without line and column, ` -- ` and the reason. Changes of
/// different lines may have the same name; the list then has one line for each.
const LIST: &str = "simulator/mutants/survivors.txt";

/// How often there is a change of each name.
type ChangeCounts = BTreeMap<String, usize>;

/// Compares what cargo-mutants missed in these files with the list.
pub(super) fn check(missed: &str, files: &[&str]) -> Result<()> {
    let list = fs::read_to_string(root().join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    let explained = explained(&list)?;
    let missed = counts(missed.lines().filter_map(without_place));
    let new = surplus(&missed, &explained);
    let mut stale = surplus(&explained, &missed);
    stale.retain(|change| files.iter().any(|file| change.starts_with(file)));
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
        missed.values().sum::<usize>()
    );
    Ok(())
}

fn counts(changes: impl IntoIterator<Item = String>) -> ChangeCounts {
    let mut counts = ChangeCounts::new();
    for change in changes {
        *counts.entry(change).or_default() += 1;
    }
    counts
}

/// The changes that are counted more often here than in `others`.
fn surplus(counts: &ChangeCounts, others: &ChangeCounts) -> Vec<String> {
    let more = counts
        .iter()
        .filter(|(change, number)| **number > others.get(*change).copied().unwrap_or_default());
    more.map(|(change, _)| change.clone()).collect()
}

/// Reads the changes of the list.
fn explained(list: &str) -> Result<ChangeCounts> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut changes = Vec::new();
    for line in lines {
        match line.split_once(" -- ") {
            Some((change, reason)) if !reason.trim().is_empty() => changes.push(change.to_owned()),
            _ => bail!("{LIST} does not say why this change may go unnoticed: {line}"),
        }
    }
    Ok(counts(changes))
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
        assert_eq!(explained(&list).unwrap(), ChangeCounts::from([(change.clone(), 1)]));
        assert!(explained(&change).is_err(), "without a reason");
    }

    #[test]
    fn a_change_that_is_explained_once_does_not_explain_another_one_of_its_name() {
        let of = |number| counts(vec!["plan.rs: replace && with || in plan".to_owned(); number]);
        assert_eq!(surplus(&of(2), &of(1)).len(), 1);
        assert!(surplus(&of(1), &of(1)).is_empty());
        assert!(surplus(&of(1), &of(2)).is_empty());
        assert!(surplus(&of(0), &of(1)).is_empty());
    }

    #[test]
    fn the_list_can_be_read() {
        explained(&fs::read_to_string(root().join(LIST)).unwrap()).unwrap();
    }
}
