//! The fuzz target of what reads manifests, guided by coverage. libFuzzer comes with a crate, so nothing has to be installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use anyhow::{Context as _, Result, bail};

use crate::cargo::{root, step};

/// The coverage that libFuzzer is guided by.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Fuzzes for so many seconds, beginning with what earlier runs came to.
pub(crate) fn run(seconds: u64) -> Result<()> {
    let root = root();
    let work = root.join("target/fuzz");
    let target = build(&work)?;
    let corpus = work.join("corpus");
    let found = work.join("found");
    for folder in [&corpus, &found] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let start = SystemTime::now();
    eprintln!("==> fuzz: {} for {seconds} s", target.display());
    let status = Command::new(&target)
        .args([corpus.as_path(), Path::new("synk/fuzz/seeds")])
        .arg("-dict=synk/fuzz/yaml.dict")
        .arg(format!("-artifact_prefix={}/", found.display()))
        .arg(format!("-max_total_time={seconds}"))
        .args([
            "-timeout=10",
            "-rss_limit_mb=2048",
            "-max_len=8192",
            "-print_final_stats=1",
        ])
        .current_dir(&root)
        .status()
        .with_context(|| format!("cannot run {}", target.display()))?;
    if status.success() {
        return Ok(());
    }
    let target = target.display();
    match newest(&found, start) {
        Some(input) => bail!(
            "the fuzzer found {input}: to see it again, run\n{target} {input}",
            input = input.display()
        ),
        None => bail!("{target} failed ({status}) without an input that it fails with"),
    }
}

fn build(work: &Path) -> Result<PathBuf> {
    let host = host()?;
    let work_folder = work.display().to_string();
    let build = [
        "build",
        "--locked",
        "--manifest-path",
        "synk/fuzz/Cargo.toml",
        "--target-dir",
        &work_folder,
        // Named, so that the flags are kept from build scripts and macros, which libFuzzer is not linked to.
        "--target",
        &host,
    ];
    step("fuzz target", &build, &[("RUSTFLAGS", FLAGS)])?;
    Ok(work.join(host).join("debug/parse"))
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
