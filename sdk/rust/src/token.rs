//! Sources of bearer tokens.

pub(crate) mod exec;
pub(crate) mod file;

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::PathBuf;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use secrecy::{ExposeSecret as _, SecretString};
use tonic::metadata::{Ascii, MetadataValue};

/// Length limit of a token in bytes, so that it fits the headers that a server accepts.
const TOKEN_LENGTH_MAX: usize = 15 * 1024;

/// Provides the token of each call. It is asked once per attempt, so it should answer from memory.
pub trait TokenSource: Send + Sync + 'static {
    /// Returns the token to send now, without "Bearer".
    fn token(&self) -> BoxFuture<'_, Result<SecretString, TokenError>>;

    /// Drops a remembered token: the server said that it has expired, or is not valid any more.
    fn expired(&self) {}

    /// Does what [`Self::expired`] does for the token that the server refused. Of several calls with the same token each says so, also
    /// when the source has a new one already: a source for which a new token is dear keeps that one.
    fn refused(&self, token: &SecretString) {
        let _ = token;
        self.expired();
    }
}

/// Why a token source has no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The token is empty.
    #[error("the token is empty; give one that is for the audience of the backend")]
    Empty,
    /// The token contains characters that a header must not.
    #[error("the token holds spaces, line breaks or other characters that no token has")]
    Malformed,
    /// The token is too long for a header.
    #[error("the token has {length} bytes, which is more than {TOKEN_LENGTH_MAX}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// A custom token source failed, and may succeed later.
    #[error("cannot get a token: {0}")]
    Source(#[source] Box<dyn StdError + Send + Sync>),
    /// A custom token source has no token until somebody logs in again. A watch ends.
    #[error("there is no token: {0}")]
    LoggedOut(#[source] Box<dyn StdError + Send + Sync>),
}

/// A token source that always returns the same token.
pub struct StaticToken(SecretString);

/// A token source made of a closure; see [`token_fn`].
pub struct TokenFn<F>(F);

impl TokenError {
    /// Returns the reason for conditions and metrics, which never changes.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::File { .. } => "TokenFileUnreadable",
            Self::Empty => "TokenEmpty",
            Self::Malformed => "TokenMalformed",
            Self::TooLong { .. } => "TokenTooLong",
            Self::Source(_) => "TokenSourceFailed",
            Self::LoggedOut(_) => "LoggedOut",
        }
    }
}

impl StaticToken {
    /// Makes a source of this token.
    pub fn new(token: impl Into<SecretString>) -> Self {
        Self(token.into())
    }
}

impl TokenSource for StaticToken {
    fn token(&self) -> BoxFuture<'_, Result<SecretString, TokenError>> {
        futures::future::ready(Ok(self.0.clone())).boxed()
    }
}

impl fmt::Debug for StaticToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticToken").finish_non_exhaustive()
    }
}

/// Makes a token source of a closure, which is called for each attempt.
pub fn token_fn<F, R>(source: F) -> TokenFn<F>
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output = Result<SecretString, TokenError>> + Send + 'static,
{
    TokenFn(source)
}

impl<F, R> TokenSource for TokenFn<F>
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output = Result<SecretString, TokenError>> + Send + 'static,
{
    fn token(&self) -> BoxFuture<'_, Result<SecretString, TokenError>> {
        (self.0)().boxed()
    }
}

impl<F> fmt::Debug for TokenFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFn").finish_non_exhaustive()
    }
}

/// Builds the value of the header `authorization`, marked as sensitive so that it is neither logged nor indexed.
pub(crate) fn bearer(token: &SecretString) -> Result<MetadataValue<Ascii>, TokenError> {
    let token = token.expose_secret();
    if token.is_empty() {
        return Err(TokenError::Empty);
    }
    if token.len() > TOKEN_LENGTH_MAX {
        return Err(TokenError::TooLong { length: token.len() });
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(TokenError::Malformed);
    }
    let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(|_| TokenError::Malformed)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Whether two tokens are the same. Both are the client's own, so the comparison need not take constant time.
pub(crate) fn same(one: &SecretString, other: &SecretString) -> bool {
    one.expose_secret() == other.expose_secret()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(token: &str, expect: Result<&str, &str>) {
        let value = bearer(&SecretString::from(token));
        let got = value
            .as_ref()
            .map(|value| value.to_str().unwrap())
            .map_err(TokenError::reason);
        assert_eq!(got, expect);
    }

    #[test]
    fn only_tokens_become_headers() {
        check("a.b.c", Ok("Bearer a.b.c"));
        check("", Err("TokenEmpty"));
        check("a b", Err("TokenMalformed"));
        check("a\r\nx: y", Err("TokenMalformed"));
        check("tök", Err("TokenMalformed"));
        check(&"x".repeat(TOKEN_LENGTH_MAX + 1), Err("TokenTooLong"));
    }

    #[test]
    fn no_token_is_shown() {
        let value = bearer(&SecretString::from("hunter2")).unwrap();
        let shown = format!(
            "{value:?} {:?} {:?}",
            StaticToken::new("hunter2"),
            token_fn(|| async { Err(TokenError::Empty) })
        );
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
