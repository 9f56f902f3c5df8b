//! The provider's backend, as this command asks it.

mod mend;

use std::{io, path::PathBuf, time::Duration};

use bindery_api::v1alpha2::Isolation;
use bindery_proto::v1alpha2::{
    BindableResourcesRequest, BindableResourcesRequestSpec, ClusterIdentity, Collection,
    CreateBindableResourcesRequestRequest, ErrorReason, ListCollectionsRequest, ListTemplatesRequest, NameRef,
    ObjectMeta, Template,
};
use bindery_sdk::{Bound, BuildError, Client, Code, Error, Renewed, TemplateDetails};
use secrecy::SecretString;

use crate::{
    errors::{Exit, Failure},
    kubeconfig,
    settings::{Backend, Login, Settings},
};

/// Longest time that one call waits for the provider's controllers.
const WAIT: Duration = Duration::from_secs(30);

/// A client of the provider's backend.
pub(crate) struct Provider<'a> {
    client: Client,
    backend: &'a Backend,
}

/// Why the provider did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProviderError {
    /// The settings cannot work.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The CA is not there.
    #[error("cannot read the CA file {}: {source}", path.display())]
    CertificateAuthority { path: PathBuf, source: io::Error },
    /// A call failed.
    #[error("cannot {doing}: {source}")]
    Call {
        doing: String,
        /// The template that it was about.
        template: Option<String>,
        /// Who asked, if the token says so.
        principal: Option<String>,
        audience: String,
        source: Box<Error>,
    },
}

/// A bind as it is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
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

    pub(crate) fn mend(&self) -> Option<String> {
        mend::of(self)
    }

    /// What it failed for, where the backend said so.
    pub(crate) fn reason(&self) -> Option<ErrorReason> {
        match self {
            Self::Call { source, .. } => source.reason(),
            _ => None,
        }
    }
}

impl<'a> Provider<'a> {
    /// A client for whoever the settings say. Connects with the first call.
    pub(crate) fn new(settings: &'a Settings) -> Result<Self, Failure> {
        Self::with(settings, settings.backend()?)
    }

    /// A client also where nobody is logged in.
    pub(crate) fn with(settings: &Settings, backend: &'a Backend) -> Result<Self, Failure> {
        let mut builder = Client::builder(backend.address.to_string())
            .allow_plaintext(backend.allow_plaintext)
            .user_agent(concat!("kubectl-bind/", env!("CARGO_PKG_VERSION")));
        builder = match &backend.login {
            Login::Token(token) => builder.token(token.clone()),
            Login::File(path) => builder.token_file(path),
            Login::Nobody => builder,
        };
        if let Some(path) = &backend.certificate_authority {
            let pem = std::fs::read(path).map_err(|source| ProviderError::CertificateAuthority {
                path: path.clone(),
                source,
            })?;
            builder = builder.ca_pem(pem);
        }
        if let Some(timeout) = settings.timeout {
            builder = builder.timeout(timeout);
        }
        let client = builder.build().map_err(ProviderError::from)?;
        Ok(Self { client, backend })
    }

    /// Who the provider is; open to all.
    pub(crate) async fn describe(&self) -> Result<bindery_proto::v1alpha2::Provider, Failure> {
        let answer = self.client.get_provider().await;
        Ok(answer.map_err(|source| self.failed("ask the backend who it is", None, source))?)
    }

    /// How the provider places cluster-scoped objects of a template that does not say; none if it cannot be asked.
    pub(crate) async fn isolation(&self) -> Option<Isolation> {
        let provider = self.client.get_provider().await.ok()?;
        provider.isolation().as_crd_str().and_then(Isolation::from_name)
    }

    pub(crate) async fn templates(&self, request: ListTemplatesRequest) -> Result<Vec<Template>, Failure> {
        let answer = self.client.list_templates(request).await;
        Ok(answer.map_err(|source| self.failed("list templates", None, source))?)
    }

    pub(crate) async fn template(&self, name: &str) -> Result<TemplateDetails, Failure> {
        let answer = self.client.get_template(name).await;
        Ok(answer.map_err(|source| self.failed(format!("show template {name}"), Some(name), source))?)
    }

    pub(crate) async fn collections(&self, request: ListCollectionsRequest) -> Result<Vec<Collection>, Failure> {
        let answer = self.client.list_collections(request).await;
        Ok(answer.map_err(|source| self.failed("list collections", None, source))?)
    }

    pub(crate) async fn collection(&self, name: &str) -> Result<Collection, Failure> {
        let answer = self.client.get_collection(name).await;
        Ok(answer.map_err(|source| self.failed(format!("show collection {name}"), None, source))?)
    }

    /// What would come of a bind. Writes nothing.
    pub(crate) async fn preview(&self, wish: &Wish) -> Result<Bound, Failure> {
        let request = CreateBindableResourcesRequestRequest {
            validate_only: true,
            ..wish.request()
        };
        self.create(wish, request, WAIT, |_| ()).await
    }

    /// Binds, and waits until the provider is done.
    pub(crate) async fn bind(
        &self,
        wish: &Wish,
        patience: Duration,
        progress: impl FnMut(&BindableResourcesRequest),
    ) -> Result<Bound, Failure> {
        let wait = prost_types::Duration::try_from(patience.min(WAIT)).ok();
        let request = CreateBindableResourcesRequestRequest { wait, ..wish.request() };
        self.create(wish, request, patience, progress).await
    }

    /// Sends a request again as it was made, for new credentials.
    pub(crate) async fn bind_again(
        &self,
        made: BindableResourcesRequest,
        patience: Duration,
    ) -> Result<Bound, Failure> {
        let spec = made.spec.unwrap_or_default();
        let wish = Wish {
            name: made.metadata.unwrap_or_default().name,
            template: spec.template_ref.clone().unwrap_or_default().name,
            cluster: spec.cluster_identity.clone().unwrap_or_default(),
        };
        let wait = prost_types::Duration::try_from(patience.min(WAIT)).ok();
        let request = CreateBindableResourcesRequestRequest {
            wait,
            ..wish.with_spec(spec)
        };
        self.create(&wish, request, patience, |_| ()).await
    }

    async fn create(
        &self,
        wish: &Wish,
        request: CreateBindableResourcesRequestRequest,
        patience: Duration,
        progress: impl FnMut(&BindableResourcesRequest),
    ) -> Result<Bound, Failure> {
        let doing = format!("bind template {} as {}", wish.template, wish.name);
        let answer = self.client.bind(request, patience, progress).await;
        Ok(answer.map_err(|source| self.failed(doing, Some(&wish.template), source))?)
    }

    /// The request that a binding was made by, if this principal made it.
    pub(crate) async fn request(&self, name: &str, identity: &str) -> Result<BindableResourcesRequest, ProviderError> {
        let answer = self.client.get_bindable_resources_request(name, identity).await;
        answer.map_err(|source| self.failed(format!("read request {name}"), None, source))
    }

    /// New credentials for a contract.
    pub(crate) async fn renew(&self, contract: &str) -> Result<Renewed, ProviderError> {
        let answer = self.client.renew_kubeconfig(contract).await;
        answer.map_err(|source| self.failed(format!("renew the kubeconfig of contract {contract}"), None, source))
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
            Login::Nobody => None,
        }
    }
}

impl Wish {
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
