//! Contracts and backends, as the credentials of bindings and bundles show them from here.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_api::{
    backend::Backend as Extension,
    names::CLUSTER_BINDING,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle, ClusterBinding},
};
use bindery_proto::v1alpha2::{ErrorReason, ListExportsRequest};
use bindery_runtime::{client::Clients, client::SharedToken, errors, kubeconfig::Fingerprint};
use bindery_sdk::{Address, AddressError, Client as BackendClient, Code, Error};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Config};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tokio::time::timeout;

use super::{cluster, read, tls};
use crate::{
    args::settings::Settings,
    check::facts::{BackendFacts, ClusterFacts, ContractFacts, Fact, Facts, TokenAccess, Unread, UnusableSecret},
    consumer::{Consumer, CredentialProblem},
    errors::Failure,
    install::owner::CredentialOwner,
    provider::kubeconfig::Credential,
};

/// The protocol that the backend speaks.
const H2: &[&[u8]] = &[b"h2"];
/// Protocols that an API server speaks.
const HTTP: &[&[u8]] = &[b"h2", b"http/1.1"];

/// The newest credential of a contract, with what uses it.
pub(super) struct KnownCredential {
    /// Namespace and name of the Secret.
    secret: String,
    /// The binding or bundle that `kubectl bind renew` takes.
    renew: String,
    credential: Credential,
}

/// The credentials of all bindings and bundles.
#[derive(Default)]
pub(super) struct Credentials {
    pub(super) of: Vec<KnownCredential>,
    pub(super) unusable: Vec<UnusableSecret>,
}

/// A backend to check.
pub(super) struct Endpoint {
    address: String,
    /// The CA of its certificate, PEM; none for the CAs of the system.
    pub(super) ca_pem: Option<Vec<u8>>,
    /// What names the CA.
    ca_from: String,
    /// The arguments of `kubectl bind renew` for what uses the backend.
    renew: Option<String>,
}

impl Endpoint {
    /// The address, as tokens for the backend name it.
    pub(super) fn parsed(&self) -> Result<Address, Failure> {
        let parsed = self.address.parse();
        parsed.map_err(|error: AddressError| Failure::Usage(error.to_string()))
    }
}

/// Bindings and bundles; bindings that a bundle made share its credential.
pub(super) fn owners(
    bindings: &Fact<Vec<APIServiceBinding>>,
    bundles: &Fact<Vec<APIServiceBindingBundle>>,
) -> Vec<CredentialOwner> {
    let bundles = bundles.iter().flatten().cloned().map(CredentialOwner::from);
    let bindings = bindings.iter().flatten().cloned().map(CredentialOwner::from);
    bundles.chain(bindings).collect()
}

/// Reads the newest credential of each owner, and keeps one for each contract and address.
pub(super) async fn credentials(consumer: &Consumer, owners: &[CredentialOwner], limit: Duration) -> Credentials {
    let newest = owners
        .iter()
        .map(async |owner| timeout(limit, consumer.newest_credential_of(owner)).await);
    let mut unusable: BTreeMap<String, UnusableSecret> = BTreeMap::new();
    let mut found: Vec<(Fingerprint, KnownCredential)> = Vec::new();
    for (owner, newest) in owners.iter().zip(join_all(newest).await) {
        let secret = owner.secret_ref().to_string();
        let (why, is_hidden) = match newest {
            Ok(Ok((credential, _))) => {
                let known = found
                    .iter()
                    .any(|(endpoint, _)| *endpoint == credential.access.endpoint);
                if !known {
                    let renew = renewed_by(owner);
                    let endpoint = credential.access.endpoint.clone();
                    found.push((
                        endpoint,
                        KnownCredential {
                            secret,
                            renew,
                            credential,
                        },
                    ));
                }
                continue;
            }
            Ok(Err(problem)) => (
                problem.to_string(),
                matches!(problem, CredentialProblem::NotVisible { .. }),
            ),
            Err(_) => (
                format!("Secret {secret} cannot be read within {} s", limit.as_secs()),
                true,
            ),
        };
        let entry = unusable.entry(secret).or_insert(UnusableSecret {
            owners: Vec::new(),
            why,
            is_hidden,
        });
        entry.owners.push(owner.to_string());
    }
    Credentials {
        of: found.into_iter().map(|(_, credential)| credential).collect(),
        unusable: unusable.into_values().collect(),
    }
}

/// The arguments of `kubectl bind renew` for an owner.
fn renewed_by(owner: &CredentialOwner) -> String {
    match owner.bundle() {
        Some(_) => format!("--bundle {}", owner.name()),
        None => owner.name().to_owned(),
    }
}

/// Looks at a contract with its credential.
pub(super) async fn contract(known: &KnownCredential, limit: Duration) -> ContractFacts {
    let access = &known.credential.access;
    let config = &access.config;
    let name = access.namespace.to_string();
    let clients = match &access.token {
        None => Clients::new(config, 2),
        Some(token) => SharedToken::new(token).and_then(|token| Clients::with_token(config, 2, &token)),
    };
    let asked = async {
        match clients {
            Ok(clients) => {
                let client = clients.write;
                tokio::join!(
                    cluster::api(&client, limit),
                    token_access(&client, &name, limit),
                    cluster_binding(&client, &name, limit)
                )
            }
            Err(error) => {
                let unread = || Unread::Failed(error.to_string());
                (Err(unread()), Err(unread()), Err(unread()))
            }
        }
    };
    let renewal = async {
        match &access.backend {
            Some(backend) => Some(renewal_access(backend, &name, limit).await),
            None => None,
        }
    };
    let (handshake, (api, access_seen, cluster_binding), renewal) =
        tokio::join!(tls::handshake(config, HTTP, limit), asked, renewal);
    ContractFacts {
        name: name.clone(),
        renew: known.renew.clone(),
        secret: known.secret.clone(),
        cluster: ClusterFacts {
            server: cluster::server(config),
            api,
        },
        tls: handshake,
        expires: known.credential.expires,
        renewable_until: known.credential.renewable_until,
        access: access_seen,
        renewal,
        cluster_binding,
        backend: access.backend.as_ref().map(|backend| backend.address.clone()),
    }
}

/// Reads the contract namespace, as the konnector does first.
async fn token_access(client: &Client, contract: &str, limit: Duration) -> Fact<TokenAccess> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let answer = timeout(limit, namespaces.get(contract)).await;
    let error = match answer {
        Err(_) => return Err(read::silent(limit)),
        Ok(Ok(_)) => return Ok(TokenAccess::Accepted),
        Ok(Err(error)) => error,
    };
    let why = errors::explain(&error);
    match errors::code(&error) {
        Some(401) => Ok(TokenAccess::Refused(why)),
        Some(403) => Ok(TokenAccess::Denied(why)),
        _ if errors::is_object_gone(&error, contract) => Ok(TokenAccess::Gone),
        _ => Err(read::unread(&error)),
    }
}

async fn cluster_binding(client: &Client, contract: &str, limit: Duration) -> Fact<Option<ClusterBinding>> {
    let bindings: Api<ClusterBinding> = Api::namespaced(client.clone(), contract);
    read::fact(limit, bindings.get_opt(CLUSTER_BINDING)).await
}

/// Asks the backend for something with the token that renews the credential.
async fn renewal_access(backend: &Extension, contract: &str, limit: Duration) -> Fact<TokenAccess> {
    let client = of_extension(backend).and_then(|builder| {
        let builder = builder.token(backend.token.clone()).timeout(limit);
        builder.build().map_err(|error| Unread::Failed(error.to_string()))
    })?;
    let request = ListExportsRequest {
        contract: contract.to_owned(),
        ..ListExportsRequest::default()
    };
    let Err(error) = client.list_exports(request).await else {
        return Ok(TokenAccess::Accepted);
    };
    let why = error.to_string();
    match &error {
        Error::Status(status) => match (status.reason, status.code) {
            (Some(ErrorReason::CredentialRevoked), _) => Ok(TokenAccess::Revoked(why)),
            (_, Code::Unauthenticated) => Ok(TokenAccess::Refused(why)),
            (_, Code::PermissionDenied) => Ok(TokenAccess::Denied(why)),
            (Some(ErrorReason::ContractNotFound), _) => Ok(TokenAccess::Gone),
            _ => Err(Unread::Failed(why)),
        },
        Error::Transport(_) => Err(Unread::Silent(why)),
        _ => Err(Unread::Failed(why)),
    }
}

fn of_extension(backend: &Extension) -> Result<bindery_sdk::ClientBuilder, Unread> {
    Ok(builder(&backend.address, ca_pem(backend)?.as_deref()))
}

fn ca_pem(backend: &Extension) -> Result<Option<Vec<u8>>, Unread> {
    let decoded = backend.ca_data.as_ref().map(|data| STANDARD.decode(data.trim()));
    let decoded = decoded.transpose();
    decoded.map_err(|_| Unread::Failed("the CA of the backend in the kubeconfig is not base64".to_owned()))
}

fn builder(address: &str, ca_pem: Option<&[u8]>) -> bindery_sdk::ClientBuilder {
    let builder = BackendClient::builder(address)
        .allow_plaintext(true)
        .user_agent(concat!("kubectl-bind/", env!("CARGO_PKG_VERSION")));
    match ca_pem {
        Some(pem) => builder.ca_pem(pem),
        None => builder,
    }
}

/// The backends to check, each once: an address with its CA. The one that flags name comes first; if a kubeconfig names it too,
/// the CA is the kubeconfig's, unless a flag gives another one.
pub(super) fn endpoints(settings: &Settings, known: &[KnownCredential]) -> Result<Vec<Endpoint>, Failure> {
    let mut endpoints: Vec<Endpoint> = flagged(settings, known)?.into_iter().collect();
    for known in known {
        let Some(backend) = &known.credential.access.backend else {
            continue;
        };
        // A CA that cannot be read is reported by the renewal, which cannot use it either.
        let Ok(ca_pem) = ca_pem(backend) else { continue };
        let mut others = endpoints.iter();
        if others.all(|other| other.address != backend.address || other.ca_pem != ca_pem) {
            endpoints.push(Endpoint {
                address: backend.address.clone(),
                ca_pem,
                ca_from: format!("the kubeconfig of Secret {}", known.secret),
                renew: Some(known.renew.clone()),
            });
        }
    }
    Ok(endpoints)
}

fn flagged(settings: &Settings, known: &[KnownCredential]) -> Result<Option<Endpoint>, Failure> {
    let Some(backend) = settings.typed_backend() else {
        return Ok(None);
    };
    let address = backend.address.to_string();
    let is_known = known.iter().any(|known| {
        let backend = known.credential.access.backend.as_ref();
        backend.is_some_and(|backend| backend.address.trim_end_matches('/') == address)
    });
    let (ca_pem, ca_from) = match &backend.certificate_authority {
        None if is_known => return Ok(None),
        None => (None, "the CAs of this system"),
        Some(authority) => (Some(authority.pem()?), "--certificate-authority"),
    };
    Ok(Some(Endpoint {
        address,
        ca_pem,
        ca_from: ca_from.to_owned(),
        renew: None,
    }))
}

/// The backend of the provider whose cluster was checked: the one that flags name, or else the one that the contracts on this
/// cluster name. None if that is not clear.
pub(super) fn of_provider(endpoints: Vec<Endpoint>, settings: &Settings, facts: &Facts) -> Option<Endpoint> {
    let address = match settings.typed_backend() {
        Some(typed) => typed.address.to_string(),
        None => facts.provider_backend()?.to_owned(),
    };
    let address = address.trim_end_matches('/');
    let mut endpoints = endpoints.into_iter();
    endpoints.find(|endpoint| endpoint.address.trim_end_matches('/') == address)
}

/// Looks at each backend.
pub(super) async fn backends(endpoints: &[Endpoint], limit: Duration) -> Vec<BackendFacts> {
    join_all(endpoints.iter().map(|endpoint| backend(endpoint, limit))).await
}

async fn backend(endpoint: &Endpoint, limit: Duration) -> BackendFacts {
    let handshake = async {
        match connection(endpoint) {
            Ok(config) => tls::handshake(&config, H2, limit).await,
            Err(why) => crate::check::facts::TlsFacts::NoTls(why),
        }
    };
    let (handshake, version) = tokio::join!(handshake, version(endpoint, limit));
    BackendFacts {
        address: endpoint.address.clone(),
        ca_from: endpoint.ca_from.clone(),
        renew: endpoint.renew.clone(),
        tls: handshake,
        version,
    }
}

fn connection(endpoint: &Endpoint) -> Result<Config, String> {
    let url = endpoint
        .address
        .parse()
        .map_err(|_| format!("{:?} is no address", endpoint.address))?;
    let mut config = Config::new(url);
    if let Some(pem) = &endpoint.ca_pem {
        let certificates = CertificateDer::pem_slice_iter(pem).map(|certificate| certificate.map(|der| der.to_vec()));
        let certificates: Result<Vec<_>, _> = certificates.collect();
        config.root_cert = Some(certificates.map_err(|error| format!("the CA cannot be read: {error}"))?);
    }
    Ok(config)
}

async fn version(endpoint: &Endpoint, limit: Duration) -> Fact<String> {
    let client = builder(&endpoint.address, endpoint.ca_pem.as_deref())
        .timeout(limit)
        .build();
    let client = client.map_err(|error| Unread::Failed(error.to_string()))?;
    let provider = client.get_provider().await.map_err(|error| match &error {
        Error::Transport(_) => Unread::Silent(error.to_string()),
        _ => Unread::Failed(error.to_string()),
    })?;
    Ok(provider.version)
}
