//! What a credential program prints: a token, or an ExecCredential.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use serde::Deserialize;
use tokio::time::Instant;

/// A token is not used in the last seconds before it expires: the call has to arrive while it is valid.
const EXPIRY_MARGIN: SignedDuration = SignedDuration::from_secs(30);

/// A token whose expiry is not known is used for this long.
const REUSE: Duration = Duration::from_mins(1);

/// A token that a program printed, and until when it is used.
pub(super) struct Credential {
    pub(super) token: SecretString,
    expiry: CredentialExpiry,
}

enum CredentialExpiry {
    /// The token says when it expires.
    At(Timestamp),
    /// The token does not say when it expires, and is used until then.
    Unknown(Instant),
}

/// Why the output of a program holds no token. The output itself is never shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialFault {
    #[error("JSON that is no ExecCredential (line {line}, column {column}); its kind must be ExecCredential")]
    Format { line: usize, column: usize },
    #[error("a JSON object that is no ExecCredential; its kind must be ExecCredential")]
    Kind,
    #[error("an ExecCredential without status.token")]
    NoToken,
}

#[derive(Deserialize)]
struct ExecCredential {
    kind: Option<String>,
    status: Option<ExecCredentialStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredentialStatus {
    token: Option<String>,
    expiration_timestamp: Option<Timestamp>,
}

impl Credential {
    /// Reads what a program printed.
    pub(super) fn parse(text: &str) -> Result<Self, CredentialFault> {
        let text = text.trim();
        let unknown = CredentialExpiry::Unknown(Instant::now() + REUSE);
        // No token begins with a brace.
        if !text.starts_with('{') {
            return Ok(Self {
                token: text.into(),
                expiry: unknown,
            });
        }
        let credential: ExecCredential = serde_json::from_str(text).map_err(|error| CredentialFault::Format {
            line: error.line(),
            column: error.column(),
        })?;
        if credential.kind.as_deref() != Some("ExecCredential") {
            return Err(CredentialFault::Kind);
        }
        let status = credential.status.ok_or(CredentialFault::NoToken)?;
        Ok(Self {
            token: status.token.ok_or(CredentialFault::NoToken)?.into(),
            expiry: status.expiration_timestamp.map_or(unknown, CredentialExpiry::At),
        })
    }

    /// Whether the token may be sent now.
    pub(super) fn is_valid(&self) -> bool {
        match self.expiry {
            CredentialExpiry::At(expiry) => Timestamp::now().duration_until(expiry) > EXPIRY_MARGIN,
            CredentialExpiry::Unknown(until) => Instant::now() < until,
        }
    }
}
