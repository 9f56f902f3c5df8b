//! The state of a bundle that decisions are made from.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bindery_api::{
    annotations, names,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle},
};
use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::{
    controller::{
        access::ContractAccess, bundle_settings::BundleSettings, consent::Consent, object_counts::ObjectCount,
        observed_session::ObservedSession, ownership::bundle_of,
    },
    session::{exports::ExportList, provider_probe::ProbeResult},
};

/// All that decisions about a bundle are made from.
#[derive(Clone, Debug)]
pub struct ObservedBundle {
    /// The bundle.
    pub bundle: Arc<APIServiceBindingBundle>,
    /// The time, for annotations that expire and for conditions.
    pub now: Timestamp,
    /// The settings in its spec.
    pub settings: BundleSettings,
    /// Which contract its credentials reach.
    pub access: ContractAccess,
    /// The session with the contract, once it is open. Its field `export` is not used for bundles.
    pub session: Option<ObservedSession>,
    /// The exports of the contract.
    pub exports: ExportList,
    /// The last probe of the provider.
    pub last_probe: Option<ProbeResult>,
    /// All bindings of the cluster, in the order of names.
    pub bindings: Vec<Arc<APIServiceBinding>>,
    /// Why the bindings cannot be watched now, if so.
    pub bindings_failing: Option<String>,
    /// Object counts of its bindings, by UID of the binding, as far as they are counted.
    pub counts: BTreeMap<String, ObjectCount>,
    /// The exports of its bindings that are no longer to be bound, by name.
    pub removed: BTreeMap<String, RemovedExport>,
    /// UIDs of all bundles of the cluster.
    pub bundles: BTreeSet<String>,
}

/// An export that is no longer to be bound: it was deleted, or the selector no longer matches it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedExport {
    /// For how long this was observed.
    pub removed_for: Duration,
    /// Whether it was deleted to be created again under its name. The new export is its successor.
    pub replaced: bool,
}

/// Who made a binding, seen from one bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindingOwner {
    /// This bundle made it.
    Us,
    /// Another bundle made it.
    Bundle {
        /// Name of the other bundle.
        name: String,
        /// Whether the other bundle is gone, so that the garbage collector will delete the binding.
        gone: bool,
    },
    /// No bundle made it.
    Hand,
}

impl ObservedBundle {
    /// Name of the bundle.
    pub fn name(&self) -> String {
        self.bundle.name_any()
    }

    /// UID of the contract that the bundle is pinned to.
    pub fn pinned(&self) -> Option<&str> {
        self.bundle.contract_uid()
    }

    /// Consent to a takeover by another provider or cluster.
    pub fn takeover(&self) -> Consent {
        Consent::read(&*self.bundle, annotations::ACCEPT_PROVIDER_CHANGE, self.now)
    }

    /// Whether a probe confirmed that the known exports are those of the contract, and they can be read right now.
    pub fn is_confirmed(&self) -> bool {
        let is_answered = self
            .last_probe
            .as_ref()
            .is_some_and(|probe| probe.problem.is_none() && probe.exports_version == self.exports.version);
        is_answered && self.exports.failing.is_none()
    }

    /// Whether the contract was verified, and the known exports are confirmed to be its own.
    pub fn may_unbind(&self) -> bool {
        let is_verified = self.last_probe.as_ref().is_some_and(|probe| probe.is_verified);
        let is_trusted = self.session.as_ref().is_some_and(ObservedSession::is_trusted);
        is_verified && is_trusted && self.is_confirmed()
    }

    /// Who made a binding.
    pub fn owner_of(&self, binding: &APIServiceBinding) -> BindingOwner {
        match bundle_of(binding) {
            None => BindingOwner::Hand,
            Some(owner) if Some(&owner.uid) == self.bundle.metadata.uid.as_ref() => BindingOwner::Us,
            Some(owner) => BindingOwner::Bundle {
                name: owner.name.clone(),
                gone: !self.bundles.contains(&owner.uid),
            },
        }
    }

    /// The bundle's own bindings.
    pub fn own(&self) -> impl Iterator<Item = &Arc<APIServiceBinding>> {
        self.bindings
            .iter()
            .filter(|binding| self.owner_of(binding) == BindingOwner::Us)
    }

    /// Whether a binding is pinned to the bundle's contract, or will be.
    pub fn is_of_contract(&self, binding: &APIServiceBinding) -> bool {
        match binding.contract_uid() {
            Some(uid) => self.pinned() == Some(uid),
            None => binding.spec.kubeconfig_secret_ref == self.bundle.spec.kubeconfig_secret_ref,
        }
    }

    /// Name of the binding that the bundle makes for an export.
    pub fn binding_name(&self, export: &str) -> String {
        let prefix = self.bundle.spec.binding_name_prefix.as_deref().unwrap_or_default();
        names::fit(format!("{prefix}{export}"), names::NAME_LENGTH_MAX)
    }
}
