//! Whether bound objects and their copies agree in the end, and what users deleted is gone.

use std::collections::BTreeMap;

use bindery_api::{annotations, names, retention::RetentionMark};
use bindery_simulator_apiserver::ObjectKey;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{ADDED, Pair, of};
use crate::{
    invariants::{marks, sources::SourceEnd},
    topology::{Cluster, PLURAL, Retention, group, offer_name},
    users::Circumstance,
};

/// The ConfigMap that the control plane puts into each namespace.
const ROOT_CERTIFICATES: &str = "kube-root-ca.crt";

impl Pair<'_> {
    /// Checks bound objects against their copies.
    pub(super) fn bound(&mut self) {
        let group = group(self.relation.provider);
        let mut copies: BTreeMap<&str, (&ObjectKey, &Value)> = BTreeMap::new();
        let mut second = Vec::new();
        for (key, object) in of(self.provider, &group, PLURAL) {
            let Some(copy) = marks::copy_on_provider(object) else {
                continue;
            };
            if copy.released && copies.contains_key(copy.source) {
                continue;
            }
            let first = copies.insert(copy.source, (key, object));
            let first = first.and_then(|(_, first)| marks::copy_on_provider(first));
            if first.is_some_and(|first| !first.released) && copy.contract == self.contract {
                second.push((key, object));
            }
        }
        for (key, object) in second {
            let circumstances = self.circumstances(None, Some((key, object)));
            self.differs(key, "it is a second copy of its source".to_owned(), circumstances);
        }
        let sources: Vec<_> = of(self.consumer, &group, PLURAL).collect();
        for (key, source) in sources {
            if self.is_users(key, source) {
                continue;
            }
            let copy = copies.get(marks::uid(source));
            let circumstances = self.circumstances(Some(source), copy.copied());
            let not_converged = |pair: &mut Self, message| pair.differs(key, message, circumstances.clone());
            if marks::is_deleting(source) {
                not_converged(self, "its deletion does not end".to_owned());
                continue;
            }
            let Some((place, copy)) = copy else {
                if !self.is_taken(key) {
                    let on = Cluster::Provider(self.relation.provider);
                    let is_touched = self.places(key).iter().any(|place| self.rewinds.is_touched(on, place));
                    let of_clone = is_touched.then_some(Circumstance::CopyOfClone);
                    let circumstances = circumstances.iter().copied().chain(of_clone).collect();
                    self.differs(key, "it has no copy".to_owned(), circumstances);
                }
                continue;
            };
            let is_kept = marks::copy_on_provider(copy).is_some_and(|copy| copy.released);
            if is_kept && marks::serial(source) != marks::serial(copy) {
                // The provider kept it when a binding ended, and it says something else: the binding tells the conflict.
                continue;
            }
            if is_kept && circumstances.contains(&Circumstance::SourceRevived) && !self.is_taken_again(copy) {
                // The provider kept it when its source ended, and a restore brought the source back: the binding tells it to the user.
                continue;
            }
            if marks::serial(source) != marks::serial(copy) {
                let (newer, older) = (marks::serial(source), marks::serial(copy));
                not_converged(self, format!("its state is {newer:?}, that of its copy {older:?}"));
            } else if !self.ledger.was_overwritten(self.relation.provider, place) && !has_same_spec(source, copy) {
                let (up, down) = (&copy["spec"], &source["spec"]);
                not_converged(self, format!("its spec is {down}, that of its copy {up}"));
            }
            let noted = marks::annotation(source, annotations::PROVIDER_UID);
            if noted != Some(marks::uid(copy)) {
                let uid = marks::uid(copy);
                not_converged(
                    self,
                    format!("its annotation names copy {noted:?}, and its copy is {uid}"),
                );
            }
            if source["status"] != copy["status"] {
                let (up, down) = (&copy["status"], &source["status"]);
                not_converged(self, format!("its status is {down}, that of its copy {up}"));
            }
        }
    }

    /// Whether a released copy becomes that of its source again: the export was made after the release.
    fn is_taken_again(&self, copy: &Value) -> bool {
        let export = offer_name(self.relation.provider);
        let export = ObjectKey::new("kube-bind.io", "apiserviceexports", &self.contract, &export);
        let export = self.provider.get(&export);
        let made = export.and_then(|export| marks::time(export, "creationTimestamp"));
        let released = marks::annotation(copy, annotations::RELEASED).and_then(annotations::released_at);
        let released = released.and_then(|at| at.parse::<Timestamp>().ok());
        made.zip(released)
            .is_none_or(|(made, released)| released.as_second() <= made.as_second())
    }

    /// Checks that copies whose sources a user deleted are gone.
    pub(super) fn leftovers(&mut self, ends: &impl Fn(&str) -> Option<SourceEnd>) {
        if self.happened(Circumstance::NamespaceForced) {
            return;
        }
        let group = group(self.relation.provider);
        let copies: Vec<_> = of(self.provider, &group, PLURAL).collect();
        for (key, object) in copies {
            let Some(copy) = marks::copy_on_provider(object) else {
                continue;
            };
            let is_ours = copy.contract == self.contract && !copy.released && !copy.claimed;
            let exists = of(self.consumer, &group, PLURAL).any(|(_, source)| marks::uid(source) == copy.source);
            // A source that was made anew under the same name waits for the user, who decides what the copy is.
            let is_wanted = || of(self.consumer, &group, PLURAL).any(|(source, _)| self.places(source).contains(key));
            if is_ours
                && !self.stays_retained(object)
                && !exists
                && ends(copy.source) == Some(SourceEnd::ByUser)
                && !is_wanted()
            {
                let circumstances = self.circumstances(None, Some((key, object)));
                self.differs(
                    key,
                    "a user deleted its source, and it is left".to_owned(),
                    circumstances,
                );
            }
        }
    }

    /// Whether a copy is retained for longer than a history lasts, or waits for a user who restores its source.
    fn stays_retained(&self, copy: &Value) -> bool {
        if marks::copy_on_provider(copy).is_none_or(|copy| !copy.retained) {
            return false;
        }
        let mark = marks::annotation(copy, annotations::RETAINED).and_then(RetentionMark::read);
        let until =
            marks::annotation(copy, annotations::RETAINED_UNTIL).and_then(|until| until.parse::<Timestamp>().ok());
        // A server whose clock was ahead said a time that does not come.
        let is_late = mark
            .zip(until)
            .is_some_and(|(mark, until)| until.duration_since(mark.since) > SignedDuration::from_hours(1));
        is_late
            || self.offer.retention != Some(Retention::Short)
            || marks::annotation(copy, annotations::RESTORING).is_some()
    }

    /// Checks that each retained copy says until when it is retained. The server writes that up to a minute after a konnector has
    /// retained the copy, whatever became of the binding since, and a binding tells it, also on a clone.
    pub(super) fn retained(&mut self) {
        let without_time: Vec<_> = self
            .retained_copies()
            .filter(|(_, object)| !marks::is_deleting(object))
            .filter(|(_, object)| marks::annotation(object, annotations::RETAINED_UNTIL).is_none())
            .collect();
        for (key, object) in without_time {
            let circumstances = self.circumstances(None, Some((key, object)));
            self.differs(
                key,
                "it is retained, and nothing says until when".to_owned(),
                circumstances,
            );
        }
    }

    /// Whether nothing of a user or an operator is left in a provider namespace.
    fn is_empty(&self, place: &str) -> bool {
        let group = group(self.relation.provider);
        let kinds = [(&*group, PLURAL), ("", "secrets"), ("", "configmaps")];
        let is_in_place = |key: &ObjectKey| key.namespace == place && key.name != ROOT_CERTIFICATES;
        !kinds
            .iter()
            .any(|(group, resource)| of(self.provider, group, resource).any(|(key, _)| is_in_place(key)))
    }

    /// Checks that the APIServiceNamespaces of a binding that syncs end when they are deleted and nothing of a user or an operator
    /// is left in their provider namespaces, and that those end too which were kept for what was in them. A server looks at them again
    /// after minutes.
    pub(super) fn hanging(&mut self) {
        let prefix = names::provider_namespace(&self.contract, "");
        let kept: Vec<_> = of(self.provider, "", "namespaces")
            .filter(|(key, _)| key.name.starts_with(&prefix) && self.is_empty(&key.name))
            .filter(|(_, object)| marks::annotation(object, annotations::RELEASED).is_some())
            .collect();
        for (key, _) in kept {
            self.not_converged(key, "it is kept, and nothing is left in it".to_owned());
        }
        let hanging: Vec<_> = of(self.provider, "kube-bind.io", "apiservicenamespaces")
            .filter(|(key, object)| key.namespace == self.contract && has_our_finalizer(object))
            .filter(|(_, object)| marks::is_deleting(object))
            .collect();
        for (key, _) in hanging {
            if self.is_empty(&names::provider_namespace(&self.contract, &key.name)) {
                self.not_converged(key, "its deletion does not end".to_owned());
            }
        }
    }
}

/// Whether an object has a finalizer of the product.
fn has_our_finalizer(object: &Value) -> bool {
    let all = object["metadata"]["finalizers"].as_array();
    let is_ours = |one: &Value| one.as_str().is_some_and(|one| one.starts_with("kube-bind.io/"));
    all.is_some_and(|all| all.iter().any(is_ours))
}

/// Whether a copy has the spec of its source, and no other field but the one that operators add.
fn has_same_spec(source: &Value, copy: &Value) -> bool {
    let mut spec = copy["spec"].clone();
    if let Some(fields) = spec.as_object_mut().filter(|_| source["spec"].get(ADDED).is_none()) {
        fields.remove(ADDED);
    }
    spec == source["spec"]
}
