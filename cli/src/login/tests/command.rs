//! Runs `kubectl bind` as a process of its own: this program again, with [`child`] as its only test.

use std::{env, ffi::OsString, io::Write as _, path::Path, process::Stdio, time::Duration};

use nix::pty::openpty;
use tokio::{
    fs::File,
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, Command},
    time::timeout,
};

/// Variable with the command line of [`child`], in JSON.
const COMMAND_LINE: &str = "BINDERY_TEST_COMMAND_LINE";
/// No test waits this long.
const PATIENCE: Duration = Duration::from_mins(1);

/// A command that runs.
pub(super) struct Running {
    process: Child,
    lines: Lines<BufReader<Box<dyn AsyncRead + Unpin>>>,
    seen: String,
}

/// A command that runs on a terminal.
pub(super) struct OnTerminal {
    process: Child,
    terminal: File,
}

/// The command `kubectl bind WORDS`, with its logins in a folder and without any variable of the user. `shell` runs before it.
pub(super) fn command(config: &Path, shell: &str, words: &[&str]) -> Command {
    let words: Vec<_> = ["kubectl-bind"].iter().chain(words).collect();
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{shell}\nexec \"$0\" \"$@\"")])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "login::tests::command::child", "--ignored", "--nocapture"])
        .env_clear()
        .envs(env::var_os("PATH").map(|path| ("PATH", path)))
        .env("BINDERY_CONFIG", config)
        .env(COMMAND_LINE, serde_json::to_string(&words).unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Starts a command.
pub(super) fn start(mut command: Command) -> Running {
    let mut process = command.spawn().unwrap();
    let output: Box<dyn AsyncRead + Unpin> = Box::new(process.stderr.take().unwrap());
    Running {
        lines: BufReader::new(output).lines(),
        process,
        seen: String::new(),
    }
}

/// Starts a command whose user sits at a terminal.
pub(super) fn start_on_terminal(mut command: Command) -> OnTerminal {
    let pty = openpty(None, None).unwrap();
    command.stdin(pty.slave.try_clone().unwrap()).stderr(pty.slave);
    let process = command.spawn().unwrap();
    // The command holds copies of the terminal, which would keep it open.
    drop(command);
    OnTerminal {
        process,
        terminal: File::from_std(std::fs::File::from(pty.master)),
    }
}

impl OnTerminal {
    /// Waits until the command asks, and types the answer. Returns what it printed before.
    pub(super) async fn answer(&mut self, answer: &str) -> String {
        let mut seen = Vec::new();
        timeout(PATIENCE, async {
            while !seen.ends_with(b"[y/N] ") {
                let byte = self.terminal.read_u8().await.unwrap();
                seen.push(byte);
            }
        })
        .await
        .unwrap();
        self.terminal.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        self.terminal.flush().await.unwrap();
        String::from_utf8(seen).unwrap()
    }

    /// The command, whose output goes on to be read.
    pub(super) fn running(self) -> Running {
        let output: Box<dyn AsyncRead + Unpin> = Box::new(self.terminal);
        Running {
            process: self.process,
            lines: BufReader::new(output).lines(),
            seen: String::new(),
        }
    }
}

impl Running {
    /// The URL of the issuer that the command prints.
    pub(super) async fn url(&mut self) -> String {
        timeout(PATIENCE, async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                self.seen.push_str(&line);
                self.seen.push('\n');
                let mut words = line.split_whitespace();
                if let Some(url) = words.find(|word| word.starts_with("https://") && word.contains("/authorize?")) {
                    return url.to_owned();
                }
            }
            panic!("no URL in {}", self.seen);
        })
        .await
        .unwrap()
    }

    /// Waits for the end. Returns the exit code and what was printed on standard error.
    pub(super) async fn end(mut self) -> (i32, String) {
        timeout(PATIENCE, async {
            // A terminal fails when its last user has gone.
            while let Ok(Some(line)) = self.lines.next_line().await {
                self.seen.push_str(&line);
                self.seen.push('\n');
            }
            let code = self.process.wait().await.unwrap().code().unwrap();
            (code, self.seen)
        })
        .await
        .unwrap()
    }

    /// Ends the command as a crash does.
    pub(super) async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }
}

/// Runs one command, with the environment and the exit code of `kubectl-bind`.
#[test]
#[ignore = "it is a process of other tests"]
fn child() {
    let Some(line) = env::var_os(COMMAND_LINE) else { return };
    let words: Vec<OsString> = serde_json::from_str::<Vec<String>>(line.to_str().unwrap())
        .unwrap()
        .into_iter()
        .map(Into::into)
        .collect();
    let code = match crate::run(crate::args::parse(words).unwrap()) {
        Ok(()) => 0,
        Err(failure) => {
            std::io::stderr().write_all(failure.shown().as_bytes()).unwrap();
            failure.exit().number().into()
        }
    };
    std::process::exit(code);
}
