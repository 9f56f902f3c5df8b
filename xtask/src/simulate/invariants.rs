//! The names of the simulator's invariants. They are read from its source, so that the developer's commands build without it.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::cargo::root;

/// The file that declares the invariants.
const SOURCE: &str = "simulator/src/invariants/violation.rs";

/// The names of all invariants.
pub(super) fn names() -> Result<Vec<String>> {
    let source = fs::read_to_string(root().join(SOURCE)).with_context(|| format!("cannot read {SOURCE}"))?;
    let names = variants(&source);
    ensure!(!names.is_empty(), "{SOURCE} declares no enum Invariant");
    Ok(names)
}

/// The variants of the enum `Invariant`, none of which has fields.
fn variants(source: &str) -> Vec<String> {
    source
        .lines()
        .skip_while(|line| *line != "pub enum Invariant {")
        .skip(1)
        .take_while(|line| *line != "}")
        .filter_map(|line| line.trim().strip_suffix(','))
        .filter(|name| name.chars().all(char::is_alphanumeric))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_variants_are_read() {
        let source = concat!(
            "pub enum Other {\n    A,\n}\n",
            "pub enum Invariant {\n    /// A doc, with a comma,\n    Hang,\n    Panic,\n}\n",
            "    B,\n",
        );
        assert_eq!(variants(source), ["Hang", "Panic"]);
        assert!(names().unwrap().contains(&"NotConverged".to_owned()));
    }
}
