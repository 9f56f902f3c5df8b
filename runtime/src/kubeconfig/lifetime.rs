//! When a token was issued and expires, as its claims say.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

/// Upper limit of a token's lifetime, ten years: a longer one is cut, so that no sum of durations can overflow.
const LIFETIME_MAX: Duration = Duration::from_hours(24 * 3650);

/// Times of a token, by its issuer's clock. For a token that is not a JWT both are unknown, and it counts as eternal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifetime {
    /// When the token was issued; `None` if it does not say.
    pub issued_at: Option<Timestamp>,
    /// When the token expires; `None` if it does not say, as for an eternal one.
    pub expires_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Claims {
    iat: Option<f64>,
    exp: Option<f64>,
}

impl Lifetime {
    /// Reads the claims of a JWT without verifying them. They decide when to renew and which of two tokens is newer; a false claim
    /// harms only the holder of the token.
    pub fn of_token(token: &SecretString) -> Self {
        let claims = |text: &str| {
            let payload = text.split('.').nth(1)?;
            let json = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
            serde_json::from_slice::<Claims>(&json).ok()
        };
        let Some(claims) = claims(token.expose_secret()) else {
            return Self::default();
        };
        Self {
            issued_at: claims.iat.and_then(time),
            expires_at: claims.exp.and_then(time),
        }
    }

    /// Returns the time from issue to expiry; `None` for a token that does not expire.
    pub fn total(&self) -> Option<Duration> {
        let expires = self.expires_at?;
        // Without a time of issue, the token counts as issued at its expiry, so that it is renewed at once.
        let issued = self.issued_at.unwrap_or(expires);
        Some(between(issued, expires).min(LIFETIME_MAX))
    }

    /// Returns how much of the lifetime has passed, by a clock that may differ from the issuer's: between zero and
    /// [`Lifetime::total`].
    pub fn age(&self, now: Timestamp) -> Duration {
        let total = self.total().unwrap_or_default();
        self.issued_at.map_or(total, |issued| between(issued, now)).min(total)
    }

    /// Whether this token was issued after another one, by their common issuer's clock. An unknown time counts as oldest.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.issued_at.map(Timestamp::as_second) > other.issued_at.map(Timestamp::as_second)
    }
}

fn time(seconds: f64) -> Option<Timestamp> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "casts of floats saturate, and what is out of range is refused"
    )]
    let seconds = seconds as i64;
    Timestamp::from_second(seconds).ok()
}

fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn token(claims: &serde_json::Value) -> SecretString {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string())).into()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[track_caller]
    fn check(claims: &serde_json::Value, now: i64, total: Option<u64>, age: u64) {
        let lifetime = Lifetime::of_token(&token(claims));
        assert_eq!(lifetime.total().map(|total| total.as_secs()), total, "{claims}");
        assert_eq!(lifetime.age(at(now)).as_secs(), age, "{claims}");
    }

    #[test]
    fn a_token_says_how_old_it_is() {
        let hour = json!({"iat": 1000, "exp": 4600});
        check(&hour, 1600, Some(3600), 600);
        check(&hour, 9999, Some(3600), 3600);
        check(&hour, 500, Some(3600), 0);
        check(&json!({"iat": 1000}), 1600, None, 0);
        check(&json!({"exp": 4600}), 1600, Some(0), 0);
        check(&json!({"iat": 4600, "exp": 1000}), 1600, Some(0), 0);
        check(&json!({"iat": 0, "exp": 1e15}), 1600, None, 0);
        check(&json!({"iat": "soon"}), 1600, None, 0);
    }

    #[test]
    fn the_newer_of_two_is_told_by_their_issue() {
        let of = |iat: i64| Lifetime::of_token(&token(&json!({"iat": iat, "exp": iat + 60})));
        assert!(of(2000).is_newer_than(&of(1000)));
        assert!(!of(1000).is_newer_than(&of(1000)));
        assert!(of(1000).is_newer_than(&Lifetime::default()));
        assert!(!Lifetime::default().is_newer_than(&of(1000)));
    }

    proptest! {
        #[test]
        fn no_token_is_older_than_its_life(text in ".*", iat: f64, exp: f64, now in -1_000_000_i64..9_000_000_000) {
            for token in [text.into(), token(&json!({"iat": iat, "exp": exp}))] {
                let lifetime = Lifetime::of_token(&token);
                prop_assert!(lifetime.age(at(now)) <= lifetime.total().unwrap_or_default());
                prop_assert!(lifetime.total().is_none_or(|total| total <= LIFETIME_MAX));
            }
        }
    }
}
