//! Builds the programs of the SDKs that are not in Rust, and the packages of all SDKs.

mod packages;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

pub use self::packages::packages;
use crate::binaries;

/// Builds a program of the SDK for Go, whose package is in this folder of it.
pub fn go(package: &str) -> Result<PathBuf> {
    let name = package.rsplit('/').next().unwrap_or(package);
    let program = target()?.join(format!("go-{name}"));
    let mut command = go_command("build")?;
    command
        .args(["-buildvcs=false", "-o"])
        .arg(&program)
        .arg(format!("./{package}"));
    call(&mut command)?;
    Ok(program)
}

/// A command of Go in the folder of the SDK, which changes nothing in it.
pub fn go_command(verb: &str) -> Result<Command> {
    let mut command = Command::new("go");
    command
        .args([verb, "-mod=readonly"])
        .current_dir(folder("go"))
        .env("GOFLAGS", "")
        .env("GOWORK", "off");
    Ok(command)
}

/// Python with all that the SDK needs; its own sources are those of [`python_sources`].
pub fn python() -> Result<PathBuf> {
    binaries::venv("python-sdk", include_str!("../../sdk/python/requirements.txt"))
}

/// The folder with the sources of the SDK for Python.
pub fn python_sources() -> PathBuf {
    folder("python").join("src")
}

/// Compiles the SDK for TypeScript with its tests, and returns the folder of the result, in which there is a folder `build`.
pub fn typescript() -> Result<PathBuf> {
    let copy = typescript_copy("typescript")?;
    let compiler = "node_modules/typescript/bin/tsc";
    call(
        Command::new("node")
            .args([compiler, "-p", "tsconfig.test.json"])
            .current_dir(&copy),
    )?;
    Ok(copy)
}

/// Copies the SDK for TypeScript with its packages into a folder of this name below `target`, since nothing is written beside the sources.
pub fn typescript_copy(name: &str) -> Result<PathBuf> {
    let sources = folder("typescript");
    let read = |name: &str| fs::read_to_string(sources.join(name)).with_context(|| format!("cannot read {name}"));
    let packages = binaries::npm_packages("typescript-sdk", &read("package.json")?, &read("package-lock.json")?)?;
    let copy = target()?.join(name);
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir_all(&copy)?;
    for entry in fs::read_dir(&sources)? {
        let path = entry?.path();
        let name = path.file_name().context("a name")?;
        if !["node_modules", "build", "dist"].iter().any(|made| name == *made) {
            call(Command::new("cp").arg("-R").arg(&path).arg(&copy))?;
        }
    }
    std::os::unix::fs::symlink(packages.join("node_modules"), copy.join("node_modules"))?;
    Ok(copy)
}

/// Runs a command to its end, and fails with what it printed.
fn call(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    ensure!(
        output.status.success(),
        "{program} failed: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// The folder for what is built of the SDKs.
fn target() -> Result<PathBuf> {
    let folder = workspace().join("target/sdks");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The folder of an SDK.
fn folder(language: &str) -> PathBuf {
    workspace().join("sdk").join(language)
}

fn workspace() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}
