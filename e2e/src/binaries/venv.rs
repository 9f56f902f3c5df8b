//! Installs Python packages, as a file of requirements with hashes names them, once per user.

use std::{
    env, fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    cache_folder,
    once::{self, progress},
};

/// What pip is told: it installs wheels alone, which run no program, and checks each hash.
const INSTALL: [&str; 8] = [
    "-m",
    "pip",
    "install",
    "--quiet",
    "--disable-pip-version-check",
    "--require-hashes",
    "--only-binary=:all:",
    "--no-deps",
];

/// Returns the Python of an environment with the plug-ins of protoc for Python. Installs it at the first call of a user.
pub fn python_plugins() -> Result<PathBuf> {
    venv(
        "python-plugins",
        include_str!("../../generators/python/requirements.txt"),
    )
}

/// Returns the Python of an environment with these requirements, each of which has a hash. `name` is that of its cache folder. Installs it
/// at the first call of a user, which takes seconds.
pub fn venv(name: &str, requirements: &str) -> Result<PathBuf> {
    let target = [env::consts::OS, env::consts::ARCH];
    let key = once::key([requirements].into_iter().chain(target), INSTALL.map(str::to_owned));
    let cache = cache_folder()?.join(name).join(key);
    // An environment names its own folder and cannot be moved, so a file tells that it is complete.
    let (folder, complete) = (cache.join("venv"), cache.join("complete"));
    once::make(
        name,
        &cache,
        || complete.is_file(),
        || {
            let start = Instant::now();
            progress(format_args!("installing {name} ... "));
            let outcome = fill(&cache, &folder, requirements);
            match &outcome {
                Ok(()) => progress(format_args!("done in {} s\n", start.elapsed().as_secs())),
                Err(_) => progress(format_args!("failed\n")),
            }
            outcome?;
            Ok(fs::write(&complete, "")?)
        },
    )?;
    Ok(python_of(&folder))
}

fn python_of(folder: &Path) -> PathBuf {
    folder.join("bin/python")
}

fn fill(cache: &Path, folder: &Path, requirements: &str) -> Result<()> {
    // An installation that was killed leaves its folder.
    let _ = fs::remove_dir_all(folder);
    let list = cache.join("requirements.txt");
    fs::write(&list, requirements)?;
    call(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    call(Command::new(python_of(folder)).args(INSTALL).arg("-r").arg(&list))
}

/// Runs a command to its end.
fn call(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = match command.stdin(Stdio::null()).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("Python packages need Python 3.11 or newer with its module venv: put `{program}` into PATH")
        }
        outcome => outcome.with_context(|| format!("cannot run {program}"))?,
    };
    ensure!(
        output.status.success(),
        "{program} failed; it needs a registry of Python packages:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn requirements_are_pinned_and_have_hashes() {
        let requirements = include_str!("../../generators/python/requirements.txt");
        let lines = requirements.lines().filter(|line| !line.starts_with('#'));
        let (hashes, names): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("    --hash=sha256:"));
        assert_eq!(hashes.len(), names.len());
        assert!(
            names.len() > 3 && names.iter().all(|name| name.contains("==")),
            "{names:?}"
        );
    }
}
