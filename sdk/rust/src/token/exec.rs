//! A token source that runs a program, such as `kubectl bind token`.

mod credential;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::process::Command;
use tokio::time::timeout;

use super::{TokenError, TokenSource, same};
use credential::{Credential, CredentialFault};

/// Time limit of one run of the program, which may have to wait for a user to log in.
const RUN_TIMEOUT: Duration = Duration::from_mins(1);

/// The variable from which credential plug-ins learn what they must print.
const EXEC_INFO_VARIABLE: &str = "KUBERNETES_EXEC_INFO";
const EXEC_INFO: &str =
    r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}"#;

/// Runs a program that prints a token, or an ExecCredential of `client.authentication.k8s.io` as JSON, on its standard output.
///
/// The program has no standard input, its standard error is that of this process, and it finds an ExecCredential with
/// `spec.interactive: false` in `KUBERNETES_EXEC_INFO`. All callers share one run at a time, which goes on when a caller gives up,
/// and is killed after 60 s. A token is used until 30 s before its `expirationTimestamp`, or for a minute if it has none, and until
/// the server says that it has expired. Clones share the token. Must be used within a Tokio runtime.
#[derive(Clone)]
pub struct ExecToken(Arc<ExecSource>);

struct ExecSource {
    program: OsString,
    args: Vec<OsString>,
    timeout: Duration,
    cache: Mutex<ExecCache>,
}

/// The token that is used now, and the run that brings the next one.
#[derive(Default)]
struct ExecCache {
    credential: Option<Credential>,
    run: Option<ExecRun>,
    /// The token that the server refused last.
    refused: Option<SecretString>,
}

/// A run of the program that has not ended.
struct ExecRun {
    outcome: Shared<BoxFuture<'static, RunOutcome>>,
    /// The token that the server refused after this run began. The run may bring the same one.
    refused: Option<SecretString>,
}

/// What a run brought; `None` is a token that the server has refused during the run.
type RunOutcome = Result<Option<SecretString>, Arc<ExecFault>>;

/// Why the program of an [`ExecToken`] gave no token. It shows nothing of what the program printed.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
pub struct ExecError(Arc<ExecFault>);

#[derive(Debug, thiserror::Error)]
enum ExecFault {
    #[error("cannot run {program} for a token: {source}")]
    Start { program: String, source: io::Error },
    #[error("{program} gave no token: {status}")]
    Failed { program: String, status: ExitStatus },
    #[error("{program} gave no token within {:.1} s, and was killed", limit.as_secs_f64())]
    Slow { program: String, limit: Duration },
    #[error("{program} printed {fault}")]
    Output { program: String, fault: CredentialFault },
    #[error("the run of {program} for a token was stopped: the Tokio runtime that began it has ended")]
    Stopped { program: String },
}

impl ExecToken {
    /// Makes a source of this program and its arguments.
    pub fn new(program: impl Into<OsString>, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self::with_run_timeout(program, args, RUN_TIMEOUT)
    }

    /// Makes a source whose runs have another time limit. For tests alone.
    #[doc(hidden)]
    pub fn with_run_timeout(
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
        timeout: Duration,
    ) -> Self {
        Self(Arc::new(ExecSource {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            timeout,
            cache: Mutex::default(),
        }))
    }
}

impl ExecSource {
    async fn token(self: &Arc<Self>) -> Result<SecretString, ExecError> {
        loop {
            let outcome = {
                let mut cache = self.cache.lock();
                if let Some(credential) = cache.credential.as_ref().filter(|credential| credential.is_valid()) {
                    return Ok(credential.token.clone());
                }
                let run = cache.run.get_or_insert_with(|| ExecRun {
                    outcome: Arc::clone(self).begin(),
                    refused: None,
                });
                run.outcome.clone()
            };
            // A run that brought a refused token began before the refusal: another run may bring a new one.
            if let Some(token) = outcome.await.map_err(ExecError)? {
                return Ok(token);
            }
        }
    }

    /// Runs the program on a task of its own, so that it outlives the caller.
    fn begin(self: Arc<Self>) -> Shared<BoxFuture<'static, RunOutcome>> {
        let source = Arc::clone(&self);
        let run = tokio::spawn(async move {
            let printed = source.run().await;
            source.end(printed)
        });
        let outcome = async move {
            run.await.unwrap_or_else(|_| {
                // The task did not live to say that the run is over.
                self.cache.lock().run = None;
                let program = self.name();
                Err(Arc::new(ExecFault::Stopped { program }))
            })
        };
        outcome.boxed().shared()
    }

    /// Notes that the run has ended, and keeps the token that it brought unless the server has refused it meanwhile.
    fn end(&self, printed: Result<Credential, ExecFault>) -> RunOutcome {
        let mut cache = self.cache.lock();
        let run = cache.run.take();
        let credential = printed.map_err(Arc::new)?;
        let refused = run.and_then(|run| run.refused);
        if refused.is_some_and(|refused| same(&refused, &credential.token)) {
            return Ok(None);
        }
        let token = credential.token.clone();
        cache.credential = Some(credential);
        Ok(Some(token))
    }

    async fn run(&self) -> Result<Credential, ExecFault> {
        let program = self.name();
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .env(EXEC_INFO_VARIABLE, EXEC_INFO)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let running = match command.spawn() {
            Ok(child) => child.wait_with_output(),
            Err(source) => return Err(ExecFault::Start { program, source }),
        };
        let output = match timeout(self.timeout, running).await {
            Ok(Ok(output)) => output,
            Ok(Err(source)) => return Err(ExecFault::Start { program, source }),
            // Dropped, which kills the program.
            Err(_) => {
                let limit = self.timeout;
                return Err(ExecFault::Slow { program, limit });
            }
        };
        if !output.status.success() {
            let status = output.status;
            return Err(ExecFault::Failed { program, status });
        }
        Credential::parse(&String::from_utf8_lossy(&output.stdout))
            .map_err(|fault| ExecFault::Output { program, fault })
    }

    fn name(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }
}

impl TokenSource for ExecToken {
    fn token(&self) -> BoxFuture<'_, Result<SecretString, TokenError>> {
        async { Ok(self.0.token().await?) }.boxed()
    }

    fn forget(&self, token: &SecretString) {
        let mut cache = self.0.cache.lock();
        if cache
            .credential
            .as_ref()
            .is_some_and(|current| same(&current.token, token))
        {
            cache.credential = None;
        }
        // A run that began after the first refusal of a token is not concerned by the later ones.
        let is_known = cache.refused.as_ref().is_some_and(|refused| same(refused, token));
        if is_known {
            return;
        }
        cache.refused = Some(token.clone());
        if let Some(run) = &mut cache.run {
            run.refused = Some(token.clone());
        }
    }
}

impl fmt::Debug for ExecToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments may hold a secret.
        f.debug_struct("ExecToken")
            .field("program", &self.0.program)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
