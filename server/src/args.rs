//! The flags of `bindery-server`, and the settings that are made from them.

use std::{fs, io, net::SocketAddr, path::PathBuf, time::Duration};

use bindery_api::{
    names,
    v1alpha2::{GroupResource, InformerScope, Isolation},
};
use bindery_proto::address::{Address, AddressError, Scheme};
use bindery_runtime::{lease::LeaseArgs, policy::PolicyTiming, telemetry::LogArgs, traces::TraceArgs};
use clap::{ArgAction, Parser, ValueEnum};
use http::HeaderValue;
use kube::Config;

mod authentication;
mod connections;
mod kubernetes;
mod limits;
mod origin;
mod tls;

use crate::{
    settings::{GrpcEndpoint, KubernetesEndpoint, Settings},
    tls::{TlsSource, encode_certificate},
};

pub use self::{authentication::AuthenticationArgs, connections::ConnectionArgs, limits::LimitArgs, tls::TlsArgs};

const GRPC_FLAG: &str = "external-grpc-address";

/// A contract namespace is the prefix and 13 characters more, and one of its provider namespaces, shortened, 15 more than
/// that; each must be a DNS label.
const PREFIX_LENGTH_MAX: usize = names::NAMESPACE_LENGTH_MAX - 15 - 13;
/// Shortest lifetime of a token that the API server grants.
const LIFETIME_MIN: Duration = Duration::from_mins(10);
/// How often each admission policy is probed if nothing changes.
const POLICY_INTERVAL: Duration = Duration::from_hours(1);

/// Serves the APIs of this cluster to other clusters: people and automation bind templates over gRPC, konnectors follow
/// what was bound and keep its objects in sync with this cluster's API server.
#[derive(Clone, Debug, Parser)]
#[command(name = "bindery-server", version)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Args {
    /// Kubeconfig of the provider cluster, the one this server serves. Without it: the in-cluster ServiceAccount, or what
    /// KUBECONFIG names.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; its current one if not given.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace of the server itself, where it keeps BindableResourcesRequests and its Lease.
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE", default_value = names::KUBE_BIND_NAMESPACE)]
    pub namespace: String,

    /// Where gRPC is served. In a cluster, 0.0.0.0:8443.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8443")]
    pub listen_address: SocketAddr,
    /// TLS of the gRPC port.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Who may call beside ServiceAccounts of this cluster.
    #[command(flatten)]
    pub authentication: AuthenticationArgs,
    /// Limits of the connections to the gRPC port.
    #[command(flatten)]
    pub connections: ConnectionArgs,
    /// Origins whose pages may call this server from a browser, over gRPC-Web, by comma or by giving this several times: as
    /// `https://console.example.com`. Without it browsers let no page of another origin read an answer.
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',', value_parser = origin::allowed)]
    pub cors_allowed_origins: Vec<HeaderValue>,
    /// Answer gRPC reflection, which shows the services to anybody who reaches the port: their descriptors are public.
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set
    )]
    pub grpc_reflection: bool,
    /// Where /healthz, /readyz and /metrics are served. Not for consumers.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8081")]
    pub admin_address: SocketAddr,

    /// URL at which clients reach this server's gRPC port, with the path prefix below which a proxy serves it, if any. It is also
    /// the audience that tokens for this server must be for: kubectl create token NAME --audience URL.
    #[arg(long, value_name = "URL")]
    pub external_grpc_address: String,
    /// URL at which clients reached this server before it was moved. Tokens for it are still taken, so that konnectors renew
    /// their kubeconfigs and learn the new one. May be given several times; to be kept for as long as --renewal-lifetime.
    #[arg(long, value_name = "URL")]
    pub former_grpc_address: Vec<String>,
    /// CA of that port's certificate, PEM, to be put into kubeconfigs. Read again when the file changes. Without it: the CA that
    /// the server made; with --tls-cert-file, clients use their system's roots.
    #[arg(long, value_name = "FILE")]
    pub external_grpc_ca_file: Option<PathBuf>,
    /// URL at which consumers reach the Kubernetes API of this cluster. If not given: the server's own, or, where that is one
    /// for pods only, what ConfigMap kube-public/cluster-info says.
    #[arg(long, value_name = "URL")]
    pub external_address: Option<String>,
    /// CA of the Kubernetes API's certificate, PEM, to be put into kubeconfigs. If not given: that of cluster-info, if the URL is
    /// from there, else the server's own.
    #[arg(long, value_name = "FILE")]
    pub external_ca_file: Option<PathBuf>,
    /// Name that the Kubernetes API's certificate is checked for, where that is not the host of its URL.
    #[arg(long, value_name = "NAME")]
    pub external_server_name: Option<String>,

    /// What the names of contract namespaces begin with, up to a dash. Not to be changed while there are contracts.
    #[arg(long, value_name = "PREFIX", default_value = names::NAMESPACE_PREFIX)]
    pub namespace_prefix: String,
    /// Where cluster-scoped objects of a consumer are placed, unless their template says: under a prefixed name, in a
    /// namespace of their consumer, or under the very same name (none).
    #[arg(long, value_name = "KIND", value_enum, ignore_case = true, default_value_t)]
    pub isolation: IsolationArg,
    /// Whether konnectors watch one provider namespace at a time, or get the right to watch the whole cluster.
    #[arg(long, value_name = "SCOPE", value_enum, ignore_case = true, default_value_t)]
    pub consumer_scope: ScopeArg,
    /// Resources that templates may claim beside configmaps, secrets and serviceaccounts, as RESOURCE.GROUP, by comma or by
    /// giving this several times: namespaced custom resources of groups that are neither Kubernetes' nor kube-bind's.
    #[arg(long, value_name = "RESOURCE.GROUP", value_delimiter = ',', value_parser = claimable)]
    pub claimable_resources: Vec<GroupResource>,
    /// Resources whose objects keep a provider namespace from being deleted, as RESOURCE.GROUP, by comma or by giving this several
    /// times, such as backups.example.com. Beside these count all objects that ClusterRole view shows in a namespace, and Secrets, less
    /// what Kubernetes itself puts there. The server needs the verb list on them, by a ClusterRole with label
    /// rbac.kube-bind.io/aggregate-to-server=true.
    #[arg(long, value_name = "RESOURCE.GROUP", value_delimiter = ',', value_parser = resource)]
    pub valuable_resources: Vec<GroupResource>,
    /// Where --consumer-scope=cluster: give consumers whose template claims Secrets all Secrets of this cluster to read, those
    /// of other consumers and of Kubernetes itself included. Without it they read those of their own namespaces.
    #[arg(long)]
    pub dangerous_cluster_wide_secret_claims: bool,
    /// How much one contract, or one principal, may have.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Take rights back that rely on an admission policy of this server while the policy is gone: ten minutes after what the policy
    /// forbids was admitted for the first time, until the policy is there again. Consumers cannot sync the objects concerned
    /// meanwhile. Give this once you have an alert for metric bindery_policy_in_force. Without it, no new rights are given while
    /// the policy is gone, and those that were given stay.
    #[arg(long)]
    pub withdraw_without_policy: bool,
    /// How long a policy may be gone before rights are taken back, for tests.
    #[arg(long, value_name = "DURATION", hide = true, default_value = "10m", value_parser = duration)]
    pub policy_grace_period: Duration,
    /// Name of the provider, for people.
    #[arg(long, value_name = "NAME", default_value = "Bindery")]
    pub pretty_name: String,

    /// How long the token of a kubeconfig is good for the Kubernetes API. Konnectors renew at two thirds of it.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = lifetime)]
    pub token_lifetime: Duration,
    /// How long a konnector that was down may take to come back by itself.
    #[arg(long, value_name = "DURATION", default_value = "168h", value_parser = lifetime)]
    pub renewal_lifetime: Duration,
    /// How long the credentials of a contract are renewed after an owner bound last, such as 2160h. Then its owner has to bind again
    /// (kubectl bind renew), and objects are not synced until that is done. 0 is no limit.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = max_age)]
    pub renewal_max_age: Duration,
    /// Install the CustomResourceDefinitions at start. With --install-crds=false they must be there.
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set
    )]
    pub install_crds: bool,

    /// File to which a line of JSON is appended for each call that binds, renews, shares, unbinds or revokes, whether it succeeded
    /// or was refused: the audit log. `-` is standard output. Without it there is none.
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<PathBuf>,

    /// Leader election: of several replicas all answer calls, and one runs the controllers.
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
    /// Traces.
    #[command(flatten)]
    pub traces: TraceArgs,
}

/// Values of `--isolation`, the placement of cluster-scoped objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum IsolationArg {
    /// Under `<contract>-<name>`.
    #[default]
    Prefixed,
    /// In a namespace of the contract.
    Namespaced,
    /// Under the name they have on the consumer: consumers share one space of names.
    None,
}

/// Values of `--consumer-scope`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ScopeArg {
    /// One namespace at a time.
    #[default]
    Namespaced,
    /// The whole cluster, read-only.
    Cluster,
}

/// Why the flags do not go together, or cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArgsError {
    /// The CA would expire before its serving certificates are renewed in the ordinary way.
    #[error("--tls-lifetime must be a third of --tls-ca-lifetime at most")]
    CaTooShort,
    /// The server can make no certificate for a name.
    #[error(
        "no certificate can be made for {0:?}, a name from --external-grpc-address, --tls-service or --namespace; it must be a \
         DNS name or an IP address"
    )]
    CertificateName(String),
    /// Plaintext is allowed on loopback only.
    #[error("--allow-plaintext needs a loopback --listen-address, such as 127.0.0.1:8443, and not {0}")]
    PlaintextExposed(SocketAddr),
    /// A URL cannot be read.
    #[error("--{flag}: {source}")]
    Address {
        /// The flag.
        flag: &'static str,
        /// Why.
        source: AddressError,
    },
    /// A URL is not https.
    #[error("--{flag} must begin with https://, and {address} does not")]
    NotHttps {
        /// The flag.
        flag: &'static str,
        /// The value.
        address: String,
    },
    /// The external gRPC URL does not fit a plaintext port.
    #[error("--external-grpc-address must be an http:// URL of loopback where --allow-plaintext is given, and not {0}")]
    PlaintextAddress(String),
    /// A CA cannot be read.
    #[error("--{flag}: cannot read {}: {source}", path.display())]
    Ca {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A CA file holds no certificate.
    #[error("--{flag}: {} holds no certificate in PEM", path.display())]
    CaEmpty {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// The prefix would make invalid names of namespaces.
    #[error(
        "--namespace-prefix {0:?} must be lower-case letters, digits and dashes, begin with a letter or a digit, end with a \
         dash, and be at most {PREFIX_LENGTH_MAX} characters long"
    )]
    Prefix(String),
    /// The name for people is empty.
    #[error("--pretty-name must not be empty")]
    PrettyName,
    /// The renewal token would expire before the token that it renews.
    #[error("--renewal-lifetime must not be shorter than --token-lifetime")]
    RenewalTooShort,
}

impl Args {
    /// The settings of the server. `config` says how the server reaches its own cluster, `found` what the cluster says of itself
    /// where [`Args::needs_cluster_info`].
    pub fn settings(&self, config: &Config, found: Option<KubernetesEndpoint>) -> Result<Settings, ArgsError> {
        if !is_prefix(&self.namespace_prefix) {
            return Err(ArgsError::Prefix(self.namespace_prefix.clone()));
        }
        if self.pretty_name.trim().is_empty() {
            return Err(ArgsError::PrettyName);
        }
        if self.renewal_lifetime < self.token_lifetime {
            return Err(ArgsError::RenewalTooShort);
        }
        Ok(Settings {
            namespace: self.namespace.clone(),
            instance: self
                .lease
                .lease_identity
                .clone()
                .unwrap_or_else(|| names::SERVER.to_owned()),
            namespace_prefix: self.namespace_prefix.clone(),
            isolation: self.isolation.into(),
            informer_scope: self.consumer_scope.into(),
            pretty_name: self.pretty_name.clone(),
            kubernetes: self.kubernetes(config, found)?,
            grpc: self.grpc()?,
            connections: self.connections.limits(),
            token_lifetime: self.token_lifetime,
            renewal_lifetime: self.renewal_lifetime,
            renewal_max_age: Some(self.renewal_max_age).filter(|max_age| !max_age.is_zero()),
            install_crds: self.install_crds,
            claimable_resources: self.claimable_resources.iter().cloned().collect(),
            valuable_resources: self.valuable_resources.iter().cloned().collect(),
            cluster_wide_secret_claims: self.dangerous_cluster_wide_secret_claims,
            limits: self.limits.limits(),
            policies: PolicyTiming {
                interval: POLICY_INTERVAL,
                grace: self.policy_grace_period,
                withdraws: self.withdraw_without_policy,
            },
            login_scopes: self.authentication.scopes(),
        })
    }

    /// Where the certificate of the gRPC port comes from.
    pub fn tls(&self) -> Result<TlsSource, ArgsError> {
        self.tls.source(self.listen_address, &self.address()?, &self.namespace)
    }

    fn address(&self) -> Result<Address, ArgsError> {
        parse(GRPC_FLAG, &self.external_grpc_address)
    }

    fn grpc(&self) -> Result<GrpcEndpoint, ArgsError> {
        let address = self.address()?;
        if matches!(self.tls()?, TlsSource::Plaintext) {
            if address.scheme() != Scheme::Http || !address.is_loopback() {
                return Err(ArgsError::PlaintextAddress(address.to_string()));
            }
        } else if address.scheme() != Scheme::Https {
            return Err(not_https(GRPC_FLAG, &address));
        }
        let former = self.former_grpc_address.iter();
        let former = former.map(|address| Ok(parse("former-grpc-address", address)?.to_string()));
        Ok(GrpcEndpoint {
            address: address.to_string(),
            former: former.collect::<Result<_, ArgsError>>()?,
            allowed_origins: self.cors_allowed_origins.clone(),
            reflection: self.grpc_reflection,
        })
    }
}

impl From<IsolationArg> for Isolation {
    fn from(isolation: IsolationArg) -> Self {
        match isolation {
            IsolationArg::Prefixed => Self::Prefixed,
            IsolationArg::Namespaced => Self::Namespaced,
            IsolationArg::None => Self::None,
        }
    }
}

impl From<ScopeArg> for InformerScope {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::Cluster => Self::Cluster,
            ScopeArg::Namespaced => Self::Namespaced,
        }
    }
}

fn claimable(text: &str) -> Result<GroupResource, String> {
    let resource = resource(text)?;
    match names::owner_of_group(&resource.group) {
        Some(owner) => Err(format!("belongs to {owner} and cannot be claimed")),
        None => Ok(resource),
    }
}

/// Parses a resource with its group.
fn resource(text: &str) -> Result<GroupResource, String> {
    let Some((resource, group)) = text.split_once('.') else {
        return Err("must name a group, as in certificates.cert-manager.io".to_owned());
    };
    if !names::is_label(resource) || !names::is_subdomain(group) {
        return Err("is no resource; write plural name and group, as in certificates.cert-manager.io".to_owned());
    }
    Ok(GroupResource::new(group, resource))
}

/// Parses a duration as Kubernetes writes it.
fn duration(text: &str) -> Result<Duration, String> {
    let duration: bindery_api::Duration = serde_json::from_value(text.into()).map_err(|error| error.to_string())?;
    duration.parse().map_err(|error| error.to_string())
}

fn lifetime(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        duration if duration >= LIFETIME_MIN => Ok(duration),
        _ => Err("must be at least 10m, for the API server grants no shorter token".to_owned()),
    }
}

fn max_age(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    match duration(text)? {
        duration if duration.is_zero() || duration >= LIFETIME_MIN => Ok(duration),
        _ => Err("must be 0, which is no limit, or at least 10m".to_owned()),
    }
}

fn is_prefix(prefix: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    // The admission policy tells the prefix from a contract's name by its last dash.
    prefix.len() <= PREFIX_LENGTH_MAX && prefix.bytes().all(fits) && !prefix.starts_with('-') && prefix.ends_with('-')
}

fn parse(flag: &'static str, address: &str) -> Result<Address, ArgsError> {
    address.parse().map_err(|source| ArgsError::Address { flag, source })
}

fn not_https(flag: &'static str, address: &Address) -> ArgsError {
    ArgsError::NotHttps {
        flag,
        address: address.to_string(),
    }
}

fn read_ca(flag: &'static str, path: &PathBuf) -> Result<Vec<u8>, ArgsError> {
    let pem = fs::read(path).map_err(|source| ArgsError::Ca {
        flag,
        path: path.clone(),
        source,
    })?;
    if !String::from_utf8_lossy(&pem).contains("-----BEGIN CERTIFICATE-----") {
        return Err(ArgsError::CaEmpty {
            flag,
            path: path.clone(),
        });
    }
    Ok(pem)
}

/// The CA by which the server itself verifies the API server of its cluster.
fn own_ca(config: &Config) -> Result<Option<Vec<u8>>, ArgsError> {
    if let Some(path) = &config.root_cert_file {
        return read_ca("external-ca-file", path).map(Some);
    }
    let certificates = config.root_cert.as_ref();
    let pem = certificates.map(|certificates| {
        certificates
            .iter()
            .map(|der| encode_certificate(der))
            .collect::<String>()
    });
    Ok(pem.map(String::into_bytes))
}

#[cfg(test)]
mod tests;
