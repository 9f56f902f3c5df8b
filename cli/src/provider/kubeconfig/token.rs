//! The principal that a token names. It is not verified, so it is only shown to the user.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    iss: Option<String>,
    #[serde(default)]
    sub: Option<String>,
}

/// The principal in the words of a provider: the Kubernetes username of a ServiceAccount, or else `<issuer>#<subject>`.
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
    fn tokens_tell_whom_they_stand_for() {
        let account = token(&json!({ "sub": "system:serviceaccount:a:b" }));
        assert_eq!(principal(&account).as_deref(), Some("system:serviceaccount:a:b"));
        let person = token(&json!({ "iss": "https://id.example.com", "sub": "42" }));
        assert_eq!(principal(&person).as_deref(), Some("https://id.example.com#42"));
    }

    #[test]
    fn what_is_no_jwt_tells_nothing() {
        for text in ["", "opaque", "a.b", "a.b.c", "..", "e30.bnVsbA.x"] {
            assert_eq!(principal(&text.into()), None, "{text:?}");
        }
    }
}
