//! The code flow.

use std::time::Duration;

use openidconnect::Scope;
use secrecy::ExposeSecret as _;
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    FakeIssuer,
    fake::{SERVER, Signed, open_page},
};
use crate::login::{
    code::{Attempt, Loopback, RedirectAddress},
    error::LoginError,
    issuer::Issuer,
    store::StoredTokens,
};

/// No test waits this long.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// Logs in with a browser that does what a test says. `visit` gets the URL of the issuer's page and that of the redirect.
pub(super) async fn log_in<F: Future<Output = ()>>(
    fake: &FakeIssuer,
    issuer: &Issuer,
    patience: Duration,
    visit: impl FnOnce(String, String) -> F,
) -> (Result<StoredTokens, LoginError>, usize) {
    let loopback = Loopback::listen(&[RedirectAddress::default()]).await.unwrap();
    let redirect = loopback.url().to_owned();
    let attempt = Attempt::new(issuer, &fake.offer(), &redirect, None).unwrap();
    let url = attempt.url().to_owned();
    assert!(
        redirect.starts_with("http://127.0.0.1:") && redirect.ends_with("/callback"),
        "{redirect}"
    );
    let mut ignored = 0;
    let pasted = mpsc::unbounded_channel().1;
    let waiting = attempt.finish(SERVER, (loopback, pasted), patience, |_| ignored += 1);
    let (tokens, ()) = tokio::join!(waiting, visit(url, redirect));
    (tokens, ignored)
}

/// Logs in with a browser that consents.
async fn log_in_with_consent(fake: &FakeIssuer, issuer: &Issuer) -> (Result<StoredTokens, LoginError>, usize) {
    log_in(fake, issuer, PATIENCE, |url, redirect| {
        let query = fake.consent(&url);
        async move {
            open_page(&format!("{redirect}?{query}")).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_browser_comes_back_with_a_code() {
    let fake = FakeIssuer::start().await;
    let issuer = fake.discover().await;
    let (tokens, ignored) = log_in(&fake, &issuer, PATIENCE, |url, redirect| {
        let query = fake.consent(&url);
        async move {
            assert_eq!(open_page(&redirect.replace("/callback", "/favicon.ico")).await.0, 404);
            let (status, page) = open_page(&format!("{redirect}?{query}")).await;
            assert!(status == 200 && page.contains("Go back to the terminal"), "{page}");
            assert!(page.contains("no-referrer") && page.contains("no-store"), "{page}");
        }
    })
    .await;
    let tokens = tokens.unwrap();
    assert_eq!(
        (tokens.subject.as_str(), tokens.server.as_str(), ignored),
        ("subject-1", SERVER, 0)
    );
    assert!(
        fake.state()
            .is_valid(tokens.refresh_token.as_ref().unwrap().expose_secret())
    );
    fake.check_secrets(&tokens);
}

#[tokio::test]
async fn a_redirect_can_be_pasted() {
    let fake = FakeIssuer::start().await;
    let issuer = fake.discover().await;
    let loopback = Loopback::listen(&[RedirectAddress::default()]).await.unwrap();
    let redirect = loopback.url().to_owned();
    let attempt = Attempt::new(&issuer, &fake.offer(), &redirect, None).unwrap();
    let query = fake.consent(attempt.url());
    let (lines, pasted) = mpsc::unbounded_channel();
    lines.send("what?".to_owned()).unwrap();
    lines.send(format!("{redirect}?{query}")).unwrap();
    let mut ignored = Vec::new();
    let ignore = |why: &String| ignored.push(why.clone());
    attempt
        .finish(SERVER, (loopback, pasted), PATIENCE, ignore)
        .await
        .unwrap();
    assert_eq!(ignored, ["it is no answer of the issuer: it has no state"]);
}

#[tokio::test]
async fn the_answer_to_another_login_is_ignored_and_said() {
    let fake = FakeIssuer::start().await;
    let issuer = fake.discover().await;
    let (tokens, ignored) = log_in(&fake, &issuer, PATIENCE, |url, redirect| {
        let query = fake.consent(&url);
        async move {
            assert_eq!(open_page(&format!("{redirect}?code=mine&state=other")).await.0, 400);
            assert_eq!(
                open_page(&format!("{redirect}?error=access_denied&state=other"))
                    .await
                    .0,
                400
            );
            assert_eq!(open_page(&format!("{redirect}?{query}")).await.0, 200);
        }
    })
    .await;
    assert!(tokens.is_ok() && ignored == 2, "{tokens:?} {ignored}");
}

#[tokio::test]
async fn a_login_that_nobody_answers_ends() {
    let fake = FakeIssuer::start().await;
    let issuer = fake.discover().await;
    let (tokens, _) = log_in(&fake, &issuer, Duration::from_millis(300), |_, redirect| async move {
        open_page(&format!("{redirect}?code=mine&state=other")).await;
    })
    .await;
    let error = tokens.unwrap_err();
    assert!(matches!(error, LoginError::TimedOut { ignored: 1, .. }), "{error:?}");
}

#[tokio::test]
async fn a_refusal_at_the_issuer_is_said_in_words() {
    let fake = FakeIssuer::start().await;
    let issuer = fake.discover().await;
    let (tokens, _) = log_in(&fake, &issuer, PATIENCE, |url, redirect| {
        let query = fake.consent(&url);
        let state = query.split_once("state=").unwrap().1.to_owned();
        async move {
            let (_, page) = open_page(&format!("{redirect}?error=access_denied&state={state}")).await;
            assert!(page.contains("The terminal says why"), "{page}");
        }
    })
    .await;
    let error = tokens.unwrap_err();
    assert!(matches!(error, LoginError::Denied { .. }), "{error:?}");
}

#[tokio::test]
async fn scopes_that_an_issuer_does_not_publish_are_left_out_unless_an_admin_chose_them() {
    let scopes = |names: &[&str]| {
        names
            .iter()
            .map(|name| Scope::new((*name).to_owned()))
            .collect::<Vec<_>>()
    };
    let named = ["email", "groups", "offline_access", "api://of-the-admin"];
    for (published, expect) in [
        (json!(null), &named[..]),
        (json!([]), &named),
        (json!(["openid", "email"]), &["email", "api://of-the-admin"]),
    ] {
        let fake = FakeIssuer::start().await;
        fake.state().configuration = json!({ "scopes_supported": published });
        let issuer = fake.discover().await;
        assert_eq!(issuer.scopes(&named.map(str::to_owned)), scopes(expect), "{published}");
    }
    let fake = FakeIssuer::start().await;
    fake.state().configuration = json!({ "scopes_supported": ["openid", "email"] });
    let issuer = fake.discover().await;
    let (tokens, _) = log_in_with_consent(&fake, &issuer).await;
    assert!(tokens.is_ok(), "{tokens:?}");
    // What such an issuer says of another scope.
    fake.state().configuration = json!({ "scopes_supported": [] });
    let (tokens, _) = log_in_with_consent(&fake, &issuer).await;
    assert!(
        matches!(&tokens, Err(LoginError::Refused { answer, .. }) if answer.starts_with("invalid_scope")),
        "{tokens:?}"
    );
}

#[tokio::test]
async fn a_code_is_good_once_and_for_the_login_that_asked_for_it() {
    let fake = FakeIssuer::start().await;
    let issuer = fake.discover().await;
    let mut used = String::new();
    let (first, _) = log_in(&fake, &issuer, PATIENCE, |url, redirect| {
        let query = fake.consent(&url);
        used = query.split(['=', '&']).nth(1).unwrap().to_owned();
        async move {
            open_page(&format!("{redirect}?{query}")).await;
        }
    })
    .await;
    first.unwrap();
    for code in [used, "code-of-nobody".to_owned()] {
        let (again, _) = log_in(&fake, &issuer, PATIENCE, |url, redirect| {
            let query = fake.consent(&url);
            let state = query.split_once("state=").unwrap().1.to_owned();
            async move {
                open_page(&format!("{redirect}?code={code}&state={state}")).await;
            }
        })
        .await;
        let error = again.unwrap_err();
        assert!(
            matches!(&error, LoginError::Refused { answer, .. } if answer.contains("invalid_grant")),
            "{error:?}"
        );
        fake.check_secrets(&(&error, error.to_string()));
    }
    // The code of a login that another process made is bound to that one by its challenge.
    let mut stolen = String::new();
    let other = Attempt::new(&issuer, &fake.offer(), "http://127.0.0.1:1/callback", None).unwrap();
    stolen.push_str(fake.consent(other.url()).split(['=', '&']).nth(1).unwrap());
    let (tokens, _) = log_in(&fake, &issuer, PATIENCE, |url, redirect| {
        let query = fake.consent(&url);
        let state = query.split_once("state=").unwrap().1.to_owned();
        async move {
            open_page(&format!("{redirect}?code={stolen}&state={state}")).await;
        }
    })
    .await;
    assert!(matches!(tokens, Err(LoginError::Refused { .. })), "{tokens:?}");
}

#[tokio::test]
async fn two_logins_at_once_both_end_well() {
    let fake = FakeIssuer::start().await;
    let issuer = fake.discover().await;
    let one = || log_in_with_consent(&fake, &issuer);
    let ((one, _), (other, _)) = tokio::join!(one(), one());
    let (one, other) = (one.unwrap(), other.unwrap());
    let file = fake.file();
    for tokens in [&one, &other] {
        let _lock = file.lock().await.unwrap();
        file.write(tokens).unwrap();
    }
    let stored = file.read().unwrap().unwrap();
    assert_eq!(stored.id_token.expose_secret(), other.id_token.expose_secret());
}

#[tokio::test]
async fn id_tokens_of_others_are_refused() {
    for (claims, signed, expect) in [
        (json!({ "nonce": "of another login" }), Signed::Key, "nonce"),
        (json!({ "nonce": null }), Signed::Key, "nonce"),
        (json!({ "iss": "https://evil.example" }), Signed::Key, "its issuer"),
        (json!({ "aud": "another-client" }), Signed::Key, "its audience"),
        (json!({ "aud": null }), Signed::Key, "its audience"),
        (json!({ "exp": 1 }), Signed::Key, "it has expired"),
        (json!({}), Signed::OtherKey, "its signature"),
        (json!({}), Signed::PublicKey, "its signature"),
        (json!({}), Signed::Nothing, "its signature"),
    ] {
        let fake = FakeIssuer::start().await;
        let issuer = fake.discover().await;
        {
            let mut state = fake.state();
            state.claims = claims.clone();
            state.signed = signed;
        }
        let (tokens, _) = log_in_with_consent(&fake, &issuer).await;
        let error = tokens.unwrap_err();
        assert!(
            matches!(&error, LoginError::IdToken { fault, .. } if fault.contains(expect)),
            "{claims} {signed:?}: {error:?}"
        );
        assert!(error.mend().is_some());
        fake.check_secrets(&(&error, error.to_string()));
    }
}

#[tokio::test]
async fn an_id_token_may_be_for_others_beside() {
    let fake = FakeIssuer::start().await;
    let issuer = fake.discover().await;
    fake.state().claims = json!({ "aud": ["bindery", "another-client"] });
    let (tokens, _) = log_in_with_consent(&fake, &issuer).await;
    assert!(tokens.is_ok(), "{tokens:?}");
}
