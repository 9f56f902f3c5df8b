//! The fuzz targets of `fuzz/`, guided by coverage. libFuzzer comes with a crate, so nothing has to be installed.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use anyhow::{Context as _, Result, ensure};

use crate::cargo::{root, step};

/// The crate of the fuzz targets.
const FOLDER: &str = "fuzz";
/// The coverage that libFuzzer is guided by.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Runs each fuzz target for its share of the seconds, beginning with what earlier runs came to. It fails after the last target if
/// any of them found something.
pub(crate) fn run(seconds: u64) -> Result<()> {
    let targets = targets()?;
    let work = root().join("target/fuzz");
    let programs = build(&work)?;
    let share = (seconds / targets.len() as u64).max(1);
    let mut found = Vec::new();
    for target in &targets {
        found.extend(fuzz(target, &programs.join(target), &work, share)?);
    }
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

/// Runs one fuzz target, and returns what it found.
fn fuzz(target: &str, program: &Path, work: &Path, seconds: u64) -> Result<Option<String>> {
    let folder = root().join(FOLDER);
    let corpus = work.join("corpus").join(target);
    let found = work.join("found").join(target);
    for folder in [&corpus, &found] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let start = SystemTime::now();
    eprintln!("==> fuzz: {target} for {seconds} s");
    let mut command = Command::new(program);
    command.args([corpus, folder.join("seeds").join(target)]);
    let dictionary = folder.join("dictionaries").join(format!("{target}.dict"));
    if dictionary.is_file() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    let status = command
        .arg(format!("-artifact_prefix={}/", found.display()))
        .arg(format!("-max_total_time={seconds}"))
        .args([
            "-timeout=10",
            "-rss_limit_mb=2048",
            "-max_len=8192",
            "-print_final_stats=1",
        ])
        .current_dir(root())
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    if status.success() {
        return Ok(None);
    }
    let program = program.display();
    let problem = match newest(&found, start) {
        Some(input) => format!(
            "fuzz target {target} found {input}: to see it again, run\n{program} {input}",
            input = input.display()
        ),
        None => format!("fuzz target {target} failed ({status}) without an input that it fails with"),
    };
    Ok(Some(problem))
}

/// Returns the names of all fuzz targets, sorted.
fn targets() -> Result<Vec<String>> {
    let folder = root().join(FOLDER).join("fuzz_targets");
    let mut targets = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(OsStr::to_str);
        targets.push(name.context("a fuzz target has a name that is not UTF-8")?.to_owned());
    }
    ensure!(!targets.is_empty(), "{} has no fuzz targets", folder.display());
    targets.sort_unstable();
    Ok(targets)
}

/// Builds all fuzz targets, and returns the folder of their programs.
fn build(work: &Path) -> Result<PathBuf> {
    let host = host()?;
    let manifest = format!("{FOLDER}/Cargo.toml");
    let work_folder = work.display().to_string();
    let build = [
        "build",
        "--locked",
        "--manifest-path",
        &manifest,
        "--target-dir",
        &work_folder,
        // Named, so that the flags are kept from build scripts and macros, which libFuzzer is not linked to.
        "--target",
        &host,
    ];
    step("fuzz targets", &build, &[("RUSTFLAGS", FLAGS)])?;
    Ok(work.join(host).join("debug"))
}

/// The platform that is built for.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .arg("-vV")
        .current_dir(root())
        .output()
        .context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not tell its host")?.to_owned())
}

fn newest(folder: &Path, since: SystemTime) -> Option<PathBuf> {
    let files = fs::read_dir(folder).ok()?.flatten();
    let times = files.filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path())));
    times.filter(|(time, _)| *time >= since).max().map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fuzz_target_is_built_and_has_seeds() {
        let manifest = fs::read_to_string(root().join(FOLDER).join("Cargo.toml")).unwrap();
        let targets = targets().unwrap();
        assert_eq!(manifest.matches("[[bin]]").count(), targets.len());
        for target in targets {
            assert!(
                manifest.contains(&format!("\npath = \"fuzz_targets/{target}.rs\"\n")),
                "{target}"
            );
            let seeds = root().join(FOLDER).join("seeds").join(&target);
            assert!(seeds.read_dir().unwrap().next().is_some(), "{target}");
        }
    }
}
