//! What a token says of itself. Nothing is verified: it is only shown, and decides whether an old one is kept.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    exp: Option<f64>,
    #[serde(default)]
    iss: Option<String>,
    #[serde(default)]
    sub: Option<String>,
}

/// When a token expires; none if it is no JWT or does not say.
pub(crate) fn expiry(token: &SecretString) -> Option<Timestamp> {
    let seconds = claims(token)?.exp?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "casts of floats saturate, and what is out of range is none"
    )]
    let seconds = seconds as i64;
    Timestamp::from_second(seconds).ok()
}

/// Whom a token stands for, as a provider names them: the Kubernetes username, or `<issuer>#<subject>`.
pub(crate) fn principal(token: &SecretString) -> Option<String> {
    let claims = claims(token)?;
    let subject = claims.sub?;
    if subject.starts_with("system:serviceaccount:") {
        return Some(subject);
    }
    Some(format!("{}#{subject}", claims.iss?))
}

fn claims(token: &SecretString) -> Option<Claims> {
    let payload = token.expose_secret().split('.').nth(1)?;
    let json = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&json).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn token(claims: &serde_json::Value) -> SecretString {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string())).into()
    }

    #[test]
    fn tokens_tell_of_themselves() {
        let whole = token(&json!({ "exp": 4600, "sub": "system:serviceaccount:a:b" }));
        assert_eq!(expiry(&whole), Timestamp::from_second(4600).ok());
        assert_eq!(principal(&whole).as_deref(), Some("system:serviceaccount:a:b"));
        let person = token(&json!({ "iss": "https://id.example.com", "sub": "42" }));
        assert_eq!(principal(&person).as_deref(), Some("https://id.example.com#42"));
        assert_eq!(expiry(&token(&json!({ "exp": 1e30 }))), None);
        assert_eq!(expiry(&token(&json!({}))), None);
    }

    #[test]
    fn what_is_no_jwt_tells_nothing() {
        for text in ["", "opaque", "a.b", "a.b.c", "..", "e30.bnVsbA.x"] {
            assert_eq!(
                (expiry(&text.into()), principal(&text.into())),
                (None, None),
                "{text:?}"
            );
        }
    }
}
