//! Issuers that are away, wrong or hostile.

use std::time::Duration;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    FakeIssuer,
    code::{PATIENCE, log_in},
    fake::open_page,
};
use crate::login::{
    error::LoginError,
    http::HttpError,
    issuer::Issuer,
    store::{IssuerPin, StoredTokens},
};

const CONFIGURATION: &str = "/.well-known/openid-configuration";

/// Logs in with a browser, with an ID token that has these claims.
async fn log_in_with(fake: &FakeIssuer, claims: Value) -> Result<StoredTokens, LoginError> {
    let issuer = fake.discover().await;
    fake.state().claims = claims;
    let browser = |url: String, redirect: String| {
        let query = fake.consent(&url);
        async move {
            open_page(&format!("{redirect}?{query}")).await;
        }
    };
    log_in(fake, &issuer, PATIENCE, browser).await.0
}

async fn discover_error(fake: &FakeIssuer) -> String {
    let error = Issuer::discover(&fake.pin()).await.unwrap_err();
    fake.check_secrets(&(&error, error.to_string()));
    error.to_string()
}

#[tokio::test]
async fn an_issuer_must_name_itself_and_endpoints_of_tls() {
    for (configuration, expect) in [
        (
            json!({ "issuer": "https://evil.example" }),
            "not set up for OpenID Connect",
        ),
        (
            json!({ "token_endpoint": "http://127.0.0.1:1/token" }),
            "the token endpoint \"http://127.0.0.1:1/token\"",
        ),
        (json!({ "token_endpoint": null }), "names no token endpoint"),
        (
            json!({ "device_authorization_endpoint": "http://a/" }),
            "the device endpoint",
        ),
        (json!({ "revocation_endpoint": "http://a/" }), "the revocation endpoint"),
        (json!({ "jwks_uri": "http://127.0.0.1:1/keys" }), "without TLS"),
        (json!({ "jwks_uri": null }), "are not valid: "),
    ] {
        let fake = FakeIssuer::start().await;
        fake.state().configuration = configuration.clone();
        let error = discover_error(&fake).await;
        assert!(error.contains(expect), "{configuration}: {error}");
    }
}

#[tokio::test]
async fn answers_that_no_issuer_gives_are_refused() {
    let elsewhere = Some("https://evil.example/keys?secret=1".to_owned());
    for (path, status, location, body, expect) in [
        (
            CONFIGURATION,
            StatusCode::OK,
            None,
            "no JSON".to_owned(),
            "are not valid: ",
        ),
        (CONFIGURATION, StatusCode::NOT_FOUND, None, String::new(), "404"),
        (
            CONFIGURATION,
            StatusCode::FOUND,
            elsewhere.clone(),
            String::new(),
            "redirect to https://evil.example/keys, which",
        ),
        (
            "/keys",
            StatusCode::TEMPORARY_REDIRECT,
            elsewhere,
            String::new(),
            "is not followed",
        ),
        (
            "/keys",
            StatusCode::OK,
            None,
            "x".repeat(10 * 1024 * 1024),
            "more than 512 KiB",
        ),
    ] {
        let fake = FakeIssuer::start().await;
        fake.state().replaced.insert(path, (status, location, body));
        let error = discover_error(&fake).await;
        assert!(error.contains(expect), "{path}: {error}");
    }
}

#[tokio::test]
async fn a_token_answer_that_is_none_is_refused_without_its_content() {
    for (body, expect) in [
        ("no JSON hunter2", "no JSON"),
        (
            r#"{"access_token":"hunter2","token_type":"Bearer","expires_in":"hunter2"}"#,
            "expires_in",
        ),
        (
            r#"{"access_token":"hunter2","token_type":"Bearer"}"#,
            "without an ID token",
        ),
        (
            r#"{"access_token":"hunter2","token_type":"Bearer","id_token":"hunter2"}"#,
            "its ID token is none",
        ),
    ] {
        let fake = FakeIssuer::start().await;
        fake.store_login(-1);
        fake.state()
            .replaced
            .insert("/token", (StatusCode::OK, None, body.to_owned()));
        let error = fake.login().tokens().await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(expect) && !shown.contains("hunter2"), "{body}: {shown}");
    }
}

#[tokio::test]
async fn an_issuer_that_is_away_or_not_trusted_is_named() {
    let fake = FakeIssuer::start().await;
    let untrusted = IssuerPin {
        certificate_authority: None,
        ..fake.pin()
    };
    let error = Issuer::discover(&untrusted).await.unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    assert!(
        error.mend().is_some_and(|mend| mend.contains("--issuer-ca")),
        "{error:?}"
    );
    let url = "https://127.0.0.1:1".to_owned();
    let error = Issuer::discover(&IssuerPin { url, ..fake.pin() }).await.unwrap_err();
    assert!(error.to_string().contains("cannot be reached"), "{error}");
    for path in ["/nonexistent/ca.crt", "/dev/null"] {
        let pin = IssuerPin {
            certificate_authority: Some(path.into()),
            ..fake.pin()
        };
        let error = Issuer::discover(&pin).await.unwrap_err();
        assert!(error.to_string().contains(path), "{error}");
    }
}

#[tokio::test]
async fn an_issuer_without_tls_is_refused() {
    for url in ["http://127.0.0.1:1", "ftp://a", "https://user@a", "nonsense", ""] {
        let pin = IssuerPin {
            url: url.to_owned(),
            client_id: "bindery".to_owned(),
            certificate_authority: None,
        };
        let error = Issuer::discover(&pin).await.unwrap_err();
        assert!(matches!(error, LoginError::IssuerUrl { .. }), "{url}: {error:?}");
    }
}

#[tokio::test]
async fn a_token_without_the_times_or_the_subject_is_no_id_token() {
    for claim in ["exp", "iat", "sub", "iss"] {
        let fake = FakeIssuer::start().await;
        let mut claims = json!({});
        claims[claim] = Value::Null;
        let error = log_in_with(&fake, claims).await.unwrap_err();
        assert!(
            matches!(&error, LoginError::Answer { fault, .. } if fault.contains("lacks a claim")),
            "{claim}: {error:?}"
        );
        fake.check_secrets(&(&error, error.to_string()));
    }
}

#[tokio::test]
async fn a_clock_that_is_behind_that_of_the_issuer_does_not_keep_a_login_from_being_made() {
    let fake = FakeIssuer::start().await;
    let ahead = Timestamp::now().as_second() + 600;
    let claims = json!({ "iat": ahead, "nbf": ahead, "exp": ahead + 3_600 });
    let tokens = log_in_with(&fake, claims).await.unwrap();
    // The server judges the times. Here the token lasts no longer than its lifetime.
    let left = tokens.expires_at.duration_since(Timestamp::now());
    assert!(left <= SignedDuration::from_hours(1), "{left}");
}

#[tokio::test]
async fn many_keys_are_read_and_too_many_are_refused() {
    let fake = FakeIssuer::start().await;
    let keys = |others: usize| {
        let keys = fake.state().keys(others).to_string();
        fake.state().replaced.insert("/keys", (StatusCode::OK, None, keys));
    };
    keys(1_000);
    assert!(log_in_with(&fake, json!({})).await.is_ok());
    keys(10_000);
    let error = discover_error(&fake).await;
    assert!(error.contains("more than 512 KiB"), "{error}");
}

#[tokio::test]
async fn an_issuer_that_does_not_answer_is_given_up() {
    for path in [CONFIGURATION, "/keys"] {
        let fake = FakeIssuer::start().await;
        fake.state().stalls = Some(path);
        let pin = fake.pin();
        let asking = tokio::spawn(async move { Issuer::discover(&pin).await });
        fake.asked(path).await;
        // Nothing but the time limit of the request can end it now.
        tokio::time::pause();
        let start = Instant::now();
        let error = asking.await.unwrap().unwrap_err();
        assert!(
            matches!(
                &error,
                LoginError::Http {
                    source: HttpError::Silent { .. },
                    ..
                }
            ),
            "{path}: {error:?}"
        );
        assert!(start.elapsed() <= Duration::from_secs(15), "{:?}", start.elapsed());
        tokio::time::resume();
    }
}
