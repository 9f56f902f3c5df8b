//! A token source that runs a program, such as `kubectl bind token`.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use serde::Deserialize;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::{TokenError, TokenSource};

/// A token is not used in the last seconds before it expires: the call has to arrive while it is valid.
const MARGIN: SignedDuration = SignedDuration::from_secs(30);

/// A token whose expiry is not known is asked for again after this long.
const REUSE: Duration = Duration::from_mins(1);

/// A program that takes longer is ended. It may wait for somebody who logs in.
const PATIENCE: Duration = Duration::from_mins(5);

/// Runs a program that prints a token, or an ExecCredential of `client.authentication.k8s.io` as JSON, on its standard output.
///
/// Its standard error is that of this process. A token is used until 30 s before its `expirationTimestamp`, or for a minute if it
/// has none, and until the server says that it has expired.
pub struct ExecToken {
    program: OsString,
    args: Vec<OsString>,
    stale: AtomicBool,
    last: Mutex<Option<Printed>>,
}

/// The token that was printed last, and until when it is used.
struct Printed {
    token: SecretString,
    until: Until,
}

enum Until {
    Expiry(Timestamp),
    Age(Instant),
}

/// Why a program gave no token.
#[derive(Debug, thiserror::Error)]
enum ExecError {
    #[error("cannot run {program}: {source}")]
    Start { program: String, source: io::Error },
    #[error("{program} failed: {status}")]
    Failed { program: String, status: ExitStatus },
    #[error("{program} has not ended within {} s", PATIENCE.as_secs())]
    Slow { program: String },
    #[error("{program} printed an ExecCredential without a token")]
    NoToken { program: String },
}

/// The part of an ExecCredential that holds the token.
#[derive(Deserialize)]
struct ExecCredential {
    status: Option<ExecStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecStatus {
    token: Option<String>,
    expiration_timestamp: Option<Timestamp>,
}

impl ExecToken {
    /// Makes a source of this program and its arguments.
    pub fn new(program: impl Into<OsString>, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            stale: AtomicBool::new(false),
            last: Mutex::new(None),
        }
    }

    async fn get(&self) -> Result<SecretString, TokenError> {
        let mut last = self.last.lock().await;
        let stale = self.stale.swap(false, Ordering::Relaxed);
        if let Some(printed) = last.as_ref().filter(|printed| !stale && printed.is_good()) {
            return Ok(printed.token.clone());
        }
        // Forgotten first: a program that fails must not leave a token that the server refused.
        *last = None;
        let printed = self.run().await.map_err(|error| TokenError::Source(Box::new(error)))?;
        let token = printed.token.clone();
        *last = Some(printed);
        Ok(token)
    }

    async fn run(&self) -> Result<Printed, ExecError> {
        let program = || self.program.to_string_lossy().into_owned();
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let start = |source| ExecError::Start {
            program: program(),
            source,
        };
        let running = command.spawn().map_err(start)?.wait_with_output();
        let output = match timeout(PATIENCE, running).await {
            Ok(output) => output.map_err(start)?,
            Err(_) => return Err(ExecError::Slow { program: program() }),
        };
        if !output.status.success() {
            return Err(ExecError::Failed {
                program: program(),
                status: output.status,
            });
        }
        Printed::parse(&String::from_utf8_lossy(&output.stdout))
            .ok_or_else(|| ExecError::NoToken { program: program() })
    }
}

impl Printed {
    /// Reads what a program printed; `None` for an ExecCredential without a token.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let by_age = Until::Age(Instant::now() + REUSE);
        // No token begins with a brace.
        if !text.starts_with('{') {
            return Some(Self {
                token: text.into(),
                until: by_age,
            });
        }
        let credential: ExecCredential = serde_json::from_str(text).ok()?;
        let status = credential.status?;
        Some(Self {
            token: status.token?.into(),
            until: status.expiration_timestamp.map_or(by_age, Until::Expiry),
        })
    }

    fn is_good(&self) -> bool {
        match self.until {
            Until::Expiry(expiry) => Timestamp::now().duration_until(expiry) > MARGIN,
            Until::Age(until) => Instant::now() < until,
        }
    }
}

impl TokenSource for ExecToken {
    fn token(&self) -> BoxFuture<'_, Result<SecretString, TokenError>> {
        self.get().boxed()
    }

    fn expired(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for ExecToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments may hold a secret.
        f.debug_struct("ExecToken")
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use secrecy::ExposeSecret as _;

    use super::*;

    fn shell(script: &str) -> ExecToken {
        ExecToken::new("/bin/sh", ["-c", script])
    }

    async fn token(source: &ExecToken) -> Result<String, String> {
        let token = source.token().await.map_err(|error| error.to_string())?;
        Ok(token.expose_secret().to_owned())
    }

    #[tokio::test]
    async fn tokens_are_plain_or_in_a_credential() {
        assert_eq!(token(&shell("echo one")).await, Ok("one".to_owned()));
        let credential = r#"{"kind": "ExecCredential", "status": {"token": "two"}}"#;
        assert_eq!(
            token(&shell(&format!("echo '{credential}'"))).await,
            Ok("two".to_owned())
        );
        for (script, expect) in [
            ("echo hunter2; exit 3", "failed: exit status: 3"),
            ("echo '{\"status\": {}}'", "without a token"),
            ("echo '{hunter2'", "without a token"),
        ] {
            let error = token(&shell(script)).await.unwrap_err();
            assert!(error.contains(expect) && !error.contains("hunter2"), "{error}");
        }
        let error = token(&ExecToken::new("/nonexistent", [""; 0])).await.unwrap_err();
        assert!(error.contains("cannot run /nonexistent"), "{error}");
    }

    #[tokio::test]
    async fn a_token_is_used_until_it_expires_or_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let counter = folder.path().join("count");
        let counting = |seconds: i64| {
            let expiry = Timestamp::now() + SignedDuration::from_secs(seconds);
            fs::write(&counter, "").unwrap();
            let count = counter.display();
            shell(&format!(
                "echo x >> {count}; echo '{{\"status\":{{\"token\":\"'$(wc -l < {count})'\",\"expirationTimestamp\":\"{expiry}\"}}}}'"
            ))
        };
        let source = counting(3600);
        assert_eq!(token(&source).await, Ok("1".to_owned()));
        assert_eq!(token(&source).await, Ok("1".to_owned()), "it is valid for an hour");
        source.expired();
        assert_eq!(token(&source).await, Ok("2".to_owned()));
        let source = counting(20);
        assert_eq!(token(&source).await, Ok("1".to_owned()));
        assert_eq!(token(&source).await, Ok("2".to_owned()), "the margin has begun");
    }

    #[test]
    fn debug_shows_no_argument() {
        assert!(!format!("{:?}", shell("echo hunter2")).contains("hunter2"));
    }
}
