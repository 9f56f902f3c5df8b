//! The mutants: patches of `simulator/mutants`, each of which breaks shipped code in one way.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail, ensure};

use super::invariants;
use crate::{cargo::root, patch::Patch};

/// The folder of the patches.
const FOLDER: &str = "simulator/mutants";
/// What the line in front of a patch begins with that names the invariants of which one has to find it.
const FOUND_BY: &str = "# Found by: ";
/// What the line in front of a patch begins with that names the findings of the track record whose mend it reverts: their scenarios
/// have to show them again.
const REVERTS: &str = "# Reverts the mend of: ";
/// What the line in front of a patch begins with that names the seed that found it last. It is tried first, which spares the search.
const SEEN_BY: &str = "# Seen by: seed ";
/// The list of findings.
const TRACK_RECORD: &str = "simulator/track-record.json";
/// The folders of code that the simulator runs. A mutant of anything else shows nothing.
const SHIPPED: [&str; 5] = [
    "agent/src/",
    "runtime/src/",
    "sdk/api/src/",
    "sdk/rust/src/",
    "server/src/",
];

/// A patch of shipped code that the simulator has to find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mutant {
    patch: Patch,
    /// The invariants of which one has to find it.
    pub(super) finders: Vec<String>,
    /// The seed that found it last.
    pub(super) seen_by: Option<u64>,
    /// The findings whose mend it reverts.
    pub(super) reverts: Vec<String>,
}

/// All mutants, or those of these names. Those of one crate follow one another, so that cargo builds little anew.
pub(super) fn find(names: &[String]) -> Result<Vec<Mutant>> {
    let mut all: Vec<_> = Patch::all(FOLDER)?.into_iter().map(Mutant::of).collect();
    // Stable, so that those of one folder keep their order.
    all.sort_by_key(Mutant::folder);
    if let Some(unknown) = names
        .iter()
        .find(|name| all.iter().all(|mutant| mutant.name() != *name))
    {
        let known: Vec<_> = all.iter().map(Mutant::name).collect();
        bail!("there is no mutant {unknown:?}; choose of: {}", known.join(", "));
    }
    all.retain(|mutant| names.is_empty() || names.iter().any(|name| name == mutant.name()));
    Ok(all)
}

/// Checks that every mutant applies to this tree, says what it breaks and which invariants find that, and changes shipped code alone.
pub(crate) fn check_all() -> Result<()> {
    let all = find(&[])?;
    let (invariants, findings) = (invariants::names()?, findings()?);
    let broken = all
        .iter()
        .filter_map(|mutant| mutant.check(&invariants, &findings).err());
    let broken: Vec<_> = broken.map(|error| format!("{error:#}")).collect();
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    eprintln!("==> mutants: {} apply", all.len());
    Ok(())
}

// === impl Mutant ===

impl Mutant {
    fn of(patch: Patch) -> Self {
        Self {
            finders: patch.named(FOUND_BY),
            seen_by: patch.named(SEEN_BY).first().and_then(|seed| seed.parse().ok()),
            reverts: patch.named(REVERTS),
            patch,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.patch.name
    }

    /// The folder of shipped code that it changes; empty if there is none.
    fn folder(&self) -> &'static str {
        let is_changed = |folder: &&str| self.patch.files.iter().any(|file| file.starts_with(*folder));
        SHIPPED.into_iter().find(is_changed).unwrap_or_default()
    }

    /// Applies the patch in a copy of the tree.
    pub(super) fn apply(&self, tree: &Path) -> Result<()> {
        self.patch.apply(tree)
    }

    fn check(&self, invariants: &[String], findings: &[String]) -> Result<()> {
        let name = self.name();
        ensure!(!self.finders.is_empty(), "mutant {name} has no line {FOUND_BY:?}");
        if let Some(unknown) = self.finders.iter().find(|finder| !invariants.contains(finder)) {
            bail!("mutant {name} is to be found by {unknown:?}, which is no invariant");
        }
        if let Some(unknown) = self.reverts.iter().find(|finding| !findings.contains(finding)) {
            bail!("mutant {name} reverts the mend of {unknown:?}, which {TRACK_RECORD} does not list");
        }
        self.patch.check(&SHIPPED)
    }
}

/// The findings of the track record.
fn findings() -> Result<Vec<String>> {
    let text = fs::read_to_string(root().join(TRACK_RECORD)).with_context(|| format!("cannot read {TRACK_RECORD}"))?;
    let record: serde_json::Value = serde_json::from_str(&text)?;
    let findings = record["findings"].as_array().into_iter().flatten();
    Ok(findings
        .filter_map(|finding| finding["id"].as_str().map(str::to_owned))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_that_no_invariant_can_find_is_refused() {
        let mut mutant = find(&["lease-stolen".to_owned()]).unwrap().remove(0);
        let known = mutant.finders.clone();
        mutant.check(&known, &[]).unwrap();
        mutant.finders.push("Nothing".to_owned());
        let refused = mutant.check(&known, &[]).unwrap_err().to_string();
        assert!(refused.ends_with("\"Nothing\", which is no invariant"), "{refused}");
    }

    #[test]
    fn each_finding_of_the_first_look_has_a_mutant_that_reverts_its_mend() {
        let all = find(&[]).unwrap();
        let reverted: Vec<_> = all.iter().flat_map(|mutant| &mutant.reverts).collect();
        let firsts = findings().unwrap().into_iter().filter(|id| id.starts_with('D'));
        for finding in firsts {
            assert!(reverted.contains(&&finding), "{finding}");
        }
    }

    #[test]
    fn mutants_are_known_by_name() {
        let all = find(&[]).unwrap();
        assert!(all.len() >= 20, "{}", all.len());
        let one = find(&["lease-stolen".to_owned()]).unwrap();
        assert_eq!(one.len(), 1);
        let unknown = find(&["lease".to_owned()]).unwrap_err().to_string();
        assert!(
            unknown.starts_with("there is no mutant \"lease\"") && unknown.contains("lease-stolen"),
            "{unknown}"
        );
    }

    #[test]
    fn each_mutant_applies() {
        check_all().unwrap();
    }
}
