//! Unpacks packages of Debian once per user. Nothing is installed.

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

/// nginx, and the libraries that a small system may lack. apt checks each package against the signed index of its archive, which keeps
/// only the newest build of a version: it cannot be pinned.
const NGINX: [&str; 5] = ["nginx", "libcrypt1", "libpcre2-8-0", "libssl3", "zlib1g"];

/// Returns the folder with the packages of nginx. Unpacks them at the first call of a user, which takes seconds.
pub fn nginx() -> Result<PathBuf> {
    unpack("nginx", &NGINX)
}

/// Returns the folder with the package of Prometheus and promtool. Unpacks it at the first call of a user, which takes seconds.
pub fn prometheus() -> Result<PathBuf> {
    unpack("prometheus", &["prometheus"])
}

fn unpack(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let key = once::key(packages.iter().copied().chain([env::consts::ARCH]), []);
    let cache = cache_folder()?.join(name).join(key);
    let unpacked = cache.join("unpacked");
    once::make(
        name,
        &cache,
        || unpacked.is_dir(),
        || {
            let start = Instant::now();
            progress(format_args!("unpacking {name} ... "));
            let folder = cache.join("unfinished");
            let outcome = fill(&folder, packages);
            match &outcome {
                Ok(()) => progress(format_args!("done in {} s\n", start.elapsed().as_secs())),
                Err(_) => progress(format_args!("failed\n")),
            }
            outcome?;
            // The folder has its name only if it is complete.
            fs::rename(&folder, &unpacked).with_context(|| format!("cannot write {}", unpacked.display()))
        },
    )?;
    Ok(unpacked)
}

fn fill(folder: &Path, packages: &[&str]) -> Result<()> {
    // A run that was killed leaves its folder.
    let _ = fs::remove_dir_all(folder);
    fs::create_dir(folder)?;
    call(
        Command::new("apt-get")
            .args(["download", "--quiet"])
            .args(packages)
            .current_dir(folder),
    )?;
    for entry in fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()? {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            call(Command::new("dpkg-deb").arg("--extract").arg(&path).arg(folder))?;
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Runs a command to its end.
fn call(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = match command.stdin(Stdio::null()).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("this is unpacked from the packages of Debian or Ubuntu, and `{program}` is not in PATH")
        }
        outcome => outcome.with_context(|| format!("cannot run {program}"))?,
    };
    ensure!(
        output.status.success(),
        "{program} failed; it needs the archive of the distribution, and an index of it (`apt-get update`):\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
