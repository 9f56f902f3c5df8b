//! Refresh and revocation of stored logins.

use std::{os::unix::fs::PermissionsExt, time::Duration};

use bindery_sdk::{TokenError, TokenSource as _};
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::{FakeIssuer, fake::Signed};
use crate::login::{
    error::LoginError,
    store::{StoreError, StoredTokens},
};

async fn token(login: &crate::login::source::StoredLogin) -> String {
    login.token().await.unwrap().expose_secret().to_owned()
}

#[tokio::test]
async fn a_login_is_refreshed_before_it_expires_and_once() {
    let fake = FakeIssuer::start().await;
    let stored = fake.store_login(60);
    let login = fake.login();
    let first = token(&login).await;
    assert_ne!(first, stored.id_token.expose_secret());
    assert_eq!(token(&login).await, first);
    assert_eq!(fake.requests("/token"), 1);
    // What is kept is what serves the next process.
    assert_eq!(token(&fake.login()).await, first);
    assert_eq!(fake.requests("/token"), 1);
}

#[tokio::test]
async fn many_refreshers_need_one_refresh() {
    let fake = FakeIssuer::start().await;
    fake.store_login(-1);
    fake.state().delay = Duration::from_millis(20);
    // Each has its own memory, as each process has, and the lock is one of files.
    let logins: Vec<_> = (0..8).map(|_| fake.login()).collect();
    let tokens = futures::future::join_all(logins.iter().map(token)).await;
    assert!(tokens.iter().all(|token| *token == tokens[0]));
    assert_eq!(fake.requests("/token"), 1);
}

#[tokio::test]
async fn a_call_that_gives_up_does_not_lose_the_new_refresh_token() {
    let fake = FakeIssuer::start().await;
    fake.store_login(-1);
    fake.state().delay = Duration::from_millis(200);
    let login = fake.login();
    let given_up = tokio::time::timeout(Duration::from_millis(50), login.token()).await;
    assert!(given_up.is_err(), "the issuer was too fast");
    token(&login).await;
    assert_eq!(fake.requests("/token"), 1);
}

#[tokio::test]
async fn a_token_that_the_server_refuses_is_refreshed_before_its_time() {
    let fake = FakeIssuer::start().await;
    fake.store_login(-1);
    let login = fake.login();
    let first = token(&login).await;
    login.refused(&first.as_str().into());
    let second = token(&login).await;
    assert_ne!(first, second);
    assert_eq!(fake.requests("/token"), 2);
}

#[tokio::test]
async fn a_token_is_good_as_long_as_it_is_valid_and_the_issuer_away() {
    let fake = FakeIssuer::start().await;
    let stored = fake.store_login(30);
    let configuration = "/.well-known/openid-configuration";
    let away = (http::StatusCode::SERVICE_UNAVAILABLE, None, String::new());
    fake.state().replaced.insert(configuration, away);
    let login = fake.login();
    assert_eq!(token(&login).await, stored.id_token.expose_secret());
    // The server is of another opinion, and the issuer cannot help.
    login.refused(&stored.id_token);
    let error = login.tokens().await.unwrap_err();
    assert!(matches!(error, LoginError::Discovery { .. }), "{error:?}");
    assert!(matches!(login.token().await, Err(TokenError::Source(_))));
    fake.state().replaced.clear();
    assert_ne!(token(&login).await, stored.id_token.expose_secret());
}

#[tokio::test]
async fn a_login_ends_when_the_issuer_refreshes_it_no_more() {
    let fake = FakeIssuer::start().await;
    fake.store_login(-1);
    fake.state().revoke_all();
    let login = fake.login();
    let error = login.tokens().await.unwrap_err();
    let shown = error.to_string();
    assert!(shown.contains("does not refresh it any more (invalid_grant"), "{shown}");
    assert_eq!(
        error.mend().as_deref(),
        Some("kubectl bind login https://bind.example.com")
    );
    fake.check_secrets(&(&error, shown));
    assert!(matches!(login.token().await, Err(TokenError::LoggedOut(_))));
}

#[tokio::test]
async fn a_login_without_a_refresh_token_ends_with_its_token() {
    let fake = FakeIssuer::start().await;
    fake.state().gives_refresh_tokens = false;
    let stored = fake.store_login(30);
    let login = fake.login();
    assert_eq!(token(&login).await, stored.id_token.expose_secret());
    fake.store_login(-1);
    let error = fake.login().tokens().await.unwrap_err();
    assert!(error.to_string().contains("gave no refresh token"), "{error}");
    assert_eq!(fake.requests("/token"), 0);
}

#[tokio::test]
async fn a_refresh_that_yields_another_token_than_it_should_is_refused() {
    for (refreshes, claims, expect) in [
        (false, json!({}), "without an ID token"),
        (true, json!({ "sub": "subject-2" }), "of another user"),
        (true, json!({ "aud": "another-client" }), "its audience"),
    ] {
        let fake = FakeIssuer::start().await;
        fake.store_login(-1);
        {
            let mut state = fake.state();
            state.refreshes_id_tokens = refreshes;
            state.claims = claims;
        }
        let error = fake.login().tokens().await.unwrap_err();
        assert!(error.to_string().contains(expect), "{error}");
        fake.check_secrets(&(&error, error.to_string()));
    }
}

#[tokio::test]
async fn a_refresh_token_that_came_with_a_refused_id_token_is_kept() {
    for (claims, signed, refreshes) in [
        (json!({ "exp": 1 }), Signed::Key, true),
        (json!({ "aud": "another-client" }), Signed::Key, true),
        (json!({}), Signed::OtherKey, true),
        (json!({}), Signed::Key, false),
    ] {
        let fake = FakeIssuer::start().await;
        let former = fake.store_login(-1);
        {
            let mut state = fake.state();
            state.claims = claims;
            state.signed = signed;
            state.refreshes_id_tokens = refreshes;
        }
        let error = fake.login().tokens().await.unwrap_err();
        let kept = fake.file().read().unwrap().unwrap();
        assert_eq!(kept.id_token.expose_secret(), former.id_token.expose_secret());
        assert!(
            fake.state().is_valid(kept.refresh_token.unwrap().expose_secret()),
            "{error}"
        );
        {
            let mut state = fake.state();
            state.claims = json!({});
            state.signed = Signed::Key;
            state.refreshes_id_tokens = true;
        }
        token(&fake.login()).await;
        assert_eq!(fake.requests("/token"), 2);
    }
}

#[tokio::test]
async fn the_refresh_token_of_another_user_is_not_kept() {
    let fake = FakeIssuer::start().await;
    let former = fake.store_login(-1);
    fake.state().claims = json!({ "sub": "subject-2" });
    fake.login().tokens().await.unwrap_err();
    let kept = fake.file().read().unwrap().unwrap();
    let secret = |tokens: &StoredTokens| tokens.refresh_token.as_ref().unwrap().expose_secret().to_owned();
    assert_eq!(secret(&kept), secret(&former));
}

#[tokio::test]
async fn a_token_that_two_calls_say_is_refused_costs_one_refresh() {
    let fake = FakeIssuer::start().await;
    fake.store_login(-1);
    let login = fake.login();
    let first = token(&login).await;
    login.refused(&first.as_str().into());
    let second = token(&login).await;
    // The other call was slower.
    login.refused(&first.as_str().into());
    assert_eq!(token(&login).await, second);
    assert_eq!(fake.requests("/token"), 2);
    login.refused(&second.as_str().into());
    assert_ne!(token(&login).await, second);
}

#[tokio::test]
async fn a_login_that_cannot_be_kept_is_not_refreshed() {
    if nix::unistd::geteuid().is_root() {
        // Root may write everywhere: a file in place of the folder refuses it too.
        let fake = FakeIssuer::start().await;
        let stored = fake.store_login(-1);
        let lock = fake.file().path().with_extension("lock");
        std::fs::create_dir(&lock).unwrap();
        let error = fake.login().tokens().await.unwrap_err();
        assert!(
            matches!(&error, LoginError::Store(StoreError::Write { path, .. }) if *path == lock),
            "{error:?}"
        );
        assert!(fake.state().is_valid(stored.refresh_token.unwrap().expose_secret()));
        return;
    }
    let fake = FakeIssuer::start().await;
    let stored = fake.store_login(-1);
    let folder = fake.file().path().parent().unwrap().to_owned();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o500)).unwrap();
    let error = fake.login().tokens().await.unwrap_err();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
    assert!(
        matches!(error, LoginError::Store(StoreError::Write { .. })),
        "{error:?}"
    );
    assert!(fake.state().is_valid(stored.refresh_token.unwrap().expose_secret()));
}

#[tokio::test]
async fn tokens_of_another_login_or_server_are_not_sent() {
    let fake = FakeIssuer::start().await;
    let stored = fake.store_login(3_600);
    let mut pin = fake.pin();
    pin.client_id = "another-client".to_owned();
    let other = crate::login::source::StoredLogin::new(fake.file(), pin);
    assert!(other.tokens().await.unwrap_err().is_logged_out());
    let another = fake
        .store()
        .tokens(&"https://other.example.com".parse().unwrap())
        .unwrap();
    std::fs::copy(fake.file().path(), another.path()).unwrap();
    let error = another.read().unwrap_err();
    assert!(error.to_string().contains("for another server"), "{error}");
    fake.check_secrets(&(&error, error.to_string(), stored));
}

#[tokio::test]
async fn a_logout_makes_the_refresh_token_void() {
    let fake = FakeIssuer::start().await;
    let stored = fake.store_login(60);
    let refresh_token = stored.refresh_token.unwrap();
    let issuer = fake.discover().await;
    assert_eq!(issuer.revoke(&refresh_token).await, Ok(true));
    assert!(!fake.state().is_valid(refresh_token.expose_secret()));
    fake.state().configuration = json!({ "revocation_endpoint": null });
    assert_eq!(fake.discover().await.revoke(&refresh_token).await, Ok(false));
    assert!(fake.file().delete().unwrap());
    let error = fake.login().tokens().await.unwrap_err();
    assert_eq!(error.to_string(), "you are logged out of https://bind.example.com");
    assert_eq!(
        error.mend().as_deref(),
        Some("kubectl bind login https://bind.example.com")
    );
}
