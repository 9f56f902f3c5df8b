//! The main job, the policies and the upgrade on other minors of Kubernetes than the one of the tests.

use anyhow::Result;
use bindery_e2e::binaries;

use crate::cargo::{TESTED, step};

const SUITES: [&str; 3] = ["main_job", "policy", "upgrade"];

/// Runs on one minor, or on all if it is `None`.
pub(crate) fn run(only: Option<&str>) -> Result<()> {
    step("programs", &[&["build", "--locked"], &TESTED[..]].concat(), &[])?;
    let minors: Vec<_> = only.map_or_else(|| binaries::minors().collect(), |minor| vec![minor]);
    for minor in minors {
        let folder = binaries::of_minor(minor)?;
        let mut test = vec!["test", "--locked", "--workspace"];
        for suite in SUITES {
            test.extend(["--test", suite]);
        }
        let assets = folder.display().to_string();
        step(
            &format!("Kubernetes {minor}"),
            &test,
            &[("KUBEBUILDER_ASSETS", &assets)],
        )?;
    }
    Ok(())
}
