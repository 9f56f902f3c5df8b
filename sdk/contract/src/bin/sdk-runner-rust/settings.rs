//! Settings of a client as JSON.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bindery_sdk::{Client, ClientBuilder, ExecToken, FileToken, RetryPolicy, StaticToken};
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
#[serde(rename_all = "camelCase")]
enum Token {
    Static(String),
    File(String),
    Exec(Vec<String>),
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
    pub(super) fn build(self, shown: &mut Vec<String>) -> Result<Client> {
        let milliseconds = Duration::from_millis;
        let mut builder = Client::builder(self.address).allow_plaintext(self.allow_plaintext);
        if let Some(pem) = self.ca_pem {
            builder = builder.ca_pem(pem);
        }
        if let Some(path) = self.ca_file {
            builder = builder.ca_pem(std::fs::read(&path).with_context(|| format!("cannot read {path}"))?);
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
        Ok(builder.build()?)
    }
}

impl Token {
    fn give(self, builder: ClientBuilder, shown: &mut Vec<String>) -> ClientBuilder {
        match self {
            Self::Static(token) => {
                let source = StaticToken::new(token);
                shown.push(format!("{source:?}"));
                builder.token_source(source)
            }
            Self::File(path) => {
                let source = FileToken::new(path);
                shown.push(format!("{source:?}"));
                builder.token_source(source)
            }
            Self::Exec(command) => {
                let (program, args) = command
                    .split_first()
                    .map_or((String::new(), Vec::new()), |(program, args)| {
                        (program.clone(), args.to_vec())
                    });
                let source = ExecToken::new(program, args);
                shown.push(format!("{source:?}"));
                builder.token_source(source)
            }
        }
    }
}
