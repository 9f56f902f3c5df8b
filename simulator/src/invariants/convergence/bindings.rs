//! Whether bindings and bundles are ready in the end, or wait for their users.

use bindery_api::annotations;
use bindery_simulator_apiserver::ObjectKey;
use serde_json::Value;

use super::{Pair, of};
use crate::{
    invariants::{Invariant, marks},
    topology::{PLURAL, group, offer_name},
    users::{Circumstance, bundle_name},
};

impl Pair<'_> {
    /// Checks that a relation without a contract has no binding either. Where a restore of the provider took the contract, its user has to
    /// bind again, and the binding has to say so.
    pub(super) fn without_contract(&mut self) {
        if let Some((key, binding)) = self.its_binding()
            && !marks::is_deleting(&binding)
            && !(self.happened(Circumstance::ProviderRestoredInPlace) && says_unready(&binding))
        {
            self.found(
                Invariant::NotReady,
                key.to_string(),
                "its provider has no contract of this consumer",
            );
        }
    }

    /// Checks the binding. Returns whether there is one that syncs.
    pub(super) fn binding(&mut self) -> bool {
        let Some((key, binding)) = self.its_binding() else {
            self.bundle();
            return false;
        };
        if marks::annotation(&binding, annotations::PAUSED).is_some() {
            return false;
        }
        let condition = |name: &str| condition(&binding, name);
        if marks::is_deleting(&binding) {
            // A deletion that waits for the user says so.
            let draining = condition("Draining");
            let waits = draining.is_some_and(|draining| draining["reason"] != "Unbinding");
            if !waits && !self.only_users_can_end_the_rest() {
                let message = format!("it is being deleted, and does not end: {}", said(draining));
                self.found(Invariant::NotReady, key.to_string(), &message);
            }
            return false;
        }
        let ready = condition("Ready");
        if ready.is_some_and(|ready| ready["status"] == "True") {
            return true;
        }
        let name = offer_name(self.relation.provider);
        let export = ObjectKey::new("kube-bind.io", "apiserviceexports", &self.contract, &name);
        if !self.provider.contains_key(&export) && self.has_to_bind_again() {
            return false;
        }
        // Where an object waits for the user, the others are in sync all the same.
        let reason = ready.and_then(|ready| ready["reason"].as_str()).unwrap_or_default();
        if (reason == "ObjectsFailing" && self.waits_for_a_user())
            || (reason == "ClaimFailing" && self.claims_wait_for_a_user())
        {
            return true;
        }
        // An object that is being restored waits until its namespace is there.
        if self.restores_into_no_namespace() {
            return true;
        }
        // A provider that went back in time offers less than the consumer has, and the objects are in sync all the same.
        if reason == "IncompatibleSchema" && self.happened(Circumstance::ProviderRestoredInPlace) {
            return true;
        }
        // The tool that pruned the Secret has to put it back.
        if reason == "KubeconfigSecretNotFound" && self.happened(Circumstance::Unbound) {
            return false;
        }
        let message = format!("it is not ready: {}", said(ready));
        self.found(Invariant::NotReady, key.to_string(), &message);
        false
    }

    /// Checks a bundle whose export has no binding: it ends, waits for its user, or makes the binding.
    fn bundle(&mut self) {
        let key = ObjectKey::new(
            "kube-bind.io",
            "apiservicebindingbundles",
            "",
            &bundle_name(self.relation.provider),
        );
        let Some(bundle) = self.consumer.get(&key) else {
            return;
        };
        if marks::is_deleting(bundle) {
            self.found(
                Invariant::NotReady,
                key.to_string(),
                "it is being deleted, and does not end",
            );
            return;
        }
        let name = offer_name(self.relation.provider);
        let export = ObjectKey::new("kube-bind.io", "apiserviceexports", &self.contract, &name);
        let export = self.provider.get(&export);
        let is_exported = export.is_some_and(|export| !marks::is_deleting(export));
        // A message that names an annotation asks the user to set it.
        let asks = |condition: &Value| {
            let message = condition["message"].as_str();
            message.is_some_and(|message| message.contains("kube-bind.io/"))
        };
        let conditions = bundle["status"]["conditions"].as_array();
        let waits = marks::annotation(bundle, annotations::PAUSED).is_some()
            || conditions.is_some_and(|all| all.iter().any(asks))
            || self.has_to_bind_again();
        if is_exported && !waits {
            self.found(Invariant::NotReady, key.to_string(), "it has no binding for its export");
        }
    }

    /// Whether the export went although there is a binding: the owner unbound it at the provider, a restore of the provider took it,
    /// or a restore of the consumer brought a binding back that a user had ended.
    fn has_to_bind_again(&self) -> bool {
        let any = |of: &[Circumstance]| of.iter().any(|one| self.happened(*one));
        let ends = [
            Circumstance::Unbound,
            Circumstance::UnboundDeleting,
            Circumstance::UnboundKeeping,
        ];
        any(&[Circumstance::UnboundByCall, Circumstance::ProviderRestoredInPlace])
            || (any(&ends) && self.happened(Circumstance::ConsumerRestoredInPlace))
    }

    /// Whether no object of the API is left but those that users paused, or whose namespace they forced to end.
    fn only_users_can_end_the_rest(&self) -> bool {
        let group = group(self.relation.provider);
        let mut left = of(self.consumer, &group, PLURAL).peekable();
        left.peek().is_some() && left.all(|(key, object)| self.is_users(key, object))
    }

    /// Whether an object waits for its user: its namespace was forced to end, it is paused and is to go, the place of its copy is taken, or the operator overwrote
    /// its copy.
    fn waits_for_a_user(&self) -> bool {
        let group = group(self.relation.provider);
        let has_copy = |source: &Value| {
            of(self.provider, &group, PLURAL).any(|(_, object)| {
                marks::copy_on_provider(object).is_some_and(|copy| copy.source == marks::uid(source) && !copy.released)
            })
        };
        let waits = |(key, source): (&ObjectKey, &Value)| {
            let namespace = ObjectKey::new("", "namespaces", "", &key.namespace);
            let is_stranded = !key.namespace.is_empty() && !self.consumer.contains_key(&namespace);
            is_stranded
                || (self.is_users(key, source) && marks::is_deleting(source))
                || (!has_copy(source) && self.is_taken(key))
        };
        of(self.consumer, &group, PLURAL).any(waits) || self.has_overwritten_copy(&group, PLURAL)
    }

    /// Whether a user restores an object whose namespace does not exist.
    fn restores_into_no_namespace(&self) -> bool {
        let group = group(self.relation.provider);
        of(self.provider, &group, PLURAL).any(|(_, object)| {
            let copy = marks::copy_on_provider(object).filter(|copy| copy.retained && copy.contract == self.contract);
            let is_restored = marks::annotation(object, annotations::RESTORING).is_some();
            copy.is_some_and(|copy| {
                let namespace = ObjectKey::new("", "namespaces", "", copy.namespace);
                is_restored && !copy.namespace.is_empty() && !self.consumer.contains_key(&namespace)
            })
        })
    }

    /// Whether the operator overwrote a copy of this resource that still exists.
    fn has_overwritten_copy(&self, group: &str, resource: &str) -> bool {
        let provider = self.relation.provider;
        of(self.provider, group, resource).any(|(key, _)| self.ledger.was_overwritten(provider, key))
    }

    /// Whether both sides have an object of their own where a claimed object is to be copied, or the operator overwrote a copy.
    fn claims_wait_for_a_user(&self) -> bool {
        let prefix = format!("{}-", self.contract);
        self.offer.claims.iter().any(|claim| {
            let resource = claim.resource.plural();
            if self.has_overwritten_copy("", resource) {
                return true;
            }
            of(self.provider, "", resource).any(|(key, object)| {
                // Where copies keep the names of their namespaces, all consumers share them.
                let namespace = key.namespace.strip_prefix(&prefix).unwrap_or(&key.namespace);
                let own = ObjectKey::new("", resource, namespace, &key.name);
                let Some(other) = self.consumer.get(&own) else {
                    return false;
                };
                let copy = marks::copy_on_provider(object);
                let is_copy = copy.is_some_and(|copy| copy.source == marks::uid(other))
                    || marks::annotation(other, annotations::PROVIDER_UID) == Some(marks::uid(object));
                !is_copy
            })
        })
    }
}

fn condition<'a>(binding: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = binding["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == name)
}

/// Whether a binding tells its user that it is not ready.
fn says_unready(binding: &Value) -> bool {
    condition(binding, "Ready").is_some_and(|ready| ready["status"] == "False")
}

/// Reason and message of a condition.
fn said(condition: Option<&Value>) -> String {
    condition.map_or_else(
        || "there is no such condition".to_owned(),
        |condition| {
            let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("reason"), text("message"))
        },
    )
}
