//! The runners of all SDKs that are there: the programs that do what the cases ask.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use bindery_contract::runner::Runner;
use bindery_e2e::{binaries, process::Programs};
use tokio::process::Command;

/// A runner that can be started.
pub(crate) struct RunnerProgram {
    /// The column of the table, such as `python-aio`.
    pub(crate) name: &'static str,
    /// The language in user agents.
    language: &'static str,
    program: PathBuf,
    args: Vec<PathBuf>,
    /// Environment variables.
    env: Vec<(&'static str, PathBuf)>,
}

impl RunnerProgram {
    /// Starts the runner; its standard error goes to a file in `folder`.
    pub(crate) fn start(&self, folder: &Path) -> Result<Runner> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        Runner::start(self.language, command, &folder.join(format!("{}.stderr", self.name)))
    }
}

/// Builds the runners of all SDKs whose folder has one. `BINDERY_SDKS` names another checkout whose folder `sdk` is used, except for Rust.
pub(crate) fn all() -> Result<Vec<RunnerProgram>> {
    let sdks =
        env::var_os("BINDERY_SDKS").map_or_else(|| workspace().join("sdk"), |path| PathBuf::from(path).join("sdk"));
    let mut runners = vec![RunnerProgram {
        name: "rust",
        language: "rust",
        program: Programs::default().path("sdk-runner-rust")?,
        args: Vec::new(),
        env: Vec::new(),
    }];
    if sdks.join("go/internal/runner").is_dir() {
        runners.push(go(&sdks.join("go"))?);
    }
    if sdks.join("python/tests/runner.py").is_file() {
        runners.extend(python(&sdks.join("python"))?);
    }
    if sdks.join("typescript/test/runner.ts").is_file() {
        runners.push(typescript(&sdks.join("typescript"))?);
    }
    Ok(runners)
}

fn go(folder: &Path) -> Result<RunnerProgram> {
    let program = target()?.join("go-runner");
    let mut command = std::process::Command::new("go");
    command
        .args(["build", "-mod=readonly", "-buildvcs=false", "-o"])
        .arg(&program)
        .arg("./internal/runner");
    call(
        command
            .current_dir(folder)
            .env("GOFLAGS", "")
            .env("GOWORK", "off")
            .env("CGO_ENABLED", "0"),
    )?;
    Ok(RunnerProgram {
        name: "go",
        language: "go",
        program,
        args: Vec::new(),
        env: Vec::new(),
    })
}

/// The sync client and the async one.
fn python(folder: &Path) -> Result<[RunnerProgram; 2]> {
    let program = binaries::venv("python-sdk", include_str!("../../sdks/python/requirements.txt"))?;
    let script = folder.join("tests/runner.py");
    let runner = |name, more: &[&str]| RunnerProgram {
        name,
        language: "python",
        program: program.clone(),
        args: [script.clone()]
            .into_iter()
            .chain(more.iter().map(PathBuf::from))
            .collect(),
        env: vec![
            ("PYTHONPATH", folder.join("src")),
            ("PYTHONDONTWRITEBYTECODE", "1".into()),
        ],
    };
    Ok([runner("python", &[]), runner("python-aio", &["--aio"])])
}

fn typescript(folder: &Path) -> Result<RunnerProgram> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).with_context(|| format!("cannot read {name}"));
    let packages = binaries::npm_packages("typescript-sdk", &read("package.json")?, &read("package-lock.json")?)?;
    // The compiler looks for packages beside the sources, and nothing is written into those.
    let copy = target()?.join("typescript");
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir_all(&copy)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().context("a name")?;
        if !["node_modules", "build", "dist"].iter().any(|made| name == *made) {
            call(std::process::Command::new("cp").arg("-R").arg(&path).arg(&copy))?;
        }
    }
    std::os::unix::fs::symlink(packages.join("node_modules"), copy.join("node_modules"))?;
    let compiler = "node_modules/typescript/bin/tsc";
    call(
        std::process::Command::new("node")
            .args([compiler, "-p", "tsconfig.test.json"])
            .current_dir(&copy),
    )?;
    Ok(RunnerProgram {
        name: "typescript",
        language: "typescript",
        program: "node".into(),
        args: vec![copy.join("build/test/runner.js")],
        env: Vec::new(),
    })
}

fn call(command: &mut std::process::Command) -> Result<()> {
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

pub(crate) fn workspace() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}
