//! Settings of a client as JSON.

use std::time::Duration;

use bindery_contract::case::Case;
use bindery_sdk::{
    BuildError, Client, ClientBuilder, ExecToken, FileToken, RetryPolicy, StaticToken, TokenError, TokenSource,
    token_fn,
};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Settings {
    address: String,
    ca_pem: Option<String>,
    ca_file: Option<String>,
    server_name: Option<String>,
    #[serde(default)]
    allow_plaintext: bool,
    token: Option<Token>,
    timeout_ms: Option<u64>,
    attempt_timeout_ms: Option<u64>,
    retry: Option<Retry>,
    reconnect: Option<Reconnect>,
    silence_ms: Option<u64>,
    user_agent: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", untagged)]
enum Token {
    Static { r#static: String },
    File { file: String },
    Exec { exec: Vec<String>, timeout_ms: Option<u64> },
    Function { function: TokenFunction },
}

/// What a function of the user does.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TokenFunction {
    /// Never returns.
    Slow,
    /// Fails with an error that quotes a token.
    Throws,
    /// Returns a token.
    StaticValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Retry {
    attempts: u32,
    base_ms: u64,
    cap_ms: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reconnect {
    base_ms: u64,
    cap_ms: u64,
}

impl Settings {
    /// Makes the client, and notes what its builder and its token source show of themselves.
    pub(super) fn build(self, shown: &mut Vec<String>) -> Result<Client, BuildError> {
        let milliseconds = Duration::from_millis;
        let mut builder = Client::builder(self.address).allow_plaintext(self.allow_plaintext);
        if let Some(pem) = self.ca_pem {
            builder = builder.ca_pem(pem);
        }
        if let Some(path) = self.ca_file {
            builder = builder.ca_file(path);
        }
        if let Some(name) = self.server_name {
            builder = builder.server_name(name);
        }
        if let Some(timeout) = self.timeout_ms {
            builder = builder.timeout(milliseconds(timeout));
        }
        if let Some(timeout) = self.attempt_timeout_ms {
            builder = builder.attempt_timeout(milliseconds(timeout));
        }
        if let Some(retry) = self.retry {
            builder = builder.retry(RetryPolicy {
                attempts: retry.attempts,
                base: milliseconds(retry.base_ms),
                cap: milliseconds(retry.cap_ms),
            });
        }
        let reconnect = self.reconnect.unwrap_or(Reconnect {
            base_ms: 1000,
            cap_ms: 30_000,
        });
        let reconnect = RetryPolicy {
            attempts: u32::MAX,
            base: milliseconds(reconnect.base_ms),
            cap: milliseconds(reconnect.cap_ms),
        };
        builder = builder.watch_timing(reconnect, milliseconds(self.silence_ms.unwrap_or(90_000)));
        if let Some(name) = self.user_agent {
            builder = builder.user_agent(name);
        }
        builder = match self.token {
            None => builder,
            Some(token) => token.give(builder, shown),
        };
        shown.push(format!("{builder:?}"));
        builder.build()
    }
}

impl Token {
    fn give(self, builder: ClientBuilder, shown: &mut Vec<String>) -> ClientBuilder {
        match self {
            Self::Static { r#static: token } => give(builder, StaticToken::new(token), shown),
            Self::File { file } => give(builder, FileToken::new(file), shown),
            Self::Exec { exec, timeout_ms } => {
                let (program, args) = exec
                    .split_first()
                    .map_or(("", &[][..]), |(program, args)| (program, args));
                let source = match timeout_ms {
                    None => ExecToken::new(program, args),
                    Some(limit) => ExecToken::with_run_timeout(program, args, Duration::from_millis(limit)),
                };
                give(builder, source, shown)
            }
            Self::Function { function } => {
                let source = token_fn(move || async move {
                    match function {
                        TokenFunction::Slow => std::future::pending().await,
                        TokenFunction::Throws => {
                            let error = std::io::Error::new(std::io::ErrorKind::TimedOut, "hunter2");
                            Err(TokenError::Source(Box::new(error)))
                        }
                        TokenFunction::StaticValue => Ok(Case::TOKEN.into()),
                    }
                });
                give(builder, source, shown)
            }
        }
    }
}

/// Gives a source to the client, and notes what the source shows of itself.
fn give(builder: ClientBuilder, source: impl TokenSource + std::fmt::Debug, shown: &mut Vec<String>) -> ClientBuilder {
    shown.push(format!("{source:?}"));
    builder.token_source(source)
}
