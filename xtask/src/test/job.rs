//! A command of the test run whose output is shown in one piece.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::cargo::root;

/// A job that takes longer hangs and is killed, so that its output so far is shown.
const LIMIT: Duration = Duration::from_mins(25);
/// How often the scheduler looks whether a job has ended.
const POLL: Duration = Duration::from_millis(100);

/// A command that runs beside others.
#[derive(Debug)]
pub(super) struct Job {
    /// The name in messages, and of the file with its output.
    pub(super) name: String,
    /// The command, without its standard streams.
    pub(super) command: Command,
}

impl Job {
    /// Runs the command to its end, shows its output, and returns that output. Fails if the command does.
    ///
    /// Until the command ends its output is in `target/e2e/NAME.log`, also that of a command that hangs.
    pub(super) fn run(&mut self) -> Result<String> {
        let start = Instant::now();
        let folder = root().join("target/e2e");
        let path = folder.join(format!("{}.log", self.name.replace(' ', "-")));
        fs::create_dir_all(&folder)?;
        let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("==> {} begins; its output is in {}", self.name, path.display());
        let child = self
            .command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run {}", self.command.get_program().display()))?;
        let status = wait(child, LIMIT)?;
        let output = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        let seconds = start.elapsed().as_secs_f64();
        // In one piece: other jobs end at the same time.
        let _ = write!(io::stderr().lock(), "==> {}: {seconds:.0} s\n{output}\n", self.name);
        match status {
            Some(status) => ensure!(status.success(), "{status}"),
            None => bail!("it has not ended after {LIMIT:?}"),
        }
        Ok(output)
    }
}

/// Waits for the end of a program. Returns None if that takes longer than the limit; the program is killed then.
fn wait(mut child: Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_killed() {
        let run = |program: &str, arg: &str| Command::new(program).arg(arg).spawn().unwrap();
        let ended = wait(run("sleep", "0"), Duration::from_mins(1)).unwrap();
        assert!(ended.is_some_and(|status| status.success()));
        assert_eq!(wait(run("sleep", "600"), Duration::ZERO).unwrap(), None);
    }
}
