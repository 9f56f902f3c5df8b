//! What `kubectl bind check` reads before it judges.

use std::{collections::BTreeMap, time::Duration};

use bindery_api::{
    Condition,
    revocation::Revocation,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle, ClusterBinding},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::rights::Right;

/// The outcome of reading a `T`.
pub(crate) type Fact<T> = Result<T, Unread>;

/// Why a fact is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unread {
    /// The user lacks a right.
    #[error("{0}")]
    Denied(String),
    /// The server cannot be reached, or did not answer in time.
    #[error("{0}")]
    Silent(String),
    /// The answer was another error.
    #[error("{0}")]
    Failed(String),
}

/// All that was read.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Version of this command.
    pub(crate) own_version: &'static str,
    pub(crate) flags: ClusterFlags,
    /// The time of this machine.
    pub(crate) now: Timestamp,
    pub(crate) consumer: ClusterFacts,
    pub(crate) konnector: KonnectorFacts,
    pub(crate) bindings: Fact<Vec<APIServiceBinding>>,
    pub(crate) bundles: Fact<Vec<APIServiceBindingBundle>>,
    /// Secrets whose kubeconfig cannot be used from here, with the bindings and bundles that name them.
    pub(crate) unusable_secrets: Vec<UnusableSecret>,
    pub(crate) contracts: Vec<ContractFacts>,
    pub(crate) backends: Vec<BackendFacts>,
    /// The provider's own cluster, if flags give access to it.
    pub(crate) provider: Option<ProviderFacts>,
}

impl Facts {
    /// The address of the backend on the provider's cluster: the one that all contracts on this cluster name. None if they name
    /// several, or if there is no such contract.
    pub(crate) fn provider_backend(&self) -> Option<&str> {
        let there = self.provider.as_ref()?.revoked.as_ref().ok()?;
        let mut addresses = self
            .contracts
            .iter()
            .filter(|contract| there.contains_key(&contract.name))
            .filter_map(|contract| contract.backend.as_deref());
        let first = addresses.next()?;
        addresses.all(|other| other == first).then_some(first)
    }
}

/// The flags with which commands of a mend reach each cluster: quoted for a shell, each with a space before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterFlags {
    pub(crate) consumer: String,
    pub(crate) provider: String,
}

/// One cluster, seen from here.
#[derive(Clone, Debug)]
pub(crate) struct ClusterFacts {
    /// URL of the API server.
    pub(crate) server: String,
    pub(crate) api: Fact<ApiFacts>,
}

/// What an API server tells about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiFacts {
    /// Version, such as `v1.34.1`.
    pub(crate) version: String,
    /// How far the clock of this machine is ahead of the API server's; negative if it is behind.
    pub(crate) ahead: SignedDuration,
}

/// What a TLS handshake showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TlsFacts {
    /// The address is `http://`.
    Plaintext,
    /// The server's certificate is trusted until this time, if that is known.
    Trusted(Option<Timestamp>),
    /// The server's certificate is refused.
    Refused(CertificateFault),
    /// No connection could be made, for this reason.
    NotConnected(String),
    /// The other end does not speak TLS as it should, for this reason.
    NoTls(String),
}

/// Why a certificate is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CertificateFault {
    /// It is signed by a CA that is not trusted.
    Untrusted,
    /// It expired at this time, if that is known.
    Expired(Option<Timestamp>),
    /// It becomes valid at this time, if that is known.
    NotYetValid(Option<Timestamp>),
    /// It is for these names, and not for the one that is dialled.
    WrongName { dialled: String, names: Vec<String> },
    /// Another reason, in words.
    Other(String),
}

/// What is installed for the konnector.
#[derive(Clone, Debug)]
pub(crate) struct KonnectorFacts {
    /// CustomResourceDefinitions of the konnector that are not served.
    pub(crate) missing_definitions: Fact<Vec<String>>,
    pub(crate) program: ProgramFacts,
}

/// The Deployment of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeploymentFacts {
    pub(crate) image: Option<String>,
    pub(crate) wanted: i32,
    pub(crate) available: i32,
    /// Whether all replicas are of the present version and available.
    pub(crate) is_rolled_out: bool,
    /// Namespace and name of the release of Helm that it belongs to, if it does.
    pub(crate) helm: Option<(String, String)>,
}

/// What konnector and server have alike.
#[derive(Clone, Debug)]
pub(crate) struct ProgramFacts {
    /// Namespace and name of its ServiceAccount.
    pub(crate) account: (String, String),
    /// Name of its Deployment.
    pub(crate) deployment_name: &'static str,
    /// Its Deployment, if there is one.
    pub(crate) deployment: Fact<Option<DeploymentFacts>>,
    /// Rights that the shipped roles give, and the account lacks.
    pub(crate) missing_rights: Fact<Vec<Right>>,
    pub(crate) policies: Vec<PolicyFacts>,
    pub(crate) lease: Fact<Option<LeaseFacts>>,
    /// Name of the Lease.
    pub(crate) lease_name: &'static str,
}

/// A ValidatingAdmissionPolicy with its binding.
#[derive(Clone, Debug)]
pub(crate) struct PolicyFacts {
    pub(crate) name: String,
    /// The manifests that ship.
    pub(crate) shipped: Shipped,
    pub(crate) policy: Fact<Option<Value>>,
    pub(crate) binding: Fact<Option<Value>>,
    /// What became of a request that the policy has to deny; none if no such request could be made.
    pub(crate) probe: Option<Fact<PolicyAnswer>>,
}

/// A policy and its binding as this release ships them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shipped {
    pub(crate) policy: Value,
    pub(crate) binding: Value,
}

/// What became of a request, sent as a dry run, that a policy has to deny.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PolicyAnswer {
    /// The policy denied it.
    Denied,
    /// The request passed, or another policy denied it.
    Admitted,
    /// The request did not reach admission, for this reason.
    Untried(String),
}

/// A Lease, and how it developed while it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseFacts {
    pub(crate) holder: Option<String>,
    /// When the holder renewed it last, by the holder's clock.
    pub(crate) renewed: Option<Timestamp>,
    pub(crate) duration: Duration,
    /// The API server's time when it was read last.
    pub(crate) read_at: Timestamp,
    /// Whether it was renewed while it was looked at; none if it was read once.
    pub(crate) seen_renewed: Option<bool>,
    /// For how long it was looked at.
    pub(crate) watched: Duration,
}

/// A Secret whose kubeconfig cannot be used from here.
#[derive(Clone, Debug)]
pub(crate) struct UnusableSecret {
    /// The bindings and bundles that name the Secret, such as `APIServiceBinding cowboys`.
    pub(crate) owners: Vec<String>,
    pub(crate) why: String,
    /// Whether only this user may not read it.
    pub(crate) is_hidden: bool,
}

/// One contract, as the newest credential of its bindings and bundles shows it from here.
#[derive(Clone, Debug)]
pub(crate) struct ContractFacts {
    /// The contract namespace.
    pub(crate) name: String,
    /// The binding or bundle that `kubectl bind renew` takes, with its flag if it is a bundle.
    pub(crate) renew: String,
    /// Namespace and name of the Secret.
    pub(crate) secret: String,
    pub(crate) cluster: ClusterFacts,
    /// The handshake with the API server.
    pub(crate) tls: TlsFacts,
    /// When the token for the API server expires.
    pub(crate) expires: Option<Timestamp>,
    /// When the token expires that renews the credential.
    pub(crate) renewable_until: Option<Timestamp>,
    /// Whether the API server accepts the token.
    pub(crate) access: Fact<TokenAccess>,
    /// Whether the backend accepts the token that renews the credential; none without a backend.
    pub(crate) renewal: Option<Fact<TokenAccess>>,
    pub(crate) cluster_binding: Fact<Option<ClusterBinding>>,
    /// URL of the backend in the kubeconfig.
    pub(crate) backend: Option<String>,
}

/// How a server treats a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenAccess {
    /// The token is accepted.
    Accepted,
    /// The token was revoked, in the server's words.
    Revoked(String),
    /// The token is unknown or expired, in the server's words.
    Refused(String),
    /// The token is known, and may not read the contract.
    Denied(String),
    /// The contract namespace does not exist.
    Gone,
}

/// One backend: an address with its CA.
#[derive(Clone, Debug)]
pub(crate) struct BackendFacts {
    pub(crate) address: String,
    /// Where the CA comes from, such as `Secret kube-bind/kubeconfig-cowboys`.
    pub(crate) ca_from: String,
    /// The binding or bundle that `kubectl bind renew` takes, if one uses the backend.
    pub(crate) renew: Option<String>,
    pub(crate) tls: TlsFacts,
    /// Version of the server.
    pub(crate) version: Fact<String>,
}

/// The provider's own cluster.
#[derive(Clone, Debug)]
pub(crate) struct ProviderFacts {
    pub(crate) cluster: ClusterFacts,
    pub(crate) server: ProgramFacts,
    /// The contracts of this consumer, each with its revocation if there is one.
    pub(crate) revoked: Fact<BTreeMap<String, Option<Revocation>>>,
    /// Templates that are not ready, by name.
    pub(crate) unready_templates: Fact<Vec<(String, Condition)>>,
    pub(crate) login: LoginFacts,
}

/// What became of the ID token of the user's login at the API server.
#[derive(Clone, Debug)]
pub(crate) enum LoginFacts {
    /// It was not sent, for this reason.
    NotTried(String),
    /// It was sent.
    Tried {
        /// Address of the server that the token is for.
        backend: String,
        /// Issuer of the token.
        issuer: String,
        /// The client that the token was issued to.
        client_id: String,
        /// The username as which the API server accepts the token; none if it refuses the token.
        accepted_as: Fact<Option<String>>,
    },
}
