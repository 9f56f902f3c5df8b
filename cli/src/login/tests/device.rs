//! The device flow.

use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;

use super::{FakeIssuer, fake::SERVER};
use crate::login::{
    browser::Surroundings,
    choice,
    device::{self, Instructions},
    error::LoginError,
    store::StoredTokens,
};

/// How long the flow of a test waited between requests.
static WAITED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
/// Flows whose waits are recorded must not run at the same time.
static RECORDING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Waits shorter than it is told, and records what it was told.
fn record(time: Duration) -> BoxFuture<'static, ()> {
    WAITED.lock().push(time.as_secs());
    Box::pin(tokio::time::sleep(Duration::from_millis(1)))
}

fn hardly(_: Duration) -> BoxFuture<'static, ()> {
    Box::pin(tokio::time::sleep(Duration::from_millis(1)))
}

async fn log_in(fake: &FakeIssuer, sleep: device::Sleep) -> (Result<StoredTokens, LoginError>, Option<Instructions>) {
    let issuer = fake.discover().await;
    let mut shown = None;
    let show = |instructions: &Instructions| shown = Some(instructions.clone());
    let tokens = device::log_in(&issuer, SERVER, &fake.offer(), None, (show, sleep)).await;
    (tokens, shown)
}

#[tokio::test]
async fn the_issuer_is_asked_until_the_user_has_entered_the_code_and_no_more_often_than_it_wants() {
    let _recording = RECORDING.lock().await;
    WAITED.lock().clear();
    let fake = FakeIssuer::start().await;
    fake.state().device_answers = ["authorization_pending", "slow_down", "authorization_pending"].into();
    let (tokens, shown) = log_in(&fake, record).await;
    assert_eq!(tokens.unwrap().subject, "subject-1");
    let expect = Instructions {
        url: format!("{}/enter", fake.url),
        code: "ABCD-EFGH".to_owned(),
        complete_url: None,
    };
    assert_eq!(shown, Some(expect));
    // The issuer allows an interval of 0, and asks for 5 s more by slow_down.
    assert_eq!(*WAITED.lock(), [1, 5, 5]);
    assert_eq!(fake.requests("/token"), 4);
}

#[tokio::test]
async fn scopes_that_the_issuer_does_not_publish_are_left_out() {
    let fake = FakeIssuer::start().await;
    fake.state().configuration = json!({ "scopes_supported": ["openid", "groups"] });
    let (tokens, _) = log_in(&fake, hardly).await;
    assert!(tokens.is_ok(), "{tokens:?}");
}

#[tokio::test]
async fn a_refusal_and_an_expired_code_are_said_in_words() {
    for (answer, expect) in [
        ("access_denied", "the login was refused at"),
        ("expired_token", "was not entered at"),
        ("invalid_client", "invalid_client: invalid_client for [redacted]"),
    ] {
        let fake = FakeIssuer::start().await;
        fake.state().device_answers = ["authorization_pending", answer].into();
        let (tokens, _) = log_in(&fake, hardly).await;
        let error = tokens.unwrap_err();
        assert!(error.to_string().contains(expect), "{answer}: {error}");
        fake.check_secrets(&(&error, error.to_string()));
    }
}

#[tokio::test]
async fn a_code_expires_also_if_the_issuer_never_says_so() {
    let fake = FakeIssuer::start().await;
    {
        let mut state = fake.state();
        state.device_expires_in = 1;
        state.device_answers = std::iter::repeat_n("authorization_pending", 100_000).collect();
    }
    let (tokens, _) = log_in(&fake, hardly).await;
    assert!(matches!(tokens, Err(LoginError::CodeExpired { .. })), "{tokens:?}");
}

#[tokio::test]
async fn an_issuer_without_the_flow_is_named() {
    let fake = FakeIssuer::start().await;
    fake.state().configuration = json!({ "device_authorization_endpoint": null });
    let (tokens, _) = log_in(&fake, hardly).await;
    assert!(matches!(&tokens, Err(LoginError::NoDeviceFlow { .. })), "{tokens:?}");
    let issuer = fake.discover().await;
    let has_flow = issuer.device_endpoint().is_some();
    let none = Surroundings::new(true, |_| None);
    let chosen = choice::flow(SERVER, &fake.offer(), has_flow, (true, false), &none);
    let error = chosen.unwrap_err();
    assert!(error.to_string().contains(&fake.url) && error.mend().is_some_and(|mend| mend.contains("--no-browser")));
    // Without a display the user pastes, then.
    assert_eq!(
        choice::flow(SERVER, &fake.offer(), has_flow, (false, false), &none),
        Ok(choice::Flow::Code)
    );
}
