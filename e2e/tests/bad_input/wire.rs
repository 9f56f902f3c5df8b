//! What no client of this project sends: bytes that are no message, methods that are none, too much at once.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::call::Raw;
use bindery_proto::v1alpha2::{
    DeleteBindableResourcesRequestRequest, WatchExportsRequest, binding_service_client::BindingServiceClient,
    export_service_client::ExportServiceClient,
};
use bytes::Bytes;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    metadata::{Ascii, MetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig},
};
use tonic_types::StatusExt as _;

use crate::{
    expect::tells,
    world::{Case, case, wish},
};

async fn channel(case: &Case) -> Result<Channel> {
    let provider = case.provider();
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(provider.plane.ca_pem()));
    Ok(Channel::from_shared(provider.address())?
        .tls_config(tls)?
        .connect()
        .await?)
}

fn bearer(token: &str) -> Result<MetadataValue<Ascii>> {
    Ok(format!("Bearer {token}").parse()?)
}

/// A refusal of ours: one ErrorInfo with our domain, and a RequestInfo.
fn check<T>(outcome: Result<T, Status>, code: Code, reason: &str, says: &[&str]) -> Result<()> {
    let status = outcome.err().context("it succeeded")?;
    let details = status.get_error_details();
    let info = details
        .error_info()
        .with_context(|| format!("no ErrorInfo: {status:?}"))?;
    ensure!((status.code(), info.reason.as_str()) == (code, reason), "{status:?}");
    ensure!(info.domain == "kube-bind.io", "{info:?}");
    ensure!(details.request_info().is_some(), "no RequestInfo: {status:?}");
    tells(status.message(), says)
}

#[test]
fn what_is_no_message_is_refused_and_the_connection_goes_on() -> Result<()> {
    case("wire", async |case| {
        let principal = case.principal("wire", &["cowboys"]).await?;
        let token = std::fs::read_to_string(&principal.token)?;
        let mut grpc = Grpc::new(channel(case).await?);
        let mut send = async |path: &'static str, body: Bytes| {
            grpc.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
            let mut request = Request::new(body);
            let token = bearer(&token).map_err(|error| Status::unknown(error.to_string()))?;
            request.metadata_mut().insert("authorization", token);
            grpc.unary(request, http::uri::PathAndQuery::from_static(path), Raw)
                .await
        };
        let create = "/kubebind.v1alpha2.BindingService/CreateBindableResourcesRequest";
        let (invalid, large) = (Code::InvalidArgument, Code::ResourceExhausted);
        // A length beyond the end, a wrong wire type, text that is no UTF-8.
        for body in [&b"\x0a\xff\x01"[..], b"\x0f", b"\x0a\x05\x0a\x03\x0a\x01\xff"] {
            check(
                send(create, Bytes::from_static(body)).await,
                invalid,
                "FIELD_INVALID",
                &["cannot be decoded"],
            )?;
        }
        // Valid protobuf of fields that nobody knows is an empty request.
        let unknown_field = Bytes::from_static(b"\xaa\x06\x05hello");
        check(
            send(create, unknown_field).await,
            invalid,
            "FIELD_INVALID",
            &["template_ref.name"],
        )?;
        let oversized = Bytes::from(vec![0; 257 * 1024]);
        check(
            send(create, oversized).await,
            large,
            "MESSAGE_TOO_LARGE",
            &["larger than the server takes"],
        )?;
        let none = "/kubebind.v1alpha2.BindingService/NoSuchMethod";
        check(
            send(none, Bytes::new()).await,
            Code::Unimplemented,
            "FEATURE_OFF",
            &["no such method"],
        )?;
        let none = "/kubebind.v1alpha2.NoSuchService/Get";
        check(
            send(none, Bytes::new()).await,
            Code::Unimplemented,
            "FEATURE_OFF",
            &["no such method"],
        )?;
        // The same connection still serves.
        let listed = send("/kubebind.v1alpha2.CatalogService/ListTemplates", Bytes::new()).await?;
        ensure!(!listed.get_ref().is_empty());
        case.nothing_written(&principal, "wire").await
    })
}

#[test]
fn two_tokens_are_none_and_foreign_resume_tokens_are_refused() -> Result<()> {
    case("wire-tokens", async |case| {
        let principal = case.principal("wire-tokens", &["cowboys"]).await?;
        let token = bearer(&std::fs::read_to_string(&principal.token)?)?;
        let channel = channel(case).await?;
        let mut bindings = BindingServiceClient::new(channel.clone());
        let mut request = Request::new(wish("cowboys", "cowboys", "wire-tokens"));
        request.metadata_mut().append("authorization", token.clone());
        request.metadata_mut().append("authorization", token.clone());
        let outcome = bindings.create_bindable_resources_request(request).await;
        check(outcome, Code::Unauthenticated, "TOKEN_MISSING", &["exactly one header"])?;
        let basic: MetadataValue<Ascii> = "Basic dXNlcjpwYXNz".parse()?;
        let mut request = Request::new(DeleteBindableResourcesRequestRequest::default());
        request.metadata_mut().insert("authorization", basic);
        let outcome = bindings.delete_bindable_resources_request(request).await;
        check(outcome, Code::Unauthenticated, "TOKEN_MISSING", &["Bearer"])?;
        case.nothing_written(&principal, "wire-tokens").await?;

        principal.bind("cowboys", &case.identity()).await?;
        for resume_token in ["!", "AAAA"] {
            let mut request = Request::new(WatchExportsRequest {
                resume_token: resume_token.to_owned(),
                ..WatchExportsRequest::default()
            });
            request.metadata_mut().insert("authorization", token.clone());
            let mut exports = ExportServiceClient::new(channel.clone());
            let outcome = exports.watch_exports(request).await;
            check(
                outcome,
                Code::InvalidArgument,
                "RESUME_TOKEN_INVALID",
                &["resume token"],
            )?;
        }
        Ok(())
    })
}
