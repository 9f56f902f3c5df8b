//! The state of a replica: clients, settings, its own identity, and caches of the provider's objects.

use std::{collections::BTreeMap, fmt, sync::Arc};

use bindery_api::{
    labels, names,
    v1alpha2::{
        APIServiceExport, APIServiceExportRequest, APIServiceExportTemplate, APIServiceNamespace,
        BindableResourcesRequest, BoundSchema, ClusterBinding, Collection, GroupResource, Scope,
    },
};
use bindery_runtime::{
    admin::Readiness,
    cache::{Cache, Health},
    client::{Clients, Network},
    crds::{self, InstallError},
    errors,
    events::{Recorder, Reporter},
    watch::Source,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        authentication::v1::SelfSubjectReview,
        core::v1::Namespace,
        rbac::v1::{ClusterRole, Subject},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Config, api::PostParams};
use tokio::sync::watch;

use crate::{
    audit::AuditLog,
    contract,
    limits::{Counts, Refusals},
    metrics::ServerMetrics,
    policy::{PolicyMonitor, Prober, requests::AuthorVerifier},
    rights::Rights,
    settings::Settings,
    template::{ClaimableScopes, Definitions},
    tls::CaBundle,
};

mod schema_pool;

use schema_pool::SchemaPool;

/// The aggregated ClusterRole with the rights that the server may grant, as shipped in `deploy/server`.
pub const AGGREGATED_ROLE: &str = "bindery-server-exports";

/// Everything that a replica works with. Clones share it.
#[derive(Clone)]
pub struct State {
    /// Clients for the provider cluster.
    pub clients: Clients,
    /// The network of the clients.
    pub network: Network,
    /// The operator's settings.
    pub settings: Arc<Settings>,
    /// The CAs by which clients verify this server, as they are now.
    pub grpc_ca: CaBundle,
    /// The provider's objects, kept current by watches.
    pub caches: Caches,
    /// Who the server is for the provider's API server.
    pub identity: Arc<Identity>,
    /// The rights of the server itself.
    pub rights: Rights,
    /// Proves that the admission policy limits what contracts may do.
    pub prober: Prober,
    /// What is known of the admission policies, on the leader.
    pub policies: PolicyMonitor,
    /// Checks whether the author of a request made as a resource was verified.
    pub author_verifier: AuthorVerifier,
    /// Records events about ClusterBindings and requests.
    pub recorder: Recorder,
    /// The audit log, of calls and of requests made as resources.
    pub audit: AuditLog,
    /// What contracts and principals have, for their limits.
    pub counts: Counts,
    /// Refusals by limits.
    pub refusals: Refusals,
    /// What this replica counts.
    pub metrics: Arc<ServerMetrics>,
}

/// Caches of the provider's objects.
#[derive(Clone, Debug)]
pub struct Caches {
    /// The catalog's templates.
    pub templates: Cache<APIServiceExportTemplate>,
    /// The catalog's collections.
    pub collections: Cache<Collection>,
    /// CRDs that may be exported.
    pub definitions: Cache<CustomResourceDefinition>,
    /// Requests: those made over gRPC in the server's own namespace, and those made as resources in any.
    pub requests: Cache<BindableResourcesRequest>,
    /// Namespaces with label `kube-bind.io/contract`: the contract namespaces, and the provider namespaces made for them.
    pub namespaces: Cache<Namespace>,
    /// ClusterBindings, one in each contract namespace.
    pub cluster_bindings: Cache<ClusterBinding>,
    /// Requests for exports, in contract namespaces.
    pub export_requests: Cache<APIServiceExportRequest>,
    /// Exports, in contract namespaces.
    pub exports: Cache<APIServiceExport>,
    /// Schemas of exports, in contract namespaces.
    pub bound_schemas: Cache<BoundSchema>,
    /// Mapped namespaces, in contract namespaces.
    pub service_namespaces: Cache<APIServiceNamespace>,
    /// The one aggregated ClusterRole whose rights the server may grant.
    pub aggregated_role: Cache<ClusterRole>,
    /// The CRD of each resource that may be claimed beside core resources. Each cache holds one CRD at most, exported or not.
    pub claimable: Arc<BTreeMap<GroupResource, Cache<CustomResourceDefinition>>>,
}

/// The server's identity in the provider cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The Kubernetes username of the server.
    pub username: String,
}

/// Why a replica cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The server's CRDs could not be installed.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The API server does not tell who the server is.
    #[error("cannot ask the API server who this server is: {}", errors::explain(.0))]
    Identity(#[source] kube::Error),
    /// The server has no credentials that the API server accepts.
    #[error("this server is an anonymous user to the API server; give it credentials")]
    Anonymous,
}

// === impl State ===

impl State {
    /// Installs CRDs if the settings say so, asks the API server who the server is, and starts the caches. The clients must be
    /// made from `config` on `network`.
    pub async fn start(
        clients: Clients,
        config: &Config,
        network: Network,
        settings: Settings,
        grpc_ca: CaBundle,
        audit: AuditLog,
    ) -> Result<Self, StartError> {
        if settings.install_crds {
            crds::install(&clients.write, bindery_api::crds::for_provider()).await?;
        }
        let identity = Identity::ask(&clients).await?;
        tracing::info!(username = identity.username, "known to the API server");
        let reporter = Reporter {
            controller: "kube-bind.io/bindery-server",
            action: "Serve",
            instance: settings.instance.clone(),
        };
        let caches = Caches::start(&clients, &settings);
        Ok(Self {
            recorder: Recorder::start(clients.write.clone(), reporter),
            audit,
            counts: Counts::start(&caches, &settings.namespace),
            refusals: Refusals::default(),
            caches,
            metrics: Arc::default(),
            rights: Rights::new(clients.write.clone()),
            prober: Prober::new(config, network.clone(), clients.write.clone()),
            policies: PolicyMonitor::default(),
            author_verifier: AuthorVerifier::new(clients.write.clone(), &settings.namespace, &identity.username),
            settings: Arc::new(settings),
            grpc_ca,
            identity: Arc::new(identity),
            clients,
            network,
        })
    }

    /// Waits until every cache has received a complete list.
    pub async fn synced(&self) {
        for (_, mut health) in self.caches.health() {
            // A sender lives in each cache, so waiting cannot fail.
            let _ = health.wait_for(Health::is_synced).await;
        }
    }

    /// Whether every cache has received a complete list.
    pub fn is_synced(&self) -> bool {
        self.caches
            .health()
            .iter()
            .all(|(_, health)| health.borrow().is_synced())
    }

    /// A sentence about the first cache that has not received a complete list yet, or cannot follow changes; `None` if there is no
    /// such cache.
    pub fn complaint(&self) -> Option<String> {
        self.caches.health().into_iter().find_map(|(name, health)| {
            let health = health.borrow();
            match (&health.failure, health.is_synced()) {
                (Some(failure), _) => Some(format!("cannot watch {name}: {failure}")),
                (None, false) => Some(format!("still listing {name}")),
                (None, true) => None,
            }
        })
    }

    /// Adds the caches to the readiness: ready once each has received a complete list. A cache that falls behind later does not
    /// count, since a replica that answers from an older state is better than none.
    pub fn readiness(&self, readiness: Readiness) -> Readiness {
        let state = self.clone();
        readiness.with("caches", move || {
            if state.is_synced() {
                return Ok(());
            }
            Err(state.complaint().unwrap_or_else(|| "still listing".to_owned()))
        })
    }

    /// The API server's time, by which the server judges what it deletes because its time is over. The clock of this machine may be
    /// wrong. `None` if answers of the API server have no date: then the caller deletes nothing.
    pub fn time(&self) -> Option<Timestamp> {
        let now = self.clients.clock.now();
        if now.is_none() {
            tracing::warn!("answers of the API server have no date; nothing is deleted whose time is over");
        }
        now
    }

    /// The contract namespace of that name; `None` for any other namespace.
    pub fn contract(&self, name: &str) -> Option<Arc<Namespace>> {
        self.caches
            .namespaces
            .get("", name)
            .filter(|namespace| contract::is_contract(namespace))
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

// === impl Caches ===

impl Caches {
    fn start(clients: &Clients, settings: &Settings) -> Self {
        let client = || clients.watch.clone();
        let claimable = |resource: &GroupResource| {
            let name = names::custom_resource_definition(&resource.resource, &resource.group);
            let source = Source::of::<CustomResourceDefinition>(None).fields(format!("metadata.name={name}"));
            (resource.clone(), Cache::start(client(), source))
        };
        let schemas = SchemaPool::default();
        Self {
            templates: Cache::start(client(), Source::of::<APIServiceExportTemplate>(None)),
            collections: Cache::start(client(), Source::of::<Collection>(None)),
            definitions: Cache::start(
                client(),
                Source::of::<CustomResourceDefinition>(None).labels(format!("{}=true", labels::EXPORTED)),
            ),
            requests: Cache::start(client(), Source::of::<BindableResourcesRequest>(None)),
            namespaces: Cache::start(client(), Source::of::<Namespace>(None).labels(labels::CONTRACT)),
            cluster_bindings: Cache::start(client(), Source::of::<ClusterBinding>(None)),
            export_requests: Cache::start(client(), Source::of::<APIServiceExportRequest>(None)),
            exports: Cache::start(client(), Source::of::<APIServiceExport>(None)),
            bound_schemas: Cache::start_with(client(), Source::of::<BoundSchema>(None), move |bound| {
                schemas.share(bound);
            }),
            service_namespaces: Cache::start(client(), Source::of::<APIServiceNamespace>(None)),
            aggregated_role: Cache::start(
                client(),
                Source::of::<ClusterRole>(None).fields(format!("metadata.name={AGGREGATED_ROLE}")),
            ),
            claimable: Arc::new(settings.claimable_resources.iter().map(claimable).collect()),
        }
    }

    /// The health of each cache, with the name of the resource that it watches.
    pub fn health(&self) -> Vec<(&'static str, watch::Receiver<Health>)> {
        let mut all = vec![
            ("apiserviceexporttemplates", self.templates.health()),
            ("collections", self.collections.health()),
            ("customresourcedefinitions", self.definitions.health()),
            ("bindableresourcesrequests", self.requests.health()),
            ("namespaces", self.namespaces.health()),
            ("clusterbindings", self.cluster_bindings.health()),
            ("apiserviceexportrequests", self.export_requests.health()),
            ("apiserviceexports", self.exports.health()),
            ("boundschemas", self.bound_schemas.health()),
            ("apiservicenamespaces", self.service_namespaces.health()),
            ("clusterroles", self.aggregated_role.health()),
        ];
        let claimable = self.claimable.values();
        all.extend(claimable.map(|cache| ("customresourcedefinitions that may be claimed", cache.health())));
        all
    }
}

impl Definitions for Caches {
    fn definition(&self, name: &str) -> Option<Arc<CustomResourceDefinition>> {
        self.definitions.definition(name)
    }
}

impl ClaimableScopes for Caches {
    fn claimable(&self, resource: &GroupResource) -> Option<Scope> {
        let name = names::custom_resource_definition(&resource.resource, &resource.group);
        let definition = self.claimable.get(resource)?.get("", &name)?;
        let scope = Scope::from_name(&definition.spec.scope)?;
        crds::is_established(&definition).then_some(scope)
    }
}

// === impl Identity ===

impl Identity {
    async fn ask(clients: &Clients) -> Result<Self, StartError> {
        let review: SelfSubjectReview = Api::all(clients.write.clone())
            .create(&PostParams::default(), &SelfSubjectReview::default())
            .await
            .map_err(StartError::Identity)?;
        let username = review.status.and_then(|status| status.user_info?.username);
        match username {
            Some(username) if username != "system:anonymous" => Ok(Self { username }),
            _ => Err(StartError::Anonymous),
        }
    }

    /// The server as the subject of a role binding.
    pub fn subject(&self) -> Subject {
        let mut parts = self.username.splitn(4, ':');
        let account = (parts.next(), parts.next(), parts.next(), parts.next());
        match account {
            (Some("system"), Some("serviceaccount"), Some(namespace), Some(name)) => Subject {
                kind: "ServiceAccount".to_owned(),
                name: name.to_owned(),
                namespace: Some(namespace.to_owned()),
                api_group: None,
            },
            _ => Subject {
                kind: "User".to_owned(),
                name: self.username.clone(),
                namespace: None,
                api_group: Some("rbac.authorization.k8s.io".to_owned()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_account_is_named_as_one_and_anybody_else_as_a_user() {
        let subject = |username: &str| {
            let username = username.to_owned();
            Identity { username }.subject()
        };
        let account = subject("system:serviceaccount:kube-bind:bindery-server");
        assert_eq!(account.kind, "ServiceAccount");
        assert_eq!(
            (account.namespace.as_deref(), &*account.name),
            (Some("kube-bind"), "bindery-server")
        );
        assert_eq!(subject("system:admin").kind, "User");
        assert_eq!(subject("jane").name, "jane");
    }
}
