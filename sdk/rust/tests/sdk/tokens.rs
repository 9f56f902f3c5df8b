//! Where the token of a call comes from, and how long the call waits for it.

use std::fs;
use std::time::Duration;

use bindery_proto::v1alpha2::{Export, GetExportResponse};
use bindery_sdk::{Error, ExecToken, TokenError, token_fn};
use tokio::time::Instant;

use crate::server::{Script, message};

#[tokio::test]
async fn many_calls_with_one_expired_token_get_one_new_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let count = folder.path().join("count");
    let script = format!("echo x >> {0}; echo token-$(wc -l < {0})", count.display());
    let answer = vec![message(&GetExportResponse {
        export: Some(Export::default()),
    })];
    let server = Script::expiring("Bearer token-1", answer);
    let client = server.client(|builder| builder.token_source(ExecToken::new("/bin/sh", ["-c", &script])));
    let calls = (0..40).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { client.get_export("", "cowboys").await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.expect("no panic").expect("the new token is good");
    }
    let runs = fs::read_to_string(&count).expect("a count").lines().count();
    assert_eq!(runs, 2, "once for the expired token, once after");
    assert_eq!(server.seen().len(), 80);
}

#[tokio::test(start_paused = true)]
async fn a_token_may_take_longer_than_an_attempt() {
    let server = Script::expiring(
        "",
        vec![message(&GetExportResponse {
            export: Some(Export::default()),
        })],
    );
    let client = server.client(|builder| {
        builder.token_source(token_fn(|| async {
            tokio::time::sleep(Duration::from_secs(25)).await;
            Ok("token".into())
        }))
    });
    client
        .get_export("", "cowboys")
        .await
        .expect("25 s of 30 s are for the token");
    let timeout = server.seen()[0].headers["grpc-timeout"]
        .to_str()
        .expect("text")
        .to_owned();
    assert!(timeout.starts_with("4999") || timeout.starts_with("5000"), "{timeout}");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_does_not_come_is_not_the_servers_fault() {
    let server = Script::new([]);
    let client = server.client(|builder| builder.token_source(token_fn(std::future::pending)));
    let start = Instant::now();
    let error = client.get_export("", "cowboys").await.expect_err("no token");
    assert_eq!((error.reason_str(), server.seen().len()), ("TokenSourceFailed", 0));
    assert!(matches!(error, Error::Token(TokenError::Timeout { .. })), "{error}");
    assert_eq!(start.elapsed().as_secs(), 30);
    assert_eq!(
        error.to_string(),
        "the token source gave no token within 30.0 s, the time limit of the call"
    );
    let mut watch = client.watch_exports(bindery_proto::v1alpha2::WatchExportsRequest::default());
    let event = watch.next().await.expect("an event").expect("it may come later");
    assert!(format!("{event:?}").contains("TokenSourceFailed"), "{event:?}");
}

#[tokio::test]
async fn a_program_is_not_run_again_because_a_call_had_no_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let count = folder.path().join("count");
    let script = format!("echo x >> {}; sleep 1; echo token", count.display());
    let answer = vec![message(&GetExportResponse {
        export: Some(Export::default()),
    })];
    let server = Script::expiring("", answer);
    let client = server.client(|builder| {
        let source = ExecToken::new("/bin/sh", ["-c", &script]);
        builder.token_source(source).timeout(Duration::from_millis(300))
    });
    for _ in 0..2 {
        let error = client.get_export("", "cowboys").await.expect_err("too little time");
        assert_eq!(error.reason_str(), "TokenSourceFailed");
    }
    let client = client.with_timeout(Duration::from_secs(20)).expect("a time limit");
    client
        .get_export("", "cowboys")
        .await
        .expect("the same run brings a token");
    assert_eq!(fs::read_to_string(&count).expect("a count").lines().count(), 1);
}
