//! The guide and the threat model say what the tests show.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use crate::{rights, world::Scope};

const GUIDE: &str = include_str!("../../../docs/isolation.md");
const THREATS: &str = include_str!("../../../docs/threat-model.md");

/// What the guide says of who sees such objects.
pub(crate) fn is_seen(objects: &str, scope: Scope) -> Result<bool> {
    let cells = rows(GUIDE).find(|cells| cells.len() == 3 && cells[0] == objects);
    let cells = cells.with_context(|| format!("the guide does not speak of {objects:?}"))?;
    match cells[1 + usize::from(scope == Scope::Cluster)] {
        "hidden" => Ok(false),
        "seen by all" => Ok(true),
        other => anyhow::bail!("{objects:?} are {other:?}"),
    }
}

/// Cells of each row of each table.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    lines.map(|line| line.split('|').map(str::trim).collect())
}

#[test]
fn the_guide_lists_the_rights_that_are_tested() {
    let unquoted = |cell: &str| match cell.trim_matches('`') {
        "core" => String::new(),
        name => name.to_owned(),
    };
    let said: BTreeSet<_> = rows(GUIDE)
        .filter(|cells| cells.len() == 4 && cells[0] == "contract namespace")
        .map(|cells| [unquoted(cells[1]), unquoted(cells[2]), cells[3].to_owned()])
        .collect();
    let tested = rights::CONTRACT.map(|(group, resource, verbs)| [group, resource, verbs].map(str::to_owned));
    assert_eq!(said, tested.into());
}

/// Sources whose tests a suite of this name has.
fn sources(suite: &str) -> Result<Vec<PathBuf>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tests = root.join("e2e/tests");
    let mut files = Vec::new();
    for place in [tests.join(suite), root.join(suite)] {
        if place.is_dir() {
            collect(&place, &mut files)?;
        }
    }
    files.extend(
        [tests.join(format!("{suite}.rs"))]
            .into_iter()
            .filter(|file| file.is_file()),
    );
    ensure!(!files.is_empty(), "there is no suite {suite}");
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Whether a source has a test of that name: the function, and the attribute above it.
fn has_test(source: &str, name: &str) -> bool {
    let function = format!("fn {name}(");
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let mut found = lines.iter().enumerate().filter(|(_, line)| line.contains(&function));
    found.any(|(at, _)| {
        let above = lines[..at]
            .iter()
            .rev()
            .take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        above
            .into_iter()
            .any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
    })
}

#[test]
fn every_threat_names_tests_that_exist() -> Result<()> {
    let mut missing = Vec::new();
    let threats: Vec<_> = THREATS.split("\n### ").skip(1).collect();
    ensure!(threats.len() > 20, "only {} threats", threats.len());
    for threat in threats {
        let title = threat.lines().next().unwrap_or_default();
        for part in ["\nGuaranteed: ", "\nHeld by: ", "\nShown by: "] {
            ensure!(threat.contains(part), "{title}: nothing is said of {part:?}");
        }
        let (_, shown) = threat.split_once("\nShown by: ").context("checked above")?;
        let shown = shown.split("\n\n").next().unwrap_or_default();
        let names: Vec<_> = shown.split('`').filter_map(|word| word.split_once("::")).collect();
        ensure!(!names.is_empty(), "{title}: no test is named");
        for (suite, name) in names {
            let sources = sources(suite).with_context(|| title.to_owned())?;
            let mut sources = sources.iter().map(fs::read_to_string);
            if !sources.any(|source| source.is_ok_and(|source| has_test(&source, name))) {
                missing.push(format!("{title}: {suite}::{name}"));
            }
        }
    }
    ensure!(missing.is_empty(), "no such tests:\n{}", missing.join("\n"));
    Ok(())
}

#[test]
fn a_test_is_told_from_other_functions() {
    for (source, expect) in [
        ("#[test]\nfn one() {}", true),
        ("#[tokio::test(start_paused = true)]\n// Why.\nasync fn one() {}", true),
        ("fn one() {}", false),
        ("#[test]\nfn another_one() {}", false),
        ("#[test]\nfn two() {}\nfn one() {}", false),
    ] {
        assert_eq!(has_test(source, "one"), expect, "{source}");
    }
}
