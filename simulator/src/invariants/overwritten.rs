//! A copy belongs to the source that it was made of. It never becomes the copy of another source without the user's word.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::annotations;
use serde_json::Value;

use super::{Account, Clusters, Invariant, Seen, Violation, contracts::Contracts, marks, relation};

/// The objects that konnectors created on consumers from objects of providers, as restores do that users order.
#[derive(Debug, Default)]
pub(super) struct Overwritten {
    /// UID of the provider's object, by UID of the consumer's.
    restored: BTreeMap<String, String>,
}

impl Overwritten {
    /// Notes a write on a consumer. What is made of a copy is its source also after a restore took back what the copy says of it.
    pub(super) fn note<C: Clusters>(&mut self, seen: &Seen<'_, C>) {
        let change = seen.written.change;
        let created = change.after.as_deref().filter(|_| change.before.is_none());
        let Some(object) = created.filter(|_| seen.account == Account::Konnector) else {
            return;
        };
        if let Some(of) = marks::annotation(object, annotations::ADOPTED) {
            self.restored.insert(marks::uid(object).to_owned(), of.to_owned());
        }
    }

    /// Checks a write on a provider.
    pub(super) fn check<C: Clusters>(&self, seen: &Seen<'_, C>, contracts: &mut Contracts) -> Option<Violation> {
        let Account::Contract(own) = seen.account else {
            return None;
        };
        let change = seen.written.change;
        let (before, after) = (change.before.as_deref()?, change.after.as_deref()?);
        let (copy, now) = (marks::copy_on_provider(before)?, marks::copy_on_provider(after)?);
        // A retained copy becomes that of the object that was restored from it.
        let is_of_now = || self.restored.get(now.source).is_some_and(|of| of == marks::uid(before));
        let is_restored = copy.retained && (marks::annotation(before, annotations::RESTORING).is_some() || is_of_now());
        let is_taken = copy.source != now.source && !copy.released && !is_restored && copy.contract == own;
        let provider = seen.provider();
        let consumer = contracts.consumer(seen.clusters, provider?, own).filter(|_| is_taken)?;
        // With this consent a cluster takes the place of another, whose objects had the same names.
        let binding = seen.binding(relation(Some(consumer), provider)?);
        let may_relink =
            |binding: Arc<Value>| marks::annotation(&binding, annotations::ACCEPT_PROVIDER_CHANGE).is_some();
        if binding.is_some_and(may_relink) {
            return None;
        }
        let message = format!(
            "the copy of source {} became that of source {}",
            copy.source, now.source
        );
        Some(seen.violation(Invariant::CopyOverwritten, (Some(consumer), provider), &message))
    }
}
