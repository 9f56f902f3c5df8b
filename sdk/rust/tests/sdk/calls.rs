//! Unary calls: retries, tokens, pages, errors, deadlines.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bindery_proto::v1alpha2::{
    DeleteExportRequest, ErrorReason, Export, GetBoundSchemaResponse, GetExportResponse, GetProviderResponse,
    Kubeconfig, ListTemplatesRequest, ListTemplatesResponse, ObjectMeta, Provider, RenewKubeconfigResponse, Template,
};
use bindery_sdk::{Client, Code, Error, token_fn};
use prost::Message as _;
use tokio::time::Instant;
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::server::{Answer, Script, Step, fail, fail_plain, message};

fn export() -> Answer {
    vec![message(&GetExportResponse {
        export: Some(Export::default()),
    })]
}

fn renewed() -> Answer {
    vec![message(&RenewKubeconfigResponse {
        contract: "c".to_owned(),
        kubeconfig: Some(Kubeconfig::default()),
    })]
}

fn plain(script: &Script) -> Client {
    script.client(|builder| builder)
}

/// What becomes of an idempotent call and of a renewal when the first attempt fails so.
async fn check(first: Step, export_attempts: usize, renew_attempts: usize) {
    let script = Script::new([vec![first.clone()], export()]);
    let result = plain(&script).get_export("", "cowboys").await;
    assert_eq!(
        (script.seen().len(), result.is_ok()),
        (export_attempts, export_attempts == 2),
        "{result:?}"
    );
    let script = Script::new([vec![first], renewed()]);
    let result = plain(&script).renew_kubeconfig("").await;
    assert_eq!(
        (script.seen().len(), result.is_ok()),
        (renew_attempts, renew_attempts == 2),
        "{result:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn tries_again_by_code() {
    check(fail(ErrorReason::CacheNotReady, Some(Duration::from_secs(2))), 2, 2).await;
    check(fail_plain(Code::Unavailable), 2, 2).await;
    check(fail_plain(Code::DeadlineExceeded), 2, 1).await;
    check(fail(ErrorReason::RateLimited, Some(Duration::from_secs(1))), 2, 1).await;
    check(fail(ErrorReason::RateLimited, None), 1, 1).await;
    check(fail_plain(Code::Internal), 1, 1).await;
    check(fail(ErrorReason::ContractDenied, None), 1, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_is_tried_again_where_that_is_harmless() {
    check(Step::Break, 2, 1).await;
}

#[tokio::test(start_paused = true)]
async fn waits_as_long_as_the_server_asks() {
    let script = Script::new([
        vec![fail(ErrorReason::Overloaded, Some(Duration::from_secs(7)))],
        export(),
    ]);
    plain(&script)
        .get_export("", "cowboys")
        .await
        .expect("the second attempt");
    let seen = script.seen();
    let waited = seen[1].at - seen[0].at;
    assert!(
        waited >= Duration::from_secs(7) && waited < Duration::from_secs(8),
        "{waited:?}"
    );
    assert_eq!(seen[0].headers["x-request-id"], seen[1].headers["x-request-id"]);
}

#[tokio::test(start_paused = true)]
async fn attempts_end() {
    let script = Script::new(vec![vec![fail_plain(Code::Unavailable)]; 9]);
    let error = plain(&script)
        .get_export("", "cowboys")
        .await
        .expect_err("no attempt succeeds");
    assert_eq!((error.code(), script.seen().len()), (Some(Code::Unavailable), 5));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_holds_over_all_attempts_and_is_told_to_the_server() {
    let hang = || vec![Step::Sleep(Duration::from_mins(10))];
    let script = Script::new([hang(), hang(), hang(), hang()]);
    let start = Instant::now();
    let error = plain(&script).get_export("", "cowboys").await.expect_err("no response");
    assert_eq!(error.reason(), Some(ErrorReason::Deadline), "{error}");
    assert!(
        start.elapsed() <= Duration::from_millis(30_100),
        "{:?}",
        start.elapsed()
    );
    let seen = script.seen();
    assert!(seen.len() >= 3, "{} attempts", seen.len());
    let timeout = seen[0].headers["grpc-timeout"].to_str().expect("text");
    assert!(timeout.starts_with("9999") || timeout.starts_with("10000"), "{timeout}");
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_would_come_too_late_is_not_made() {
    let script = Script::new([
        vec![fail(ErrorReason::Overloaded, Some(Duration::from_mins(5)))],
        export(),
    ]);
    let start = Instant::now();
    let error = plain(&script)
        .get_export("", "cowboys")
        .await
        .expect_err("the server asks for too long");
    assert_eq!(error.reason(), Some(ErrorReason::Overloaded));
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_have_longer() {
    let answer = GetExportResponse::default();
    let script = Script::new([vec![Step::Sleep(Duration::from_secs(45)), message(&answer)]]);
    let wait = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let request = DeleteExportRequest {
        wait,
        ..DeleteExportRequest::default()
    };
    plain(&script)
        .delete_export(request)
        .await
        .expect("the wait is part of the call's time");
    assert_eq!(script.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_expired_or_invalid_token_is_replaced_once() {
    // An issuer that changes its keys makes tokens invalid before they expire.
    replaced_once(ErrorReason::TokenExpired).await;
    replaced_once(ErrorReason::TokenInvalid).await;
}

async fn replaced_once(reason: ErrorReason) {
    let expired = || vec![fail(reason, None)];
    let numbered = || {
        let count = Arc::new(AtomicU32::new(0));
        token_fn(move || {
            let number = count.fetch_add(1, Ordering::Relaxed);
            async move { Ok(format!("token-{number}").into()) }
        })
    };
    let script = Script::new([expired(), export()]);
    let client = script.client(|builder| builder.token_source(numbered()));
    client.get_export("", "cowboys").await.expect("the new token is good");
    let sent: Vec<_> = script
        .seen()
        .iter()
        .map(|seen| seen.headers["authorization"].clone())
        .collect();
    assert_eq!(sent, ["Bearer token-0", "Bearer token-1"]);

    let script = Script::new([expired(), expired(), export()]);
    let client = script.client(|builder| builder.token_source(numbered()));
    let error = client
        .get_export("", "cowboys")
        .await
        .expect_err("the new token is no better");
    assert_eq!((error.reason(), script.seen().len()), (Some(reason), 2));

    let script = Script::new([expired(), export()]);
    let client = script.client(|builder| builder.token("always-the-same"));
    let error = client
        .get_export("", "cowboys")
        .await
        .expect_err("there is no other token");
    assert_eq!((error.reason(), script.seen().len()), (Some(reason), 1));

    let script = Script::new([vec![fail(ErrorReason::CredentialRevoked, None)], export()]);
    let client = script.client(|builder| builder.token_source(numbered()));
    client.get_export("", "cowboys").await.expect_err("revoked is revoked");
    assert_eq!(script.seen().len(), 1);
}

#[tokio::test]
async fn asking_how_to_log_in_sends_no_token() {
    let answer = GetProviderResponse {
        provider: Some(Provider::default()),
    };
    let script = Script::new([vec![message(&answer)]]);
    script
        .client(|builder| builder.token("hunter2"))
        .get_provider()
        .await
        .expect("a provider");
    let seen = &script.seen()[0];
    assert_eq!(seen.path, "/kubebind.v1alpha2.ProviderService/GetProvider");
    assert!(!seen.headers.contains_key("authorization"));
}

#[tokio::test]
async fn a_token_that_cannot_be_sent_fails_here() {
    let script = Script::new([export()]);
    let client = script.client(|builder| builder.token("two words"));
    let error = client.get_export("", "cowboys").await.expect_err("no header");
    assert_eq!((error.reason_str(), script.seen().len()), ("TokenMalformed", 0));
    assert!(!format!("{error} {error:?} {client:?}").contains("words"));
}

#[tokio::test]
async fn lists_go_on_over_empty_pages() {
    let page = |names: &[&str], next_page_token: &str| {
        let metadata = |name: &&str| ObjectMeta {
            name: (*name).to_owned(),
            ..ObjectMeta::default()
        };
        let templates = names.iter().map(|name| Template {
            metadata: Some(metadata(name)),
            ..Template::default()
        });
        let next_page_token = next_page_token.to_owned();
        vec![message(&ListTemplatesResponse {
            templates: templates.collect(),
            next_page_token,
        })]
    };
    let script = Script::new([page(&["a"], "1"), page(&[], "2"), page(&["b", "c"], "")]);
    let request = ListTemplatesRequest {
        collection: "wild".to_owned(),
        ..ListTemplatesRequest::default()
    };
    let client = plain(&script);
    // On a task of its own, which also shows that the future can move between threads.
    let list = tokio::spawn(async move { client.list_templates(request).await });
    let templates = list.await.expect("no panic").expect("three pages");
    let names: Vec<_> = templates
        .into_iter()
        .map(|template| template.metadata.unwrap_or_default().name)
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    let asked: Vec<_> = script
        .seen()
        .iter()
        .map(|seen| ListTemplatesRequest::decode(&*seen.body).expect("a request"))
        .collect();
    assert!(asked.iter().all(|request| request.collection == "wild"));
    assert_eq!(
        asked
            .iter()
            .map(|request| request.page_token.as_str())
            .collect::<Vec<_>>(),
        ["", "1", "2"]
    );
}

#[tokio::test]
async fn details_of_an_error_arrive() {
    let mut details = ErrorDetails::with_error_info(
        "FIELD_INVALID",
        bindery_proto::ERROR_DOMAIN,
        HashMap::from([("field".to_owned(), "name".to_owned())]),
    );
    details
        .add_bad_request_violation("name", "must not be empty")
        .set_request_info("id-of-server", "");
    let status = Status::with_error_details(Code::InvalidArgument, "the request is wrong", details);
    let script = Script::new([vec![Step::Fail(status)]]);
    let error = plain(&script)
        .get_export("", "")
        .await
        .expect_err("an invalid argument");
    let Error::Status(error) = error else {
        panic!("{error:?}")
    };
    assert_eq!(
        (error.code, error.reason),
        (Code::InvalidArgument, Some(ErrorReason::FieldInvalid))
    );
    assert_eq!(
        (
            error.field_violations[0].field.as_str(),
            error.metadata["field"].as_str()
        ),
        ("name", "name")
    );
    assert_eq!(error.request_id, "id-of-server");
}

#[tokio::test]
async fn garbled_details_are_an_error_and_no_panic() {
    let script = Script::new([vec![Step::Garble]]);
    let error = plain(&script).get_export("", "cowboys").await.expect_err("no details");
    assert_eq!(error.reason_str(), "ProtocolViolation");
}

#[tokio::test]
async fn responses_without_their_main_field_are_errors() {
    let script = Script::new([vec![message(&GetExportResponse::default())]]);
    let error = plain(&script).get_export("", "cowboys").await.expect_err("no export");
    assert_eq!(error.reason_str(), "ProtocolViolation");

    let unchanged = || {
        vec![message(&GetBoundSchemaResponse {
            unchanged: true,
            bound_schema: None,
        })]
    };
    let script = Script::new([unchanged(), unchanged()]);
    let client = plain(&script);
    assert_eq!(
        client
            .get_bound_schema("", "cowboys.wildwest.dev", Some("h"))
            .await
            .expect("unchanged"),
        None
    );
    let error = client
        .get_bound_schema("", "cowboys.wildwest.dev", None)
        .await
        .expect_err("unchanged from what?");
    assert_eq!(error.reason_str(), "ProtocolViolation");
}

#[tokio::test]
async fn messages_are_limited_both_ways() {
    let big = Export {
        metadata: Some(ObjectMeta {
            name: "x".repeat(5 << 20),
            ..ObjectMeta::default()
        }),
        ..Export::default()
    };
    let script = Script::new([vec![message(&GetExportResponse { export: Some(big) })], export()]);
    let client = plain(&script);
    let error = client.get_export("", "cowboys").await.expect_err("more than 4 MiB");
    assert_eq!(error.reason(), Some(ErrorReason::MessageTooLarge), "{error}");
    let error = client
        .get_export("", &"x".repeat(300 << 10))
        .await
        .expect_err("more than 256 KiB");
    assert_eq!(error.reason(), Some(ErrorReason::MessageTooLarge), "{error}");
    assert_eq!(script.seen().len(), 1, "it is not sent");
}
