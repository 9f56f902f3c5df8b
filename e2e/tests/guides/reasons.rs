//! Pages list what is said: the conditions of bundles, and the failures of synk.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

const PAGE: &str = include_str!("../../../docs/reference/bundle-conditions.md");
/// Where the reasons of a bundle's own conditions are.
const SOURCES: [&str; 3] = [
    include_str!("../../../agent/src/bundle/blocker.rs"),
    include_str!("../../../agent/src/bundle/status.rs"),
    include_str!("../../../agent/src/controller/access.rs"),
];

const SYNK: &str = include_str!("../../../docs/reference/synk.md");
/// Where the reasons of synk's failures are.
const SYNK_SOURCES: [&str; 2] = [
    include_str!("../../../synk/src/errors.rs"),
    include_str!("../../../synk/src/cli/errors.rs"),
];

/// The words that a match answers with, outside of tests.
fn reasons(source: &str) -> BTreeSet<&str> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let words = code.split("=> \"").skip(1).filter_map(|rest| rest.split('"').next());
    let is_reason = |word: &&str| {
        word.starts_with(|first: char| first.is_ascii_uppercase()) && word.chars().all(char::is_alphabetic)
    };
    words.filter(is_reason).collect()
}

#[test]
fn every_reason_of_a_bundle_has_a_row() -> Result<()> {
    check(&SOURCES, PAGE, &["SyncErrors", "KubeconfigUnsafe"])
}

#[test]
fn every_reason_of_synk_has_a_row() -> Result<()> {
    check(&SYNK_SOURCES, SYNK, &["StalePlan", "NoConnection"])
}

/// All reasons of these sources, which `known` are among, have a row of their own.
fn check(sources: &[&'static str], page: &str, known: &[&str]) -> Result<()> {
    let all: BTreeSet<_> = sources.iter().copied().flat_map(reasons).collect();
    ensure!(known.iter().all(|known| all.contains(known)), "found {all:?}");
    let has_row = |reason: &str| page.contains(&format!("\n| `{reason}` |"));
    let missing: Vec<_> = all.iter().filter(|reason| !has_row(reason)).collect();
    ensure!(missing.is_empty(), "these have no row: {missing:?}");
    Ok(())
}
