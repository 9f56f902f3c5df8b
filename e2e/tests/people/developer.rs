//! A developer with a configuration folder of their own, who runs `kubectl bind` and signs in by Chromium.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    Workdir,
    browser::Consent,
    issuers::{Issuer, IssuerUser},
    process,
    wildwest::SOON,
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdin},
    time::timeout,
};

use crate::world::World;

/// Variables by which a command finds a browser, a server or a token. A developer has none of them.
const FOREIGN: [&str; 9] = [
    "BROWSER",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "SSH_CONNECTION",
    "SSH_TTY",
    "KUBECTL_BIND_SERVER",
    "KUBECTL_BIND_TOKEN",
    "KUBECTL_BIND_TOKEN_FILE",
    "KUBECTL_BIND_CERTIFICATE_AUTHORITY",
];

/// Flags of a login whose redirect the browser of the tests does not reach, so that the person pastes it.
pub(crate) const PASTED: [&str; 3] = ["--no-browser", "--redirect-url", "http://localhost/callback"];

/// A person with an account at one issuer.
pub(crate) struct Developer {
    world: &'static World,
    pub(crate) issuer: &'static Issuer,
    pub(crate) user: IssuerUser,
    /// The URL of the server that the developer logs in to.
    pub(crate) server: String,
    /// `BINDERY_CONFIG` is a folder in it.
    desk: Workdir,
}

/// How a command has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A `kubectl bind login` that waits for its person. It ends with this value.
pub(crate) struct Login {
    world: &'static World,
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStderr>>,
    seen: String,
}

impl Developer {
    /// A developer whose name, of the make of the issuer too, no other test has.
    pub(crate) async fn new(
        world: &'static World,
        issuer: &'static Issuer,
        name: &str,
        groups: &[&str],
    ) -> Result<Self> {
        let name = format!("{name}-{}", issuer.make().name());
        Self::named(world, issuer, IssuerUser::new(&name, groups)).await
    }

    /// A developer who is this user of the issuer.
    pub(crate) async fn named(world: &'static World, issuer: &'static Issuer, user: IssuerUser) -> Result<Self> {
        issuer.set_user(user.clone()).await?;
        Ok(Self {
            desk: Workdir::new(&user.name)?,
            server: world.provider.address(),
            world,
            issuer,
            user,
        })
    }

    /// The username, as the server knows it.
    pub(crate) fn username(&self) -> String {
        format!("{}@example.com", self.user.name)
    }

    /// The folder of the logins.
    pub(crate) fn config(&self) -> PathBuf {
        self.desk.path().join("config")
    }

    /// The folder that is the developer's own.
    pub(crate) fn desk(&self) -> &Workdir {
        &self.desk
    }

    /// The command `kubectl-bind ARGS`.
    pub(crate) fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = self.world.consumer.bind_command()?;
        for name in FOREIGN {
            command.env_remove(name);
        }
        command.env("BINDERY_CONFIG", self.config()).args(args);
        Ok(command)
    }

    /// Runs `kubectl bind ARGS` to its end.
    pub(crate) async fn run(&self, args: &[&str]) -> Result<Ended> {
        let ended = Ended::of(&process::run(self.command(args)?, SOON).await?);
        self.world.heard(&ended.stdout);
        self.world.heard(&ended.stderr);
        self.note_tokens()?;
        Ok(ended)
    }

    /// Runs `kubectl bind ARGS`, which must succeed, and returns its standard output.
    pub(crate) async fn ok(&self, args: &[&str]) -> Result<String> {
        let ended = self.run(args).await?;
        ended.success().with_context(|| args.join(" "))
    }

    /// Runs `kubectl bind ARGS`, which must end with an exit code, and returns its standard error.
    pub(crate) async fn fails(&self, args: &[&str], code: i32) -> Result<String> {
        let ended = self.run(args).await?;
        ended.failure(code).with_context(|| args.join(" "))
    }

    /// `kubectl bind whoami` as JSON.
    pub(crate) async fn whoami(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.ok(&["whoami", "-o", "json"]).await?)?)
    }

    /// `kubectl bind token`: the ID token, refreshed if need be.
    pub(crate) async fn token(&self) -> Result<String> {
        let ended = Ended::of(&process::run(self.command(&["token"])?, SOON).await?);
        self.note_tokens()?;
        self.world.heard(&ended.stderr);
        Ok(ended.success().context("token")?.trim().to_owned())
    }

    /// Begins `kubectl bind login` with more flags, in an environment with more variables.
    pub(crate) fn begin(&self, flags: &[&str], env: &[(&str, &str)]) -> Result<Login> {
        let mut command = self.command(&["login", &self.server, "--timeout", "90s"])?;
        command.arg("--certificate-authority").arg(self.world.ca_path());
        command.args(["--issuer", &self.issuer.url()]);
        command.arg("--issuer-ca").arg(self.issuer.ca_file());
        command.args(flags).envs(env.iter().copied());
        Login::start(self.world, command)
    }

    /// Begins `kubectl bind ARGS`, a login at what is remembered of the first one.
    pub(crate) fn begin_again(&self, args: &[&str]) -> Result<Login> {
        Login::start(self.world, self.command(args)?)
    }

    /// Logs in with a browser on another machine than the command: by pasting the address that it ends at.
    pub(crate) async fn log_in(&self) -> Result<()> {
        let mut login = self.begin(&PASTED, &[])?;
        let url = login.url("Open ").await?;
        let pasted = self.sign_in_elsewhere(&url).await?;
        login.paste(&pasted).await?;
        login.end().await?.success()?;
        self.note_tokens()?;
        // What is scanned for is there.
        self.refresh_token().map(drop)
    }

    /// Signs in at the URL of a login with [`PASTED`], and returns the address that the browser ends at.
    pub(crate) async fn sign_in_elsewhere(&self, url: &str) -> Result<String> {
        let page = self.world.browser.page().await?;
        page.sign_in(url, &self.user, Consent::Allow).await?;
        page.address().await
    }

    /// The file of the tokens.
    pub(crate) fn token_file(&self) -> Result<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.config().join("tokens"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                found.push(path);
            }
        }
        ensure!(found.len() == 1, "files of tokens: {found:?}");
        Ok(found.remove(0))
    }

    /// What is in the file of the tokens.
    pub(crate) fn stored(&self) -> Result<Value> {
        Ok(serde_json::from_slice(&fs::read(self.token_file()?)?)?)
    }

    /// The refresh token that is stored.
    pub(crate) fn refresh_token(&self) -> Result<String> {
        let stored = self.stored()?;
        let token = stored["refreshToken"].as_str();
        Ok(token.context("no refresh token is stored")?.to_owned())
    }

    /// Tells the world which tokens are stored now, in which nothing may be printed.
    fn note_tokens(&self) -> Result<()> {
        let Ok(path) = self.token_file() else { return Ok(()) };
        // Tests damage the file, and a command may just replace it.
        let Ok(stored) = serde_json::from_slice::<Value>(&fs::read(path)?) else {
            return Ok(());
        };
        let tokens = ["idToken", "refreshToken"].map(|name| stored[name].as_str().map(str::to_owned));
        self.world.kept(tokens.into_iter().flatten());
        Ok(())
    }
}

impl Ended {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// The standard output of a command that succeeded.
    pub(crate) fn success(self) -> Result<String> {
        ensure!(self.code == Some(0), "exit code {:?}: {}", self.code, self.stderr);
        Ok(self.stdout)
    }

    /// The standard error of a command that ended with this exit code.
    pub(crate) fn failure(self, code: i32) -> Result<String> {
        ensure!(self.code == Some(code), "{self:?}, and not exit code {code}");
        Ok(self.stderr)
    }
}

impl Login {
    fn start(world: &'static World, command: Command) -> Result<Self> {
        let mut command = tokio::process::Command::from(command);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let stderr = child.stderr.take().context("no standard error")?;
        Ok(Self {
            world,
            input: child.stdin.take().context("no standard input")?,
            lines: BufReader::new(stderr).lines(),
            child,
            seen: String::new(),
        })
    }

    /// Waits for a line with this text on standard error, and returns the line.
    pub(crate) async fn line(&mut self, part: &str) -> Result<String> {
        let found = timeout(SOON, async {
            while let Some(line) = self.lines.next_line().await? {
                self.seen.push_str(&line);
                self.seen.push('\n');
                if line.contains(part) {
                    return anyhow::Ok(Some(line));
                }
            }
            Ok(None)
        });
        let found = found
            .await
            .with_context(|| format!("no line {part:?} in:\n{}", self.seen))??;
        found.with_context(|| format!("it ended without a line {part:?}:\n{}", self.seen))
    }

    /// Waits for a line with this text, and returns the URL in it.
    pub(crate) async fn url(&mut self, part: &str) -> Result<String> {
        let line = self.line(part).await?;
        let url = line.split_whitespace().find(|word| word.starts_with("https://"));
        Ok(url
            .with_context(|| format!("no URL in {line:?}"))?
            .trim_end_matches(',')
            .to_owned())
    }

    /// Types a line.
    pub(crate) async fn paste(&mut self, line: &str) -> Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(())
    }

    /// Waits for the end.
    pub(crate) async fn end(mut self) -> Result<Ended> {
        let mut stdout = String::new();
        let mut out = self.child.stdout.take().context("no standard output")?;
        let read = async {
            while let Some(line) = self.lines.next_line().await? {
                self.seen.push_str(&line);
                self.seen.push('\n');
            }
            anyhow::Ok(())
        };
        let both = async { tokio::try_join!(read, async { anyhow::Ok(out.read_to_string(&mut stdout).await?) }) };
        timeout(SOON, both).await.context("it does not end")??;
        let code = timeout(Duration::from_secs(10), self.child.wait()).await??.code();
        self.world.heard(&self.seen);
        self.world.heard(&stdout);
        Ok(Ended {
            code,
            stdout,
            stderr: self.seen,
        })
    }
}
