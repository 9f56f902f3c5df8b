//! One issuer as it runs: verifies its tokens with the keys that it last published.

use std::sync::Arc;

use jiff::Timestamp;

use super::{
    config::IssuerConfig,
    discovery::Endpoints,
    key_cache::{KeyCache, Refreshed},
    keys::{KeySet, Signature},
    mapping::User,
    metrics::OidcMetrics,
    verify::{self, Parts, TokenRefusal},
};

/// A user whose token was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedUser {
    /// The user as the configuration maps it.
    pub user: User,
    /// The issuer of the token.
    pub issuer: String,
    /// The subject of the token: who the user is for the issuer, whatever the name.
    pub subject: String,
    /// When the token expires.
    pub expires_at: Timestamp,
}

/// Why a token could not be checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "issuer {0} does not answer, or not as it should, so that its keys are not known; its cause is in the server's log"
)]
pub struct IssuerUnreachable(pub String);

/// An issuer of the configuration.
#[derive(Debug)]
pub struct Issuer {
    pub(super) config: IssuerConfig,
    pub(super) keys: Arc<KeyCache>,
    pub(super) metrics: OidcMetrics,
}

impl Issuer {
    /// Refuses a token by its claims alone, so that one that is not for this server or has expired costs no signature.
    pub fn precheck(&self, token: &str) -> Result<(), TokenRefusal> {
        let checked = verify::read(token).and_then(|parts| self.check(&parts, Timestamp::now()));
        if let Err(refusal) = &checked {
            self.metrics.verified(&self.config.url, refusal.outcome());
        }
        checked.map(drop)
    }

    /// Verifies a token and reads the user from it.
    pub async fn verify(&self, token: &str) -> Result<Result<VerifiedUser, TokenRefusal>, IssuerUnreachable> {
        let verified = self.verify_at(token, Timestamp::now()).await;
        let outcome = match &verified {
            Ok(Ok(_)) => "accepted",
            Ok(Err(refusal)) => refusal.outcome(),
            Err(_) => "unreachable",
        };
        self.metrics.verified(&self.config.url, outcome);
        verified
    }

    /// The endpoints that a login can use; `None` until the issuer said which it has.
    pub(super) fn endpoints(&self) -> Option<Endpoints> {
        self.keys.endpoints()
    }

    async fn verify_at(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<Result<VerifiedUser, TokenRefusal>, IssuerUnreachable> {
        let parts = match verify::read(token) {
            Ok(parts) => parts,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let expires_at = match self.check(&parts, now) {
            Ok(expires_at) => expires_at,
            Err(refusal) => return Ok(Err(refusal)),
        };
        match self.verify_signature(&parts).await? {
            Signature::Valid => Ok(self.user(&parts, expires_at)),
            Signature::Wrong => Ok(Err(TokenRefusal::Signature)),
            Signature::KeyUnknown => Ok(Err(TokenRefusal::KeyUnknown)),
        }
    }

    fn check(&self, parts: &Parts<'_>, now: Timestamp) -> Result<Timestamp, TokenRefusal> {
        verify::check(&parts.claims, &self.config.audiences, now)
    }

    /// Verifies with the keys that are known, then with those that the issuer has by now.
    async fn verify_signature(&self, parts: &Parts<'_>) -> Result<Signature, IssuerUnreachable> {
        let verify =
            |keys: &KeySet| keys.verify(parts.key_id.as_deref(), parts.algorithm, parts.message, parts.signature);
        let known = self.keys.current().map(|keys| verify(&keys));
        if known == Some(Signature::Valid) {
            return Ok(Signature::Valid);
        }
        match (self.keys.refreshed().await, known) {
            (Refreshed::Changed(keys), _) => Ok(verify(&keys)),
            // The key is known, and did not sign the token.
            (_, Some(Signature::Wrong)) => Ok(Signature::Wrong),
            (Refreshed::Unchanged, Some(known)) => Ok(known),
            (Refreshed::Unchanged | Refreshed::Failed, _) => Err(IssuerUnreachable(self.config.url.clone())),
        }
    }

    fn user(&self, parts: &Parts<'_>, expires_at: Timestamp) -> Result<VerifiedUser, TokenRefusal> {
        let is = |claim: &str| parts.claims.get(claim).and_then(serde_json::Value::as_str);
        let subject = is("sub").filter(|subject| !subject.is_empty());
        let subject = subject.ok_or_else(|| TokenRefusal::Claim("it has no subject (sub)".into()))?;
        // The caller found this issuer by a claim that was not verified then.
        if is("iss") != Some(&self.config.url) {
            return Err(TokenRefusal::Malformed);
        }
        Ok(VerifiedUser {
            user: self.config.mapping.user(&parts.claims)?,
            issuer: self.config.url.clone(),
            subject: subject.to_owned(),
            expires_at,
        })
    }
}

#[cfg(test)]
mod tests;
