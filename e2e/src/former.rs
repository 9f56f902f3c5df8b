//! Programs and manifests of an earlier commit, built once per user into the cache.

use std::{
    env,
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use crate::{binaries, process::Programs};

/// The commit whose state on clusters suite `upgrade` takes over.
const COMMIT: &str = "13f6b601daa4fddbb1f96dee36be34e98a193fd9";
/// The packages whose programs the suite runs.
const PACKAGES: [&str; 4] = ["bindery-server", "bindery-agent", "bindery-cli", "bindery-synk"];
const PROGRAMS: [&str; 4] = ["bindery-server", "bindery-konnector", "kubectl-bind", "synk"];

/// Finds the former programs and their manifests in the cache. Builds them first if they are not there, which takes minutes,
/// blocks, and needs the project's git history.
pub fn locate() -> Result<Programs> {
    let folder = binaries::cache_folder()?.join("former").join(&COMMIT[..12]);
    let bin = folder.join("bin");
    if !bin.is_dir() {
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let lock = File::create(folder.join(".lock"))?;
        lock.lock()
            .with_context(|| format!("cannot lock {}", folder.display()))?;
        // Asked again under the lock: another process may have built it meanwhile.
        if !bin.is_dir() {
            build(&folder).with_context(|| format!("cannot build commit {COMMIT} for suite `upgrade`"))?;
        }
    }
    Ok(Programs::in_folder(bin).with_manifests(folder.join("source/deploy")))
}

/// Builds the programs of [`COMMIT`] into `folder/bin`, which gets its name when it is complete. `folder/source` keeps the sources.
fn build(folder: &Path) -> Result<()> {
    let (source, target) = (folder.join("source"), folder.join("target"));
    // A build that was killed leaves its sources.
    let _ = fs::remove_dir_all(&source);
    fs::create_dir(&source)?;
    let archive = folder.join("source.tar");
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut git = Command::new("git");
    git.current_dir(project)
        .args(["archive", "--format=tar", "--output"])
        .arg(&archive)
        .arg(COMMIT);
    run(&mut git).context("the git history of the project is needed: fetch it whole")?;
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&source))?;
    fs::remove_file(&archive)?;
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(&source)
        .args(["build", "--quiet", "--locked", "--bins"]);
    cargo.args(PACKAGES.map(|package| format!("--package={package}")));
    cargo.env("CARGO_TARGET_DIR", &target);
    cargo.envs([("CARGO_INCREMENTAL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "0")]);
    run(&mut cargo)?;
    let unfinished = folder.join("bin.unfinished");
    fs::create_dir_all(&unfinished)?;
    for program in PROGRAMS {
        fs::copy(target.join("debug").join(program), unfinished.join(program))?;
    }
    fs::rename(&unfinished, folder.join("bin"))?;
    fs::remove_dir_all(&target)?;
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {}", stderr.trim_end());
    Ok(())
}
