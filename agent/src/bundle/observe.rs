//! What is seen of a bundle before anything is decided.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bindery_api::{
    annotations, names,
    v1alpha2::{API_VERSION, APIServiceBinding, APIServiceBindingBundle},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;

use super::{Count, Terms};
use crate::{
    binding::{
        consent::Consent,
        credential::Access,
        observe::{SessionSeen, bundle_of},
    },
    session::{exports::Listed, probe::Probed},
};

/// All that decisions about a bundle are made of.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The bundle.
    pub bundle: Arc<APIServiceBindingBundle>,
    /// The time, for annotations that expire and for conditions.
    pub now: Timestamp,
    /// What its spec means.
    pub terms: Terms,
    /// What its credentials lead to.
    pub access: Access,
    /// The contract it has a session with. Of the export that it names, nothing is known.
    pub session: Option<SessionSeen>,
    /// What the contract exports.
    pub exports: Listed,
    /// What the provider answered last.
    pub probed: Option<Probed>,
    /// All bindings there are, in the order of names.
    pub bindings: Vec<Arc<APIServiceBinding>>,
    /// Why they cannot be followed for now.
    pub bindings_failing: Option<String>,
    /// How many objects its bindings have, by their UID, as far as they are counted.
    pub counts: BTreeMap<String, Count>,
    /// The exports of its bindings that are not to be bound any more, by name.
    pub gone: BTreeMap<String, Gone>,
    /// UIDs of the bundles there are.
    pub bundles: BTreeSet<String>,
}

/// Since when an export is not to be bound any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// For how long that was seen.
    pub since: Duration,
    /// It was deleted to make room for a successor.
    pub replaced: bool,
}

/// Whom a binding belongs to, as the bundle sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This bundle.
    Us,
    /// Another bundle.
    Bundle {
        /// Its name.
        name: String,
        /// It is gone, and the binding is to follow.
        gone: bool,
    },
    /// Whoever made it.
    Hand,
}

// === impl Observed ===

impl Observed {
    /// Name of the bundle.
    pub fn name(&self) -> String {
        self.bundle.name_any()
    }

    /// UID of the contract that the bundle is pinned to.
    pub fn pinned(&self) -> Option<&str> {
        self.bundle.status.as_ref()?.contract_uid.as_deref()
    }

    /// Whether the user lets another provider or cluster take over.
    pub fn takeover(&self) -> Consent {
        Consent::read(&*self.bundle, annotations::ACCEPT_PROVIDER_CHANGE, self.now)
    }

    /// Whether the exports that are known are those of the contract, beyond doubt, and can be read right now.
    pub fn is_confirmed(&self) -> bool {
        let is_answered = self
            .probed
            .as_ref()
            .is_some_and(|probed| probed.problem.is_none() && probed.version == self.exports.version);
        is_answered && self.exports.failing.is_none()
    }

    /// Whom a binding belongs to.
    pub fn owner_of(&self, binding: &APIServiceBinding) -> Owner {
        match bundle_of(binding) {
            None => Owner::Hand,
            Some(owner) if Some(&owner.uid) == self.bundle.metadata.uid.as_ref() => Owner::Us,
            Some(owner) => Owner::Bundle {
                name: owner.name.clone(),
                gone: !self.bundles.contains(&owner.uid),
            },
        }
    }

    /// The bundle's own bindings.
    pub fn own(&self) -> impl Iterator<Item = &Arc<APIServiceBinding>> {
        self.bindings
            .iter()
            .filter(|binding| self.owner_of(binding) == Owner::Us)
    }

    /// Whether a binding is, or will be, of the bundle's contract.
    pub fn is_of_contract(&self, binding: &APIServiceBinding) -> bool {
        match contract_of(binding) {
            Some(uid) => self.pinned() == Some(uid),
            None => binding.spec.kubeconfig_secret_ref == self.bundle.spec.kubeconfig_secret_ref,
        }
    }

    /// Name of the binding of an export.
    pub fn binding_name(&self, export: &str) -> String {
        let prefix = self.bundle.spec.binding_name_prefix.as_deref().unwrap_or_default();
        names::fit(format!("{prefix}{export}"), names::NAME_LENGTH_MAX)
    }
}

/// UID of the contract that a binding is pinned to.
pub fn contract_of(binding: &APIServiceBinding) -> Option<&str> {
    binding.status.as_ref()?.contract_uid.as_deref()
}

/// The reference by which a binding belongs to a bundle.
pub fn owner(bundle: &APIServiceBindingBundle) -> OwnerReference {
    OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: "APIServiceBindingBundle".to_owned(),
        name: bundle.name_any(),
        uid: bundle.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
