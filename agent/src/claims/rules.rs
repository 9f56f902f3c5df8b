//! Which objects of one claimed resource are claimed at present: the registry sets it from what the bindings say, the engine
//! asks it for each object.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bindery_api::{
    claims::{ReferencePaths, SECRETS, Selected, Selection, never_claimed},
    v1alpha2::{GroupResource, PermissionClaim, SelectorReference},
};
use bindery_runtime::cache::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::RwLock;

use super::{
    Wanted,
    descent::{self, Bounds, Descent},
};
use crate::{
    model::labels::Marks,
    references::{ClaimKey, ReferenceListener, ReferenceRule, References, Subscriber},
};

/// Whether an object is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimChoice {
    /// A claim selects it.
    Selected,
    /// No claim selects it.
    Unselected,
    /// The answer depends on references that are not all known.
    Unknown,
    /// Only a claim selects it that is not synced at present: its copy is kept as it is.
    Kept,
}

/// The rules of one claimed resource.
#[derive(Debug)]
pub(crate) struct ClaimRules {
    pub claim: ClaimKey,
    /// The name of the contract namespace.
    pub contract: Arc<str>,
    pub contract_uid: Arc<str>,
    konnector_namespace: Arc<str>,
    references: References,
    terms: RwLock<ClaimTerms>,
}

/// What the bindings of a session say of one claimed resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClaimTerms {
    active: ClaimSet,
    /// Keys of labels that come down because claims select by them.
    selecting_labels: BTreeSet<String>,
    /// Claims of bindings that are paused, or not served at present: copies of what they select are kept as they are.
    kept: ClaimSet,
    /// A paused binding has withdrawn claims: copies of what they selected are kept as they are too.
    keeps_withdrawn: bool,
    /// The number of bindings whose provider still claims the resource.
    offers: usize,
    /// Every binding that says something of the resource is paused.
    pub paused: bool,
    pub relink: bool,
    /// The exports that claim the resource.
    pub exports: Vec<OwnerReference>,
}

/// Some claims on one resource.
#[derive(Clone, Debug, Default, PartialEq)]
struct ClaimSet {
    parts: Vec<ClaimPart>,
    references: Vec<ReferenceRule>,
}

/// The claims of one binding on one resource.
#[derive(Clone, Debug, Default, PartialEq)]
struct ClaimPart {
    /// In which namespaces the claims are in effect, and what may come down. Copies that are only kept are kept in all namespaces.
    bounds: Bounds,
    selection: Selection,
}

// === impl ClaimRules ===

impl ClaimRules {
    pub(crate) fn new(
        claim: ClaimKey,
        contract: (Arc<str>, Arc<str>),
        konnector_namespace: Arc<str>,
        references: References,
        terms: ClaimTerms,
    ) -> Self {
        let rules = Self {
            claim,
            contract: contract.0,
            contract_uid: contract.1,
            konnector_namespace,
            references,
            terms: RwLock::default(),
        };
        rules.set(terms);
        rules
    }

    /// Replaces what the bindings say; true if that changes anything.
    pub(crate) fn set(&self, terms: ClaimTerms) -> bool {
        if *self.terms.read() == terms {
            return false;
        }
        let references = [terms.active.references.clone(), terms.kept.references.clone()];
        *self.terms.write() = terms;
        for (rules, kept) in references.into_iter().zip([false, true]) {
            self.references.set_rules(&self.subscriber(kept), rules);
        }
        true
    }

    /// Registers a callback that runs when the references to claimed objects change.
    pub(crate) fn listen(&self, listener: &ReferenceListener) {
        for kept in [false, true] {
            let listener = Some(Arc::clone(listener));
            self.references.listen(&self.subscriber(kept), listener);
        }
    }

    /// Ends the subscriptions to references.
    pub(crate) fn end(&self) {
        for kept in [false, true] {
            self.references.listen(&self.subscriber(kept), None);
            self.references.set_rules(&self.subscriber(kept), Vec::new());
        }
    }

    pub(crate) fn terms(&self) -> ClaimTerms {
        self.terms.read().clone()
    }

    /// Tells whether no binding claims anything of the resource any more.
    pub(crate) fn is_withdrawn(&self) -> bool {
        let terms = self.terms.read();
        terms.exports.is_empty() && !terms.keeps_withdrawn && terms.kept.is_empty()
    }

    /// Tells whether no binding claims anything of the resource because no provider claims it any more.
    pub(crate) fn is_dropped(&self) -> bool {
        self.is_withdrawn() && self.terms.read().offers == 0
    }

    pub(crate) fn relinks(&self) -> bool {
        self.terms.read().relink
    }

    /// Decides whether an object is claimed, by its namespace, its labels and, of a Secret, its type. Of an object that the provider made,
    /// `is_provided`, [`Self::descent`] decides by the namespace.
    pub(crate) fn choose(
        &self,
        key: &ObjectKey,
        labels: &Marks,
        secret_type: Option<&str>,
        is_provided: bool,
    ) -> ClaimChoice {
        let terms = self.terms.read();
        if self.is_never_claimed(key, secret_type) {
            return ClaimChoice::Unselected;
        }
        let is_meant = |part: &ClaimPart| is_provided || part.bounds.has_namespace(&key.namespace);
        let active = self.select(&terms.active, false, key, labels, is_meant);
        match (active, self.select(&terms.kept, true, key, labels, |_| true)) {
            (Selected::Yes(_), _) => ClaimChoice::Selected,
            (_, Selected::Yes(_)) => ClaimChoice::Kept,
            (Selected::No, Selected::No) if terms.keeps_withdrawn => ClaimChoice::Kept,
            (Selected::No, Selected::No) => ClaimChoice::Unselected,
            (Selected::Unknown, _) | (_, Selected::Unknown) => ClaimChoice::Unknown,
        }
    }

    /// Decides whether an object of the provider that claims select may come down.
    pub(crate) fn descent(&self, key: &ObjectKey, labels: &Marks, secret_type: Option<&str>) -> Descent {
        let terms = self.terms.read();
        let is_secret = self.claim.resource.is_core() && self.claim.resource.resource == SECRETS;
        let has_bound = |bound: &[GroupResource]| self.references.has_bound(bound, &key.namespace);
        let parts = terms.active.parts.iter();
        let selecting = parts.filter(|part| self.select_by(&part.selection, false, key, labels) != Selected::No);
        let decided = selecting.map(|part| {
            let bounds = &part.bounds;
            bounds.decide(&key.namespace, secret_type, is_secret, has_bound)
        });
        // Where no claim in effect selects it, it does not come down for that.
        let descent = decided.reduce(Descent::or).unwrap_or_default();
        // A binding that is paused, or not served at present, may have let it come.
        let may_be_kept = || self.select(&terms.kept, true, key, labels, |_| true) != Selected::No;
        match descent {
            Descent::Refused(_) if may_be_kept() => Descent::Unknown,
            descent => descent,
        }
    }

    /// Whether these terms let the same labels come down.
    pub(crate) fn carries_labels_of(&self, terms: &ClaimTerms) -> bool {
        self.terms.read().selecting_labels == terms.selecting_labels
    }

    /// Whether a label of a provider's object comes down.
    pub(crate) fn carries_label(&self, key: &str) -> bool {
        descent::is_label_carried(key, &self.terms.read().selecting_labels)
    }

    /// Tells whether no claim selects the object of a copy, or none concerns its namespace, so that the copy is a leftover.
    pub(crate) fn is_leftover(&self, key: &ObjectKey, labels: &Marks, secret_type: Option<&str>) -> bool {
        let terms = self.terms.read();
        let is_meant = |part: &ClaimPart| part.bounds.has_namespace(&key.namespace);
        let is_unselected = |set, kept| self.select(set, kept, key, labels, is_meant) == Selected::No;
        self.is_never_claimed(key, secret_type)
            || (is_unselected(&terms.active, false) && is_unselected(&terms.kept, true))
    }

    /// Says why it is not known which objects are referred to; `None` if it is known.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.references.complaint(&self.subscriber(false))
    }

    /// Whether one of the claims of a set selects an object, of those that are meant.
    fn select(
        &self,
        set: &ClaimSet,
        kept: bool,
        key: &ObjectKey,
        labels: &Marks,
        is_meant: impl Fn(&ClaimPart) -> bool,
    ) -> Selected {
        let meant = set.parts.iter().filter(|part| is_meant(part));
        let selected = meant.map(|part| self.select_by(&part.selection, kept, key, labels));
        let either = |one, other| match (one, other) {
            (Selected::Yes(by), _) | (_, Selected::Yes(by)) => Selected::Yes(by),
            (Selected::Unknown, _) | (_, Selected::Unknown) => Selected::Unknown,
            (Selected::No, Selected::No) => Selected::No,
        };
        selected.fold(Selected::No, either)
    }

    fn select_by(&self, selection: &Selection, kept: bool, key: &ObjectKey, labels: &Marks) -> Selected {
        let labels = || Cow::Owned(labels.iter().map(|(key, value)| (key.into(), value.into())).collect());
        let referenced = || self.references.referenced(&self.subscriber(kept), key);
        selection.select((&key.namespace, &key.name), labels, referenced)
    }

    fn subscriber(&self, kept: bool) -> Subscriber {
        Subscriber {
            claim: self.claim.clone(),
            kept,
        }
    }

    fn is_never_claimed(&self, key: &ObjectKey, secret_type: Option<&str>) -> bool {
        let key = (&*key.namespace, &*key.name);
        never_claimed(&self.claim.resource, key, secret_type, &self.konnector_namespace).is_some()
    }
}

// === impl ClaimTerms ===

impl ClaimTerms {
    /// Joins what the bindings say of a resource.
    pub(crate) fn of(claim: &ClaimKey, bindings: &BTreeMap<Arc<str>, &Wanted>) -> Self {
        let mut terms = Self {
            paused: true,
            ..Self::default()
        };
        let mut selecting = Vec::new();
        for wanted in bindings.values().filter(|wanted| wanted.placement == claim.placement) {
            let accepted = accepted(claim, wanted);
            let withdrawn = wanted.withdrawn.contains(&claim.resource);
            if accepted.is_empty() && !withdrawn {
                continue;
            }
            terms.paused &= wanted.paused;
            terms.keeps_withdrawn |= wanted.paused && withdrawn;
            terms.offers += usize::from(!wanted.dropped.contains(&claim.resource));
            let unserved = wanted
                .kept
                .iter()
                .filter(|(binding, _)| !bindings.contains_key(binding.as_str()));
            let unserved = unserved.flat_map(|(_, claims)| claims);
            let unserved: Vec<_> = unserved.filter(|one| one.group_resource == claim.resource).collect();
            terms.kept.add(&unserved, wanted, Bounds::default());
            selecting.extend(unserved);
            if accepted.is_empty() {
                continue;
            }
            terms.relink |= wanted.relink;
            terms.exports.push(wanted.export.clone());
            let namespaces = wanted.claim_namespaces.as_ref();
            let bounds = Bounds::new(namespaces, &wanted.claim_secret_types, &wanted.bound);
            let claims = if wanted.paused {
                &mut terms.kept
            } else {
                &mut terms.active
            };
            claims.add(&accepted, wanted, bounds);
            selecting.extend(accepted);
        }
        terms.selecting_labels = descent::selecting_labels(selecting);
        terms
    }
}

// === impl ClaimSet ===

impl ClaimSet {
    /// Adds the claims that a binding tells of.
    fn add(&mut self, claims: &[&PermissionClaim], wanted: &Wanted, bounds: Bounds) {
        if claims.is_empty() {
            return;
        }
        let references = claims.iter().flat_map(|claim| &claim.selector.references);
        let rules = references.filter_map(|reference| rule(reference, wanted));
        self.references.extend(rules);
        self.parts.push(ClaimPart {
            bounds,
            selection: Selection::of(claims.iter().map(|claim| &claim.selector)),
        });
    }

    /// Whether the claims select nothing.
    fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.selection == Selection::default())
    }
}

/// Lists the claims on a resource that a binding accepted.
pub(crate) fn accepted<'a>(claim: &ClaimKey, wanted: &'a Wanted) -> Vec<&'a PermissionClaim> {
    let claims = wanted.accepted.iter();
    claims.filter(|one| one.group_resource == claim.resource).collect()
}

/// Parses a reference; `None` if its paths are no paths, so that it refers to nothing.
fn rule(reference: &SelectorReference, wanted: &Wanted) -> Option<ReferenceRule> {
    let of_export = wanted.cluster_scoped_namespace.as_deref();
    Some(ReferenceRule {
        from: reference.group_resource.clone(),
        versions: reference.versions.clone(),
        paths: ReferencePaths::parse(&reference.json_path)?,
        cluster_scoped_namespace: of_export.filter(|namespace| !namespace.is_empty()).map(Into::into),
    })
}

#[cfg(test)]
#[path = "tests/rules.rs"]
mod tests;
