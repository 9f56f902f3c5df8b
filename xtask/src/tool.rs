//! Programs of crates.io that commands run. They are installed once per user, beside what the tests build.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use bindery_e2e::binaries;

use crate::cargo::step;

/// Installs a program of a crate of the same name if it is not there, and returns its path. `args` are more arguments of `cargo install`,
/// such as features.
pub(crate) fn install(name: &str, version: &str, args: &[&str]) -> Result<PathBuf> {
    let folder = binaries::cache_folder()?.join(name).join(version);
    let path = folder.join("bin").join(name);
    if !path.is_file() {
        let folder = folder.to_str().context("the path of the cache folder is not UTF-8")?;
        // Not optimised: it builds in half the time, and runs for seconds.
        let install = [
            "install",
            "--locked",
            "--debug",
            "--root",
            folder,
            name,
            "--version",
            version,
        ];
        step(&format!("{name}, installed once"), &[&install[..], args].concat(), &[])?;
    }
    Ok(path)
}
