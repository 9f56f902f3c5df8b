//! Issuers that are away, wrong or hostile.

use http::StatusCode;
use serde_json::json;

use super::FakeIssuer;
use crate::login::{error::LoginError, issuer::Issuer, store::IssuerPin};

const CONFIGURATION: &str = "/.well-known/openid-configuration";

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
            "answers what no issuer should",
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
        assert!(matches!(error, LoginError::Url { .. }), "{url}: {error:?}");
    }
}
