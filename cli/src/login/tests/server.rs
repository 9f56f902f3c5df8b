//! A server of Bindery on loopback, without TLS. It says where to log in and who the caller is, and notes each token that it gets.

use std::sync::Arc;

use bindery_proto::v1alpha2::{
    AuthenticationMethod, Caller, GetCallerRequest, GetCallerResponse, GetProviderRequest, GetProviderResponse,
    OidcAuthentication, Provider,
    authentication_method::Method,
    provider_service_server::{ProviderService, ProviderServiceServer},
};
use parking_lot::Mutex;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use super::FakeIssuer;

pub(super) struct FakeServer {
    pub(super) address: String,
    tokens: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

struct Service {
    provider: Provider,
    tokens: Arc<Mutex<Vec<String>>>,
}

impl FakeServer {
    /// A server that lets people log in at these issuers, with client `bindery`.
    pub(super) async fn start(issuers: &[&FakeIssuer]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let tokens = Arc::default();
        let methods = issuers.iter().map(|issuer| AuthenticationMethod {
            method: Some(Method::Oidc(OidcAuthentication {
                issuer: issuer.url.clone(),
                client_id: "bindery".to_owned(),
                scopes: ["openid", "offline_access"].map(str::to_owned).to_vec(),
                flows: Vec::new(),
            })),
        });
        let service = Service {
            provider: Provider {
                pretty_name: "Fake".to_owned(),
                authentication_methods: methods.collect(),
                features: vec!["get-caller".to_owned()],
                ..Provider::default()
            },
            tokens: Arc::clone(&tokens),
        };
        let server = Server::builder().add_service(ProviderServiceServer::new(service));
        let task = tokio::spawn(async move {
            let _ = server.serve_with_incoming(TcpListenerStream::new(listener)).await;
        });
        Self { address, tokens, task }
    }

    /// The tokens that callers sent.
    pub(super) fn tokens(&self) -> Vec<String> {
        self.tokens.lock().clone()
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Service {
    fn note(&self, metadata: &tonic::metadata::MetadataMap) {
        let token = metadata.get("authorization");
        self.tokens
            .lock()
            .extend(token.map(|token| token.to_str().unwrap().to_owned()));
    }
}

#[tonic::async_trait]
impl ProviderService for Service {
    async fn get_provider(
        &self,
        request: Request<GetProviderRequest>,
    ) -> Result<Response<GetProviderResponse>, Status> {
        self.note(request.metadata());
        Ok(Response::new(GetProviderResponse {
            provider: Some(self.provider.clone()),
        }))
    }

    async fn get_caller(&self, request: Request<GetCallerRequest>) -> Result<Response<GetCallerResponse>, Status> {
        self.note(request.metadata());
        Ok(Response::new(GetCallerResponse {
            caller: Some(Caller {
                username: "jane".to_owned(),
                ..Caller::default()
            }),
        }))
    }
}
