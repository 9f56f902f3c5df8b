//! What is claimed of one resource at the time, and for whom: the registry says it, whoever syncs asks it.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::v1alpha2::{PermissionClaim, SelectorReference};
use bindery_runtime::cache::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::RwLock;

use super::{
    Wanted,
    pair::Side,
    selection::{self, Choice, Selection},
};
use crate::{
    namespaces::is_protected,
    references::{Asker, ClaimKey, Listener, Question, References, path::Reference},
};

/// The rules of one claimed resource.
#[derive(Debug)]
pub(crate) struct Rules {
    pub claim: ClaimKey,
    /// The contract namespace, and its UID.
    pub contract: Arc<str>,
    pub contract_uid: Arc<str>,
    /// The konnector's own namespace.
    home: Arc<str>,
    references: References,
    terms: RwLock<Terms>,
}

/// What the bindings say.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Terms {
    /// What is synced.
    active: Selection,
    /// What is left as it is, if it is not synced: bindings claim it that are paused, or not served at the time.
    held: Selection,
    /// A paused binding has withdrawn claims: what they selected is left as it is too.
    holds_withdrawn: bool,
    /// Of how many bindings the provider still claims it.
    offers: usize,
    /// Every binding that says something is paused.
    pub paused: bool,
    pub relink: bool,
    /// The exports that claim it.
    pub exports: Vec<OwnerReference>,
    questions: Vec<Question>,
    held_questions: Vec<Question>,
}

// === impl Rules ===

impl Rules {
    pub(crate) fn new(
        claim: ClaimKey,
        contract: (Arc<str>, Arc<str>),
        home: Arc<str>,
        references: References,
        terms: Terms,
    ) -> Self {
        let rules = Self {
            claim,
            contract: contract.0,
            contract_uid: contract.1,
            home,
            references,
            terms: RwLock::default(),
        };
        rules.set(terms);
        rules
    }

    /// Replaces what the bindings say; true if that is news.
    pub(crate) fn set(&self, terms: Terms) -> bool {
        if *self.terms.read() == terms {
            return false;
        }
        let (active, held) = (terms.questions.clone(), terms.held_questions.clone());
        *self.terms.write() = terms;
        self.references.ask(&self.asker(false), active);
        self.references.ask(&self.asker(true), held);
        true
    }

    /// Has somebody told when bound objects refer to other objects than before.
    pub(crate) fn listen(&self, listener: &Listener) {
        for held in [false, true] {
            self.references.listen(&self.asker(held), Some(Arc::clone(listener)));
        }
    }

    /// Nobody asks any more.
    pub(crate) fn end(&self) {
        for held in [false, true] {
            self.references.listen(&self.asker(held), None);
            self.references.ask(&self.asker(held), Vec::new());
        }
    }

    pub(crate) fn terms(&self) -> Terms {
        self.terms.read().clone()
    }

    /// Whether no binding claims anything any more.
    pub(crate) fn is_withdrawn(&self) -> bool {
        let terms = self.terms.read();
        terms.exports.is_empty() && !terms.holds_withdrawn && terms.held == Selection::default()
    }

    /// Whether that is so because the provider claims nothing any more.
    pub(crate) fn is_dropped(&self) -> bool {
        self.is_withdrawn() && self.terms.read().offers == 0
    }

    pub(crate) fn relinks(&self) -> bool {
        self.terms.read().relink
    }

    /// Whether an object is claimed, by what its source says, or its copy.
    pub(crate) fn choose(&self, key: &ObjectKey, side: &Side) -> Choice {
        let terms = self.terms.read();
        if self.is_refused(key, side) {
            return Choice::Unselected;
        }
        match (self.ask(&terms, false, key, side), self.ask(&terms, true, key, side)) {
            (Choice::Selected, _) => Choice::Selected,
            (_, Choice::Selected) => Choice::Held,
            (Choice::Unselected, Choice::Unselected) if terms.holds_withdrawn => Choice::Held,
            (Choice::Unselected, choice) | (choice, _) => choice,
        }
    }

    /// Whether a copy is one that nobody claims.
    pub(crate) fn is_left(&self, key: &ObjectKey, copy: &Side) -> bool {
        let terms = self.terms.read();
        let is_unselected = |held| self.ask(&terms, held, key, copy) == Choice::Unselected;
        self.is_refused(key, copy) || (is_unselected(false) && is_unselected(true))
    }

    /// Why it is not known which objects are referred to; `None` if it is.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.references.complaint(&self.asker(false))
    }

    fn ask(&self, terms: &Terms, held: bool, key: &ObjectKey, side: &Side) -> Choice {
        let selection = if held { &terms.held } else { &terms.active };
        selection.choose(key, &side.labels, || self.references.referenced(&self.asker(held), key))
    }

    fn asker(&self, held: bool) -> Asker {
        Asker {
            claim: self.claim.clone(),
            held,
        }
    }

    fn is_refused(&self, key: &ObjectKey, side: &Side) -> bool {
        is_protected(&key.namespace, &self.home)
            || selection::is_refused(&self.claim.resource, &key.name, side.secret_type.as_deref())
    }
}

// === impl Terms ===

impl Terms {
    /// What the bindings say of a resource.
    pub(crate) fn of(claim: &ClaimKey, bindings: &BTreeMap<Arc<str>, &Wanted>) -> Self {
        let mut terms = Self {
            paused: true,
            ..Self::default()
        };
        let (mut active, mut held) = (Vec::new(), Vec::new());
        for wanted in bindings.values().filter(|wanted| wanted.place == claim.place) {
            let accepted = accepted(claim, wanted);
            let withdrawn = wanted.withdrawn.contains(&claim.resource);
            if accepted.is_empty() && !withdrawn {
                continue;
            }
            terms.paused &= wanted.paused;
            terms.holds_withdrawn |= wanted.paused && withdrawn;
            terms.offers += usize::from(!wanted.dropped.contains(&claim.resource));
            let kept = wanted
                .kept
                .iter()
                .filter(|(binding, _)| !bindings.contains_key(binding.as_str()));
            let kept = kept.flat_map(|(_, claims)| claims);
            let kept: Vec<_> = kept.filter(|one| one.group_resource == claim.resource).collect();
            held.extend(kept.iter().map(|claim| &claim.selector));
            terms.held_questions.extend(questions(&kept, wanted));
            if accepted.is_empty() {
                continue;
            }
            terms.relink |= wanted.relink;
            terms.exports.push(wanted.export.clone());
            let (selectors, asked) = if wanted.paused {
                (&mut held, &mut terms.held_questions)
            } else {
                (&mut active, &mut terms.questions)
            };
            selectors.extend(accepted.iter().map(|claim| &claim.selector));
            asked.extend(questions(&accepted, wanted));
        }
        terms.active = Selection::of(active);
        terms.held = Selection::of(held);
        terms
    }
}

/// The claims on a resource that a binding accepted.
pub(crate) fn accepted<'a>(claim: &ClaimKey, wanted: &'a Wanted) -> Vec<&'a PermissionClaim> {
    let claims = wanted.accepted.iter();
    claims.filter(|one| one.group_resource == claim.resource).collect()
}

fn questions(claims: &[&PermissionClaim], wanted: &Wanted) -> Vec<Question> {
    let home = wanted
        .cluster_scoped_namespace
        .as_deref()
        .filter(|home| !home.is_empty());
    let references = claims.iter().flat_map(|claim| &claim.selector.references);
    let question = |reference: &SelectorReference| {
        let paths = &reference.json_path;
        Some(Question {
            from: reference.group_resource.clone(),
            versions: reference.versions.clone(),
            // A path that is none refers to nothing.
            reference: Reference::parse(&paths.name, paths.namespace.as_deref())?,
            home: home.map(Into::into),
        })
    };
    references.filter_map(question).collect()
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
