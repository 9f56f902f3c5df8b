//! The runners of all SDKs: the programs that do what the cases ask.

use std::path::{Path, PathBuf};

use anyhow::Result;
use bindery_contract::runner::Runner;
use bindery_e2e::{process::Programs, sdks};
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

/// Builds the runners of all SDKs. That of Python has a sync client and an async one.
pub(crate) fn all() -> Result<[RunnerProgram; 5]> {
    let plain = |language, program| RunnerProgram {
        name: language,
        language,
        program,
        args: Vec::new(),
        env: Vec::new(),
    };
    let python = sdks::python()?;
    let script = workspace().join("sdk/python/tests/runner.py");
    let python = |name, more: &[&str]| RunnerProgram {
        name,
        args: [script.clone()]
            .into_iter()
            .chain(more.iter().map(PathBuf::from))
            .collect(),
        env: vec![
            ("PYTHONPATH", sdks::python_sources()),
            ("PYTHONDONTWRITEBYTECODE", "1".into()),
        ],
        ..plain("python", python.clone())
    };
    Ok([
        plain("rust", Programs::default().path("sdk-runner-rust")?),
        plain("go", sdks::go("internal/runner")?),
        python("python", &[]),
        python("python-aio", &["--aio"]),
        RunnerProgram {
            args: vec![sdks::typescript()?.join("build/test/runner.js")],
            ..plain("typescript", "node".into())
        },
    ])
}

pub(crate) fn workspace() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}
