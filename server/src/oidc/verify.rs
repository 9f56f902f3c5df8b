//! What must hold for an ID token beside its signature: a pure check of its header and its claims.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::keys;

/// How far the issuer's clock may be ahead, as in the API server.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// The claims of a token by name.
pub(super) type Claims = Map<String, Value>;

/// Why a token is refused. No variant holds a value of the token, but for its algorithm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// It is no JWT.
    #[error("it is no JWT")]
    Malformed,
    /// Its algorithm is none of the accepted ones.
    #[error(
        "it is not signed with an accepted algorithm; have the issuer sign with one of {}",
        keys::algorithm_names()
    )]
    Algorithm,
    /// It is a JWT, and no ID token.
    #[error("it is no ID token by its typ; send the ID token, and not an access token")]
    Type,
    /// It is an access token by its claims.
    #[error("it is an access token by its claims (scope or client_id); send the ID token")]
    AccessToken,
    /// Its header demands an extension.
    #[error("its header demands extensions (crit) that this server does not have")]
    Critical,
    /// It is a logout token.
    #[error("it is a logout token; send the ID token")]
    Logout,
    /// The issuer has no such key.
    #[error("the issuer does not have the key that signed it, or no longer; log in again")]
    KeyUnknown,
    /// The signature is wrong.
    #[error("its signature is wrong; log in again")]
    Signature,
    /// It has expired.
    #[error("it has expired; log in again")]
    Expired,
    /// It does not expire.
    #[error("it has no expiry (exp); have the issuer set one")]
    NoExpiry,
    /// It is not valid yet.
    #[error("it is not valid yet (nbf or iat); set the clocks of the issuer and of this server by NTP")]
    NotYetValid,
    /// It is for another audience.
    #[error("its audience (aud) must be {}", expected.join(" or "))]
    Audience {
        /// The audiences of the configuration.
        expected: Vec<String>,
    },
    /// It was issued to another client.
    #[error("it was issued to another client (azp) than {}; log in with that client", expected.join(" or "))]
    OtherClient {
        /// The audiences of the configuration.
        expected: Vec<String>,
    },
    /// A claim is missing or of the wrong type.
    #[error("{0}")]
    Claim(Cow<'static, str>),
    /// A rule of the configuration refuses it.
    #[error("{0}")]
    Rule(String),
}

/// A token in its parts, none of which is verified.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) key_id: Option<String>,
    /// What is signed: header and claims as they are sent.
    pub(super) message: &'a str,
    pub(super) signature: &'a str,
    pub(super) claims: Claims,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
}

impl TokenRefusal {
    /// The name of the refusal in metrics.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Self::Malformed | Self::Critical | Self::Logout | Self::Type | Self::AccessToken => "malformed",
            Self::Algorithm => "algorithm",
            Self::KeyUnknown => "key_unknown",
            Self::Signature => "signature",
            Self::Expired | Self::NoExpiry => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::Audience { .. } | Self::OtherClient { .. } => "audience",
            Self::Claim(_) => "claim",
            Self::Rule(_) => "rule",
        }
    }
}

/// Takes a token apart and checks its header.
pub(super) fn read(token: &str) -> Result<Parts<'_>, TokenRefusal> {
    let (message, signature) = token.rsplit_once('.').ok_or(TokenRefusal::Malformed)?;
    let (header, claims) = message.split_once('.').ok_or(TokenRefusal::Malformed)?;
    let header: Header = decode(header)?;
    let algorithm = keys::algorithm(&header.alg).ok_or(TokenRefusal::Algorithm)?;
    // An ID token says JWT, or nothing; other JWTs of an issuer, such as access tokens (RFC 9068), say what they are.
    let is_id_token = header.typ.is_none_or(|typ| typ.eq_ignore_ascii_case("jwt"));
    if !is_id_token {
        return Err(TokenRefusal::Type);
    }
    if header.crit.is_some() {
        return Err(TokenRefusal::Critical);
    }
    Ok(Parts {
        algorithm,
        key_id: header.kid,
        message,
        signature,
        claims: decode(claims)?,
    })
}

fn decode<T: serde::de::DeserializeOwned>(part: &str) -> Result<T, TokenRefusal> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenRefusal::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| TokenRefusal::Malformed)
}

/// Checks audience and times, and returns the expiry.
pub(super) fn check(claims: &Claims, audiences: &[String], now: Timestamp) -> Result<Timestamp, TokenRefusal> {
    if claims.contains_key("events") {
        return Err(TokenRefusal::Logout);
    }
    // Some issuers say what a token is among its claims, where its header says JWT of all of them.
    let says = |typ: &Value| {
        typ.as_str()
            .is_some_and(|typ| !["id", "jwt"].contains(&typ.to_ascii_lowercase().as_str()))
    };
    if claims.get("typ").is_some_and(says) {
        return Err(TokenRefusal::Type);
    }
    let is_ours = |value: &Value| {
        value
            .as_str()
            .is_some_and(|name| audiences.iter().any(|ours| ours == name))
    };
    let is_for_us = match claims.get("aud") {
        Some(Value::Array(all)) => all.iter().any(is_ours),
        Some(one) => is_ours(one),
        None => false,
    };
    if !is_for_us {
        return Err(TokenRefusal::Audience {
            expected: audiences.to_vec(),
        });
    }
    if claims.get("azp").is_some_and(|client| !is_ours(client)) {
        return Err(TokenRefusal::OtherClient {
            expected: audiences.to_vec(),
        });
    }
    if is_access_token(claims) {
        return Err(TokenRefusal::AccessToken);
    }
    let expires_at = time(claims, "exp")?.ok_or(TokenRefusal::NoExpiry)?;
    if expires_at <= now {
        return Err(TokenRefusal::Expired);
    }
    for claim in ["nbf", "iat"] {
        if time(claims, claim)?.is_some_and(|begin| begin.duration_since(now) > CLOCK_SKEW) {
            return Err(TokenRefusal::NotYetValid);
        }
    }
    Ok(expires_at)
}

/// Whether these are the claims of an access token (RFC 9068, 2.2) and not of an ID token. Many issuers sign both alike and name the
/// client as the audience of both, without the header `typ` that tells them apart.
fn is_access_token(claims: &Claims) -> bool {
    let has = |name: &str| claims.contains_key(name);
    // Some issuers have the client in ID tokens too, beside `azp`.
    let says_access = has("scope") || has("scp") || (has("client_id") && !has("azp"));
    says_access && !["nonce", "at_hash", "c_hash"].into_iter().any(has)
}

fn time(claims: &Claims, name: &'static str) -> Result<Option<Timestamp>, TokenRefusal> {
    let Some(value) = claims.get(name) else {
        return Ok(None);
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a saturating cast; what is out of range is no timestamp"
    )]
    let time = value.as_f64().and_then(|time| Timestamp::from_second(time as i64).ok());
    match time {
        Some(time) => Ok(Some(time)),
        None => Err(TokenRefusal::Claim(
            format!("its claim {name} is no time in seconds").into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn audiences() -> Vec<String> {
        vec!["bindery".to_owned(), "https://bind.example.com:443".to_owned()]
    }

    #[track_caller]
    fn check_claims(change: &Value, expect: Result<i64, &TokenRefusal>) {
        let mut claims = json!({"aud": "bindery", "exp": NOW + 60, "iat": NOW});
        for (name, value) in change.as_object().expect("claims") {
            claims[name] = value.clone();
        }
        let now = Timestamp::from_second(NOW).expect("a time");
        let mut claims = claims.as_object().expect("claims").clone();
        claims.retain(|_, value| !value.is_null());
        let outcome = check(&claims, &audiences(), now).map(Timestamp::as_second);
        assert_eq!(outcome.as_ref().copied(), expect, "{claims:?}");
    }

    #[test]
    fn a_token_is_for_us_and_issued_to_us() {
        let good = Ok(NOW + 60);
        let audience = TokenRefusal::Audience { expected: audiences() };
        let client = TokenRefusal::OtherClient { expected: audiences() };
        check_claims(&json!({}), good);
        check_claims(&json!({"aud": ["x", "bindery"]}), good);
        check_claims(&json!({"aud": "https://bind.example.com:443"}), good);
        check_claims(&json!({"azp": "bindery"}), good);
        for wrong in [
            json!("x"),
            json!(["x"]),
            json!([]),
            json!(null),
            json!(1),
            json!("BINDERY"),
            json!("bindery/"),
        ] {
            check_claims(&json!({"aud": wrong}), Err(&audience));
        }
        check_claims(&json!({"aud": ["bindery", "other"], "azp": "other"}), Err(&client));
        check_claims(&json!({"azp": 1}), Err(&client));
    }

    #[test]
    fn a_token_is_valid_from_its_begin_to_its_end() {
        check_claims(&json!({"exp": NOW + 1}), Ok(NOW + 1));
        check_claims(&json!({"exp": NOW}), Err(&TokenRefusal::Expired));
        check_claims(&json!({"exp": 0}), Err(&TokenRefusal::Expired));
        check_claims(&json!({"exp": null}), Err(&TokenRefusal::NoExpiry));
        for nonsense in [json!("1800000000"), json!(1e300), json!(true)] {
            let refusal = TokenRefusal::Claim("its claim exp is no time in seconds".into());
            check_claims(&json!({"exp": nonsense}), Err(&refusal));
        }
        check_claims(&json!({"nbf": NOW + 300, "iat": NOW + 300}), Ok(NOW + 60));
        check_claims(&json!({"nbf": NOW + 301}), Err(&TokenRefusal::NotYetValid));
        check_claims(&json!({"iat": NOW + 301}), Err(&TokenRefusal::NotYetValid));
        check_claims(&json!({"iat": null}), Ok(NOW + 60));
        check_claims(&json!({"events": {}}), Err(&TokenRefusal::Logout));
    }

    #[test]
    fn an_access_token_is_told_by_its_claims() {
        for (claims, is_access) in [
            (json!({}), false),
            // RFC 9068.
            (json!({"client_id": "bindery", "jti": "1"}), true),
            (
                json!({"client_id": "bindery", "scope": "openid", "auth_time": NOW}),
                true,
            ),
            (json!({"scp": "openid", "azp": "bindery"}), true),
            (json!({"scope": "", "azp": "bindery"}), true),
            // ID tokens with the client, with a hash of the access token beside them, and of a login with a nonce.
            (json!({"client_id": "bindery", "azp": "bindery"}), false),
            (json!({"client_id": "bindery", "at_hash": "x"}), false),
            (json!({"scope": "openid", "nonce": "x"}), false),
            // A ServiceAccount of Kubernetes.
            (json!({"jti": "1", "nbf": NOW, "kubernetes.io": {}}), false),
        ] {
            let expect = if is_access {
                Err(&TokenRefusal::AccessToken)
            } else {
                Ok(NOW + 60)
            };
            check_claims(&claims, expect);
        }
    }

    #[track_caller]
    fn check_header(header: &Value, expect: Option<&TokenRefusal>) {
        let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let token = format!("{}.{}.c2ln", part(header), part(&json!({"aud": "x"})));
        assert_eq!(read(&token).err().as_ref(), expect, "{header}");
    }

    #[test]
    fn only_a_signed_jwt_of_the_plain_type_is_read() {
        check_header(&json!({"alg": "ES256"}), None);
        check_header(&json!({"alg": "RS256", "typ": "JWT", "kid": "1"}), None);
        check_header(&json!({"alg": "EdDSA", "typ": "jwt"}), None);
        for algorithm in ["none", "HS256", "nOnE", "ES256K"] {
            check_header(&json!({"alg": algorithm}), Some(&TokenRefusal::Algorithm));
        }
        for typ in ["at+jwt", "application/at+jwt", "logout+jwt", "dpop+jwt", ""] {
            check_header(&json!({"alg": "ES256", "typ": typ}), Some(&TokenRefusal::Type));
        }
        check_header(&json!({"alg": "ES256", "crit": ["b64"]}), Some(&TokenRefusal::Critical));
        check_header(&json!({}), Some(&TokenRefusal::Malformed));
        check_header(&json!({"alg": 1}), Some(&TokenRefusal::Malformed));
        for token in ["", ".", "..", "a.b.c", "e30.e30", "e30.e30.e30.e30"] {
            assert_eq!(read(token).err().as_ref(), Some(&TokenRefusal::Malformed), "{token}");
        }
    }
}
