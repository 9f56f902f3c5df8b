//! A bearer token as a call presents it: a JWT in one header, whose claims are parsed but not verified.

use std::{borrow::Cow, fmt};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, header::AUTHORIZATION};
use jiff::Timestamp;
use jsonwebtoken::errors::ErrorKind;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer};
use sha2::{Digest as _, Sha256};

use crate::front::auth::Denial;

/// Longest token, in bytes.
const LENGTH_MAX: usize = 12 * 1024;

const TOO_LONG: Denial = Denial::Invalid(Cow::Borrowed(
    "it is longer than 12 KiB; have the issuer put fewer groups and claims into it",
));
const NOT_SIGNED: Denial = Denial::Invalid(Cow::Borrowed(
    "it is not signed, or not with an algorithm that is accepted here",
));
const NO_JWT: Denial = Denial::Invalid(Cow::Borrowed("it is no JWT"));

/// A token that has not been checked yet.
pub(crate) struct Presented {
    text: SecretString,
    digest: [u8; 32],
    claims: Claims,
}

/// The claims of a token that are used before it is checked.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Claims {
    /// The issuer, `iss`.
    #[serde(default, rename = "iss")]
    pub issuer: Option<String>,
    /// The audiences, `aud`.
    #[serde(default, rename = "aud", deserialize_with = "one_or_many")]
    pub audiences: Vec<String>,
    /// The expiry, `exp`, in seconds since 1970.
    #[serde(default, rename = "exp")]
    expires: Option<f64>,
    /// The time of issue, `iat`, in seconds since 1970.
    #[serde(default, rename = "iat")]
    issued: Option<f64>,
    #[serde(default, rename = "kubernetes.io")]
    kubernetes: Kubernetes,
}

/// The claims that an API server adds to tokens of ServiceAccounts.
#[derive(Clone, Debug, Default, Deserialize)]
struct Kubernetes {
    #[serde(default)]
    secret: Option<BoundTo>,
}

/// The object that a token is bound to: the token is revoked when the object is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct BoundTo {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl Presented {
    /// Reads the bearer token of a call, which must have exactly one.
    pub(crate) fn read(headers: &HeaderMap) -> Result<Self, Denial> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(Denial::Missing);
        };
        let text = value.to_str().map_err(|_| Denial::Missing)?;
        let (scheme, token) = text.split_once(' ').ok_or(Denial::Missing)?;
        if !scheme.eq_ignore_ascii_case("bearer") || token.trim().is_empty() {
            return Err(Denial::Missing);
        }
        Self::parse(token.trim())
    }

    fn parse(token: &str) -> Result<Self, Denial> {
        if token.len() > LENGTH_MAX {
            return Err(TOO_LONG);
        }
        if token.split('.').count() != 3 {
            return Err(NO_JWT);
        }
        // jsonwebtoken knows neither "none" nor what nobody uses.
        jsonwebtoken::decode_header(token).map_err(|error| match error.kind() {
            ErrorKind::Json(_) if has_header(token) => NOT_SIGNED,
            _ => NO_JWT,
        })?;
        Ok(Self {
            claims: jsonwebtoken::dangerous::insecure_decode_claims(token).map_err(|_| NO_JWT)?,
            digest: Sha256::digest(token.as_bytes()).into(),
            text: SecretString::from(token),
        })
    }

    /// The claims of the token, which are not verified.
    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// A hash of the token, for maps that must not hold the token itself.
    pub(crate) fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// The token itself, for its check.
    pub(crate) fn expose(&self) -> &str {
        self.text.expose_secret()
    }
}

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presented")
            .field("claims", &self.claims)
            .finish_non_exhaustive()
    }
}

impl Claims {
    /// The Secret that the token is bound to.
    pub(crate) fn secret(&self) -> Option<&BoundTo> {
        self.kubernetes.secret.as_ref()
    }

    /// The expiry that the token claims.
    pub(crate) fn expires_at(&self) -> Option<Timestamp> {
        timestamp(self.expires?)
    }

    /// The time of issue that the token claims.
    pub(crate) fn issued_at(&self) -> Option<Timestamp> {
        timestamp(self.issued?)
    }
}

fn timestamp(seconds: f64) -> Option<Timestamp> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a saturating cast; what is out of range is no timestamp"
    )]
    Timestamp::from_second(seconds as i64).ok()
}

/// Whether the first part of a token is a JSON object with an algorithm.
fn has_header(token: &str) -> bool {
    #[derive(Deserialize)]
    struct Header {
        #[expect(dead_code, reason = "it must be there")]
        alg: String,
    }
    let header = token
        .split('.')
        .next()
        .and_then(|header| URL_SAFE_NO_PAD.decode(header).ok());
    header.is_some_and(|header| serde_json::from_slice::<Header>(&header).is_ok())
}

/// Reads `aud`, which is a list or a single text (RFC 7519).
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audience {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Audience::deserialize(deserializer)? {
        Audience::One(one) => vec![one],
        Audience::Many(many) => many,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn encoded(claims: &Value) -> String {
        let header = URL_SAFE_NO_PAD.encode(json!({"alg": "RS256", "typ": "JWT"}).to_string());
        format!("{header}.{}.c2lnbmF0dXJl", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    pub(crate) fn token(claims: &Value) -> Presented {
        Presented::parse(&encoded(claims)).expect("a JWT")
    }

    #[track_caller]
    fn check(values: &[&str], expect: Option<&Denial>) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, value.parse().expect("a header"));
        }
        assert_eq!(Presented::read(&headers).err().as_ref(), expect, "{values:?}");
    }

    #[test]
    fn exactly_one_jwt_is_read() {
        let good = encoded(&json!({"aud": "x"}));
        let bearer = format!("Bearer {good}");
        let no_jwt = NO_JWT;
        check(&[&bearer], None);
        check(&[&format!("bearer {good}")], None);
        check(&[], Some(&Denial::Missing));
        check(&[""], Some(&Denial::Missing));
        check(&["Bearer "], Some(&Denial::Missing));
        check(&["Basic dXNlcjpwYXNz"], Some(&Denial::Missing));
        check(&[&bearer, &bearer], Some(&Denial::Missing));
        check(&["Bearer opaque"], Some(&no_jwt));
        check(&["Bearer a.b.c"], Some(&no_jwt));
        let unsigned = good.replacen(
            &URL_SAFE_NO_PAD.encode(json!({"alg": "RS256", "typ": "JWT"}).to_string()),
            &URL_SAFE_NO_PAD.encode(json!({"alg": "none"}).to_string()),
            1,
        );
        check(&[&format!("Bearer {unsigned}")], Some(&NOT_SIGNED));
        check(&[&format!("{bearer}.more")], Some(&no_jwt));
        check(&[&format!("Bearer {}", "x".repeat(LENGTH_MAX + 1))], Some(&TOO_LONG));
    }

    #[test]
    fn a_token_says_which_secret_it_ends_with() {
        let secret = |claims| token(&claims).claims().secret().cloned();
        assert_eq!(secret(json!({})), None);
        assert_eq!(
            secret(json!({"kubernetes.io": {"namespace": "a", "pod": {"name": "p"}}})),
            None
        );
        let bound = json!({"kubernetes.io": {"namespace": "a", "secret": {"name": "s", "uid": "1"}}});
        let expect = BoundTo {
            name: "s".to_owned(),
            uid: "1".to_owned(),
        };
        assert_eq!(secret(bound), Some(expect));
    }

    #[test]
    fn audiences_are_one_or_many_and_the_token_is_not_shown() {
        assert_eq!(token(&json!({"aud": "a"})).claims().audiences, ["a"]);
        assert_eq!(token(&json!({"aud": ["a", "b"]})).claims().audiences, ["a", "b"]);
        assert!(token(&json!({})).claims().audiences.is_empty());
        let presented = token(&json!({"aud": "a", "exp": 1_700_000_000}));
        assert_eq!(
            presented.claims().expires_at().map(Timestamp::as_second),
            Some(1_700_000_000)
        );
        assert!(!format!("{presented:?}").contains(presented.expose()));
    }
}
