//! The authenticator of ID tokens, which verifies them with the keys of their issuers. It makes no request for a token.

use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::{
    front::auth::{Authenticator, CheckError, Claims, Denial, Identity, Presented, Verdict},
    oidc::{Issuers, TokenRefusal, VerifiedUser},
};

/// Checks the tokens of the issuers of the configuration.
#[derive(Debug)]
pub(crate) struct IdTokenVerifier(Issuers);

impl IdTokenVerifier {
    pub(crate) fn new(issuers: Issuers) -> Self {
        Self(issuers)
    }
}

impl Authenticator for IdTokenVerifier {
    fn is_for(&self, claims: &Claims) -> bool {
        claims
            .issuer
            .as_deref()
            .is_some_and(|issuer| self.0.get(issuer).is_some())
    }

    fn precheck(&self, token: &Presented) -> Result<(), Denial> {
        let issuer = token.claims().issuer.as_deref().and_then(|issuer| self.0.get(issuer));
        Ok(issuer.ok_or(Denial::Issuer)?.precheck(token.expose())?)
    }

    fn check<'a>(&'a self, token: &'a Presented) -> BoxFuture<'a, Result<Verdict, CheckError>> {
        Box::pin(async {
            // The configuration may have been replaced since.
            let Some(issuer) = token.claims().issuer.as_deref().and_then(|issuer| self.0.get(issuer)) else {
                return Ok(Err(Denial::Issuer));
            };
            let verified = issuer.verify(token.expose()).await?;
            Ok(verified.map(Identity::from).map_err(Denial::from))
        })
    }

    fn generation(&self) -> u64 {
        self.0.generation()
    }

    fn generations(&self) -> Option<watch::Receiver<u64>> {
        Some(self.0.generations())
    }

    fn asks_api_server(&self) -> bool {
        false
    }
}

impl From<VerifiedUser> for Identity {
    fn from(verified: VerifiedUser) -> Self {
        Self {
            username: verified.user.username,
            uid: verified.user.uid,
            groups: verified.user.groups,
            extra: verified.user.extra,
            expires_at: Some(verified.expires_at),
            source: Some((verified.issuer, verified.subject)),
        }
    }
}

impl From<TokenRefusal> for Denial {
    fn from(refusal: TokenRefusal) -> Self {
        match refusal {
            TokenRefusal::Expired => Self::Expired,
            TokenRefusal::Audience { expected } => Self::Audience {
                expected: expected.join(" or "),
            },
            TokenRefusal::OtherClient { .. } => Self::OtherClient(refusal.to_string()),
            other => Self::Invalid(other.to_string().into()),
        }
    }
}

#[cfg(test)]
mod tests;
