//! Runs cargo on this workspace.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
pub(crate) use bindery_image::compile::{SHIPPED, TESTED};

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

/// The cargo that runs this program.
pub(crate) fn program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs one step and says how long it took.
pub(crate) fn step(name: &str, args: &[&str], env: &[(&str, &str)]) -> Result<()> {
    eprintln!("==> {name}: cargo {}", args.join(" "));
    let start = Instant::now();
    let status = Command::new(program())
        .args(args)
        .envs(env.iter().copied())
        .current_dir(root())
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "{name} failed: cargo {}", args.join(" "));
    eprintln!("==> {name}: done in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
