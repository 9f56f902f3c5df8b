//! Builds the programs.

use std::{
    env, fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{Program, Workspace, workspace::cargo};

/// What stands in a program of a release in place of the folder of the sources, of what is compiled, and of cargo.
const SOURCES: &str = "/bindery";
const BUILT: &str = "/bindery/target";
const REGISTRY: &str = "/cargo";

/// How the programs are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As for users. Compiled in a folder of its own, because no path of this machine is in it.
    Release,
    /// As for tests: the programs that `cargo xtask test` builds anyway.
    Dev,
}

impl Profile {
    /// The name of the profile, as cargo knows it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dev => "dev",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "release" => Ok(Self::Release),
            "dev" => Ok(Self::Dev),
            _ => bail!("there is no profile {name:?}; choose of: release, dev"),
        }
    }
}

/// Selects what tests run beside their own programs, for `cargo build` and `cargo test`.
///
/// The packages that a command selects decide the features of their dependencies, and each set of features is compiled anew.
/// All builds for tests select the whole workspace, so that they share one set.
pub const TESTED: [&str; 12] = [
    "--workspace",
    "--examples",
    "--bin",
    "bindery-server",
    "--bin",
    "bindery-konnector",
    "--bin",
    "kubectl-bind",
    "--bin",
    "synk",
    "--bin",
    "sdk-runner-rust",
];

/// The packages of the programs that users get. They are also compiled by themselves, without the features that tests add to
/// their dependencies.
pub const SHIPPED: [&str; 9] = [
    "-p",
    "bindery-server",
    "-p",
    "bindery-agent",
    "-p",
    "bindery-cli",
    "-p",
    "bindery-synk",
    "--bins",
];

/// Builds all programs, with their debug information. [`find`] returns their paths.
pub fn compile(workspace: &Workspace, profile: Profile) -> Result<()> {
    let mut cargo = cargo();
    cargo
        .current_dir(workspace.root())
        .args(["build", "--locked", "--profile", profile.name()])
        // Cargo would put the programs elsewhere than [`find`] looks.
        .env_remove("CARGO_BUILD_TARGET");
    match profile {
        Profile::Dev => cargo.args(TESTED),
        Profile::Release => cargo.args(SHIPPED).envs(reproducible(workspace)?),
    };
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "the programs of the images could not be built");
    Ok(())
}

/// Returns the path of a program that [`compile`] built before.
pub fn find(workspace: &Workspace, program: Program, profile: Profile) -> Result<PathBuf> {
    let folder = match profile {
        Profile::Dev => workspace.target().join("debug"),
        Profile::Release => shipped(workspace).join("release"),
    };
    let path = folder.join(program.name);
    ensure!(
        path.is_file(),
        "{} is not there: build it with `cargo xtask image --profile {profile}`",
        path.display()
    );
    Ok(path)
}

/// The folder that cargo compiles shipped programs in. Other builds for release compile with other flags.
fn shipped(workspace: &Workspace) -> PathBuf {
    workspace.target().join("image")
}

/// Returns variables with which cargo compiles the same programs in any folder.
fn reproducible(workspace: &Workspace) -> Result<[(&'static str, String); 3]> {
    let text = |path: &Path| -> Result<String> {
        let text = path.to_str();
        let text = text.with_context(|| format!("{} is not UTF-8", path.display()))?;
        Ok(text.to_owned())
    };
    let folder = shipped(workspace);
    // The folder of what is compiled lies in that of the sources. Compilers take the last path that fits.
    let paths = [
        (text(workspace.root())?, SOURCES),
        (text(&folder)?, BUILT),
        (text(&cargo_home()?)?, REGISTRY),
    ];
    let rust = paths
        .each_ref()
        .map(|(from, to)| format!("--remap-path-prefix={from}={to}"));
    let c = paths
        .each_ref()
        .map(|(from, to)| format!("-ffile-prefix-map={from}={to}"));
    Ok([
        ("CARGO_TARGET_DIR", text(&folder)?),
        // Cargo takes this variable apart at the unit separator, so that a path may have spaces.
        ("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}")),
        ("CFLAGS", c.join(" ")),
    ])
}

/// The folder in which cargo keeps the sources of dependencies.
fn cargo_home() -> Result<PathBuf> {
    env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".cargo")))
        .context("cannot tell where cargo keeps the sources of crates: set CARGO_HOME or HOME")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_compiled() {
        for program in Program::ALL {
            assert!(TESTED.contains(&program.name), "{}", program.name);
            assert!(SHIPPED.contains(&program.package), "{}", program.package);
        }
    }

    #[test]
    fn profiles_are_read_as_they_are_written() {
        for profile in [Profile::Release, Profile::Dev] {
            assert_eq!(profile.name().parse::<Profile>().unwrap(), profile);
        }
        let error = "debug".parse::<Profile>().unwrap_err().to_string();
        assert!(error.contains("\"debug\"") && error.contains("release, dev"), "{error}");
    }
}
