//! Decides which bindings a bundle creates, changes and deletes.
//!
//! A binding is the bundle's own by the UID in its controller reference, and serves the export that its spec names; its own
//! name never counts. It is deleted only after a complete list without its export that was confirmed to be the contract's,
//! and only if no object is left, the user has consented, or the bundle's policy deletes objects too.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bindery_api::{
    Accepted, Conditions as _, annotations, conditions,
    meta::is_paused,
    v1alpha2::{APIServiceBinding, APIServiceBindingSpec, APIServiceExport, RemovedExports},
};
use kube::ResourceExt as _;
use serde_json::{Map, Value};

use super::{
    binding_index::BindingIndex,
    blocker::{Blocker, blocker},
    observed::{BindingOwner, ObservedBundle, RemovedExport},
};
use crate::{
    controller::{conditions::CRD_CONFLICTS, consent::Consent, ownership::by_bundle},
    patch,
    session::exports::ExportLookup,
};

/// A removed export may come back within this time without its binding being deleted.
pub const SUCCESSOR_PATIENCE: Duration = Duration::from_secs(30);
/// The object count of an export that is still synced is trusted after this time, since it lags.
pub const COUNT_DELAY: Duration = Duration::from_secs(5);

/// One step of a plan for a bundle.
#[derive(Clone, Debug, PartialEq)]
pub enum BundleOp {
    /// Create a binding.
    Create(Box<APIServiceBinding>),
    /// Patch one of the bundle's own bindings.
    Patch {
        /// Name of the binding.
        name: String,
        /// Name of its export.
        export: String,
        /// The merge patch.
        patch: Value,
    },
    /// Delete one of the bundle's own bindings.
    Delete {
        /// The binding as it was observed. If it has changed, it is not deleted.
        binding: Arc<APIServiceBinding>,
        /// Why it is deleted.
        why: &'static str,
        /// Whether it may only be deleted without objects, which is checked once more.
        only_unused: bool,
    },
}

/// What to do for a bundle, and the state of its exports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BundlePlan {
    /// The steps.
    pub ops: Vec<BundleOp>,
    /// Why nothing can be done now, if so.
    pub blocker: Option<Blocker>,
    /// Problems that keep exports from being bound, by name of the export.
    pub problems: BTreeMap<String, String>,
    /// What exports wait for, by name of the export.
    pub waiting: BTreeMap<String, String>,
    /// Count of exports to bind.
    pub discovered: usize,
    /// Count of those exports that are bound.
    pub bound: usize,
    /// Count of own bindings that are not Ready.
    pub unready: usize,
    /// Pause before the next plan, if time alone changes the plan.
    pub wake: Option<Duration>,
}

/// Decides what to do for a bundle.
pub fn plan(seen: &ObservedBundle) -> BundlePlan {
    if let Some(blocker) = blocker(seen) {
        return BundlePlan {
            blocker: Some(blocker),
            ..BundlePlan::default()
        };
    }
    let mut plan = BundlePlan::default();
    let index = BindingIndex::of(seen);
    for (name, lookup) in &seen.exports.exports {
        match lookup {
            ExportLookup::Present(export) if is_wanted(seen, export) => plan.want(seen, &index, name),
            ExportLookup::Broken { message } => plan.complain(name, message),
            ExportLookup::Present(_) | ExportLookup::Absent | ExportLookup::Unknown { .. } => {}
        }
    }
    for binding in seen.own().filter(|binding| !is_served(seen, binding)) {
        plan.leave(seen, binding);
    }
    plan.unready = seen
        .own()
        .filter(|binding| !binding.is_condition_true(conditions::READY))
        .count();
    plan
}

/// Whether an export is to be bound.
fn is_wanted(seen: &ObservedBundle, export: &APIServiceExport) -> bool {
    export.metadata.deletion_timestamp.is_none() && seen.settings.selects(export) == Some(true)
}

/// Whether the export of a binding exists and is to be bound, or cannot be read.
fn is_served(seen: &ObservedBundle, binding: &APIServiceBinding) -> bool {
    match seen.exports.get(binding.export_name()) {
        Some(ExportLookup::Present(export)) => is_wanted(seen, export),
        Some(ExportLookup::Broken { .. }) => true,
        Some(ExportLookup::Absent | ExportLookup::Unknown { .. }) | None => false,
    }
}

impl BundlePlan {
    /// Notes a problem that keeps an export from being bound.
    fn complain(&mut self, export: &str, message: impl Into<String>) {
        self.problems.insert(export.to_owned(), message.into());
    }

    /// Notes what an export waits for.
    fn wait(&mut self, export: &str, message: impl Into<String>) {
        self.waiting.insert(export.to_owned(), message.into());
    }

    /// Requests another plan after this time, if none is requested sooner.
    fn wake_after(&mut self, pause: Duration) {
        // A little later, so that the time has certainly passed.
        let pause = pause + Duration::from_millis(10);
        self.wake = Some(self.wake.map_or(pause, |known| known.min(pause)));
    }

    /// Plans for an export that is to be bound.
    fn want(&mut self, seen: &ObservedBundle, index: &BindingIndex<'_>, export: &str) {
        self.discovered += 1;
        if let Some(binding) = index.own(export) {
            return self.tend(seen, export, binding);
        }
        if let Some(other) = index.of_contract(export) {
            return match seen.owner_of(other) {
                BindingOwner::Bundle { name, gone: false } => self.complain(
                    export,
                    format!(
                        "APIServiceBindingBundle {name} has bound it by APIServiceBinding {} already; leave it to one of the two \
                         by spec.selector",
                        other.name_any()
                    ),
                ),
                BindingOwner::Bundle { name, gone: true } => self.wait(export, left_over(other, &name)),
                BindingOwner::Us | BindingOwner::Hand => self.bound += 1,
            };
        }
        match index.named(&seen.binding_name(export)) {
            None => self.ops.push(BundleOp::Create(Box::new(binding(seen, export)))),
            Some(other) => self.collide(seen, export, other),
        }
    }

    /// Plans for an export whose binding cannot be created because its name is taken.
    fn collide(&mut self, seen: &ObservedBundle, export: &str, other: &APIServiceBinding) {
        let name = other.name_any();
        if other.metadata.deletion_timestamp.is_some() {
            return self.wait(export, ending(other));
        }
        let whose = match seen.owner_of(other) {
            BindingOwner::Bundle { name, gone: true } => return self.wait(export, left_over(other, &name)),
            BindingOwner::Bundle { name, gone: false } => format!("belongs to APIServiceBindingBundle {name}"),
            BindingOwner::Us => format!("serves APIServiceExport {}", other.export_name()),
            BindingOwner::Hand => "was made by hand, for another provider or export".to_owned(),
        };
        // A prefix that is set is immutable.
        let mend = match &seen.bundle.spec.binding_name_prefix {
            None => format!("set spec.bindingNamePrefix of APIServiceBindingBundle {}", seen.name()),
            Some(_) => "bind it by a new APIServiceBindingBundle with another spec.bindingNamePrefix".to_owned(),
        };
        self.complain(
            export,
            format!("APIServiceBinding {name} exists and {whose}; {mend}, or delete that binding"),
        );
    }

    /// Plans for an own binding whose export is to be bound.
    fn tend(&mut self, seen: &ObservedBundle, export: &str, binding: &Arc<APIServiceBinding>) {
        if binding.metadata.deletion_timestamp.is_some() {
            return self.wait(export, ending(binding));
        }
        self.align(seen, binding);
        if self.is_foreign(seen, export, binding) {
            return;
        }
        self.bound += 1;
        let conflict = binding
            .condition(conditions::CONNECTED)
            .filter(|condition| CRD_CONFLICTS.contains(&condition.reason.as_str()));
        if let Some(condition) = conflict {
            self.complain(export, condition.message.clone());
        }
    }

    /// Updates what an own binding gets from the bundle.
    fn align(&mut self, seen: &ObservedBundle, binding: &APIServiceBinding) {
        if let Some(patch) = patch(seen, binding) {
            self.ops.push(BundleOp::Patch {
                name: binding.name_any(),
                export: binding.export_name().to_owned(),
                patch,
            });
        }
    }

    /// Whether an own binding is pinned to another contract, which is reported.
    fn is_foreign(&mut self, seen: &ObservedBundle, export: &str, binding: &APIServiceBinding) -> bool {
        if binding.contract_uid().is_none() || seen.is_of_contract(binding) {
            return false;
        }
        let name = binding.name_any();
        if seen.takeover().until().is_some() {
            self.wait(export, format!("APIServiceBinding {name} changes its provider"));
        } else {
            self.complain(
                export,
                format!(
                    "APIServiceBinding {name} belongs to the bundle but to another contract, so it is not changed; remove its \
                     owner reference, or annotate the bundle with {}=<time, RFC 3339>",
                    annotations::ACCEPT_PROVIDER_CHANGE
                ),
            );
        }
        true
    }

    /// Plans for an own binding whose export is no longer to be bound.
    fn leave(&mut self, seen: &ObservedBundle, binding: &Arc<APIServiceBinding>) {
        if binding.metadata.deletion_timestamp.is_some() || is_paused(&binding.metadata) {
            return;
        }
        let export = binding.export_name();
        let end = if self.is_foreign(seen, export, binding) {
            None
        } else {
            self.end(seen, export, binding)
        };
        match end {
            Some(why) => self.ops.push(BundleOp::Delete {
                binding: Arc::clone(binding),
                why,
                only_unused: !may_take_objects(seen, binding),
            }),
            // Until then it follows the bundle, also to another provider if the user consents.
            None => self.align(seen, binding),
        }
    }

    /// Why a binding without its export is deleted now; `None` if it is kept for now.
    fn end(&mut self, seen: &ObservedBundle, export: &str, binding: &APIServiceBinding) -> Option<&'static str> {
        let is_removed = match seen.exports.get(export) {
            Some(ExportLookup::Present(export)) => export.metadata.deletion_timestamp.is_some(),
            _ => true,
        };
        let removed = seen.removed.get(export).copied().unwrap_or_default();
        let pause = patience(seen, binding, is_removed, removed)?;
        if let Some(left) = pause.checked_sub(removed.removed_for).filter(|left| !left.is_zero()) {
            self.wake_after(left);
            let until = format!(
                "APIServiceBinding {} will be deleted unless the export comes back",
                binding.name_any()
            );
            self.wait(export, until);
            return None;
        }
        if !seen.may_unbind() {
            let until = format!(
                "APIServiceBinding {} will be deleted when the provider has confirmed its list of exports",
                binding.name_any()
            );
            self.wait(export, until);
            return None;
        }
        Some(if is_removed {
            "the provider removed its export"
        } else {
            "the bundle no longer selects its export"
        })
    }
}

/// Returns for how long an export must be removed before its binding is deleted; `None` if objects or consent are missing.
fn patience(
    seen: &ObservedBundle,
    binding: &APIServiceBinding,
    is_removed: bool,
    removed: RemovedExport,
) -> Option<Duration> {
    let is_allowed = is_allowed(seen, binding);
    let uid = binding.metadata.uid.as_deref().unwrap_or_default();
    let count = seen.counts.get(uid).filter(|count| count.export_is_gone == is_removed);
    let policy = seen.bundle.spec.removed_exports.unwrap_or_default();
    match (count.map(|count| count.objects), policy) {
        // An export that still exists has no successor.
        _ if is_allowed && !is_removed => Some(Duration::ZERO),
        (Some(0), _) if removed.replaced => Some(SUCCESSOR_PATIENCE),
        (Some(0), _) if is_removed => Some(Duration::ZERO),
        // The export is still synced, so its object count lags.
        (Some(0), _) => Some(COUNT_DELAY),
        // A successor would take the objects over. The user who consents need not know of it.
        (_, RemovedExports::Unbind) => Some(SUCCESSOR_PATIENCE),
        (_, RemovedExports::Keep) if is_allowed => Some(SUCCESSOR_PATIENCE),
        (_, RemovedExports::Keep) => None,
    }
}

/// Whether the user consents to end a binding although objects are left.
fn is_allowed(seen: &ObservedBundle, binding: &APIServiceBinding) -> bool {
    let consent = Consent::read(binding, annotations::ALLOW_UNBIND, seen.now);
    consent.until().is_some()
}

/// Whether a binding may be deleted although it has objects.
fn may_take_objects(seen: &ObservedBundle, binding: &APIServiceBinding) -> bool {
    is_allowed(seen, binding) || seen.bundle.spec.removed_exports == Some(RemovedExports::Unbind)
}

/// Message about an export whose binding is being deleted.
fn ending(binding: &APIServiceBinding) -> String {
    format!(
        "APIServiceBinding {} is being deleted; the export will be bound when it is gone",
        binding.name_any()
    )
}

/// Message about an export whose binding is being deleted with another bundle.
fn left_over(binding: &APIServiceBinding, bundle: &str) -> String {
    format!(
        "APIServiceBinding {} is being deleted with its APIServiceBindingBundle {bundle}; the export will be bound when it \
         is gone",
        binding.name_any()
    )
}

/// Returns the binding that the bundle makes for an export.
fn binding(seen: &ObservedBundle, export: &str) -> APIServiceBinding {
    let name = seen.binding_name(export);
    let spec = APIServiceBindingSpec {
        kubeconfig_secret_ref: seen.bundle.spec.kubeconfig_secret_ref.clone(),
        export_name: (name != export).then(|| export.to_owned()),
        deletion_policy: seen.bundle.spec.deletion_policy,
        claim_namespaces: seen.bundle.spec.claim_namespaces.clone(),
        claim_secret_types: seen.bundle.spec.claim_secret_types.clone(),
        ..APIServiceBindingSpec::default()
    };
    let mut binding = APIServiceBinding::new(&name, spec);
    binding.metadata.owner_references = Some(vec![by_bundle(&seen.bundle)]);
    let inherited = inherited_annotations(seen).into_iter();
    binding.metadata.annotations = Some(inherited.map(|(key, value)| (key.to_owned(), value)).collect());
    binding
}

/// The annotations that bindings get from their bundle.
fn inherited_annotations(seen: &ObservedBundle) -> Vec<(&'static str, String)> {
    let accepted = serde_json::to_string(&seen.bundle.spec.accepted_claims).unwrap_or_else(|_| "[]".to_owned());
    let mut inherited = vec![(annotations::ACCEPTED_CLAIMS, accepted)];
    if seen.takeover().until().is_some() {
        let consent = seen.bundle.annotations().get(annotations::ACCEPT_PROVIDER_CHANGE);
        inherited.extend(consent.map(|consent| (annotations::ACCEPT_PROVIDER_CHANGE, consent.clone())));
    }
    inherited
}

/// Returns the patch that updates what an own binding gets from the bundle; `None` if it is up to date. A policy that the bundle does
/// not set is left as it is.
fn patch(seen: &ObservedBundle, binding: &APIServiceBinding) -> Option<Value> {
    let mut changes = Map::new();
    for (key, value) in inherited_annotations(seen) {
        let is_same = if key == annotations::ACCEPTED_CLAIMS {
            Accepted::of(binding) == Accepted::Claims(seen.bundle.spec.accepted_claims.clone())
        } else {
            binding.annotations().get(key) == Some(&value)
        };
        if !is_same {
            changes.insert(key.to_owned(), value.into());
        }
    }
    let policy = seen.bundle.spec.deletion_policy;
    let policy = policy.filter(|policy| binding.spec.deletion_policy != Some(*policy));
    let (of_bundle, own) = (&seen.bundle.spec, &binding.spec);
    let lists = [
        ("claimNamespaces", &of_bundle.claim_namespaces, &own.claim_namespaces),
        (
            "claimSecretTypes",
            &of_bundle.claim_secret_types,
            &own.claim_secret_types,
        ),
    ];
    let lists: Vec<_> = lists
        .into_iter()
        .filter(|(_, wanted, own)| !wanted.is_empty() && wanted != own)
        .collect();
    if changes.is_empty() && policy.is_none() && lists.is_empty() {
        return None;
    }
    let mut patch = patch::annotations(&binding.metadata, changes);
    if let Some(policy) = policy {
        patch["spec"]["deletionPolicy"] = policy.as_str().into();
    }
    for (field, wanted, _) in lists {
        patch["spec"][field] = wanted.clone().into();
    }
    Some(patch)
}

#[cfg(test)]
#[path = "tests/plan.rs"]
mod tests;
