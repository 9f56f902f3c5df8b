//! What is seen of a binding before anything is decided.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{
    annotations, meta,
    names::{self, CLUSTER_BINDING},
    v1alpha2::{
        API_VERSION, APIServiceBinding, APIServiceExport, ConflictPolicy, DeletionPolicy, GroupResource, InformerScope,
        RemovedExports,
    },
};
use jiff::Timestamp;
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::ResourceExt as _;

use super::{claims::ClaimsSeen, consent::Consent, credential::Access, resource::Schema};
use crate::{
    consumer::Consumer,
    engine::{Frozen, Progress},
    model::{BoundResource, Placement},
    release::{Mode, Released},
    session::{Session, credential::Renewal, exports::Lookup, heartbeat::Heartbeat},
};

/// A renewal that failed this often in a row is said to fail.
const RENEWAL_FAILURES_SHOWN: u32 = 3;

/// All that decisions about a binding are made of.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The binding.
    pub binding: Arc<APIServiceBinding>,
    /// The time, for annotations that expire and for conditions.
    pub now: Timestamp,
    /// What its credentials lead to.
    pub access: Access,
    /// The contract it has a session with, as far as that is known.
    pub session: Option<SessionSeen>,
    /// The CRDs of the export's resources and all that belong to the binding, by name.
    pub crds: BTreeMap<String, Arc<CustomResourceDefinition>>,
    /// The schemas of the export's resources, by name.
    pub schemas: BTreeMap<String, Schema>,
    /// The engines that run, by name of their CRD.
    pub engines: BTreeMap<String, EngineSeen>,
    /// The releasers that run, by name of their CRD.
    pub releasers: BTreeMap<String, (Mode, Released)>,
    /// The claims.
    pub claims: ClaimsSeen,
    /// How many objects it had on the consumer when they were last counted.
    pub last_count: Option<usize>,
    /// Why no copy is deleted for now, where that is so.
    pub frozen: Option<Frozen>,
    /// How the deletion of the export goes, once it was asked for.
    pub deletion: Option<DeletionSeen>,
    /// Another binding is pinned to the same contract.
    pub contract_is_shared: bool,
    /// The konnector's own Secret of the contract exists.
    pub has_stored_secret: bool,
    /// The bundle that the binding belongs to, while that exists.
    pub bundle: Option<BundleSeen>,
}

/// What a binding hears of its bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleSeen {
    /// Its name.
    pub name: String,
    /// What becomes of bindings whose export is gone.
    pub removed: RemovedExports,
    /// Whether it takes the export; true where nobody can tell.
    pub selects: bool,
}

/// What a session knows.
#[derive(Clone, Debug)]
pub struct SessionSeen {
    /// Tells this session from any other.
    pub id: u64,
    /// UID of its contract.
    pub contract_uid: Arc<str>,
    /// The contract namespace.
    pub contract: Arc<str>,
    /// The export that it is to.
    pub export: Lookup,
    /// Whether the contract is pinned to this cluster.
    pub pin: ClusterPin,
    /// How its heartbeat goes.
    pub heartbeat: Heartbeat,
    /// Why its credential is of no use for good.
    pub expired: Option<String>,
    /// Why its credential is not renewed, though it still works.
    pub renewal_fails: Option<String>,
    /// The provider's name for people.
    pub pretty_name: Option<String>,
    /// There is a gRPC endpoint.
    pub has_backend: bool,
}

/// Which consumer cluster a contract is pinned to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterPin {
    /// It is not known yet.
    Unknown,
    /// This one, or one that the provider does not record.
    Ours,
    /// Another one.
    Other {
        /// UID of its kube-system namespace.
        recorded: String,
    },
}

/// An engine that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSeen {
    /// What it was started for.
    pub spec: EngineSpec,
    /// It was told to drain.
    pub draining: bool,
    /// How it is doing.
    pub progress: Progress,
}

/// What an engine is started for. Another specification is another engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSpec {
    /// The session it runs in.
    pub session: u64,
    /// Name and UID of the export.
    pub export: (String, String),
    /// When the export was made.
    pub since: Option<Timestamp>,
    /// The resource.
    pub resource: BoundResource,
    /// Whether the provider is watched as a whole.
    pub informer_scope: InformerScope,
    /// Where copies go.
    pub placement: Placement,
    /// Consumers share names, and each write replaces the one before it.
    pub last_wins: bool,
}

/// How the deletion of an export goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeletionSeen {
    /// It is under way.
    Running,
    /// It failed and is tried again.
    Failing(String),
    /// The provider took it.
    Done,
}

// === impl EngineSpec ===

impl EngineSpec {
    /// What serves a resource of an export in a session.
    pub fn of(session: u64, export: &APIServiceExport, resource: BoundResource) -> Self {
        let placement = Placement::of(&export.spec, resource.scope);
        Self {
            session,
            export: (export.name_any(), export.metadata.uid.clone().unwrap_or_default()),
            since: export.metadata.creation_timestamp.as_ref().map(|created| created.0),
            resource,
            informer_scope: export.spec.informer_scope,
            last_wins: placement == Placement::None && export.spec.conflict_policy == Some(ConflictPolicy::LastWins),
            placement,
        }
    }
}

// === impl SessionSeen ===

impl SessionSeen {
    /// What a session knows at the time. `consent` is that the contract may be taken over from another cluster.
    pub fn of(session: &Session, consumer: &Consumer, export: Lookup, consent: bool) -> Self {
        let contract = session.contract();
        let heartbeat = session.heartbeat().borrow().clone();
        let cluster_binding = session.cluster_binding().get(&contract.namespace, CLUSTER_BINDING);
        let recorded = cluster_binding
            .as_ref()
            .and_then(|seen| seen.status.as_ref()?.consumer_cluster_uid.as_deref());
        let pin = match (recorded, consumer.cluster_uid()) {
            (Some(recorded), Some(ours)) if recorded == ours => ClusterPin::Ours,
            // With consent the next heartbeat takes the contract over.
            (Some(_), Some(_)) if consent => ClusterPin::Unknown,
            (Some(recorded), Some(_)) => ClusterPin::Other {
                recorded: recorded.to_owned(),
            },
            // A provider that took the heartbeat and does not record the cluster is kube-bind's.
            (None, Some(_)) if heartbeat == Heartbeat::Beating && cluster_binding.is_some() => ClusterPin::Ours,
            _ => ClusterPin::Unknown,
        };
        let held = session.credential().held();
        let renewal_fails = match &held.renewal {
            Renewal::Failing { message, count } if *count >= RENEWAL_FAILURES_SHOWN => Some(message.clone()),
            Renewal::Denied { message } => Some(message.clone()),
            Renewal::Well | Renewal::Failing { .. } => None,
        };
        Self {
            id: session.id(),
            contract_uid: Arc::clone(&contract.uid),
            contract: Arc::clone(&contract.namespace),
            export,
            pin,
            heartbeat,
            expired: held.expired(tokio::time::Instant::now()),
            renewal_fails,
            pretty_name: cluster_binding.map(|seen| seen.spec.provider_pretty_name.clone()),
            has_backend: held.access.backend.is_some(),
        }
    }
}

// === impl Observed ===

impl Observed {
    /// Name of the binding.
    pub fn name(&self) -> String {
        self.binding.name_any()
    }

    /// Name of its export.
    pub fn export_name(&self) -> &str {
        self.binding.export_name()
    }

    /// Objects of the binding on the consumer, as far as they are counted.
    pub fn objects(&self) -> Option<usize> {
        self.owned().try_fold(0, |sum: usize, (name, crd)| {
            let released = || self.releasers.get(name)?.1.remaining;
            let synced = || {
                // Without an export it is about to end, and what it counted last may be out of date.
                let engine = self.engines.get(name).filter(|_| !self.export_is_gone())?;
                engine.progress.consumer_synced.then_some(engine.progress.objects)
            };
            let none = || super::resource::was_never_served(crd).then_some(0);
            Some(sum + none().or_else(released).or_else(synced)?)
        })
    }

    /// The export, if it is there and not on its way out.
    pub fn export(&self) -> Option<&Arc<APIServiceExport>> {
        match &self.session.as_ref()?.export {
            Lookup::Present(export) if export.metadata.deletion_timestamp.is_none() => Some(export),
            _ => None,
        }
    }

    /// Whether the export is certainly gone, or going.
    pub fn export_is_gone(&self) -> bool {
        match self.session.as_ref().map(|session| &session.export) {
            Some(Lookup::Absent) => true,
            Some(Lookup::Present(export)) => export.metadata.deletion_timestamp.is_some(),
            Some(Lookup::Unknown { .. } | Lookup::Broken { .. }) | None => false,
        }
    }

    /// The CRDs that belong to the binding.
    pub fn owned(&self) -> impl Iterator<Item = (&String, &Arc<CustomResourceDefinition>)> {
        self.crds
            .iter()
            .filter(|(_, crd)| super::resource::is_owned(crd, &self.binding))
    }

    /// The resources of those, as the status lists them.
    pub fn bound(&self) -> Vec<GroupResource> {
        let of = |crd: &CustomResourceDefinition| GroupResource::new(&crd.spec.group, &crd.spec.names.plural);
        self.owned().map(|(_, crd)| of(crd)).collect()
    }

    /// UID of the contract that the binding is pinned to.
    pub fn pinned(&self) -> Option<&str> {
        self.binding.status.as_ref()?.contract_uid.as_deref()
    }

    /// Whether the user wants the unbind to end without the provider.
    pub fn is_forced(&self) -> bool {
        meta::is_annotated(&self.binding.metadata, annotations::FORCE_UNBIND)
    }

    /// Whether the user wants nothing to be written for now.
    pub fn is_paused(&self) -> bool {
        meta::is_paused(&self.binding.metadata)
    }

    /// Whether the user lets another provider or cluster take over.
    pub fn takeover(&self) -> Consent {
        Consent::read(&*self.binding, annotations::ACCEPT_PROVIDER_CHANGE, self.now)
    }

    /// Whether the user lets copies be deleted although many sources are missing.
    pub fn deletions_allowed(&self) -> Consent {
        Consent::read(&*self.binding, annotations::ALLOW_DELETIONS, self.now)
    }

    /// Whether the user lets the bundle end the binding although objects are left.
    pub fn unbind_allowed(&self) -> Consent {
        Consent::read(&*self.binding, annotations::ALLOW_UNBIND, self.now)
    }

    /// Whether the provider's objects are to stay.
    pub fn orphans(&self) -> bool {
        self.binding.spec.deletion_policy == Some(DeletionPolicy::Orphan)
    }
}

/// The bundle that a binding belongs to, whether or not it still exists.
pub fn bundle_of(binding: &APIServiceBinding) -> Option<&OwnerReference> {
    let mut owners = binding.owner_references().iter();
    owners.find(|owner| {
        owner.controller == Some(true)
            && owner.kind == "APIServiceBindingBundle"
            && owner.api_version.starts_with("kube-bind.io/")
    })
}

/// The reference by which what is made for an export belongs to it.
pub fn owner(export: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: "APIServiceExport".to_owned(),
        name: export.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

/// Names of the CRDs of an export.
pub fn crd_names(export: &APIServiceExport) -> impl Iterator<Item = String> + '_ {
    export
        .spec
        .resources
        .iter()
        .map(|resource| names::bound_schema(&resource.group_resource))
}
