//! Installs npm packages, as their lock files name them, once per user.

use std::{
    env, fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    cache_folder,
    once::{self, progress},
};

/// What `npm ci` is told: it installs what the lock file names, checks each hash, and runs no program of a package.
const INSTALL: [&str; 6] = [
    "ci",
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--no-bin-links",
    "--loglevel=error",
];
/// The oldest Node.js with which the packages work.
const NODE: u32 = 20;

/// A package whose lock file names all that is installed.
struct Package<'a> {
    /// The name of its cache folder, and what it is in messages.
    name: &'a str,
    /// `package.json`, the lock file, and scripts, with their names.
    files: &'a [(&'a str, &'a str)],
    /// A script that Node.js runs after the installation.
    script: Option<&'a str>,
}

const NODE_ISSUER: Package<'static> = Package {
    name: "node-issuer",
    files: &[
        ("package.json", include_str!("../../issuers/node/package.json")),
        (
            "package-lock.json",
            include_str!("../../issuers/node/package-lock.json"),
        ),
    ],
    script: None,
};

const CHROMIUM: Package<'static> = Package {
    name: "chromium",
    files: &[
        ("package.json", include_str!("../../chromium/package.json")),
        ("package-lock.json", include_str!("../../chromium/package-lock.json")),
        ("unpack.mjs", include_str!("../../chromium/unpack.mjs")),
    ],
    script: Some("unpack.mjs"),
};

const ES_PLUGIN: Package<'static> = Package {
    name: "es-plugin",
    files: &[
        ("package.json", include_str!("../../generators/es/package.json")),
        (
            "package-lock.json",
            include_str!("../../generators/es/package-lock.json"),
        ),
    ],
    script: None,
};

/// Returns the program `protoc-gen-es`, which runs on Node.js. Installs it at the first call of a user, which takes seconds.
pub fn es_plugin() -> Result<PathBuf> {
    Ok(install(&ES_PLUGIN)?.join("node_modules/@bufbuild/protoc-gen-es/bin/protoc-gen-es"))
}

/// Returns the folder with the packages (`node_modules`) of the issuer that runs on Node.js. Installs them at the first call of a user,
/// which takes seconds.
pub fn node_issuer() -> Result<PathBuf> {
    install(&NODE_ISSUER)
}

/// Returns the folder with the program `chromium` and its libraries. Installs it at the first call of a user, which takes half a minute.
pub fn chromium() -> Result<PathBuf> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "the Chromium of the tests is for Linux on x86-64: run suite people there"
    );
    install(&CHROMIUM)
}

/// Returns the folder with the packages (`node_modules`) of a lock file. `name` is that of its cache folder. Installs them at the first call
/// of a user, which takes seconds.
pub fn npm_packages(name: &str, package: &str, lock: &str) -> Result<PathBuf> {
    install(&Package {
        name,
        files: &[("package.json", package), ("package-lock.json", lock)],
        script: None,
    })
}

fn install(package: &Package<'_>) -> Result<PathBuf> {
    let texts = package.files.iter().map(|(_, text)| *text);
    let target = [env::consts::OS, env::consts::ARCH];
    let cache = cache_folder()?
        .join(package.name)
        .join(once::key(texts.chain(target), INSTALL.map(str::to_owned)));
    let installed = cache.join("installed");
    once::make(
        package.name,
        &cache,
        || installed.is_dir(),
        || {
            let start = Instant::now();
            progress(format_args!("installing {} ... ", package.name));
            let folder = cache.join("unfinished");
            let outcome = fill(package, &folder);
            match &outcome {
                Ok(()) => progress(format_args!("done in {} s\n", start.elapsed().as_secs())),
                Err(_) => progress(format_args!("failed\n")),
            }
            outcome?;
            // Whoever finds the folder under its own name may use it.
            fs::rename(&folder, &installed).with_context(|| format!("cannot write {}", installed.display()))
        },
    )?;
    Ok(installed)
}

fn fill(package: &Package<'_>, folder: &Path) -> Result<()> {
    // An installation that was killed leaves its folder.
    let _ = fs::remove_dir_all(folder);
    fs::create_dir(folder)?;
    for (name, text) in package.files {
        fs::write(folder.join(name), text)?;
    }
    call(package, Command::new("npm").args(INSTALL).current_dir(folder))?;
    if let Some(script) = package.script {
        call(package, Command::new("node").arg(script).current_dir(folder))?;
    }
    Ok(())
}

/// Runs a command to its end.
fn call(package: &Package<'_>, command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let name = package.name;
    let Output { status, stdout, stderr } = match command.stdin(Stdio::null()).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "{name} is installed by npm and needs Node.js {NODE} or newer: install them and put `{program}` into PATH"
        ),
        outcome => outcome.with_context(|| format!("cannot run {program}"))?,
    };
    ensure!(
        status.success(),
        "{program} failed for {name}, which needs Node.js {NODE} or newer and a registry of npm packages:\n{}{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn lock_files_have_a_hash_of_each_package_and_no_address() {
        for package in [NODE_ISSUER, CHROMIUM, ES_PLUGIN] {
            let (_, lock) = package.files[1];
            let lock: Value = serde_json::from_str(lock).unwrap();
            let packages = lock["packages"].as_object().unwrap();
            assert!(packages.len() > 5, "{}", package.name);
            for (path, locked) in packages.iter().filter(|(path, _)| !path.is_empty()) {
                assert!(
                    locked["integrity"]
                        .as_str()
                        .is_some_and(|hash| hash.starts_with("sha512-")),
                    "{path}"
                );
                assert!(
                    locked.get("resolved").is_none(),
                    "{path} names a registry; use --omit-lockfile-registry-resolved"
                );
            }
        }
    }
}
