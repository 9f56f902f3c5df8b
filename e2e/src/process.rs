//! Runs child processes that end with their owner.

mod command;
mod guard;

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    sync::LazyLock,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
pub use nix::sys::signal::Signal;
use nix::{
    sys::{
        signal::{kill, killpg},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};
use tokio::time::{Instant, sleep};

pub use self::command::{Programs, cargo_bin_path, run, run_with_input, stdout};

use crate::Workdir;

const POLL: Duration = Duration::from_millis(50);

/// How many of the last lines of a log an error shows.
const TAIL: usize = 20;

/// The folder for the logs of [`Process::spawn`]. It is removed at the end of the test process.
static LOGS: LazyLock<Result<Workdir>> = LazyLock::new(|| Workdir::new("logs"));

/// A running command with a log file. It is killed on drop, and also when the process that spawned it dies in any way.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// The length of the log when this process began: a restart appends to the log of its predecessor.
    log_start: u64,
    shows_log: bool,
    exit: Option<ExitStatus>,
}

impl Process {
    /// Runs `command` for a test, with its output in a log file whose last lines are printed on drop: libtest shows
    /// them for a test that failed. Its environment is that of the caller with the changes made on `command`;
    /// `env_clear` is not seen.
    pub fn spawn(name: &str, command: &Command) -> Result<Self> {
        let logs = LOGS
            .as_ref()
            .map_err(|error| anyhow!("no folder for logs: {error:#}"))?;
        let mut process = Self::spawn_in(logs.path(), name, command)?;
        process.shows_log = true;
        Ok(process)
    }

    /// Runs `command` with its output appended to `<dir>/<name>.log`, and prints nothing of it.
    pub fn spawn_in(dir: &Path, name: &str, command: &Command) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("cannot open {}", log.display()))?;
        let log_start = file.metadata()?.len();
        let child = guard::guarded(command)
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
            log_start,
            shows_log: false,
            exit: None,
        })
    }

    /// Prints nothing of the log on drop, for a process that is no longer of interest.
    pub fn hush(&mut self) {
        self.shows_log = false;
    }

    /// The command for one of the project's programs, which is found beside the running executable.
    pub fn cargo_bin(name: &str) -> Result<Command> {
        Ok(Command::new(cargo_bin_path(name)?))
    }

    /// The name given to [`Process::spawn`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process has not ended yet.
    pub fn is_running(&mut self) -> bool {
        matches!(self.try_wait(), Ok(None))
    }

    /// Sends a signal. `SIGSTOP` and `SIGCONT` pause and resume it.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if let Some(status) = self.try_wait()? {
            bail!("{} has ended already: {status}", self.name);
        }
        kill(self.pid(), signal).with_context(|| format!("cannot send {signal} to {}", self.name))
    }

    /// Stops the process with SIGSTOP, and waits until all its threads stand still. SIGCONT resumes it.
    pub fn pause(&mut self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        // A process that ended meanwhile stays to be reaped as usual.
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(self.pid()), flags).with_context(|| format!("{} is not stopped", self.name))?;
        Ok(())
    }

    /// Kills the process with SIGKILL and waits until it is gone. Does nothing if it has ended already.
    pub fn kill9(&mut self) -> Result<()> {
        if self.exit.is_none() {
            self.child
                .kill()
                .with_context(|| format!("cannot kill {}", self.name))?;
            self.finished(None)?;
        }
        Ok(())
    }

    /// Sends SIGTERM and waits for the end. A process that takes longer than `limit` is killed, and that is an error.
    pub async fn terminate(&mut self, limit: Duration) -> Result<ExitStatus> {
        if self.is_running() {
            self.signal(Signal::SIGTERM)?;
        }
        match self.wait(limit).await {
            Ok(status) => Ok(status),
            Err(error) => {
                self.kill9()?;
                Err(error.context("SIGTERM did not end it"))
            }
        }
    }

    /// Waits until the process ends by itself, which is an error after `limit`.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                bail!(
                    "{} has not ended after {limit:?}; its log ends:\n{}",
                    self.name,
                    self.tail()
                );
            }
            sleep(POLL).await;
        }
    }

    /// The exit status, if the process has ended.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        if self.exit.is_none()
            && let Some(status) = self.child.try_wait()?
        {
            self.finished(Some(status))?;
        }
        Ok(self.exit)
    }

    /// Waits until a line of the log since this start contains `pattern`, and returns that line.
    pub async fn wait_for_line(&mut self, pattern: &str, limit: Duration) -> Result<String> {
        let deadline = Instant::now() + limit;
        loop {
            // Asked before the log is read, so that the last lines of a process that ended are seen.
            let exit = self.try_wait()?;
            if let Some(line) = self.log().lines().find(|line| line.contains(pattern)) {
                return Ok(line.to_owned());
            }
            let tail = || self.tail();
            if let Some(status) = exit {
                bail!(
                    "{} ended ({status}) without the line {pattern:?}; its log ends:\n{}",
                    self.name,
                    tail()
                );
            }
            if Instant::now() >= deadline {
                bail!(
                    "{} has not written {pattern:?} after {limit:?}; its log ends:\n{}",
                    self.name,
                    tail()
                );
            }
            sleep(POLL).await;
        }
    }

    /// The output of the process since its start.
    pub fn log(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let start = usize::try_from(self.log_start).unwrap_or(usize::MAX).min(bytes.len());
        String::from_utf8_lossy(&bytes[start..]).into_owned()
    }

    /// The path of the log file, to which a process of the same name in the same folder appends.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// The last lines of the output.
    pub fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Reaps the process and then ends its guard, which is the rest of its process group.
    fn finished(&mut self, status: Option<ExitStatus>) -> Result<()> {
        let status = match status {
            Some(status) => status,
            None => self.child.wait()?,
        };
        self.exit = Some(status);
        // As long as the guard lives, the group's id belongs to nobody else.
        if let Some(mut stdin) = self.child.stdin.take() {
            let _ = killpg(self.pid(), Signal::SIGKILL);
            let _ = stdin.write_all(b"\n");
        }
        Ok(())
    }
}

impl Drop for Process {
    #[expect(clippy::print_stderr, reason = "belongs to the output of the test that failed")]
    fn drop(&mut self) {
        if self.shows_log {
            eprintln!(
                "---- the log of {} ({}) ends:\n{}",
                self.name,
                self.log.display(),
                self.tail()
            );
        }
        if let Err(error) = self.kill9() {
            eprintln!("{error:#}");
        }
    }
}
