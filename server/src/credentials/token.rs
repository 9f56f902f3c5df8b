//! The claims of a token that the API server granted.

use std::{fmt, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::renewal::{IssuedToken, TokenDigest};

/// A granted token. Its times are of the API server's clock, so that other clocks can use only their difference.
pub(super) struct Token {
    secret: SecretString,
    /// Its id in the audit log.
    pub(super) id: String,
    pub(super) lifetime: Duration,
    pub(super) expire_time: Timestamp,
    issue_time: Timestamp,
}

#[derive(Deserialize)]
struct Claims {
    iat: i64,
    exp: i64,
    #[serde(default)]
    jti: String,
}

impl Token {
    /// Reads a JWT that the API server just granted, without checking the signature.
    pub(super) fn read(token: String) -> Option<Self> {
        let payload = token.split('.').nth(1)?;
        let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
        let claims: Claims = serde_json::from_slice(&payload).ok()?;
        Some(Self {
            id: claims.jti,
            lifetime: Duration::from_secs(u64::try_from(claims.exp.checked_sub(claims.iat)?).ok()?),
            expire_time: Timestamp::from_second(claims.exp).ok()?,
            issue_time: Timestamp::from_second(claims.iat).ok()?,
            secret: token.into(),
        })
    }

    /// The token as the contract's record of renewals knows it.
    pub(super) fn issued(&self) -> IssuedToken {
        IssuedToken {
            digest: TokenDigest::new(Sha256::digest(self.secret()).into()),
            issued: self.issue_time,
        }
    }

    pub(super) fn secret(&self) -> &str {
        self.secret.expose_secret()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn lifetimes_are_those_granted() {
        let read = Token::read(token(r#"{"iat": 1000, "exp": 4600, "jti": "a"}"#)).unwrap();
        assert_eq!((read.lifetime, read.id.as_str()), (Duration::from_hours(1), "a"));
        assert_eq!(read.expire_time, Timestamp::from_second(4600).unwrap());
        assert!(!format!("{read:?}").contains("c2ln"));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for broken in ["", "opaque", "a.b.c", &token("{}"), &token(r#"{"iat": 5, "exp": 1}"#)] {
            assert!(Token::read(broken.to_owned()).is_none(), "{broken}");
        }
    }
}
