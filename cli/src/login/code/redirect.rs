//! Reads the redirect with which the issuer answers a login, without I/O.

use openidconnect::{AuthorizationCode, url::form_urlencoded};

use crate::login::{error::LoginError, issuer::redacted};

/// What the redirect of a login must hold.
#[derive(Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) state: &'a str,
    pub(super) issuer: &'a str,
}

/// What a redirect says.
#[derive(Debug)]
pub(super) enum Redirect {
    /// The code of the login.
    Code(AuthorizationCode),
    /// The login failed at the issuer.
    Failed(LoginError),
    /// It is not the redirect of this login, and says so to the user. Any page can send a browser to the loopback, so that it
    /// must not end the login.
    Foreign(String),
}

/// Reads the query of a redirect, or a whole URL as a browser shows it.
pub(super) fn read(text: &str, expected: &Expected<'_>) -> Redirect {
    let text = text.trim();
    let text = text.split_once('#').map_or(text, |(before, _)| before);
    let query = text.split_once('?').map_or(text, |(_, query)| query);
    let get = |name: &str| {
        let mut found = form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == name);
        let value = found.next().map(|(_, value)| value.into_owned());
        // A parameter that stands there twice is none (RFC 6749, 3.1).
        value.filter(|_| found.next().is_none())
    };
    match get("state") {
        None => return Redirect::Foreign("it is no answer of the issuer: it has no state".to_owned()),
        Some(state) if state != expected.state => {
            return Redirect::Foreign("it is the answer to another login: its state differs".to_owned());
        }
        Some(_) => {}
    }
    let issuer = expected.issuer.to_owned();
    // RFC 9207. An issuer that does not send it is not known from its metadata to do so.
    if let Some(named) = get("iss")
        && named != expected.issuer
    {
        return Redirect::Failed(LoginError::Answer {
            issuer,
            fault: format!("the answer comes from another issuer, {}", redacted(&named, &[])),
        });
    }
    match (get("error").as_deref(), get("code")) {
        (Some("access_denied"), _) => Redirect::Failed(LoginError::Denied { issuer }),
        (Some(error), _) => {
            let description = get("error_description").map_or_else(String::new, |text| format!(": {text}"));
            Redirect::Failed(LoginError::Refused {
                issuer,
                answer: redacted(&format!("{error}{description}"), &[]),
            })
        }
        (None, Some(code)) => Redirect::Code(AuthorizationCode::new(code)),
        (None, None) => Redirect::Failed(LoginError::Answer {
            issuer,
            fault: "its redirect has neither a code nor an error".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: Expected<'_> = Expected {
        state: "s-1",
        issuer: "https://login.example.com",
    };

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let got = match read(text, &EXPECTED) {
            Redirect::Code(code) => format!("code {}", code.secret()),
            Redirect::Failed(error) => format!("failed: {error}"),
            Redirect::Foreign(why) => format!("foreign: {why}"),
        };
        assert!(got.contains(expect), "{text:?}: {got}");
    }

    #[test]
    fn a_redirect_is_read_from_its_query_or_as_a_browser_shows_it() {
        check("code=c%2B1&state=s-1", "code c+1");
        check("http://127.0.0.1:8000/callback?code=c&state=s-1\n", "code c");
        check("  https://other.example.com/?state=s-1&code=c#top", "code c");
        check("code=c&state=s-1&iss=https%3A%2F%2Flogin.example.com", "code c");
    }

    #[test]
    fn a_redirect_of_another_login_does_not_end_this_one() {
        check("code=c&state=s-2", "foreign: it is the answer to another login");
        check("code=c", "foreign: it is no answer");
        check("error=access_denied", "foreign");
        check("code=c&state=s-1&state=s-2", "foreign");
        check("", "foreign");
        check("nonsense", "foreign");
    }

    #[test]
    fn a_refusal_is_said_in_words() {
        check("error=access_denied&state=s-1", "failed: the login was refused");
        check(
            "error=server_error&error_description=on%0Afire&state=s-1",
            "server_error: on fire",
        );
        check("state=s-1", "neither a code nor an error");
        check("code=a&code=b&state=s-1", "neither a code nor an error");
        check(
            "code=c&state=s-1&iss=https%3A%2F%2Fevil.example",
            "another issuer, https://evil.example",
        );
    }
}
