//! The provider: its backend (gRPC), its contracts (Kubernetes API), and what it answers.

pub(crate) mod contract;
pub(crate) mod contracts;
pub(crate) mod kubeconfig;
mod mend;
pub(crate) mod offer;
pub(crate) mod response;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use bindery_api::v1alpha2::Isolation;
use bindery_proto::v1alpha2::{
    BindableResourcesRequest, BindableResourcesRequestSpec, Caller, ClusterIdentity, Collection,
    CreateBindableResourcesRequestRequest, ErrorReason, ListCollectionsRequest, ListExportsRequest,
    ListTemplatesRequest, NameRef, ObjectMeta, Template,
};
use bindery_runtime::terminal::Exit;
use bindery_sdk::{Address, Bound, BuildError, Client, Code, Error, Renewed, TemplateDetails, TokenError};
use secrecy::SecretString;

use crate::login::{error::LoginError, source::StoredLogin};

/// The longest time that one call waits on the backend for the provider's controllers.
const WAIT: Duration = Duration::from_secs(30);

/// How the command logs in at the backend.
#[derive(Clone)]
pub(crate) enum Login {
    Token(SecretString),
    File(PathBuf),
    /// What `kubectl bind login` has stored.
    Stored(StoredLogin),
    /// Without a token, only calls that need none can be made.
    None,
}

/// The CA that signed the backend's certificate.
#[derive(Clone)]
pub(crate) enum Authority {
    /// A file, PEM.
    File(PathBuf),
    /// The certificates themselves, PEM.
    Pem(Vec<u8>),
}

/// The provider's backend, and how to reach it.
#[derive(Clone)]
pub(crate) struct Backend {
    pub(crate) address: Address,
    pub(crate) login: Login,
    /// Files of the client certificate and its key.
    pub(crate) client_certificate: Option<(PathBuf, PathBuf)>,
    pub(crate) certificate_authority: Option<Authority>,
    pub(crate) allow_plaintext: bool,
}

/// A client of the provider's backend.
pub(crate) struct Provider<'a> {
    client: Client,
    backend: &'a Backend,
}

/// Why a call to the provider's backend failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProviderError {
    /// The client cannot be built from these settings.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A file with a certificate or key cannot be read.
    #[error("cannot read the {what} file {}: {source}", path.display())]
    TlsFile {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A call failed. `doing` says what was tried, such as "list templates".
    #[error("cannot {doing}: {}", cause(source))]
    Call {
        doing: String,
        /// The template that the call was about.
        template: Option<String>,
        /// Who called, if the token tells.
        principal: Option<String>,
        audience: String,
        source: Box<Error>,
    },
}

/// What a bind asks of the provider.
#[derive(Clone, Debug)]
pub(crate) struct BindRequest {
    pub(crate) name: String,
    pub(crate) template: String,
    pub(crate) cluster: ClusterIdentity,
}

impl ProviderError {
    pub(crate) fn exit(&self) -> Exit {
        let Self::Call { source, .. } = self else {
            return Exit::Usage;
        };
        match source.as_ref() {
            Error::Status(status) => match status.code {
                Code::Unauthenticated | Code::PermissionDenied => Exit::Denied,
                Code::NotFound => Exit::NotFound,
                Code::InvalidArgument => Exit::Usage,
                Code::DeadlineExceeded => Exit::TimedOut,
                _ => Exit::Failed,
            },
            Error::Token(_) => Exit::Denied,
            Error::Pending(_) => Exit::TimedOut,
            _ => Exit::Failed,
        }
    }

    /// What the user can do about the error, where the message does not say it.
    pub(crate) fn mend(&self) -> Option<String> {
        mend::of(self)
    }

    /// Why the stored login gave no token, if that is why the call failed.
    pub(crate) fn login_error(&self) -> Option<&LoginError> {
        let Self::Call { source, .. } = self else { return None };
        login_error(source)
    }

    /// The reason that the backend gave, if it did.
    pub(crate) fn reason(&self) -> Option<ErrorReason> {
        match self {
            Self::Call { source, .. } => source.reason(),
            _ => None,
        }
    }
}

impl Authority {
    /// The certificates, PEM.
    pub(crate) fn pem(&self) -> Result<Vec<u8>, ProviderError> {
        match self {
            Self::Pem(pem) => Ok(pem.clone()),
            Self::File(path) => read("CA", path),
        }
    }
}

impl<'a> Provider<'a> {
    /// A client that connects with the first call. Without a token, only calls that need none succeed. `timeout` limits each call.
    pub(crate) fn new(backend: &'a Backend, timeout: Option<Duration>) -> Result<Self, ProviderError> {
        let mut builder = Client::builder(backend.address.to_string())
            .allow_plaintext(backend.allow_plaintext)
            .user_agent(concat!("kubectl-bind/", env!("CARGO_PKG_VERSION")));
        builder = match &backend.login {
            Login::Token(token) => builder.token(token.clone()),
            Login::File(path) => builder.token_file(path),
            Login::Stored(login) => builder.token_source(login.clone()),
            Login::None => builder,
        };
        if let Some((certificate, key)) = &backend.client_certificate {
            let chain = read("client certificate", certificate)?;
            builder = builder.client_certificate_pem(chain, read("client key", key)?);
        }
        if let Some(authority) = &backend.certificate_authority {
            builder = builder.ca_pem(authority.pem()?);
        }
        if let Some(timeout) = timeout {
            builder = builder.timeout(timeout);
        }
        let client = builder.build()?;
        Ok(Self { client, backend })
    }

    /// Name, version and features of the provider; needs no token.
    pub(crate) async fn describe(&self) -> Result<bindery_proto::v1alpha2::Provider, ProviderError> {
        let answer = self.client.get_provider().await;
        answer.map_err(|source| self.failed("read who the backend is", None, source))
    }

    /// Who the user is to the provider.
    pub(crate) async fn caller(&self) -> Result<Caller, ProviderError> {
        let answer = self.client.get_caller().await;
        answer.map_err(|source| self.failed("ask the backend who you are to it", None, source))
    }

    /// The isolation that the provider uses for templates without one; none if the call fails.
    pub(crate) async fn isolation(&self) -> Option<Isolation> {
        let provider = self.client.get_provider().await.ok()?;
        provider.isolation().as_crd_str().and_then(Isolation::from_name)
    }

    pub(crate) async fn templates(&self, request: ListTemplatesRequest) -> Result<Vec<Template>, ProviderError> {
        let answer = self.client.list_templates(request).await;
        answer.map_err(|source| self.failed("list templates", None, source))
    }

    pub(crate) async fn template(&self, name: &str) -> Result<TemplateDetails, ProviderError> {
        match self.client.get_template(name).await {
            Ok(details) => Ok(details),
            Err(source) => Err(self.failed(format!("show template {name}"), Some(name), source)),
        }
    }

    pub(crate) async fn collections(&self, request: ListCollectionsRequest) -> Result<Vec<Collection>, ProviderError> {
        let answer = self.client.list_collections(request).await;
        answer.map_err(|source| self.failed("list collections", None, source))
    }

    pub(crate) async fn collection(&self, name: &str) -> Result<Collection, ProviderError> {
        let answer = self.client.get_collection(name).await;
        answer.map_err(|source| self.failed(format!("show collection {name}"), None, source))
    }

    /// Asks what a bind would install. The provider writes nothing.
    pub(crate) async fn preview(&self, bind: &BindRequest) -> Result<Bound, ProviderError> {
        let request = CreateBindableResourcesRequestRequest {
            validate_only: true,
            ..bind.request()
        };
        self.create(bind, request, WAIT, |_| ()).await
    }

    /// Binds, and waits up to `patience` until the provider has made export and kubeconfig. `progress` gets each answer
    /// that is not the last.
    pub(crate) async fn bind(
        &self,
        bind: &BindRequest,
        patience: Duration,
        progress: impl FnMut(&BindableResourcesRequest),
    ) -> Result<Bound, ProviderError> {
        self.create(bind, bind.request(), patience, progress).await
    }

    /// Sends a request again as it was made, which gives new credentials.
    pub(crate) async fn bind_again(
        &self,
        made: BindableResourcesRequest,
        patience: Duration,
    ) -> Result<Bound, ProviderError> {
        let spec = made.spec.unwrap_or_default();
        let bind = BindRequest {
            name: made.metadata.unwrap_or_default().name,
            template: spec.template_ref.clone().unwrap_or_default().name,
            cluster: spec.cluster_identity.clone().unwrap_or_default(),
        };
        self.create(&bind, bind.with_spec(spec), patience, |_| ()).await
    }

    async fn create(
        &self,
        bind: &BindRequest,
        mut request: CreateBindableResourcesRequestRequest,
        patience: Duration,
        progress: impl FnMut(&BindableResourcesRequest),
    ) -> Result<Bound, ProviderError> {
        let doing = format!("bind template {} as {}", bind.template, bind.name);
        if !request.validate_only {
            request.wait = prost_types::Duration::try_from(patience.min(WAIT)).ok();
        }
        match self.client.bind_by_request(request, patience, progress).await {
            Ok(bound) => Ok(bound),
            Err(source) => Err(self.failed(doing, Some(&bind.template), source)),
        }
    }

    /// Reads the request that made a binding; fails if another principal made it.
    pub(crate) async fn request(&self, name: &str, identity: &str) -> Result<BindableResourcesRequest, ProviderError> {
        let answer = self.client.get_bindable_resources_request(name, identity).await;
        answer.map_err(|source| self.failed(format!("read request {name}"), None, source))
    }

    /// Asks for new credentials of a contract.
    pub(crate) async fn renew(&self, contract: &str) -> Result<Renewed, ProviderError> {
        let answer = self.client.renew_kubeconfig(contract).await;
        answer.map_err(|source| self.failed(format!("renew the kubeconfig of contract {contract}"), None, source))
    }

    /// Lists the exports of a contract, by name; fails if the caller does not own the contract.
    pub(crate) async fn exports(&self, contract: &str) -> Result<Vec<String>, ProviderError> {
        let request = ListExportsRequest {
            contract: contract.to_owned(),
            ..ListExportsRequest::default()
        };
        let answer = self.client.list_exports(request).await;
        let exports =
            answer.map_err(|source| self.failed(format!("list the exports of contract {contract}"), None, source))?;
        Ok(exports
            .into_iter()
            .filter_map(|export| Some(export.metadata?.name))
            .collect())
    }

    fn failed(&self, doing: impl Into<String>, template: Option<&str>, source: Error) -> ProviderError {
        ProviderError::Call {
            doing: doing.into(),
            template: template.map(str::to_owned),
            principal: self.principal(),
            audience: self.client.audience(),
            source: Box::new(source),
        }
    }

    fn principal(&self) -> Option<String> {
        match &self.backend.login {
            Login::Token(token) => kubeconfig::principal(token),
            Login::File(path) => kubeconfig::principal(&SecretString::from(std::fs::read_to_string(path).ok()?.trim())),
            // The server says in its own message who the caller is to it.
            Login::Stored(_) | Login::None => None,
        }
    }
}

/// Why the stored login gave no token, which the error of the call does not show.
fn login_error(error: &Error) -> Option<&LoginError> {
    match error {
        Error::Token(TokenError::LoggedOut(source) | TokenError::Source(source)) => source.downcast_ref(),
        _ => None,
    }
}

/// What went wrong in a call, for the user.
fn cause(error: &Error) -> &dyn fmt::Display {
    match login_error(error) {
        Some(login) => login,
        None => error,
    }
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, ProviderError> {
    std::fs::read(path).map_err(|source| ProviderError::TlsFile {
        what,
        path: path.to_owned(),
        source,
    })
}

impl BindRequest {
    fn request(&self) -> CreateBindableResourcesRequestRequest {
        let spec = BindableResourcesRequestSpec {
            template_ref: Some(NameRef {
                name: self.template.clone(),
            }),
            cluster_identity: Some(self.cluster.clone()),
            ..BindableResourcesRequestSpec::default()
        };
        self.with_spec(spec)
    }

    fn with_spec(&self, spec: BindableResourcesRequestSpec) -> CreateBindableResourcesRequestRequest {
        CreateBindableResourcesRequestRequest {
            bindable_resources_request: Some(BindableResourcesRequest {
                metadata: Some(ObjectMeta {
                    name: self.name.clone(),
                    ..ObjectMeta::default()
                }),
                spec: Some(spec),
                status: None,
            }),
            wait: None,
            validate_only: false,
        }
    }
}
