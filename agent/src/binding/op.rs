//! The steps of plans for bindings.

use std::collections::BTreeSet;

use bindery_api::{
    holder::HolderOrder,
    orphans::OrphanAction,
    retention::RetentionOrder,
    v1alpha2::{GroupResource, PermissionClaim},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::observed::{ClaimSpec, EngineSpec};
use crate::drain::DrainMode;

/// One step of a plan for a binding. Steps are taken in their order.
#[derive(Clone, Debug, PartialEq)]
pub enum BindingOp {
    /// Add the konnector's finalizer to the binding.
    AddFinalizer,
    /// Remove the finalizer: all objects of the binding are removed.
    RemoveFinalizer,
    /// Create a CRD.
    CreateCrd(Box<CustomResourceDefinition>),
    /// Patch a CRD.
    PatchCrd {
        /// Name of the CRD.
        name: String,
        /// The merge patch.
        patch: Value,
    },
    /// Delete a CRD.
    DeleteCrd {
        /// Name of the CRD.
        name: String,
        /// UID of the CRD.
        uid: String,
    },
    /// Start an engine in place of the one that runs for this CRD.
    StartEngine {
        /// Name of the CRD.
        name: String,
        /// What the engine is started with.
        spec: Box<EngineSpec>,
    },
    /// Stop the engine of this CRD.
    StopEngine(String),
    /// Make the engine of this CRD delete all its objects.
    DrainEngine(String),
    /// Pause or resume all engines and claims.
    Pause(bool),
    /// Start to remove finalizers of objects without asking the provider.
    StartReleaser {
        /// Name of the CRD.
        name: String,
        /// Which objects are released.
        mode: DrainMode,
    },
    /// Stop the releaser of this CRD.
    StopReleaser(String),
    /// End the orphans of the binding as the user ordered, and remove the order.
    EndOrphans {
        /// How they end.
        action: OrphanAction,
        /// What the event says that answers the order.
        message: String,
    },
    /// Remove an order for orphans that cannot be carried out.
    RefuseOrphanOrder {
        /// What the event says that answers the order.
        message: String,
    },
    /// End the retention of a copy as the user ordered, and remove the order.
    EndRetention(RetentionOrder),
    /// Remove an order for a retained copy that cannot be carried out.
    RefuseRetentionOrder {
        /// What the event says that answers the order.
        message: String,
    },
    /// Take the contract as its holder, as the user ordered, and remove the order.
    AcceptHolder {
        /// What the user ordered.
        order: HolderOrder,
        /// What the event says that answers the order.
        message: String,
    },
    /// Remove an order about the holder that cannot be carried out.
    RefuseHolder {
        /// What the event says that answers the order.
        message: String,
    },
    /// Give the contract up, because its last binding ends.
    EndHolding,
    /// Record the accepted claims on the binding.
    AcceptClaims(Vec<PermissionClaim>),
    /// Register the claims of the binding with its session, or change them there.
    SetClaims(Box<ClaimSpec>),
    /// Remove the claims of the binding from its session.
    RemoveClaims,
    /// Start to delete copies of claimed objects on the consumer without asking the provider.
    StartCleanup {
        /// UID of the contract.
        contract_uid: String,
        /// The claimed resources.
        resources: BTreeSet<GroupResource>,
    },
    /// Stop the cleanup.
    StopCleanup,
    /// Request the deletion of the export from the provider.
    DeleteExport {
        /// UID of the export.
        uid: String,
        /// Whether the export is deleted although objects are left on the provider.
        force: bool,
    },
    /// Stop requesting the deletion of the export.
    StopExportDeletion,
    /// Delete the konnector's own Secret of the contract with this UID.
    DeleteStoredCredential(String),
    /// Delete the ClusterRole and ClusterRoleBinding that were made for the binding.
    DeleteRoles,
}
