//! What mends a finding is taken back in a copy of the tree, one after the other: the test that holds it has to fail.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    bench::table::Table,
    cargo::{program, root},
    patch::Patch,
    say::show,
    tree::TreeCopy,
};

/// The folder of the patches that take mends back.
const FOLDER: &str = "xtask/reverted";
/// What the line in front of a patch begins with that names the tests which have to fail, as the threat model does: `server::function`.
const FAILS: &str = "# Fails: ";
/// The crates whose code patches may change.
const CRATES: [Crate; 6] = [
    Crate::library("agent", "bindery-agent", "agent/src/"),
    Crate::library("api", "bindery-api", "sdk/api/src/"),
    Crate {
        target: "--bins",
        ..Crate::library("cli", "bindery-cli", "cli/src/")
    },
    Crate::library("runtime", "bindery-runtime", "runtime/src/"),
    Crate::library("sdk", "bindery-sdk", "sdk/rust/src/"),
    Crate::library("server", "bindery-server", "server/src/"),
];

/// A crate with unit tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Crate {
    /// What the names of its tests begin with.
    name: &'static str,
    package: &'static str,
    /// The folder of its code.
    folder: &'static str,
    /// The option of cargo that chooses its unit tests.
    target: &'static str,
}

/// A unit test that holds a mend.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HoldingTest {
    of: Crate,
    /// The name of its function.
    function: String,
}

/// Where mends are taken back, one after the other.
struct Workshop {
    tree: TreeCopy,
    target: PathBuf,
    logs: PathBuf,
}

/// Takes each mend back, and prints a table. Fails if a test passes without the mend that it holds.
pub(super) fn run() -> Result<()> {
    let workshop = Workshop::open()?;
    let mut table = Table::new(&["taken back", "test", "outcome"], 3);
    let mut passed = Vec::new();
    for patch in Patch::all(FOLDER)? {
        for test in tests(&patch)? {
            let fails = workshop.fails_without(&patch, &test)?;
            let outcome = if fails { "fails" } else { "PASSES" };
            eprintln!("==> {}: {} {outcome}", patch.name, test.function);
            table.line([patch.name.clone(), test.function.clone(), outcome.to_owned()]);
            passed.extend((!fails).then_some(test.function));
        }
    }
    show(&table.to_string())?;
    workshop.tree.restore()?;
    ensure!(
        passed.is_empty(),
        "these tests pass without the mend that they hold: {}",
        passed.join(", ")
    );
    Ok(())
}

/// Checks that every patch applies to this tree, changes shipped code alone, and names tests of its crates.
pub(crate) fn check_all() -> Result<()> {
    let all = Patch::all(FOLDER)?;
    let shipped = CRATES.map(|of| of.folder);
    let check = |patch: &Patch| patch.check(&shipped).and_then(|()| tests(patch).map(drop));
    let broken = all.iter().filter_map(|patch| check(patch).err());
    let broken: Vec<_> = broken.map(|error| format!("{error:#}")).collect();
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    eprintln!("==> mends that are taken back: {} patches apply", all.len());
    Ok(())
}

/// The tests that a patch names.
fn tests(patch: &Patch) -> Result<Vec<HoldingTest>> {
    let names = patch.named(FAILS);
    ensure!(!names.is_empty(), "patch {} has no line {FAILS:?}", patch.name);
    let test =
        |name: &String| HoldingTest::parse(name).with_context(|| format!("patch {} names no test: {name}", patch.name));
    names.iter().map(test).collect()
}

// === impl Crate ===

impl Crate {
    const fn library(name: &'static str, package: &'static str, folder: &'static str) -> Self {
        Self {
            name,
            package,
            folder,
            target: "--lib",
        }
    }
}

// === impl HoldingTest ===

impl HoldingTest {
    fn parse(name: &str) -> Option<Self> {
        let (of, function) = name.split_once("::")?;
        Some(Self {
            of: CRATES.into_iter().find(|known| known.name == of)?,
            function: function.to_owned(),
        })
    }

    /// Whether the output of a run says that the test failed; `None` if it did not run.
    fn has_failed(&self, output: &str) -> Option<bool> {
        let of_test = |line: &&str| {
            let name = line.strip_prefix("test ").and_then(|rest| rest.split(' ').next());
            name.and_then(|name| name.rsplit("::").next()) == Some(&*self.function)
        };
        let line = output.lines().find(of_test)?;
        Some(line.ends_with("FAILED"))
    }
}

// === impl Workshop ===

impl Workshop {
    fn open() -> Result<Self> {
        let folder = root().join("target/mutants");
        let logs = folder.join("logs");
        fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
        Ok(Self {
            tree: TreeCopy::open(folder.join("tree"))?,
            target: folder.join("target"),
            logs,
        })
    }

    /// Whether a test fails in the tree without the mend that this patch takes back.
    fn fails_without(&self, patch: &Patch, test: &HoldingTest) -> Result<bool> {
        self.tree.restore()?;
        patch.apply(self.tree.folder())?;
        let log = self.logs.join(format!("{}.test.log", patch.name));
        let output = self.run(test, &log)?;
        let failed = test.has_failed(&output);
        failed.with_context(|| {
            format!(
                "test {} did not run without {}; see {}",
                test.function,
                patch.name,
                log.display()
            )
        })
    }

    /// Builds and runs a test. What cargo says is in `log`.
    fn run(&self, test: &HoldingTest, log: &Path) -> Result<String> {
        let errors = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let output = Command::new(program())
            .args(["test", "--locked", test.of.target, "--package", test.of.package])
            .arg("--target-dir")
            .arg(&self.target)
            .args(["--", &test.function])
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "false")
            .current_dir(self.tree.folder())
            .stdin(Stdio::null())
            .stderr(errors)
            .output()
            .context("cannot run cargo")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_of_a_test_is_read() {
        let test = HoldingTest::parse("server::a_thief_is_refused").unwrap();
        assert_eq!(test.of.package, "bindery-server");
        let output = "\nrunning 2 tests\ntest renewal::tests::a_thief_is_refused ... FAILED\ntest a_thief_is_refused_again ... ok\n";
        assert_eq!(test.has_failed(output), Some(true));
        assert_eq!(test.has_failed(&output.replace("FAILED", "ok")), Some(false));
        assert_eq!(test.has_failed("running 0 tests\n"), None);
        assert_eq!(HoldingTest::parse("attack::unknown"), None);
    }

    /// Whether a file below a folder has this text.
    fn has(folder: &Path, text: &str) -> bool {
        fs::read_dir(folder).unwrap().any(|entry| {
            let path = entry.unwrap().path();
            path.is_dir() && has(&path, text) || fs::read_to_string(&path).is_ok_and(|source| source.contains(text))
        })
    }

    #[test]
    fn each_patch_applies_and_names_tests_that_exist() {
        check_all().unwrap();
        for patch in Patch::all(FOLDER).unwrap() {
            for test in tests(&patch).unwrap() {
                let function = format!("fn {}(", test.function);
                assert!(
                    has(&root().join(test.of.folder), &function),
                    "{}: {}",
                    patch.name,
                    test.function
                );
            }
        }
    }
}
