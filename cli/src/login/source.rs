//! The token of each call: the stored one, refreshed before it expires. Processes that use the same login refresh it once.

use std::{io::Write as _, sync::Arc};

use bindery_runtime::terminal::printable;
use bindery_sdk::{TokenError, TokenSource};
use futures::{FutureExt as _, future::BoxFuture};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Mutex;

use super::{
    error::LoginError,
    issuer::{Issuer, RefreshFailure},
    store::{IssuerPin, StoredTokens, TokenFile},
};

/// A stored login as a source of tokens for the client. Clones share what they know.
#[derive(Clone, Debug)]
pub(crate) struct StoredLogin(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: TokenFile,
    issuer: IssuerPin,
    /// The tokens that were given out last. Its lock is held during a refresh.
    known: Mutex<Option<StoredTokens>>,
    given: parking_lot::Mutex<Given>,
}

/// The ID token that was given out last, and whether the server has refused it since.
#[derive(Debug, Default)]
struct Given {
    id_token: Option<SecretString>,
    is_refused: bool,
}

impl StoredLogin {
    /// The login whose tokens are in this file, at this issuer.
    pub(crate) fn new(file: TokenFile, issuer: IssuerPin) -> Self {
        Self(Arc::new(Shared {
            file,
            issuer,
            known: Mutex::default(),
            given: parking_lot::Mutex::default(),
        }))
    }

    /// The file of the tokens.
    pub(crate) fn file(&self) -> &TokenFile {
        &self.0.file
    }

    /// The issuer of the tokens.
    pub(crate) fn issuer(&self) -> &IssuerPin {
        &self.0.issuer
    }

    /// Tokens that are valid now.
    pub(crate) async fn tokens(&self) -> Result<StoredTokens, LoginError> {
        let shared = Arc::clone(&self.0);
        // A task of its own: a call that gives up must not end a refresh, because the issuer may have made the stored refresh
        // token void already.
        let task = tokio::spawn(async move { shared.tokens().await });
        task.await.unwrap_or_else(|error| {
            Err(LoginError::Ended {
                server: self.0.file.server().to_owned(),
                why: format!("its refresh stopped: {error}"),
            })
        })
    }
}

impl Shared {
    async fn tokens(&self) -> Result<StoredTokens, LoginError> {
        let mut known = self.known.lock().await;
        let refused = self.given.lock().refused();
        let good = |tokens: &StoredTokens, at: Timestamp| {
            let is_refused = refused.as_ref().is_some_and(|refused| same(refused, &tokens.id_token));
            !is_refused && Timestamp::now() < at
        };
        if let Some(tokens) = &*known
            && good(tokens, tokens.refresh_at)
        {
            return Ok(tokens.clone());
        }
        let stored = self.stored()?;
        let tokens = if good(&stored, stored.refresh_at) {
            stored
        } else {
            match self.refresh(|tokens| good(tokens, tokens.refresh_at)).await {
                // A token is good for as long as it is valid, whatever keeps it from being refreshed.
                Err(error) if !error.is_logged_out() && good(&stored, stored.expires_at) => {
                    tracing::debug!(%error, "the login is not refreshed yet");
                    stored
                }
                refreshed => refreshed?,
            }
        };
        *known = Some(tokens.clone());
        self.given.lock().give(&tokens.id_token);
        Ok(tokens)
    }

    /// Refreshes the login, unless another process has done so meanwhile.
    async fn refresh(&self, is_good: impl Fn(&StoredTokens) -> bool) -> Result<StoredTokens, LoginError> {
        // Without a refresh token nothing is written, so that a login on a read-only disk lasts until its ID token expires.
        let stored = self.stored()?;
        if stored.refresh_token.is_none() {
            return Err(self.ended(&stored));
        }
        let _lock = self.file.lock().await?;
        let stored = self.stored()?;
        if is_good(&stored) {
            return Ok(stored);
        }
        self.file.check_writable()?;
        let issuer = Issuer::discover(&self.issuer).await?;
        match issuer.refresh(&stored).await {
            Ok(tokens) => {
                if let Err(error) = self.file.write(&tokens) {
                    // The refresh cannot be taken back: the tokens serve at least this process.
                    warn(&format!("{error}; the login is good for this call alone"));
                }
                Ok(tokens)
            }
            Err(RefreshFailure { error, rotated }) => {
                if let Some(fault) = rotated.and_then(|rotated| self.file.write(&rotated).err()) {
                    warn(&format!("{fault}; you may have to log in again"));
                }
                Err(error)
            }
        }
    }

    fn stored(&self) -> Result<StoredTokens, LoginError> {
        let stored = self.file.read()?;
        let stored = stored.filter(|tokens| tokens.is_of(&self.issuer));
        stored.ok_or_else(|| LoginError::LoggedOut {
            server: self.file.server().to_owned(),
        })
    }

    fn ended(&self, stored: &StoredTokens) -> LoginError {
        let issuer = &self.issuer.url;
        let why = if Timestamp::now() < stored.expires_at {
            "the server refuses its token".to_owned()
        } else {
            "its token has expired".to_owned()
        };
        LoginError::Ended {
            server: self.file.server().to_owned(),
            why: format!("{why}, and issuer {issuer} gave no refresh token"),
        }
    }
}

impl TokenSource for StoredLogin {
    fn token(&self) -> BoxFuture<'_, Result<SecretString, TokenError>> {
        async {
            match self.tokens().await {
                Ok(tokens) => Ok(tokens.id_token),
                Err(error) if error.is_final() => Err(TokenError::LoggedOut(Box::new(error))),
                Err(error) => Err(TokenError::Source(Box::new(error))),
            }
        }
        .boxed()
    }

    fn refused(&self, token: &SecretString) {
        self.0.given.lock().refuse(token);
    }
}

impl Given {
    fn give(&mut self, token: &SecretString) {
        if !self.is(token) {
            *self = Self {
                id_token: Some(token.clone()),
                is_refused: false,
            };
        }
    }

    /// Notes that the server refused a token. Of two calls with the same token, the second may say so after the refresh.
    fn refuse(&mut self, token: &SecretString) {
        self.is_refused |= self.is(token);
    }

    fn refused(&self) -> Option<SecretString> {
        self.id_token.clone().filter(|_| self.is_refused)
    }

    fn is(&self, token: &SecretString) -> bool {
        self.id_token.as_ref().is_some_and(|given| same(given, token))
    }
}

/// Prints a warning on standard error, also when progress is not shown.
fn warn(text: &str) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(std::io::stderr().lock(), "warning: {}", printable(text));
}

fn same(one: &SecretString, other: &SecretString) -> bool {
    one.expose_secret() == other.expose_secret()
}
