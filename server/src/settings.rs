//! The settings of the server as plain data, made from its flags.

use std::{collections::BTreeSet, time::Duration};

use bindery_api::v1alpha2::{GroupResource, InformerScope, Isolation};
use bindery_proto::address::Address;
use bindery_runtime::policy::PolicyTiming;
use http::HeaderValue;

use crate::limits::Limits;

/// The settings of a server, the same on all replicas except for their names.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The server's own namespace, where BindableResourcesRequests live.
    pub namespace: String,
    /// Name of this replica in events.
    pub instance: String,
    /// The prefix of the names of contract namespaces.
    pub namespace_prefix: String,
    /// How cluster-scoped objects are placed, unless a template says otherwise.
    pub isolation: Isolation,
    /// Whether konnectors watch cluster-wide or per provider namespace.
    pub informer_scope: InformerScope,
    /// Name of the provider for people.
    pub pretty_name: String,
    /// The Kubernetes API as consumers reach it.
    pub kubernetes: KubernetesEndpoint,
    /// The gRPC endpoint as consumers reach it.
    pub grpc: GrpcEndpoint,
    /// Limits of the connections to the gRPC port.
    pub connections: ConnectionLimits,
    /// Requested lifetime of the token for the Kubernetes API.
    pub token_lifetime: Duration,
    /// Requested lifetime of the token for renewal.
    pub renewal_lifetime: Duration,
    /// Longest time from a bind to the last renewal of a contract's credentials; none is no limit.
    pub renewal_max_age: Option<Duration>,
    /// Whether the server installs its CRDs at start.
    pub install_crds: bool,
    /// Resources that templates may claim beside the three core resources.
    pub claimable_resources: BTreeSet<GroupResource>,
    /// Resources whose objects keep a provider namespace from being deleted, beside those that the server sees anyway.
    pub valuable_resources: BTreeSet<GroupResource>,
    /// Whether konnectors that watch cluster-wide may read all Secrets of the cluster if their template claims Secrets.
    pub cluster_wide_secret_claims: bool,
    /// The limits of tenants.
    pub limits: Limits,
    /// When the admission policies are probed, and what follows if one is gone.
    pub policies: PolicyTiming,
    /// Scopes that clients ask for when people log in.
    pub login_scopes: Vec<String>,
}

/// What a consumer needs to reach the Kubernetes API of the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesEndpoint {
    /// Its URL.
    pub address: String,
    /// The CA of its certificate, PEM; the consumer's system roots if absent.
    pub ca: Option<Vec<u8>>,
    /// The name that its certificate must have, if that is not the URL's host.
    pub server_name: Option<String>,
}

/// What a consumer needs to reach this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcEndpoint {
    /// Its URL in canonical form, which is also the audience of tokens for it.
    pub address: String,
    /// Its former URLs. Tokens with these audiences are still accepted.
    pub former: Vec<String>,
    /// Origins whose pages may call it from a browser.
    pub allowed_origins: Vec<HeaderValue>,
    /// Whether it answers reflection.
    pub reflection: bool,
}

/// Limits of the connections to the gRPC port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections at the same time.
    pub all: usize,
    /// Connections of one address, or of one IPv6 /64, at the same time.
    pub per_peer: usize,
    /// Longest time of a TLS handshake.
    pub handshake: Duration,
    /// Longest time from the handshake to the headers of the first request.
    pub first_request: Duration,
    /// Longest time without a call under way.
    pub idle: Duration,
    /// Age at which a connection takes no more calls.
    pub age: Duration,
}

impl ConnectionLimits {
    /// How many connections may be strangers', on which no call has passed authentication. The others are kept free for clients
    /// that authenticate.
    pub fn strangers(&self) -> usize {
        self.all.div_ceil(2)
    }
}

impl GrpcEndpoint {
    /// The audiences that tokens for this server may have. New tokens should have the first one.
    pub fn audiences(&self) -> Vec<String> {
        let current = std::iter::once(&self.address);
        current.chain(&self.former).cloned().collect()
    }

    /// The path prefixes of its URLs: a proxy may leave them on the calls that it passes on.
    pub fn prefixes(&self) -> Vec<String> {
        let addresses = self.audiences();
        let addresses = addresses.iter().filter_map(|address| address.parse::<Address>().ok());
        let prefixes = addresses.map(|address| address.prefix().to_owned());
        prefixes.filter(|prefix| !prefix.is_empty()).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn settings() -> Settings {
        Settings {
            namespace: "kube-bind".to_owned(),
            instance: "bindery-server".to_owned(),
            namespace_prefix: "kube-bind-".to_owned(),
            isolation: Isolation::Prefixed,
            informer_scope: InformerScope::Namespaced,
            pretty_name: "Wild West".to_owned(),
            kubernetes: KubernetesEndpoint {
                address: "https://kubernetes.example.com".to_owned(),
                ca: None,
                server_name: None,
            },
            grpc: GrpcEndpoint {
                address: "https://bind.example.com:443".to_owned(),
                former: Vec::new(),
                allowed_origins: Vec::new(),
                reflection: true,
            },
            connections: ConnectionLimits {
                all: 16_384,
                per_peer: 1024,
                handshake: Duration::from_secs(10),
                first_request: Duration::from_secs(10),
                idle: Duration::from_mins(5),
                age: Duration::from_hours(1),
            },
            token_lifetime: Duration::from_hours(1),
            renewal_lifetime: Duration::from_hours(7 * 24),
            renewal_max_age: None,
            install_crds: true,
            claimable_resources: BTreeSet::new(),
            valuable_resources: BTreeSet::new(),
            cluster_wide_secret_claims: false,
            limits: Limits::default(),
            policies: PolicyTiming {
                interval: Duration::from_hours(1),
                grace: Duration::from_mins(10),
                withdraws: false,
            },
            login_scopes: vec!["openid".to_owned(), "groups".to_owned()],
        }
    }
}
