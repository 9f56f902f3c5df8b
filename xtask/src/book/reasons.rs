//! The page about troubleshooting names every reason of an error of the gRPC API.

use std::fs;

use anyhow::{Result, ensure};

use super::pages::docs;

const PROTO: &str = include_str!("../../../proto/kubebind/v1alpha2/errors.proto");

#[test]
fn every_reason_of_an_error_has_a_mend() -> Result<()> {
    let page = fs::read_to_string(docs().join("troubleshoot.md"))?;
    let names = PROTO
        .lines()
        .filter_map(|line| line.trim().strip_prefix("ERROR_REASON_")?.split_once(" = "));
    let names: Vec<_> = names
        .map(|(name, _)| name)
        .filter(|name| *name != "UNSPECIFIED")
        .collect();
    ensure!(names.len() > 30, "only {names:?}");
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !page.contains(&format!("`{name}`")))
        .collect();
    ensure!(missing.is_empty(), "docs/troubleshoot.md lacks {missing:?}");
    Ok(())
}
