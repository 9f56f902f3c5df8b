//! `cargo xtask test`: all checks of the project.

mod checks;
mod deny;
mod job;
mod program;
mod report;
mod schedule;
mod suite;

use std::time::Instant;

use anyhow::{Context as _, Result};
use bindery_e2e::{
    binaries::{self, Binaries},
    former,
};
use bindery_image::Profile;

use self::schedule::Lanes;
use crate::{
    cargo::{TESTED, step},
    image, simulate, soak,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask test                          all checks, and at the end the ten slowest tests
  cargo xtask test --suite bundles          one end-to-end suite, with the time of each test
  cargo xtask test --suite synk rollback    the tests of one suite whose name contains \"rollback\"
  cargo xtask test placement                the tests of all crates and suites whose name contains \"placement\"

Set BINDERY_E2E_KEEP=1 to keep the folders of all control planes, with the logs of their programs.")]
pub(crate) struct Args {
    /// Runs only the tests whose name contains this text, and no other check.
    filter: Option<String>,
    /// Runs only this suite of `e2e/tests`. An unknown name lists the known ones.
    #[arg(long, value_name = "NAME")]
    suite: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(name) = &args.suite {
        return suite::run(name, args.filter.as_deref());
    }
    if let Some(filter) = &args.filter {
        step("programs", &[&["build", "--locked"], &TESTED[..]].concat(), &[])?;
        provide()?;
        return step("tests", &["test", "--locked", "--workspace", "--", filter], &[]);
    }
    all()
}

/// Runs every check: first those that fail within seconds, then the builds, then all that runs, several at once.
fn all() -> Result<()> {
    let start = Instant::now();
    step("format", &["fmt", "--all", "--check"], &[])?;
    deny::run()?;
    simulate::check_all()?;
    soak::check_mends()?;
    let programs = program::build_all()?;
    provide()?;
    // Alone, because it takes all cores, which would change the times of all others.
    simulate::seeds_of_test()?;
    let lanes = Lanes {
        checks: checks::jobs(),
        programs: program::jobs(programs),
    };
    let times = lanes.run()?;
    report::print_slowest(&times);
    eprintln!("==> all checks passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Provides control planes, Helm, crane, Prometheus, the issuers and the browser of suite `people`, the images of the programs, and the former version
/// for suite `upgrade`. They are built here and not in the first test, which would time out on a fresh machine.
fn provide() -> Result<()> {
    Binaries::locate().context("cannot provide control planes")?;
    binaries::helm().context("cannot provide Helm")?;
    binaries::crane().context("cannot provide crane")?;
    binaries::node_issuer().context("cannot provide the issuer on Node.js")?;
    binaries::zitadel_issuer().context("cannot provide the issuer in Go")?;
    binaries::chromium().context("cannot provide Chromium")?;
    binaries::prometheus().context("cannot provide Prometheus")?;
    binaries::buf().context("cannot provide buf")?;
    binaries::go_plugins().context("cannot provide the plug-ins for Go")?;
    binaries::es_plugin().context("cannot provide the plug-in for TypeScript")?;
    binaries::python_plugins().context("cannot provide the plug-ins for Python")?;
    image::build_all(Profile::Dev).context("cannot provide the images")?;
    former::locate().map(drop)
}
