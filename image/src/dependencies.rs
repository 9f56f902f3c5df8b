//! The crates that a program is made of: those that are linked into it, not those that only run while it is built.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::PathBuf,
};

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::{DependencyKind, Metadata, Package, PackageId};

use crate::{
    Program, Workspace,
    workspace::{cargo, output},
};

/// A crate that is linked into a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The SPDX expression of its licenses, if the crate states one.
    pub(crate) license: Option<String>,
    /// The folder of its sources.
    pub(crate) folder: PathBuf,
    /// Whether it comes from crates.io. The others are of this workspace.
    pub(crate) is_published: bool,
    /// The crates that it uses, as indices into the list.
    pub(crate) uses: Vec<usize>,
}

/// Returns the crates of a program, sorted by name and version, and the index of the program's own crate.
pub(crate) fn of(workspace: &Workspace, program: Program) -> Result<(Vec<Crate>, usize)> {
    let linked = linked(workspace)?;
    collect(&workspace.metadata, &linked, program.package)
}

/// Returns names and versions of all crates that are linked into any program of an image, with the features of [`compile`].
///
/// Metadata of cargo alone would also name crates that only tests enable.
///
/// [`compile`]: crate::compile::compile
fn linked(workspace: &Workspace) -> Result<BTreeSet<(String, String)>> {
    let mut tree = cargo();
    tree.current_dir(workspace.root())
        .args(["tree", "--locked", "--target", workspace.platform.target]);
    tree.args(["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]);
    for program in Program::ALL {
        tree.args(["--package", program.package]);
    }
    let text = String::from_utf8(output(&mut tree)?)?;
    Ok(parse_tree(&text))
}

/// Reads lines such as `tokio v1.54.0` and `synk v0.1.0 (/path) (*)`.
fn parse_tree(text: &str) -> BTreeSet<(String, String)> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let name = words.next()?;
            let version = words.next()?.strip_prefix('v')?;
            Some((name.to_owned(), version.to_owned()))
        })
        .collect()
}

fn collect(metadata: &Metadata, linked: &BTreeSet<(String, String)>, root: &str) -> Result<(Vec<Crate>, usize)> {
    let packages: BTreeMap<&PackageId, &Package> = metadata.packages.iter().map(|it| (&it.id, it)).collect();
    let resolve = metadata
        .resolve
        .as_ref()
        .context("cargo did not resolve dependencies")?;
    let uses: BTreeMap<&PackageId, Vec<&PackageId>> = resolve
        .nodes
        .iter()
        .map(|node| {
            let normal = node
                .deps
                .iter()
                .filter(|it| it.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
            let is_linked = |id: &&PackageId| packages.get(id).is_some_and(|it| linked.contains(&identity(it)));
            (&node.id, normal.map(|it| &it.pkg).filter(is_linked).collect())
        })
        .collect();
    let is_root = |package: &&&Package| package.name.as_str() == root && package.source.is_none();
    let root = packages
        .values()
        .find(is_root)
        .context("cargo does not know the program's package")?;

    let mut reached = BTreeSet::from([&root.id]);
    let mut queue = VecDeque::from([&root.id]);
    while let Some(id) = queue.pop_front() {
        let next = uses.get(id).into_iter().flatten();
        queue.extend(next.filter(|id| reached.insert(id)));
    }
    ensure!(reached.len() > 1, "cargo does not know what {} depends on", root.name);

    let mut sorted: Vec<&Package> = reached.into_iter().filter_map(|id| packages.get(id).copied()).collect();
    sorted.sort_by_key(|package| identity(package));
    let index: BTreeMap<&PackageId, usize> = sorted.iter().enumerate().map(|(index, it)| (&it.id, index)).collect();
    let crates = sorted.iter().map(|package| {
        let mut uses: Vec<usize> = uses[&package.id]
            .iter()
            .filter_map(|id| index.get(id).copied())
            .collect();
        uses.sort_unstable();
        uses.dedup();
        Crate {
            name: package.name.to_string(),
            version: package.version.to_string(),
            license: package.license.clone(),
            folder: package.manifest_path.as_std_path().with_file_name(""),
            is_published: package.source.is_some(),
            uses,
        }
    });
    Ok((crates.collect(), index[&root.id]))
}

fn identity(package: &Package) -> (String, String) {
    (package.name.to_string(), package.version.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_are_read_from_a_tree() {
        let text = "synk v0.1.0 (/src/synk)\ntokio v1.54.0\nsynk v0.1.0 (/src/synk) (*)\n\n";
        let expect =
            [("synk", "0.1.0"), ("tokio", "1.54.0")].map(|(name, version)| (name.to_owned(), version.to_owned()));
        assert_eq!(parse_tree(text), BTreeSet::from(expect));
    }

    #[test]
    fn a_program_has_the_crates_that_are_linked_and_no_others() {
        let workspace = Workspace::read().unwrap();
        let crates = |name: &str| of(&workspace, Program::named(name).unwrap()).unwrap();
        let (synk, root) = crates("synk");
        assert_eq!(
            (synk[root].name.as_str(), synk[root].is_published),
            ("bindery-synk", false)
        );
        let names: BTreeSet<_> = synk.iter().map(|it| it.name.as_str()).collect();
        for present in ["kube-client", "rustls", "aws-lc-sys", "bindery-runtime"] {
            assert!(names.contains(present), "{present} is missing in {names:?}");
        }
        // A macro, a program that builds C code, and what only tests or other programs use.
        for absent in ["serde_derive", "cc", "proptest", "bindery-server"] {
            assert!(!names.contains(absent), "{absent} is no part of synk");
        }
        let (server, _) = crates("bindery-server");
        assert!(server.iter().any(|it| it.name == "tonic"));
        for (index, it) in server.iter().enumerate() {
            assert!(
                it.uses.iter().all(|used| *used < server.len() && *used != index),
                "{}",
                it.name
            );
        }
    }
}
