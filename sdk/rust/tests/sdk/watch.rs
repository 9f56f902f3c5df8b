//! Watches: snapshots, resuming, silence, and what ends them.

use std::time::Duration;

use bindery_proto::v1alpha2::watch_exports_response::Event;
use bindery_proto::v1alpha2::{
    ErrorReason, Export, Heartbeat, ObjectMeta, Removed, SnapshotBegin, SnapshotComplete, WatchExportsRequest,
    WatchExportsResponse,
};
use bindery_sdk::{Code, ExportEvent, TokenError, Watch, WatchEvent};
use prost::Message as _;
use tokio::time::Instant;

use crate::server::{Script, Step, fail, fail_plain, message};

fn step(event: Event, token: &str) -> Step {
    message(&WatchExportsResponse {
        event: Some(event),
        resume_token: token.to_owned(),
    })
}

fn begin() -> Step {
    step(Event::SnapshotBegin(SnapshotBegin::default()), "")
}

fn applied(name: &str, token: &str) -> Step {
    let metadata = ObjectMeta {
        name: name.to_owned(),
        ..ObjectMeta::default()
    };
    step(
        Event::Applied(Export {
            metadata: Some(metadata),
            ..Export::default()
        }),
        token,
    )
}

fn removed(name: &str, token: &str) -> Step {
    step(
        Event::Removed(Removed {
            name: name.to_owned(),
            ..Removed::default()
        }),
        token,
    )
}

fn complete(object_count: i32, token: &str) -> Step {
    step(Event::SnapshotComplete(SnapshotComplete { object_count }), token)
}

fn heartbeat(token: &str) -> Step {
    step(Event::Heartbeat(Heartbeat {}), token)
}

fn hang() -> Step {
    Step::Sleep(Duration::from_secs(100_000))
}

/// An event in short.
fn word(event: &ExportEvent) -> String {
    match event {
        WatchEvent::Connected { resumed: false } => "connected".to_owned(),
        WatchEvent::Connected { resumed: true } => "resumed".to_owned(),
        WatchEvent::SnapshotBegin { refused: None } => "begin".to_owned(),
        WatchEvent::SnapshotBegin { refused: Some(reason) } => format!("refused {reason}"),
        WatchEvent::Applied(export) => format!("+{}", export.metadata.as_ref().map_or("", |metadata| &metadata.name)),
        WatchEvent::Removed(removed) => format!("-{}", removed.name),
        WatchEvent::SnapshotComplete => "complete".to_owned(),
        WatchEvent::Disconnected { error: None, .. } => "ended".to_owned(),
        WatchEvent::Disconnected { error: Some(error), .. } => format!("lost {}", error.reason_str()),
    }
}

/// The next events in short; an error ends them.
async fn words(watch: &mut Watch<Export>, count: usize) -> Vec<String> {
    let mut words = Vec::new();
    while words.len() < count {
        match watch.next().await {
            Some(Ok(event)) => words.push(word(&event)),
            Some(Err(error)) => words.push(format!("error {}", error.reason_str())),
            None => words.push("none".to_owned()),
        }
    }
    words
}

/// The tokens that the server was asked to resume from.
fn asked(script: &Script) -> Vec<String> {
    let token = |body: &[u8]| WatchExportsRequest::decode(body).expect("a request").resume_token;
    script.seen().iter().map(|seen| token(&seen.body)).collect()
}

fn watch(script: &Script) -> Watch<Export> {
    script
        .client(|builder| builder)
        .watch_exports(WatchExportsRequest::default())
}

#[tokio::test(start_paused = true)]
async fn goes_on_where_it_was() {
    let script = Script::new([
        vec![
            begin(),
            applied("a", ""),
            complete(1, "t1"),
            applied("b", "t2"),
            heartbeat("t3"),
        ],
        vec![removed("a", "t4"), Step::Break],
        vec![hang()],
    ]);
    let mut watch = watch(&script);
    assert_eq!(
        words(&mut watch, 5).await,
        ["connected", "begin", "+a", "complete", "+b"]
    );
    assert_eq!(watch.resume_token(), "t1", "the last event has not been acted upon");
    assert_eq!(
        words(&mut watch, 5).await,
        ["ended", "resumed", "-a", "lost ConnectionBroken", "resumed"]
    );
    assert_eq!(watch.resume_token(), "t4");
    assert_eq!(asked(&script), ["", "t3", "t4"]);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_breaks_is_void() {
    let script = Script::new([
        vec![begin(), applied("a", "early"), Step::Break],
        vec![begin(), applied("b", ""), complete(2, "wrong")],
        vec![begin(), applied("b", ""), complete(1, "t1"), hang()],
    ]);
    let mut watch = watch(&script);
    assert_eq!(
        words(&mut watch, 4).await,
        ["connected", "begin", "+a", "lost ConnectionBroken"]
    );
    assert_eq!(
        words(&mut watch, 4).await,
        ["connected", "begin", "+b", "lost ProtocolViolation"]
    );
    assert_eq!(words(&mut watch, 4).await, ["connected", "begin", "+b", "complete"]);
    assert_eq!(asked(&script), ["", "", ""]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_means_a_snapshot() {
    let refused = SnapshotBegin {
        resume_refused: true,
        reason: "too old".to_owned(),
    };
    let script = Script::new([
        vec![step(Event::SnapshotBegin(refused), ""), Step::Break],
        vec![begin(), complete(0, "t1"), hang()],
    ]);
    let request = WatchExportsRequest {
        resume_token: "t0".to_owned(),
        ..WatchExportsRequest::default()
    };
    let mut watch = script.client(|builder| builder).watch_exports(request);
    assert_eq!(
        words(&mut watch, 3).await,
        ["resumed", "refused too old", "lost ConnectionBroken"]
    );
    assert_eq!(words(&mut watch, 3).await, ["connected", "begin", "complete"]);
    assert_eq!(asked(&script), ["t0", ""]);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_token_is_dropped() {
    let script = Script::new([
        vec![fail(ErrorReason::ResumeTokenInvalid, None)],
        vec![begin(), complete(0, "t1"), hang()],
    ]);
    let request = WatchExportsRequest {
        resume_token: "t0".to_owned(),
        ..WatchExportsRequest::default()
    };
    let mut watch = script.client(|builder| builder).watch_exports(request);
    assert_eq!(
        words(&mut watch, 4).await,
        ["lost RESUME_TOKEN_INVALID", "connected", "begin", "complete"]
    );
    assert_eq!(asked(&script), ["t0", ""]);
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_stream_and_heartbeats_do_not() {
    let minute = || Step::Sleep(Duration::from_mins(1));
    let script = Script::new([
        vec![
            begin(),
            complete(0, "t1"),
            minute(),
            heartbeat("t2"),
            minute(),
            heartbeat("t3"),
            hang(),
        ],
        vec![hang()],
    ]);
    let mut watch = watch(&script);
    assert_eq!(words(&mut watch, 3).await, ["connected", "begin", "complete"]);
    let start = Instant::now();
    assert_eq!(words(&mut watch, 1).await, ["lost StreamSilent"]);
    let lived = start.elapsed().as_secs();
    assert!(
        (209..=211).contains(&lived),
        "two minutes with heartbeats and 90 s without: {lived}"
    );
    assert_eq!(words(&mut watch, 1).await, ["resumed"]);
    assert_eq!(asked(&script), ["", "t3"]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_event_is_skipped_and_its_token_taken() {
    let unknown = message(&WatchExportsResponse {
        event: None,
        resume_token: "t2".to_owned(),
    });
    let script = Script::new([vec![begin(), complete(0, "t1"), unknown], vec![hang()]]);
    let mut watch = watch(&script);
    assert_eq!(
        words(&mut watch, 5).await,
        ["connected", "begin", "complete", "ended", "resumed"]
    );
    assert_eq!(asked(&script), ["", "t2"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_where_a_retry_cannot_help() {
    for reason in [
        ErrorReason::CredentialRevoked,
        ErrorReason::ContractDenied,
        ErrorReason::ContractNotFound,
    ] {
        let script = Script::new([vec![begin(), complete(0, "t1"), fail(reason, None)]]);
        let end = format!("error {}", reason.reason_str());
        assert_eq!(
            words(&mut watch(&script), 5).await,
            ["connected", "begin", "complete", &end, "none"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn trouble_that_passes_is_told_and_waited_for() {
    let script = Script::new([
        vec![fail(ErrorReason::CacheNotReady, Some(Duration::from_secs(20)))],
        vec![fail_plain(Code::Internal)],
        vec![fail(ErrorReason::StreamLimit, Some(Duration::from_hours(10)))],
        vec![hang()],
    ]);
    let mut watch = watch(&script);
    let start = Instant::now();
    let expect = [
        "lost CACHE_NOT_READY",
        "lost INTERNAL",
        "lost STREAM_LIMIT",
        "connected",
    ];
    assert_eq!(words(&mut watch, 4).await, expect);
    let waited = start.elapsed();
    assert!(waited >= Duration::from_secs(20 + 300), "{waited:?}");
    assert!(
        waited <= Duration::from_secs(20 + 300 + 10),
        "a wait that a server asks for is limited: {waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_error_of_an_event_names_the_stream() {
    let script = Script::new([
        vec![begin(), fail_plain(Code::Internal)],
        vec![fail_plain(Code::Internal)],
        vec![hang()],
    ]);
    let mut watch = watch(&script);
    let mut named = Vec::new();
    while named.len() < 2 {
        if let Some(Ok(WatchEvent::Disconnected { error: Some(error), .. })) = watch.next().await {
            named.push(error.request_id().expect("an id").to_owned());
        }
    }
    let sent = script
        .seen()
        .into_iter()
        .map(|seen| seen.headers["x-request-id"].clone());
    assert_eq!(named, sent.collect::<Vec<_>>());
    assert_ne!(named[0], named[1]);
}

#[tokio::test]
async fn a_request_that_is_too_large_ends_a_watch() {
    let script = Script::new([]);
    let request = WatchExportsRequest {
        contract: "x".repeat(300 << 10),
        ..WatchExportsRequest::default()
    };
    let mut watch = script.client(|builder| builder).watch_exports(request);
    let error = watch.next().await.expect("an error").expect_err("more than 256 KiB");
    assert_eq!(error.reason(), Some(ErrorReason::MessageTooLarge), "{error}");
    assert!(watch.next().await.is_none());
    assert_eq!(script.seen().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_is_replaced() {
    let expired = || fail(ErrorReason::TokenExpired, None);
    let script = Script::new([
        vec![begin(), complete(0, "t1"), expired()],
        vec![expired()],
        vec![hang()],
    ]);
    let number = std::sync::atomic::AtomicU32::new(0);
    let tokens = bindery_sdk::token_fn(move || {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move { Ok(format!("token-{number}").into()) }
    });
    let client = script.client(|builder| builder.token_source(tokens));
    let mut watch = client.watch_exports(WatchExportsRequest::default());
    let expect = ["connected", "begin", "complete", "ended", "error TOKEN_EXPIRED", "none"];
    assert_eq!(
        words(&mut watch, 6).await,
        expect,
        "a second expired token in a row is the source's fault"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_its_user_has_logged_out_and_not_before() {
    let script = Script::new([vec![begin(), complete(0, "t1")], vec![hang()]]);
    let number = std::sync::atomic::AtomicU32::new(0);
    let tokens = bindery_sdk::token_fn(move || {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move {
            match number {
                0 => Ok("token".into()),
                1 => Err(TokenError::Source("the issuer is away".into())),
                _ => Err(TokenError::LoggedOut("the user logged out".into())),
            }
        }
    });
    let client = script.client(|builder| builder.token_source(tokens));
    let mut watch = client.watch_exports(WatchExportsRequest::default());
    let expect = [
        "connected",
        "begin",
        "complete",
        "ended",
        "lost TokenSourceFailed",
        "error LoggedOut",
        "none",
    ];
    assert_eq!(words(&mut watch, 7).await, expect);
}
