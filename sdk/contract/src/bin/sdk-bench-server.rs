//! The server of `cargo xtask bench sdks`: it does as little as it can, so that what is measured is the client.
//!
//! It prints that it is ready, then `{"address", "ca"}`, and ends with its standard input.
#![expect(clippy::print_stdout, reason = "the benchmark reads it")]

use std::io::Read as _;

use anyhow::Result;
use bindery_proto::v1alpha2::{
    self as pb,
    contract_service_server::{ContractService, ContractServiceServer},
    provider_service_server::{ProviderService, ProviderServiceServer},
    watch_contracts_response::Event,
};
use futures::{StreamExt as _, stream, stream::BoxStream};
use serde_json::json;
use tokio::net::TcpListener;
use tonic::transport::{Identity, Server, ServerTlsConfig, server::TcpIncoming};
use tonic::{Request, Response, Status};

#[tokio::main]
async fn main() -> Result<()> {
    let certificate = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    let pem = certificate.cert.pem();
    let identity = Identity::from_pem(&pem, certificate.signing_key.serialize_pem());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("https://{}", listener.local_addr()?);
    println!(
        "{}\n{}",
        json!({ "ready": true }),
        json!({ "address": address, "ca": pem })
    );
    let over = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    Server::builder()
        .tls_config(ServerTlsConfig::new().identity(identity))?
        .add_service(ProviderServiceServer::new(Least))
        .add_service(ContractServiceServer::new(Least))
        .serve_with_incoming_shutdown(TcpIncoming::from(listener).with_nodelay(Some(true)), async {
            // However it ends.
            let _ = over.await;
        })
        .await?;
    Ok(())
}

/// Answers at once, and holds watches open after an empty snapshot.
#[derive(Debug)]
struct Least;

#[tonic::async_trait]
impl ProviderService for Least {
    async fn get_provider(
        &self,
        _: Request<pb::GetProviderRequest>,
    ) -> Result<Response<pb::GetProviderResponse>, Status> {
        Ok(Response::new(pb::GetProviderResponse::default()))
    }

    async fn get_caller(&self, _: Request<pb::GetCallerRequest>) -> Result<Response<pb::GetCallerResponse>, Status> {
        let caller = Some(pb::Caller::default());
        Ok(Response::new(pb::GetCallerResponse { caller }))
    }
}

#[tonic::async_trait]
impl ContractService for Least {
    type WatchContractsStream = BoxStream<'static, Result<pb::WatchContractsResponse, Status>>;

    async fn watch_contracts(
        &self,
        _: Request<pb::WatchContractsRequest>,
    ) -> Result<Response<Self::WatchContractsStream>, Status> {
        let event = |event, resume_token: &str| {
            Ok(pb::WatchContractsResponse {
                event: Some(event),
                resume_token: resume_token.to_owned(),
            })
        };
        let snapshot = [
            event(Event::SnapshotBegin(pb::SnapshotBegin::default()), ""),
            event(Event::SnapshotComplete(pb::SnapshotComplete::default()), "r1"),
        ];
        Ok(Response::new(stream::iter(snapshot).chain(stream::pending()).boxed()))
    }

    async fn list_contracts(
        &self,
        _: Request<pb::ListContractsRequest>,
    ) -> Result<Response<pb::ListContractsResponse>, Status> {
        Ok(Response::new(pb::ListContractsResponse::default()))
    }

    async fn get_contract(
        &self,
        _: Request<pb::GetContractRequest>,
    ) -> Result<Response<pb::GetContractResponse>, Status> {
        Ok(Response::new(pb::GetContractResponse::default()))
    }

    async fn share_contract(
        &self,
        _: Request<pb::ShareContractRequest>,
    ) -> Result<Response<pb::ShareContractResponse>, Status> {
        Err(unmeasured())
    }

    async fn revoke_contract(
        &self,
        _: Request<pb::RevokeContractRequest>,
    ) -> Result<Response<pb::RevokeContractResponse>, Status> {
        Err(unmeasured())
    }

    async fn unbind_contract(
        &self,
        _: Request<pb::UnbindContractRequest>,
    ) -> Result<Response<pb::UnbindContractResponse>, Status> {
        Err(unmeasured())
    }
}

fn unmeasured() -> Status {
    Status::unimplemented("no benchmark calls it")
}
