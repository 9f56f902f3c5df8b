//! The mutants: patches of `simulator/mutants`, each of which breaks shipped code in one way.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::invariants;
use crate::cargo::root;

/// The folder of the patches.
const FOLDER: &str = "simulator/mutants";
/// What the line in front of a patch begins with that says what is broken.
const BROKEN: &str = "# Broken: ";
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

/// A patch of shipped code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mutant {
    pub(super) name: String,
    /// The invariants of which one has to find it.
    pub(super) finders: Vec<String>,
    /// The seed that found it last.
    pub(super) seen_by: Option<u64>,
    /// The findings whose mend it reverts.
    pub(super) reverts: Vec<String>,
    /// The files that it changes.
    files: Vec<String>,
    is_described: bool,
    path: PathBuf,
}

/// All mutants, or those of these names. Those of one crate follow one another, so that cargo builds little anew.
pub(super) fn find(names: &[String]) -> Result<Vec<Mutant>> {
    let folder = root().join(FOLDER);
    let mut all = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("patch")) {
            all.push(Mutant::read(path)?);
        }
    }
    all.sort_by(|one, other| (one.folder(), &one.name).cmp(&(other.folder(), &other.name)));
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|mutant| mutant.name != **name)) {
        let known: Vec<_> = all.iter().map(|mutant| mutant.name.as_str()).collect();
        bail!("there is no mutant {unknown:?}; choose of: {}", known.join(", "));
    }
    all.retain(|mutant| names.is_empty() || names.contains(&mutant.name));
    Ok(all)
}

/// Checks that every mutant applies to this tree, says what it breaks and which invariants find that, and changes shipped code alone.
pub(crate) fn check_all() -> Result<()> {
    let all = find(&[])?;
    ensure!(!all.is_empty(), "{FOLDER} has no mutants");
    let invariants = invariants::names()?;
    let findings = findings()?;
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
    fn read(path: PathBuf) -> Result<Self> {
        let name = path.file_stem().and_then(OsStr::to_str);
        let name = name.context("a mutant has a name that is not UTF-8")?.to_owned();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read mutant {name}"))?;
        let changed = text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
        Ok(Self {
            finders: named(&text, FOUND_BY),
            seen_by: named(&text, SEEN_BY).first().and_then(|seed| seed.parse().ok()),
            reverts: named(&text, REVERTS),
            files: changed.map(str::to_owned).collect(),
            is_described: text.starts_with(BROKEN),
            name,
            path,
        })
    }

    /// The folder of shipped code that it changes; empty if there is none.
    fn folder(&self) -> &'static str {
        let is_changed = |folder: &&str| self.files.iter().any(|file| file.starts_with(*folder));
        SHIPPED.into_iter().find(is_changed).unwrap_or_default()
    }

    /// Applies the patch in a copy of the tree.
    pub(super) fn apply(&self, tree: &Path) -> Result<()> {
        self.git(tree, &[])
    }

    fn check(&self, invariants: &[String], findings: &[String]) -> Result<()> {
        let name = &self.name;
        ensure!(self.is_described, "mutant {name} does not begin with {BROKEN:?}");
        ensure!(!self.finders.is_empty(), "mutant {name} has no line {FOUND_BY:?}");
        if let Some(unknown) = self.finders.iter().find(|finder| !invariants.contains(finder)) {
            bail!("mutant {name} is to be found by {unknown:?}, which is no invariant");
        }
        if let Some(unknown) = self.reverts.iter().find(|finding| !findings.contains(finding)) {
            bail!("mutant {name} reverts the mend of {unknown:?}, which {TRACK_RECORD} does not list");
        }
        ensure!(!self.files.is_empty(), "mutant {name} changes no file");
        let is_shipped = |file: &String| SHIPPED.iter().any(|folder| file.starts_with(folder));
        if let Some(other) = self.files.iter().find(|file| !is_shipped(file)) {
            bail!("mutant {name} changes {other}, which the simulator does not run");
        }
        self.git(&root(), &["--check"])
    }

    fn git(&self, tree: &Path, options: &[&str]) -> Result<()> {
        // In a repository git would take paths from its top, and skip what is outside of the folder.
        let above = tree.parent().unwrap_or(tree);
        let output = Command::new("git")
            .args(["apply", "--whitespace=nowarn"])
            .args(options)
            .arg(&self.path)
            .env("GIT_CEILING_DIRECTORIES", above)
            .env_remove("GIT_DIR")
            .current_dir(tree)
            .output()
            .context("cannot run git")?;
        ensure!(
            output.status.success(),
            "mutant {} does not apply any more; write {} anew: {}",
            self.name,
            self.path.display(),
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
        Ok(())
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

/// The names in the line of a patch that begins with `head`, such as in `# Found by: NotConverged, LeftBehind.`
fn named(text: &str, head: &str) -> Vec<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(head));
    let names = line.unwrap_or_default().trim_end_matches('.').split(", ");
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_invariants_of_a_mutant_are_read() {
        let text = "# Broken: A thing\n# of two lines.\n# Found by: NotConverged, LeftBehind.\n\ndiff\n";
        assert_eq!(named(text, FOUND_BY), ["NotConverged", "LeftBehind"]);
        assert!(named("# Broken: A thing.\n", FOUND_BY).is_empty());
    }

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
