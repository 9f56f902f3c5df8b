use std::{
    net::SocketAddr,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    time::Duration,
};

use bindery_proto::v1alpha2::{
    GetExportRequest, GetExportResponse, GetProviderRequest, GetTemplateRequest, RenewKubeconfigRequest,
    RevokeCredentialsRequest, catalog_service_client::CatalogServiceClient,
    credential_service_client::CredentialServiceClient, export_service_client::ExportServiceClient,
    provider_service_client::ProviderServiceClient,
};
use bindery_runtime::telemetry;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use jiff::Timestamp;
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request as Message, metadata::MetadataValue, transport::Channel};
use tonic_types::StatusExt as _;

use super::*;
use crate::audit::AuditLog;
use crate::front::auth::{Authenticator, CheckError, Claims, Denial, Identity, Verdict, tests_support::encoded};
use crate::front::limits::OPEN_CALLS_PER_PEER;
use crate::front::transport::{
    connection::Connection, layers::layered, places::Places, serve::serve, web::with_grpc_web,
};
use http::header::AUTHORIZATION;

const RENEW: &str = "/kubebind.v1alpha2.CredentialService/RenewKubeconfig";
const REVOKE: &str = "/kubebind.v1alpha2.CredentialService/RevokeCredentials";
const CONTRACT: &str = "system:serviceaccount:kube-bind-a:kube-binder";

#[derive(Debug)]
struct Ready(bool);

impl Backend for Ready {
    fn is_ready(&self) -> bool {
        self.0
    }

    fn may_be_contract(&self, namespace: &str) -> bool {
        namespace.starts_with("kube-bind-")
    }

    fn confirm<'a>(&'a self, contract: &'a str, token: Option<&'a Presented>) -> BoxFuture<'a, Outcome<()>> {
        let refused = match (contract, token) {
            ("kube-bind-a", None) => None,
            ("kube-bind-a", Some(_)) => Some(ErrorReason::CredentialRevoked),
            _ => Some(ErrorReason::ContractNotFound),
        };
        Box::pin(async move { refused.map_or(Ok(()), |reason| Err(Failure::new(reason, "no"))) })
    }
}

/// Takes every token of issuer `test` for whom it names.
#[derive(Debug)]
struct Named;

impl Authenticator for Named {
    fn is_for(&self, claims: &Claims) -> bool {
        claims.issuer.is_some()
    }

    fn precheck(&self, token: &Presented) -> Result<(), Denial> {
        match token.claims().audiences.first().map(String::as_str) {
            Some("us") => Ok(()),
            _ => Err(Denial::Audience {
                expected: "us".to_owned(),
            }),
        }
    }

    fn check<'a>(&'a self, token: &'a Presented) -> BoxFuture<'a, Result<Verdict, CheckError>> {
        Box::pin(async {
            let username = token.claims().issuer.clone().unwrap_or_default();
            if username == "hanging" {
                std::future::pending::<()>().await;
            }
            if username == "unreachable" {
                let status = kube::core::Status::failure("down", "ServiceUnavailable").with_code(503);
                return Err(CheckError::Api(kube::Error::Api(status.boxed())));
            }
            // Over when it is known, so that it is not remembered.
            let expires_at = (username == "over").then_some(Timestamp::UNIX_EPOCH);
            Ok(Ok(Identity {
                username,
                expires_at,
                ..Identity::default()
            }))
        })
    }

    fn may_name_system(&self) -> bool {
        true
    }
}

/// Echoes the caller as the name of an export; some names do harm.
#[derive(Clone, Debug)]
struct Echo;

impl Service<Request<Body>> for Echo {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = request.extensions().get::<Call>().cloned().expect("a call");
        Box::pin(async move {
            let caller = call
                .caller()
                .map(|caller| caller.username().to_owned())
                .unwrap_or_default();
            match caller.as_str() {
                "slow" => std::future::pending().await,
                "panic" => panic!("a bug"),
                "foreign" => return Ok(Status::out_of_range("too large").into_http()),
                _ => {}
            }
            Ok(Response::builder()
                .header("x-caller", caller)
                .body(Body::default())
                .expect("a response"))
        })
    }
}

struct Server {
    channel: Channel,
    address: SocketAddr,
    stop: CancellationToken,
    _task: JoinHandle<()>,
}

fn interceptor(ready: bool, stop: &CancellationToken, auditor: Auditor) -> Interceptor {
    let authenticators = Authenticators::new(vec![Arc::new(Named)]);
    let metrics = Metrics::new(&mut telemetry::registry());
    Interceptor::new(Arc::new(Ready(ready)), authenticators, metrics, auditor, stop.clone())
}

async fn server(ready: bool) -> Server {
    audited_server(ready, Auditor::to_log(AuditLog::off())).await
}

async fn audited_server(ready: bool, auditor: Auditor) -> Server {
    let stop = CancellationToken::new();
    let interceptor = interceptor(ready, &stop, auditor);
    let metrics = Metrics::new(&mut telemetry::registry());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let endpoint = crate::settings::tests::settings().grpc;
    let service = with_grpc_web(layered(Echo, interceptor, metrics.clone()), &endpoint);
    let connections = TcpListenerStream::new(listener).map(|stream| {
        let stream = stream.expect("a connection");
        let peer = Peer(stream.peer_addr().expect("an address"));
        Connection::new(stream, peer)
    });
    let limits = crate::settings::tests::settings().connections;
    let task = tokio::spawn(serve(service, connections, limits, metrics, CancellationToken::new()));
    let channel = Channel::from_shared(format!("http://{address}"))
        .expect("a URL")
        .connect_lazy();
    Server {
        channel,
        address,
        stop,
        _task: task,
    }
}

fn by<T>(caller: &str, message: T) -> Message<T> {
    with_token(&encoded(&json!({"iss": caller, "aud": "us"})), message)
}

fn with_token<T>(token: &str, message: T) -> Message<T> {
    let mut message = Message::new(message);
    let value = MetadataValue::try_from(format!("Bearer {token}")).expect("a header");
    message.metadata_mut().append("authorization", value);
    message
}

#[track_caller]
fn reason<T: std::fmt::Debug>(answer: Result<T, Status>) -> String {
    let status = answer.expect_err("a refusal");
    let details = status.get_error_details();
    assert!(
        details.request_info().is_some_and(|info| !info.request_id.is_empty()),
        "{status:?}"
    );
    let info = details.error_info().expect("an ErrorInfo");
    assert_eq!(info.domain, "kube-bind.io");
    let known = ErrorReason::from_reason_str(&info.reason).expect("a known reason");
    assert_eq!(status.code(), known.code());
    info.reason.clone()
}

impl Server {
    async fn export(&self, message: Message<GetExportRequest>) -> Result<tonic::Response<GetExportResponse>, Status> {
        ExportServiceClient::new(self.channel.clone()).get_export(message).await
    }
}

#[tokio::test]
async fn a_call_without_a_good_token_goes_no_further() {
    let server = server(true).await;
    let message = GetExportRequest::default;
    assert_eq!(reason(server.export(Message::new(message())).await), "TOKEN_MISSING");
    assert_eq!(
        reason(server.export(with_token("opaque", message())).await),
        "TOKEN_INVALID"
    );
    let other = encoded(&json!({"iss": "alice", "aud": "them"}));
    assert_eq!(
        reason(server.export(with_token(&other, message())).await),
        "TOKEN_AUDIENCE_WRONG"
    );
    let stranger = encoded(&json!({"aud": "us"}));
    assert_eq!(
        reason(server.export(with_token(&stranger, message())).await),
        "ISSUER_UNTRUSTED"
    );
    assert_eq!(
        reason(server.export(by("unreachable", message())).await),
        "API_SERVER_UNREACHABLE"
    );
    let mut twice = by("alice", message());
    let again = twice.metadata().get("authorization").cloned().expect("a header");
    twice.metadata_mut().append("authorization", again);
    assert_eq!(reason(server.export(twice).await), "TOKEN_MISSING");
}

#[tokio::test]
async fn a_call_over_grpc_web_and_http_1_1_passes_the_same_layers() {
    let (folder, log) = audit_log("grpc-web");
    let server = audited_server(true, Auditor::to_log(log.clone())).await;
    let http = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http();
    let web = tonic_web::GrpcWebClientService::new(http);
    let origin = http::Uri::try_from(format!("http://{}", server.address)).expect("a URL");
    let mut exports = ExportServiceClient::with_origin(web.clone(), origin.clone());
    let message = GetExportRequest::default;
    assert_eq!(reason(exports.get_export(message()).await), "TOKEN_MISSING");
    assert_eq!(
        reason(exports.get_export(with_token("opaque", message())).await),
        "TOKEN_INVALID"
    );
    let mut late = by("slow", message());
    late.set_timeout(Duration::from_millis(200));
    assert_eq!(reason(exports.get_export(late).await), "DEADLINE");
    assert_eq!(
        reason(exports.get_export(by("foreign", message())).await),
        "MESSAGE_TOO_LARGE"
    );
    let mut credentials = CredentialServiceClient::with_origin(web, origin);
    let _ = credentials
        .renew_kubeconfig(by("alice", RenewKubeconfigRequest::default()))
        .await;
    let (_, lines) = written(&folder, &log).await;
    assert_eq!(
        told(&lines),
        [["alice", "CredentialService/RenewKubeconfig", "allowed", ""]]
    );
}

#[tokio::test]
async fn each_audited_call_is_a_line_however_it_ends_and_none_holds_its_token() {
    let (folder, log) = audit_log("interceptor");
    let server = audited_server(true, Auditor::to_log(log.clone())).await;
    let mut credentials = CredentialServiceClient::new(server.channel.clone());
    let mut named = by("alice", RenewKubeconfigRequest::default());
    named
        .metadata_mut()
        .insert("x-request-id", MetadataValue::from_static("call-1"));
    let token = named
        .metadata()
        .get("authorization")
        .expect("a token")
        .to_str()
        .expect("text")
        .to_owned();
    let _ = credentials.renew_kubeconfig(named).await;
    let _ = credentials
        .renew_kubeconfig(Message::new(RenewKubeconfigRequest::default()))
        .await;
    let _ = credentials
        .revoke_credentials(by(CONTRACT, RevokeCredentialsRequest::default()))
        .await;
    let _ = server.export(by("alice", GetExportRequest::default())).await;
    let (text, lines) = written(&folder, &log).await;
    assert_eq!(
        told(&lines),
        [
            ["alice", "CredentialService/RenewKubeconfig", "allowed", ""],
            ["", "CredentialService/RenewKubeconfig", "refused", "TOKEN_MISSING"],
            [
                CONTRACT,
                "CredentialService/RevokeCredentials",
                "refused",
                "METHOD_DENIED"
            ],
        ]
    );
    assert_eq!(lines[0]["requestId"], "call-1");
    assert!(
        lines[1]["requestId"].as_str().is_some_and(|id| !id.is_empty()),
        "{text}"
    );
    assert!(!text.contains(token.trim_start_matches("Bearer ")), "{text}");
}

#[tokio::test]
async fn calls_that_are_given_up_or_panic_are_lines_too() {
    let (folder, log) = audit_log("interceptor-dropped");
    let interceptor = interceptor(true, &CancellationToken::new(), Auditor::to_log(log.clone()));
    give_up(&interceptor, raw("alice", RENEW)).await;
    let panicking = AssertUnwindSafe(interceptor.call(Echo, raw("panic", RENEW)));
    assert!(panicking.catch_unwind().await.is_err());
    let (_, lines) = written(&folder, &log).await;
    let method = "CredentialService/RenewKubeconfig";
    assert_eq!(
        told(&lines),
        [
            ["alice", method, "failed", "CANCELLED"],
            ["panic", method, "failed", "INTERNAL"],
        ]
    );
}

#[tokio::test]
async fn calls_of_one_caller_that_are_refused_or_given_up_do_not_fill_the_log() {
    let (folder, log) = audit_log("interceptor-flood");
    let interceptor = interceptor(true, &CancellationToken::new(), Auditor::to_log(log.clone()));
    for _ in 0..150 {
        interceptor.call(Echo, raw(CONTRACT, REVOKE)).await;
    }
    for _ in 0..150 {
        give_up(&interceptor, raw("bob", RENEW)).await;
    }
    interceptor.call(Echo, raw("alice", RENEW)).await;
    let (_, lines) = written(&folder, &log).await;
    for (caller, decision) in [(CONTRACT, "refused"), ("bob", "failed")] {
        let lines = told(&lines);
        let count = lines.iter().filter(|line| line[0] == caller && line[2] == decision);
        let count = count.count();
        assert!((60..100).contains(&count), "{count} of {caller}");
    }
    assert_eq!(
        told(&lines).last().map(|line| line[0].clone()),
        Some("alice".to_owned())
    );
}

/// Drops a call once its service has it, as a transport does with a call whose client resets the stream.
async fn give_up(interceptor: &Interceptor, request: Request<Body>) {
    let reached = tokio::sync::Notify::new();
    let service = tower::service_fn(|_| async {
        reached.notify_one();
        std::future::pending().await
    });
    tokio::select! {
        _ = interceptor.call(service, request) => panic!("an answer"),
        () = reached.notified() => {}
    }
}

/// A request as a transport has it.
fn raw(caller: &str, path: &str) -> Request<Body> {
    let (metadata, _, body) = by(caller, Body::default()).into_parts();
    let mut request = Request::post(path).body(body).expect("a request");
    *request.headers_mut() = metadata.into_headers();
    request
}

/// An audit log in a folder of its own.
fn audit_log(name: &str) -> (PathBuf, AuditLog) {
    let folder = std::env::temp_dir().join(format!("bindery-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let log = AuditLog::open(&folder.join("audit.log"), &mut telemetry::registry()).expect("a log");
    (folder, log)
}

/// The lines of the log, whose folder is removed.
async fn written(folder: &Path, log: &AuditLog) -> (String, Vec<serde_json::Value>) {
    log.flush(Duration::from_secs(30)).await;
    let text = std::fs::read_to_string(folder.join("audit.log")).expect("the log");
    std::fs::remove_dir_all(folder).expect("a folder");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let lines = lines.collect();
    (text, lines)
}

/// Who called what, and what became of it.
fn told(lines: &[serde_json::Value]) -> Vec<[String; 4]> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let lines = lines.iter().map(|line| {
        let parts = [
            &line["principal"]["username"],
            &line["method"],
            &line["decision"],
            &line["reason"],
        ];
        parts.map(text)
    });
    lines.collect()
}

#[tokio::test]
async fn a_contract_is_held_to_its_own_methods_and_the_provider_is_open() {
    let server = server(true).await;
    let mut catalog = CatalogServiceClient::new(server.channel.clone());
    assert_eq!(
        reason(catalog.get_template(by(CONTRACT, GetTemplateRequest::default())).await),
        "METHOD_DENIED"
    );
    let mut credentials = CredentialServiceClient::new(server.channel.clone());
    assert_eq!(
        reason(
            credentials
                .revoke_credentials(by(CONTRACT, RevokeCredentialsRequest::default()))
                .await
        ),
        "METHOD_DENIED"
    );

    // The echo sends no message: what is asserted is that the call came through, and as whom.
    let caller = |status: Status| status.metadata().get("x-caller").map(|value| value.as_bytes().to_vec());
    let through = server
        .export(by(CONTRACT, GetExportRequest::default()))
        .await
        .expect_err("an empty answer");
    assert_eq!(caller(through), Some(CONTRACT.as_bytes().to_vec()));
    let mut provider = ProviderServiceClient::new(server.channel.clone());
    let through = provider
        .get_provider(GetProviderRequest {})
        .await
        .expect_err("an empty answer");
    assert_eq!(caller(through), Some(Vec::new()));
}

#[tokio::test]
async fn a_contract_is_confirmed_and_its_token_where_that_matters() {
    let server = server(true).await;
    let mut credentials = CredentialServiceClient::new(server.channel.clone());
    let renewed = credentials
        .renew_kubeconfig(by(CONTRACT, RenewKubeconfigRequest::default()))
        .await;
    assert_eq!(reason(renewed), "CREDENTIAL_REVOKED");
    let unknown = CONTRACT.replace("-a:", "-b:");
    assert_eq!(
        reason(server.export(by(&unknown, GetExportRequest::default())).await),
        "CONTRACT_NOT_FOUND"
    );
    let mut catalog = CatalogServiceClient::new(server.channel.clone());
    assert_eq!(
        reason(catalog.get_template(by(&unknown, GetTemplateRequest::default())).await),
        "METHOD_DENIED"
    );
}

#[tokio::test]
async fn errors_of_handlers_and_of_tonic_carry_a_reason() {
    let server = server(true).await;
    assert_eq!(
        reason(server.export(by("panic", GetExportRequest::default())).await),
        "INTERNAL"
    );
    assert_eq!(
        reason(server.export(by("foreign", GetExportRequest::default())).await),
        "MESSAGE_TOO_LARGE"
    );
}

/// The layers alone, without tonic on both sides, which keeps the deadline as well a moment later.
#[tokio::test(start_paused = true)]
async fn a_call_is_answered_with_an_error_before_its_deadline() {
    for caller in ["slow", "hanging"] {
        let began = tokio::time::Instant::now();
        let mut request = raw(caller, "/kubebind.v1alpha2.ExportService/GetExport");
        request
            .headers_mut()
            .insert("grpc-timeout", "2S".parse().expect("a header"));
        let interceptor = interceptor(true, &CancellationToken::new(), Auditor::to_log(AuditLog::off()));
        let mut service = layered(Echo, interceptor, Metrics::new(&mut telemetry::registry()));
        let response = service.call(request).await.expect("an answer");
        let status = Status::from_header_map(response.headers()).expect("a status");
        assert_eq!(reason::<()>(Err(status)), "DEADLINE");
        assert!(began.elapsed() < Duration::from_secs(2));
    }
}

const WATCH: &str = "/grpc.health.v1.Health/Watch";

/// A service that answers nothing.
fn silent() -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible> {
    tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>())
}

#[tokio::test]
async fn calls_without_a_token_are_a_few_and_take_no_permit_of_others() {
    let interceptor = interceptor(true, &CancellationToken::new(), Auditor::to_log(AuditLog::off()));
    let mut under_way = FuturesUnordered::new();
    for _ in 0..OPEN_CALLS_PER_PEER {
        under_way.push(interceptor.call(silent(), raw("alice", WATCH)));
    }
    assert!(futures::poll!(under_way.next()).is_pending());
    assert_eq!(interceptor.calls.available_permits(), CALLS_MAX);
    let refused = interceptor.call(silent(), raw("alice", WATCH)).await;
    let status = Status::from_header_map(refused.headers()).expect("a status");
    assert_eq!(status.code(), ErrorReason::RateLimited.code(), "{status}");
    let path = "/kubebind.v1alpha2.ExportService/GetExport";
    let answered = interceptor.call(Echo, raw("alice", path)).await;
    assert_eq!(answered.headers()["x-caller"], "alice");
    drop(under_way);
    let answered = interceptor.call(Echo, raw("alice", WATCH)).await;
    assert_eq!(answered.headers()["x-caller"], "");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_token_has_a_minute_whatever_it_asks_for() {
    let interceptor = interceptor(true, &CancellationToken::new(), Auditor::to_log(AuditLog::off()));
    let began = tokio::time::Instant::now();
    let mut request = raw("alice", WATCH);
    request
        .headers_mut()
        .insert("grpc-timeout", "1H".parse().expect("a header"));
    let answer = interceptor.call(silent(), request).await;
    let status = Status::from_header_map(answer.headers()).expect("a status");
    assert_eq!(status.code(), ErrorReason::Deadline.code(), "{status}");
    assert_eq!(began.elapsed().as_secs(), 59);
}

#[tokio::test]
async fn a_connection_is_a_strangers_until_a_call_on_it_is_authenticated() {
    let interceptor = interceptor(true, &CancellationToken::new(), Auditor::to_log(AuditLog::off()));
    let places = Places::new(crate::settings::ConnectionLimits {
        all: 2,
        ..crate::settings::tests::settings().connections
    });
    let admit = || Arc::new(places.admit(IpAddr::from([192, 0, 2, 1])).expect("a place"));
    let path = "/kubebind.v1alpha2.ExportService/GetExport";
    let call = async |request: Request<Body>| {
        let place = admit();
        let mut request = request;
        request.extensions_mut().insert(Arc::clone(&place));
        interceptor.call(Echo, request).await;
        let _next = admit();
        // Only a stranger's connection gives way to the next one.
        place.closed().now_or_never().is_some()
    };
    assert!(
        call(raw("alice", WATCH)).await,
        "a call that needs no token proves nothing"
    );
    let forged = Request::post(path)
        .header(AUTHORIZATION, "Bearer forged")
        .body(Body::default());
    assert!(call(forged.expect("a request")).await);
    assert!(!call(raw("alice", path)).await);
}

#[tokio::test]
async fn a_burst_of_one_principal_is_cut_and_others_are_not() {
    let server = server(true).await;
    let calls = (0..400).map(|_| server.export(by("foreign", GetExportRequest::default())));
    let answers = futures::future::join_all(calls).await;
    let limited: Vec<_> = answers
        .into_iter()
        .filter_map(Result::err)
        .filter(|status| {
            status
                .get_error_details()
                .error_info()
                .is_some_and(|info| info.reason == "RATE_LIMITED")
        })
        .collect();
    assert!(!limited.is_empty());
    assert!(
        limited
            .iter()
            .all(|status| status.get_error_details().retry_info().is_some())
    );
    assert_eq!(
        reason(server.export(by("panic", GetExportRequest::default())).await),
        "INTERNAL"
    );
}

#[tokio::test]
async fn calls_are_refused_before_the_caches_are_synced_and_after_the_shutdown() {
    let early = server(false).await;
    assert_eq!(
        reason(early.export(by("alice", GetExportRequest::default())).await),
        "CACHE_NOT_READY"
    );
    let late = server(true).await;
    late.stop.cancel();
    assert_eq!(
        reason(late.export(by("alice", GetExportRequest::default())).await),
        "SHUTTING_DOWN"
    );
}

#[tokio::test]
async fn the_caller_s_request_id_comes_back() {
    let server = server(true).await;
    let mut message = by("panic", GetExportRequest::default());
    message
        .metadata_mut()
        .insert("x-request-id", "my-id.1".parse().expect("a header"));
    let status = server.export(message).await.expect_err("a failure");
    assert_eq!(status.metadata().get("x-request-id").expect("an id"), "my-id.1");
    assert!(status.metadata().get("x-server-version").is_some());
    assert_eq!(
        status.get_error_details().request_info().expect("an id").request_id,
        "my-id.1"
    );
}

#[tokio::test]
async fn a_caller_that_was_admitted_is_not_counted_with_strangers_of_the_same_address() {
    let interceptor = interceptor(true, &CancellationToken::new(), Auditor::to_log(AuditLog::off()));
    let peer = IpAddr::from([192, 0, 2, 1]);
    let token = encoded(&json!({"iss": "over", "aud": "us"}));
    let headers = [(AUTHORIZATION, format!("Bearer {token}").parse().expect("a header"))];
    let headers = HeaderMap::from_iter(headers);
    interceptor.identify(&headers, peer).await.expect("a caller");
    while interceptor.peers.check(&peer).is_ok() {}
    interceptor.identify(&headers, peer).await.expect("the same caller");
}
