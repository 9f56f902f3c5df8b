//! The page of conditions lists what bundles say.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

const PAGE: &str = include_str!("../../../docs/reference/bundle-conditions.md");
/// Where the reasons of a bundle's own conditions are.
const SOURCES: [&str; 3] = [
    include_str!("../../../agent/src/bundle/hold.rs"),
    include_str!("../../../agent/src/bundle/status.rs"),
    include_str!("../../../agent/src/binding/credential.rs"),
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
fn every_reason_has_a_row() -> Result<()> {
    let all: BTreeSet<_> = SOURCES.into_iter().flat_map(reasons).collect();
    ensure!(
        all.contains("SyncErrors") && all.contains("KubeconfigUnsafe"),
        "found {all:?}"
    );
    let missing: Vec<_> = all
        .iter()
        .filter(|reason| !PAGE.contains(&format!("\n| `{reason}` |")))
        .collect();
    ensure!(
        missing.is_empty(),
        "docs/reference/bundle-conditions.md does not list {missing:?}"
    );
    Ok(())
}
