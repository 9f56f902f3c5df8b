//! Decides which bindings a bundle makes, changes and ends.
//!
//! A binding is the bundle's own by the UID in its controller reference, and serves the export that its spec names: never
//! by its own name alone. One is ended only after a complete list without its export that was confirmed to be the
//! contract's, and only when no object is left, the user has consented, or the bundle says that objects go along.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bindery_api::{
    Accepted, Conditions as _, annotations, conditions,
    meta::is_paused,
    v1alpha2::{APIServiceBinding, APIServiceBindingSpec, APIServiceExport, RemovedExports},
};
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};

use super::{
    hold::{Hold, hold},
    index::Index,
    observe::{Gone, Observed, Owner, contract_of, owner},
};
use crate::{
    binding::{
        consent::Consent,
        status::types::{CONNECTED, CRD_CONFLICTS},
    },
    session::exports::Lookup,
};

/// How long a successor of an export may take.
pub const SUCCESSOR: Duration = Duration::from_secs(30);
/// How long an export must not be selected before its objects are taken as counted.
pub const SETTLED: Duration = Duration::from_secs(5);

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Make a binding.
    Create(Box<APIServiceBinding>),
    /// Change one of the bundle's own.
    Patch {
        /// Its name.
        name: String,
        /// Its export.
        export: String,
        /// The merge patch.
        patch: Value,
    },
    /// End one of the bundle's own.
    Delete {
        /// The binding as it was seen: nothing else is deleted.
        binding: Arc<APIServiceBinding>,
        /// Why.
        why: String,
        /// It ends because it has no objects, which is to be proved once more.
        unused: bool,
    },
}

/// What to do, and how the exports stand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The steps.
    pub ops: Vec<Op>,
    /// Why nothing can be done, where that is so.
    pub hold: Option<Hold>,
    /// What keeps exports from being bound, by their names.
    pub problems: BTreeMap<String, String>,
    /// What has to end before, by names of exports.
    pub waiting: BTreeMap<String, String>,
    /// Exports to bind.
    pub discovered: usize,
    /// Those of them that are bound.
    pub bound: usize,
    /// Own bindings that are not ready.
    pub unready: usize,
    /// When to look again, because time has passed.
    pub wake: Option<Duration>,
}

/// Decides.
pub fn plan(seen: &Observed) -> Plan {
    if let Some(hold) = hold(seen) {
        return Plan {
            hold: Some(hold),
            ..Plan::default()
        };
    }
    let mut plan = Plan::default();
    let index = Index::of(seen);
    for (name, lookup) in &seen.exports.exports {
        match lookup {
            Lookup::Present(export) if is_wanted(seen, export) => plan.want(seen, &index, name),
            Lookup::Broken { message } => plan.complain(name, message),
            Lookup::Present(_) | Lookup::Absent | Lookup::Unknown { .. } => {}
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
fn is_wanted(seen: &Observed, export: &APIServiceExport) -> bool {
    export.metadata.deletion_timestamp.is_none() && seen.terms.takes(export) == Some(true)
}

/// Whether the export of a binding is there and to be bound, or cannot be understood.
fn is_served(seen: &Observed, binding: &APIServiceBinding) -> bool {
    match lookup(seen, binding.export_name()) {
        Some(Lookup::Present(export)) => is_wanted(seen, export),
        Some(Lookup::Broken { .. }) => true,
        Some(Lookup::Absent | Lookup::Unknown { .. }) | None => false,
    }
}

fn lookup<'a>(seen: &'a Observed, export: &str) -> Option<&'a Lookup> {
    let at = seen
        .exports
        .exports
        .binary_search_by(|(name, _)| (**name).cmp(export))
        .ok()?;
    Some(&seen.exports.exports[at].1)
}

impl Plan {
    fn complain(&mut self, export: &str, message: impl Into<String>) {
        self.problems.insert(export.to_owned(), message.into());
    }

    fn wait(&mut self, export: &str, message: impl Into<String>) {
        self.waiting.insert(export.to_owned(), message.into());
    }

    fn wake_after(&mut self, pause: Duration) {
        // A moment later, so that it has certainly passed.
        let pause = pause + Duration::from_millis(10);
        self.wake = Some(self.wake.map_or(pause, |known| known.min(pause)));
    }

    /// An export that is to be bound.
    fn want(&mut self, seen: &Observed, index: &Index<'_>, export: &str) {
        self.discovered += 1;
        if let Some(binding) = index.own(export) {
            return self.tend(seen, export, binding);
        }
        if let Some(other) = index.of_contract(export) {
            return match seen.owner_of(other) {
                Owner::Bundle { name, gone: false } => self.complain(
                    export,
                    format!(
                        "APIServiceBindingBundle {name} has bound it by APIServiceBinding {} already; leave it to one of the two \
                         by spec.selector",
                        other.name_any()
                    ),
                ),
                Owner::Bundle { name, gone: true } => self.wait(export, left_over(other, &name)),
                Owner::Us | Owner::Hand => self.bound += 1,
            };
        }
        match index.named(&seen.binding_name(export)) {
            None => self.ops.push(Op::Create(Box::new(binding(seen, export)))),
            Some(other) => self.collide(seen, export, other),
        }
    }

    /// The name for the binding of an export is taken.
    fn collide(&mut self, seen: &Observed, export: &str, other: &APIServiceBinding) {
        let name = other.name_any();
        if other.metadata.deletion_timestamp.is_some() {
            return self.wait(export, ending(other));
        }
        let whose = match seen.owner_of(other) {
            Owner::Bundle { name, gone: true } => return self.wait(export, left_over(other, &name)),
            Owner::Bundle { name, gone: false } => format!("belongs to APIServiceBindingBundle {name}"),
            Owner::Us => format!("serves APIServiceExport {}", other.export_name()),
            Owner::Hand => "was made by hand, for another provider or export".to_owned(),
        };
        // A prefix that is set stays.
        let mend = match &seen.bundle.spec.binding_name_prefix {
            None => format!("set spec.bindingNamePrefix of APIServiceBindingBundle {}", seen.name()),
            Some(_) => "bind it by a new APIServiceBindingBundle with another spec.bindingNamePrefix".to_owned(),
        };
        self.complain(
            export,
            format!("APIServiceBinding {name} exists and {whose}; {mend}, or delete that binding"),
        );
    }

    /// An own binding whose export is to be bound.
    fn tend(&mut self, seen: &Observed, export: &str, binding: &Arc<APIServiceBinding>) {
        if binding.metadata.deletion_timestamp.is_some() {
            return self.wait(export, ending(binding));
        }
        self.align(seen, binding);
        if self.is_foreign(seen, export, binding) {
            return;
        }
        self.bound += 1;
        let conflict = binding
            .condition(CONNECTED)
            .filter(|condition| CRD_CONFLICTS.contains(&condition.reason.as_str()));
        if let Some(condition) = conflict {
            self.complain(export, condition.message.clone());
        }
    }

    /// An own binding gets what the bundle says by annotations.
    fn align(&mut self, seen: &Observed, binding: &APIServiceBinding) {
        if let Some(patch) = patch(seen, binding) {
            self.ops.push(Op::Patch {
                name: binding.name_any(),
                export: binding.export_name().to_owned(),
                patch,
            });
        }
    }

    /// Whether an own binding is pinned to another contract, and says so.
    fn is_foreign(&mut self, seen: &Observed, export: &str, binding: &APIServiceBinding) -> bool {
        if contract_of(binding).is_none() || seen.is_of_contract(binding) {
            return false;
        }
        let name = binding.name_any();
        if seen.takeover().until().is_some() {
            self.wait(export, format!("APIServiceBinding {name} changes its provider"));
        } else {
            self.complain(
                export,
                format!(
                    "APIServiceBinding {name} belongs to the bundle and is of another contract, so it is left alone; take its \
                     owner reference away, or annotate the bundle with {}=<time, RFC 3339>",
                    annotations::ACCEPT_PROVIDER_CHANGE
                ),
            );
        }
        true
    }

    /// An own binding whose export is gone, or not to be bound any more.
    fn leave(&mut self, seen: &Observed, binding: &Arc<APIServiceBinding>) {
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
            Some(why) => self.ops.push(Op::Delete {
                binding: Arc::clone(binding),
                why: why.to_owned(),
                unused: !may_take_objects(seen, binding),
            }),
            // While it stays it follows the bundle, also to another provider, where the user consents.
            None => self.align(seen, binding),
        }
    }

    /// Why a binding without its export is to end now; `None` where it is not, or not yet.
    fn end(&mut self, seen: &Observed, export: &str, binding: &APIServiceBinding) -> Option<&'static str> {
        let is_removed = match lookup(seen, export) {
            Some(Lookup::Present(export)) => export.metadata.deletion_timestamp.is_some(),
            _ => true,
        };
        let gone = seen.gone.get(export).copied().unwrap_or_default();
        let pause = patience(seen, binding, is_removed, gone)?;
        if let Some(left) = pause.checked_sub(gone.since).filter(|left| !left.is_zero()) {
            self.wake_after(left);
            let until = format!(
                "APIServiceBinding {} ends unless the export comes back",
                binding.name_any()
            );
            self.wait(export, until);
            return None;
        }
        if !seen.is_confirmed() {
            let until = format!(
                "APIServiceBinding {} ends when the provider has confirmed what it exports",
                binding.name_any()
            );
            self.wait(export, until);
            return None;
        }
        Some(if is_removed {
            "the provider removed its export"
        } else {
            "the bundle does not select its export any more"
        })
    }
}

/// For how long an export has to be gone before its binding ends; `None` if that is not all it takes.
fn patience(seen: &Observed, binding: &APIServiceBinding, is_removed: bool, gone: Gone) -> Option<Duration> {
    let is_allowed = is_allowed(seen, binding);
    let uid = binding.metadata.uid.as_deref().unwrap_or_default();
    let count = seen.counts.get(uid).filter(|count| count.export_is_gone == is_removed);
    let policy = seen.bundle.spec.removed_exports.unwrap_or_default();
    match (count.map(|count| count.objects), policy) {
        // No successor is to come of an export that is there.
        _ if is_allowed && !is_removed => Some(Duration::ZERO),
        (Some(0), _) if gone.replaced => Some(SUCCESSOR),
        (Some(0), _) if is_removed => Some(Duration::ZERO),
        // What is synced on is counted with a delay.
        (Some(0), _) => Some(SETTLED),
        // A successor takes the objects over; who consents need not know that one comes.
        (_, RemovedExports::Unbind) => Some(SUCCESSOR),
        (_, RemovedExports::Keep) if is_allowed => Some(SUCCESSOR),
        (_, RemovedExports::Keep) => None,
    }
}

fn is_allowed(seen: &Observed, binding: &APIServiceBinding) -> bool {
    let consent = Consent::read(binding, annotations::ALLOW_UNBIND, seen.now);
    consent.until().is_some()
}

/// Whether a binding may end though it has objects.
fn may_take_objects(seen: &Observed, binding: &APIServiceBinding) -> bool {
    is_allowed(seen, binding) || seen.bundle.spec.removed_exports == Some(RemovedExports::Unbind)
}

fn ending(binding: &APIServiceBinding) -> String {
    format!(
        "APIServiceBinding {} is on its way out, and the export is bound when it is gone",
        binding.name_any()
    )
}

fn left_over(binding: &APIServiceBinding, bundle: &str) -> String {
    format!(
        "APIServiceBinding {} goes with APIServiceBindingBundle {bundle}, which was deleted, and the export is bound when it \
         is gone",
        binding.name_any()
    )
}

/// The binding of an export.
fn binding(seen: &Observed, export: &str) -> APIServiceBinding {
    let name = seen.binding_name(export);
    let spec = APIServiceBindingSpec {
        kubeconfig_secret_ref: seen.bundle.spec.kubeconfig_secret_ref.clone(),
        export_name: (name != export).then(|| export.to_owned()),
        ..APIServiceBindingSpec::default()
    };
    let mut binding = APIServiceBinding::new(&name, spec);
    binding.metadata.owner_references = Some(vec![owner(&seen.bundle)]);
    let marks = marks(seen).into_iter();
    binding.metadata.annotations = Some(marks.map(|(key, value)| (key.to_owned(), value)).collect());
    binding
}

/// The annotations that bindings have from their bundle.
fn marks(seen: &Observed) -> Vec<(&'static str, String)> {
    let accepted = serde_json::to_string(&seen.bundle.spec.accepted_claims).unwrap_or_else(|_| "[]".to_owned());
    let mut marks = vec![(annotations::ACCEPTED_CLAIMS, accepted)];
    if seen.takeover().until().is_some() {
        let consent = seen.bundle.annotations().get(annotations::ACCEPT_PROVIDER_CHANGE);
        marks.extend(consent.map(|consent| (annotations::ACCEPT_PROVIDER_CHANGE, consent.clone())));
    }
    marks
}

/// The patch that brings an own binding in line; `None` where nothing differs.
fn patch(seen: &Observed, binding: &APIServiceBinding) -> Option<Value> {
    let mut changes = Map::new();
    for (key, value) in marks(seen) {
        let is_same = if key == annotations::ACCEPTED_CLAIMS {
            Accepted::of(binding) == Accepted::Claims(seen.bundle.spec.accepted_claims.clone())
        } else {
            binding.annotations().get(key) == Some(&value)
        };
        if !is_same {
            changes.insert(key.to_owned(), value.into());
        }
    }
    (!changes.is_empty()).then(|| {
        json!({"metadata": {
            "uid": binding.metadata.uid, "resourceVersion": binding.metadata.resource_version, "annotations": changes,
        }})
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
