//! The state of a binding that decisions are made from.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bindery_api::{
    annotations, finalizers, meta, names,
    v1alpha2::{
        APIServiceBinding, APIServiceExport, DeletionPolicy, GroupResource, InformerScope, PermissionClaim,
        RemovedExports, Retention,
    },
};
use jiff::Timestamp;
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::ResourceExt as _;

use super::crd::ObservedSchema;
use crate::{
    claims::{self, Wanted},
    controller::{
        access::ContractAccess,
        consent::Consent,
        crd_objects::was_never_served,
        observed_session::ObservedSession,
        ownership::{bundle_of, orphans_crd, owns_crd},
    },
    drain::{DrainMode, DrainProgress},
    engine::Progress,
    model::{BoundResource, Placement},
    session::exports::ExportLookup,
};

/// For this time after its deletion, a binding whose copies the konnector releases waits for its provider.
const RELEASE_PATIENCE: Duration = Duration::from_secs(30);

/// All that decisions about a binding are made from.
#[derive(Clone, Debug)]
pub struct ObservedBinding {
    /// The binding.
    pub binding: Arc<APIServiceBinding>,
    /// The time, for annotations that expire and for conditions.
    pub now: Timestamp,
    /// Which contract the credentials reach.
    pub access: ContractAccess,
    /// The session with the contract, once it is open.
    pub session: Option<ObservedSession>,
    /// The CRDs of the export's resources and all that belong to the binding, by name.
    pub crds: BTreeMap<String, Arc<CustomResourceDefinition>>,
    /// The schemas of the export's resources, by name of their CRD.
    pub schemas: BTreeMap<String, ObservedSchema>,
    /// The running engines, by name of their CRD.
    pub engines: BTreeMap<String, ObservedEngine>,
    /// The running releasers, by name of their CRD.
    pub releasers: BTreeMap<String, (DrainMode, DrainProgress)>,
    /// The claims.
    pub claims: ObservedClaims,
    /// The count of its objects on the consumer, of the last time that all were counted.
    pub last_count: Option<usize>,
    /// Progress of the deletion of the export, once it was requested.
    pub deletion: Option<ExportDeletion>,
    /// Whether another binding or a bundle is pinned to the same contract.
    pub contract_is_shared: bool,
    /// Whether the konnector's own Secret of the contract exists.
    pub has_stored_secret: bool,
    /// The bundle that made the binding, while that bundle exists.
    pub bundle: Option<OwningBundle>,
}

/// What the bundle of a binding says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwningBundle {
    /// Name of the bundle.
    pub name: String,
    /// The ClusterRole with the konnector's rights on what bundles bind.
    pub role: String,
    /// What the bundle does with bindings whose export was removed.
    pub removed: RemovedExports,
    /// Whether the bundle's selector matches the export; true where the export or the selector is not known.
    pub selects: bool,
}

/// A running engine.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedEngine {
    /// What the engine was started with.
    pub spec: EngineSpec,
    /// Whether the engine deletes all its objects.
    pub draining: bool,
    /// Progress of the engine.
    pub progress: Progress,
}

/// What an engine is started with. If it changes, the engine is replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSpec {
    /// Number of the session that the engine runs in.
    pub session: u64,
    /// The export, as the owner of what is made for it on the provider.
    pub export: OwnerReference,
    /// When the export was created.
    pub since: Option<Timestamp>,
    /// When the CRD was created.
    pub installed: Option<Timestamp>,
    /// The bound resource.
    pub resource: BoundResource,
    /// Whether the engine watches the whole provider or single namespaces.
    pub informer_scope: InformerScope,
    /// Where copies are placed on the provider.
    pub placement: Placement,
    /// Whether consumers share names and each write replaces the one before.
    pub last_wins: bool,
    /// How the copies of deleted objects are retained; `None` if they are deleted.
    pub retention: Option<Retention>,
}

/// State of the claims of a binding.
#[derive(Clone, Debug, Default)]
pub struct ObservedClaims {
    /// The claims that are registered with the session.
    pub running: Option<ClaimSpec>,
    /// Progress of the registered claims.
    pub progress: claims::Progress,
    /// Resources that are cleaned up without the provider, and the progress of that.
    pub cleanup: Option<(BTreeSet<GroupResource>, DrainProgress)>,
    /// The claims that the status of other bindings of the contract lists, by name of the binding.
    pub elsewhere: BTreeMap<String, Vec<PermissionClaim>>,
}

/// The claims of a binding as they are registered with a session.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimSpec {
    /// Number of the session.
    pub session: u64,
    /// The wanted claims. Pause and consent to a takeover are added by the runtime of the binding.
    pub wanted: Wanted,
}

/// Progress of the deletion of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportDeletion {
    /// The request is on its way.
    Running,
    /// The last request failed with this message and is retried.
    Failing(String),
    /// The provider accepted the deletion.
    Done,
}

impl EngineSpec {
    /// The engine for a resource of an export, in a session. `crd` is the CRD of the resource on the consumer.
    pub fn of(
        session: u64,
        export: &APIServiceExport,
        crd: Option<&CustomResourceDefinition>,
        resource: BoundResource,
    ) -> Self {
        let placement = Placement::of(&export.spec, resource.scope);
        Self {
            session,
            export: meta::owner_reference(export),
            since: export.metadata.creation_timestamp.as_ref().map(|created| created.0),
            installed: crd.and_then(|crd| Some(crd.metadata.creation_timestamp.as_ref()?.0)),
            resource,
            informer_scope: export.spec.informer_scope,
            last_wins: placement.last_wins(&export.spec),
            // Where consumers share names, a copy is nobody's to restore.
            retention: export.spec.retention.clone().filter(|_| !placement.names_are_shared()),
            placement,
        }
    }
}

impl ObservedBinding {
    /// Name of the binding.
    pub fn name(&self) -> String {
        self.binding.name_any()
    }

    /// Name of the export that the binding names.
    pub fn export_name(&self) -> &str {
        self.binding.export_name()
    }

    /// Name of the ClusterRole that holds the konnector's rights for the binding. All bindings of bundles share one.
    pub fn rights_role(&self) -> String {
        match &self.bundle {
            Some(bundle) => bundle.role.clone(),
            None => names::konnector_cluster_role(&self.name()),
        }
    }

    /// Counts the objects of the binding on the consumer; `None` while a resource is not counted.
    pub fn objects(&self) -> Option<usize> {
        self.owned().try_fold(0, |sum: usize, (name, crd)| {
            let released = || self.releasers.get(name)?.1.remaining;
            let synced = || {
                // Without an export the engine is about to stop, and its last count may be out of date.
                let engine = self.engines.get(name).filter(|_| !self.export_is_gone())?;
                engine.progress.consumer_synced.then_some(engine.progress.objects)
            };
            let none = || was_never_served(crd).then_some(0);
            Some(sum + none().or_else(released).or_else(synced)?)
        })
    }

    /// The export, if it exists and is not being deleted.
    pub fn export(&self) -> Option<&Arc<APIServiceExport>> {
        let export = self.session.as_ref()?.export.present()?;
        export.metadata.deletion_timestamp.is_none().then_some(export)
    }

    /// Whether the export certainly does not exist or is being deleted. Without a trusted provider that is never certain.
    pub fn export_is_gone(&self) -> bool {
        self.session.as_ref().is_some_and(ObservedSession::is_trusted) && self.export_is_missed()
    }

    /// Whether the provider shows no export, or one that is being deleted.
    pub fn export_is_missed(&self) -> bool {
        match self.session.as_ref().map(|session| &session.export) {
            Some(ExportLookup::Absent) => true,
            Some(ExportLookup::Present(export)) => export.metadata.deletion_timestamp.is_some(),
            Some(ExportLookup::Unknown { .. } | ExportLookup::Broken { .. }) | None => false,
        }
    }

    /// The CRDs that belong to the binding and end with it, by name.
    pub fn owned(&self) -> impl Iterator<Item = (&String, &Arc<CustomResourceDefinition>)> {
        let crds = self.crds.iter().filter(|(_, crd)| owns_crd(&self.binding, crd));
        crds.filter(move |(name, crd)| !self.stays(name, crd))
    }

    /// The CRDs of the binding that stay with their objects when it ends, by name.
    pub fn orphaned(&self) -> impl Iterator<Item = (&String, &Arc<CustomResourceDefinition>)> {
        self.crds.iter().filter(move |(name, crd)| self.stays(name, crd))
    }

    /// Whether a CRD stays when the binding ends. Once its objects are let go it does: the caches may show the binding without the
    /// finalizer of the garbage collector before they show the CRD without its owner.
    fn stays(&self, name: &str, crd: &CustomResourceDefinition) -> bool {
        let is_let_go = matches!(self.releasers.get(name), Some((DrainMode::LetGo, _)));
        is_let_go || orphans_crd(&self.binding, crd)
    }

    /// The resources of the CRDs of the binding, as the status lists them.
    pub fn bound(&self) -> Vec<GroupResource> {
        let of = |crd: &CustomResourceDefinition| GroupResource::new(&crd.spec.group, &crd.spec.names.plural);
        let crds = self.owned().chain(self.orphaned());
        crds.map(|(_, crd)| of(crd)).collect()
    }

    /// UID of the contract that the binding is pinned to.
    pub fn pinned(&self) -> Option<&str> {
        self.binding.contract_uid()
    }

    /// Whether the binding has the konnector's finalizer.
    pub fn has_finalizer(&self) -> bool {
        self.binding
            .finalizers()
            .iter()
            .any(|known| known == finalizers::KONNECTOR)
    }

    /// Whether the user wants the binding to be removed without the provider.
    pub fn is_forced(&self) -> bool {
        meta::is_annotated(&self.binding.metadata, annotations::FORCE_UNBIND)
    }

    /// Whether the user paused the binding.
    pub fn is_paused(&self) -> bool {
        meta::is_paused(&self.binding.metadata)
    }

    /// Consent to a takeover by another provider or cluster.
    pub fn takeover(&self) -> Consent {
        self.consent(annotations::ACCEPT_PROVIDER_CHANGE)
    }

    /// Consent to end the binding although objects are left.
    pub fn unbind_allowed(&self) -> Consent {
        self.consent(annotations::ALLOW_UNBIND)
    }

    /// Reads a consent from an annotation of the binding.
    fn consent(&self, annotation: &str) -> Consent {
        Consent::read(&*self.binding, annotation, self.now)
    }

    /// Whether the user said that the provider's objects are kept when the binding ends.
    pub fn orphans(&self) -> bool {
        self.binding.spec.deletion_policy == Some(DeletionPolicy::Orphan)
    }

    /// Whether copies are left on the provider when the binding ends: by its policy, or because the consumer's objects stay.
    pub fn keeps_copies(&self) -> bool {
        self.binding.keeps_copies() || self.orphaned().next().is_some()
    }

    /// Whether the konnector releases the copies itself before the binding ends, because no backend deletes the export then: the
    /// provider has none, or the export belongs to a bundle and stays for the next one.
    pub fn releases_copies(&self) -> bool {
        let has_backend = self.session.as_ref().is_none_or(|session| session.has_backend);
        self.binding.spec.deletion_policy.is_none() && (bundle_of(&self.binding).is_some() || !has_backend)
    }

    /// For how much longer the deletion of the binding waits for a provider that does not let the konnector release copies. After that
    /// the consumer's objects are let go, and the copies stay without a mark.
    pub fn release_patience(&self) -> Duration {
        let deleted = self.binding.metadata.deletion_timestamp.as_ref();
        deleted.map_or(RELEASE_PATIENCE, |deleted| {
            let since = Duration::try_from(self.now.duration_since(deleted.0)).unwrap_or_default();
            RELEASE_PATIENCE.saturating_sub(since)
        })
    }
}

/// Names of the CRDs of an export.
pub fn crd_names(export: &APIServiceExport) -> impl Iterator<Item = String> + '_ {
    let resources = export.spec.resources.iter();
    resources.map(|resource| names::bound_schema(&resource.group_resource))
}
