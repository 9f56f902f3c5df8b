//! Builds the programs, linked statically.

use std::{
    collections::BTreeMap,
    env, fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    Program, Workspace,
    workspace::{TARGET, cargo},
};

/// Replaces the paths of this machine in what a release is compiled to.
const SOURCES: &str = "/bindery";
const REGISTRY: &str = "/cargo";

/// How the programs are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As for users. Its own folder of cargo, because no path of this machine is in what it compiles.
    Release,
    /// As for tests. Shares the compiled dependencies of other builds for development.
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

    /// The folder that cargo puts programs of this profile into.
    const fn folder(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dev => "debug",
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

/// Builds programs and returns their paths, by their names. They are linked statically, and hold their debug information.
pub fn compile(
    workspace: &Workspace,
    programs: &[Program],
    profile: Profile,
) -> Result<BTreeMap<&'static str, PathBuf>> {
    let host = (env::consts::OS, env::consts::ARCH);
    ensure!(
        host == ("linux", "x86_64"),
        "images hold programs for {TARGET}, and this machine runs {} on {}: build them on Linux on x86_64",
        host.0,
        host.1
    );
    let mut cargo = cargo();
    cargo
        .current_dir(workspace.root())
        .args(["build", "--locked", "--profile", profile.name()]);
    // All packages, whichever programs are wanted: the selection decides the features of shared dependencies.
    for program in Program::ALL {
        cargo.args(["--package", program.package]);
    }
    for program in programs {
        cargo.args(["--bin", program.name]);
    }
    cargo.envs(environment(workspace, profile)?);
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "the programs of the images could not be built");
    programs
        .iter()
        .map(|program| Ok((program.name, find(workspace, *program, profile)?)))
        .collect()
}

/// Returns the path of a program that [`compile`] built before.
pub fn find(workspace: &Workspace, program: Program, profile: Profile) -> Result<PathBuf> {
    let path = folder(workspace).join(profile.folder()).join(program.name);
    ensure!(
        path.is_file(),
        "{} is not there: build it with `cargo xtask image --profile {profile}`",
        path.display()
    );
    Ok(path)
}

/// The folder of the programs, apart from those that other builds link.
fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target().join("image")
}

fn environment(workspace: &Workspace, profile: Profile) -> Result<Vec<(&'static str, String)>> {
    let text = |path: &Path| -> Result<String> {
        let text = path
            .to_str()
            .with_context(|| format!("{} is not UTF-8", path.display()))?;
        Ok(text.to_owned())
    };
    let root = text(workspace.root())?;
    let mut environment = vec![
        ("RUSTC_WORKSPACE_WRAPPER", format!("{root}/image/link-statically")),
        ("CARGO_TARGET_DIR", text(&folder(workspace))?),
    ];
    match profile {
        Profile::Dev => environment.push(("CARGO_BUILD_BUILD_DIR", text(&workspace.target())?)),
        Profile::Release => {
            let home = text(&cargo_home()?)?;
            let paths = [(&root, SOURCES), (&home, REGISTRY)];
            let rust = paths.map(|(from, to)| format!("--remap-path-prefix={from}={to}"));
            let c = paths.map(|(from, to)| format!("-ffile-prefix-map={from}={to}"));
            // Cargo takes this variable apart at the unit separator, so that a path may have spaces.
            environment.push(("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}")));
            environment.push(("CFLAGS", c.join(" ")));
        }
    }
    Ok(environment)
}

/// The folder in which cargo keeps the sources of dependencies.
fn cargo_home() -> Result<PathBuf> {
    env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".cargo")))
        .context("there is no folder of cargo: set CARGO_HOME or HOME")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read_as_they_are_written() {
        for profile in [Profile::Release, Profile::Dev] {
            assert_eq!(profile.name().parse::<Profile>().unwrap(), profile);
        }
        let error = "debug".parse::<Profile>().unwrap_err().to_string();
        assert!(error.contains("\"debug\"") && error.contains("release, dev"), "{error}");
    }
}
