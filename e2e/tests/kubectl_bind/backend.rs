//! A backend that answers what a test wants, over the real protocol.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Result;
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bindery_proto::v1alpha2::{
    self as proto,
    binding_service_server::{BindingService, BindingServiceServer},
    catalog_service_server::{CatalogService, CatalogServiceServer},
    credential_service_server::{CredentialService, CredentialServiceServer},
};
use futures::stream::Empty;
use parking_lot::Mutex;
use serde_json::json;
use tonic::{Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// What the backend answers, and what it was asked.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Creates that were not `validate_only`.
    pub(crate) binds: usize,
    /// Renewals.
    pub(crate) renewals: usize,
    /// Whether renewals are refused until the owner binds again.
    pub(crate) renewal_stopped: bool,
    /// Creates that were.
    pub(crate) previews: usize,
    /// Put into the kubeconfig's user.
    pub(crate) user: serde_json::Map<String, serde_json::Value>,
    /// Put behind the rules that a konnector needs.
    pub(crate) rules: Vec<proto::ConsumerRule>,
    /// When the tokens of a kubeconfig expire.
    pub(crate) expires: i64,
    /// What the template claims.
    pub(crate) claims: Vec<proto::PermissionClaim>,
    /// What it claims when it is bound, if that is something else.
    pub(crate) claims_at_bind: Option<Vec<proto::PermissionClaim>>,
    /// The template's consumers share names.
    pub(crate) shared: bool,
    /// An API server that kubeconfigs lead to, its CA, and a token for it.
    pub(crate) access: Option<(String, String, String)>,
}

/// A running backend. Ends with the runtime.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    pub(crate) script: Arc<Mutex<Script>>,
}

impl Backend {
    pub(crate) async fn start() -> Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let backend = Self {
            address: listener.local_addr()?,
            script: Arc::new(Mutex::new(Script {
                expires: 4_000_000_000,
                ..Script::default()
            })),
        };
        let server = tonic::transport::Server::builder()
            .add_service(CatalogServiceServer::new(backend.clone()))
            .add_service(BindingServiceServer::new(backend.clone()))
            .add_service(CredentialServiceServer::new(backend.clone()));
        tokio::spawn(server.serve_with_incoming(tonic::transport::server::TcpIncoming::from(listener)));
        Ok(backend)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn response(&self, name: &str, kubeconfig: Option<proto::Kubeconfig>) -> proto::BindingResourceResponse {
        let rule = |resource: &str| proto::ConsumerRule {
            api_groups: vec!["wildwest.dev".to_owned()],
            resources: vec![resource.to_owned()],
            verbs: vec!["get".to_owned(), "patch".to_owned()],
            resource_names: Vec::new(),
        };
        let mut consumer_rules = vec![rule("cowboys"), rule("cowboys/status")];
        consumer_rules.extend(self.script.lock().rules.iter().cloned());
        proto::BindingResourceResponse {
            provider_namespace: "kube-bind-x".to_owned(),
            binding_name: name.to_owned(),
            requests: vec![proto::ExportRequest {
                name: name.to_owned(),
                resources: vec![cowboys()],
                permission_claims: self.claims(kubeconfig.is_some()),
                ..proto::ExportRequest::default()
            }],
            bound_schemas: Vec::new(),
            consumer_rules,
            kubeconfig,
        }
    }

    fn claims(&self, bound: bool) -> Vec<proto::PermissionClaim> {
        let script = self.script.lock();
        let at_bind = script.claims_at_bind.as_ref().filter(|_| bound);
        at_bind.unwrap_or(&script.claims).clone()
    }

    fn kubeconfig(&self) -> proto::Kubeconfig {
        let script = self.script.lock();
        let token = |audience: &str| {
            let claims = json!({ "exp": script.expires, "aud": [audience], "jti": script.binds + script.renewals });
            format!("e30.{}.sign", URL_SAFE_NO_PAD.encode(claims.to_string()))
        };
        let mut user = script.user.clone();
        let mut cluster = json!({
            "server": "https://api.example.com:6443",
            "extensions": [{ "name": "kube-bind.io/backend",
                "extension": { "address": self.url(), "token": token(&self.url()) } }],
        });
        match &script.access {
            None => drop(user.insert("token".to_owned(), token("api").into())),
            Some((server, ca, token)) => {
                cluster["server"] = server.as_str().into();
                cluster["certificate-authority-data"] = STANDARD.encode(ca).into();
                user.insert("token".to_owned(), token.as_str().into());
            }
        }
        let document = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "default",
            "contexts": [{ "name": "default", "context": { "cluster": "default", "user": "default", "namespace": "kube-bind-x" } }],
            "clusters": [{ "name": "default", "cluster": cluster }],
            "users": [{ "name": "default", "user": user }],
        });
        proto::Kubeconfig {
            kubeconfig: document.to_string().into_bytes().into(),
            contract_uid: "uid-1".to_owned(),
            ..proto::Kubeconfig::default()
        }
    }
}

fn cowboys() -> proto::Resource {
    proto::Resource {
        group: "wildwest.dev".to_owned(),
        resource: "cowboys".to_owned(),
        versions: vec!["v1alpha1".to_owned()],
    }
}

fn template(script: &Script) -> proto::Template {
    let (scope, isolation) = if script.shared {
        (proto::Scope::Cluster, proto::Isolation::None)
    } else {
        (proto::Scope::Namespaced, proto::Isolation::Unspecified)
    };
    proto::Template {
        metadata: Some(proto::ObjectMeta {
            name: "cowboys".to_owned(),
            ..proto::ObjectMeta::default()
        }),
        spec: Some(proto::TemplateSpec {
            description: "Cowboys as a service".to_owned(),
            resources: vec![cowboys()],
            permission_claims: script.claims.clone(),
            scope: scope.into(),
            isolation: isolation.into(),
            ..proto::TemplateSpec::default()
        }),
        ..proto::Template::default()
    }
}

fn denied(template: &str) -> Status {
    let metadata: std::collections::HashMap<_, _> = [("template".to_owned(), template.to_owned())].into();
    let details = ErrorDetails::with_error_info("TEMPLATE_BIND_DENIED", bindery_proto::ERROR_DOMAIN, metadata);
    let text = format!("you may not bind template {template:?}, or it does not exist");
    Status::with_error_details(tonic::Code::PermissionDenied, text, details)
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl CatalogService for Backend {
    async fn list_templates(&self, _: Request<proto::ListTemplatesRequest>) -> Answer<proto::ListTemplatesResponse> {
        Ok(Response::new(proto::ListTemplatesResponse {
            templates: vec![template(&self.script.lock())],
            ..Default::default()
        }))
    }

    async fn get_template(&self, request: Request<proto::GetTemplateRequest>) -> Answer<proto::GetTemplateResponse> {
        match request.get_ref().name.as_str() {
            "cowboys" => Ok(Response::new(proto::GetTemplateResponse {
                template: Some(template(&self.script.lock())),
                schemas: Vec::new(),
            })),
            other => Err(denied(other)),
        }
    }

    async fn list_collections(
        &self,
        _: Request<proto::ListCollectionsRequest>,
    ) -> Answer<proto::ListCollectionsResponse> {
        Ok(Response::new(proto::ListCollectionsResponse::default()))
    }

    async fn get_collection(&self, _: Request<proto::GetCollectionRequest>) -> Answer<proto::GetCollectionResponse> {
        Err(Status::not_found("no such collection"))
    }
}

#[tonic::async_trait]
impl CredentialService for Backend {
    async fn renew_kubeconfig(
        &self,
        request: Request<proto::RenewKubeconfigRequest>,
    ) -> Answer<proto::RenewKubeconfigResponse> {
        if self.script.lock().renewal_stopped {
            let metadata = std::collections::HashMap::<String, String>::new();
            let details = ErrorDetails::with_error_info("RENEWAL_STOPPED", bindery_proto::ERROR_DOMAIN, metadata);
            let text = "the contract's credentials are revoked; its owner can bind again";
            return Err(Status::with_error_details(
                tonic::Code::FailedPrecondition,
                text,
                details,
            ));
        }
        self.script.lock().renewals += 1;
        Ok(Response::new(proto::RenewKubeconfigResponse {
            contract: request.into_inner().contract,
            kubeconfig: Some(self.kubeconfig()),
        }))
    }

    async fn revoke_credentials(
        &self,
        _: Request<proto::RevokeCredentialsRequest>,
    ) -> Answer<proto::RevokeCredentialsResponse> {
        Ok(Response::new(proto::RevokeCredentialsResponse::default()))
    }
}

#[tonic::async_trait]
impl BindingService for Backend {
    type WatchBindableResourcesRequestsStream = Empty<Result<proto::WatchBindableResourcesRequestsResponse, Status>>;

    async fn create_bindable_resources_request(
        &self,
        request: Request<proto::CreateBindableResourcesRequestRequest>,
    ) -> Answer<proto::CreateBindableResourcesRequestResponse> {
        let request = request.into_inner();
        let wanted = request.bindable_resources_request.unwrap_or_default();
        let spec = wanted.spec.clone().unwrap_or_default();
        let template = spec.template_ref.unwrap_or_default().name;
        if template != "cowboys" {
            return Err(denied(&template));
        }
        let kubeconfig = if request.validate_only {
            self.script.lock().previews += 1;
            None
        } else {
            self.script.lock().binds += 1;
            Some(self.kubeconfig())
        };
        let name = wanted.metadata.clone().unwrap_or_default().name;
        let status = proto::BindableResourcesRequestStatus {
            phase: proto::Phase::Succeeded.into(),
            ..Default::default()
        };
        Ok(Response::new(proto::CreateBindableResourcesRequestResponse {
            bindable_resources_request: Some(proto::BindableResourcesRequest {
                status: Some(status),
                ..wanted
            }),
            response: Some(self.response(&name, kubeconfig)),
        }))
    }

    async fn get_bindable_resources_request(
        &self,
        request: Request<proto::GetBindableResourcesRequestRequest>,
    ) -> Answer<proto::GetBindableResourcesRequestResponse> {
        let request = request.into_inner();
        let made = proto::BindableResourcesRequest {
            metadata: Some(proto::ObjectMeta {
                name: request.name,
                ..Default::default()
            }),
            spec: Some(proto::BindableResourcesRequestSpec {
                template_ref: Some(proto::NameRef {
                    name: "cowboys".to_owned(),
                }),
                cluster_identity: Some(proto::ClusterIdentity {
                    identity: request.cluster_identity,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            status: None,
        };
        Ok(Response::new(proto::GetBindableResourcesRequestResponse {
            bindable_resources_request: Some(made),
        }))
    }

    async fn list_bindable_resources_requests(
        &self,
        _: Request<proto::ListBindableResourcesRequestsRequest>,
    ) -> Answer<proto::ListBindableResourcesRequestsResponse> {
        Ok(Response::new(proto::ListBindableResourcesRequestsResponse::default()))
    }

    async fn watch_bindable_resources_requests(
        &self,
        _: Request<proto::WatchBindableResourcesRequestsRequest>,
    ) -> Answer<Self::WatchBindableResourcesRequestsStream> {
        Ok(Response::new(futures::stream::empty()))
    }

    async fn delete_bindable_resources_request(
        &self,
        _: Request<proto::DeleteBindableResourcesRequestRequest>,
    ) -> Answer<proto::DeleteBindableResourcesRequestResponse> {
        Ok(Response::new(proto::DeleteBindableResourcesRequestResponse::default()))
    }
}
