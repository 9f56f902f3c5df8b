//! Makes the packages of the SDKs, as registries take them: the same files from the same sources.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::{call, folder, typescript_copy, workspace};
use crate::binaries;

/// The version of all SDKs.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The crates of the SDK for Rust.
const CRATES: [&str; 3] = ["bindery-proto", "bindery-api", "bindery-sdk"];

/// Makes all packages below a folder, which must not exist: `python/`, `typescript/`, `go/` as a module proxy of files, and `rust/`. Their
/// files have the time `seconds`, since 1970, where a package has times at all.
pub fn packages(output: &Path, seconds: u64) -> Result<()> {
    ensure!(!output.exists(), "{} exists", output.display());
    fs::create_dir_all(output)?;
    // The tools run in other folders.
    let output = fs::canonicalize(output)?;
    let make = |name: &str| -> Result<PathBuf> {
        let folder = output.join(name);
        fs::create_dir(&folder)?;
        Ok(folder)
    };
    python(&make("python")?, seconds).context("cannot make the packages for Python")?;
    typescript(&make("typescript")?).context("cannot make the package for TypeScript")?;
    go(&make("go")?).context("cannot make the module for Go")?;
    rust(&make("rust")?).context("cannot make the crates")
}

/// Builds wheel and source, by the programs whose checksums are in `requirements-build.txt`.
fn python(output: &Path, seconds: u64) -> Result<()> {
    let requirements = include_str!("../../../sdk/python/requirements-build.txt");
    let python = binaries::venv("python-build", requirements)?;
    call(
        Command::new(python)
            .args(["-m", "hatchling", "build", "--directory"])
            .arg(output)
            .current_dir(folder("python"))
            .env("SOURCE_DATE_EPOCH", seconds.to_string())
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    )
}

/// Compiles and packs. npm gives all files one time of its own.
fn typescript(output: &Path) -> Result<()> {
    let copy = typescript_copy("typescript-package")?;
    let compiler = ["node_modules/typescript/bin/tsc", "-p", "tsconfig.build.json"];
    call(Command::new("node").args(compiler).current_dir(&copy))?;
    // The compiler is run by itself, so the scripts of the package are not needed.
    call(
        Command::new("npm")
            .args(["pack", "--offline", "--ignore-scripts", "--pack-destination"])
            .arg(output)
            .current_dir(&copy),
    )
}

/// Writes the module as a proxy serves it.
fn go(output: &Path) -> Result<()> {
    let module = folder("go");
    call(
        Command::new("go")
            .args(["run", "-mod=readonly", ".", "-module"])
            .arg(&module)
            .args(["-version", &format!("v{VERSION}"), "-out"])
            .arg(output)
            .current_dir(module.join("tools/modproxy"))
            .env("GOFLAGS", "")
            .env("GOWORK", "off"),
    )
}

/// Packs the crates as `cargo publish` does. The name of the commit is in them.
fn rust(output: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    call(
        Command::new(cargo)
            .args(["package", "--offline", "--allow-dirty", "--no-verify"])
            .args(CRATES.map(|name| format!("--package={name}")))
            .arg("--target-dir")
            .arg(scratch.path())
            .current_dir(workspace()),
    )?;
    for entry in fs::read_dir(scratch.path().join("package"))? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("crate")) {
            let name = path.file_name().context("a file has a name")?;
            fs::copy(&path, output.join(name))?;
        }
    }
    Ok(())
}
