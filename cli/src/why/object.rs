//! What `why` keeps of an object that it read.

use std::collections::BTreeMap;

use bindery_api::{annotations, conditions, finalizers, labels, meta, names, retention, v1alpha2::Owner};
use jiff::Timestamp;
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::{Map, Value};

/// An object of either cluster. What a user wrote into it is compared and never shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectFacts {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) created: Option<Timestamp>,
    /// When its deletion was requested.
    pub(crate) deleting: Option<Timestamp>,
    pub(crate) finalizers: Vec<String>,
    /// Whether the user paused its synchronization.
    #[serde(skip)]
    pub(crate) paused: bool,
    /// When a konnector last wrote to it.
    pub(crate) written: Option<Timestamp>,
    /// Its condition Ready.
    pub(crate) ready: Option<ReadyCondition>,
    #[serde(skip)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(skip)]
    pub(crate) annotations: BTreeMap<String, String>,
    /// All top-level fields but metadata and status.
    #[serde(skip)]
    pub(crate) content: Map<String, Value>,
    #[serde(skip)]
    pub(crate) status: Option<Value>,
}

/// The condition Ready of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadyCondition {
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) since: Option<Timestamp>,
}

/// Whose an object is, by its labels and annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Marked<'a> {
    /// The object has no annotation of kube-bind.
    Not,
    /// The object was kept when an earlier binding ended.
    Released,
    /// The object is the copy of the consumer's object of this UID, under a contract.
    OfConsumer { contract: &'a str, uid: &'a str },
    /// The object is the copy of the provider's object of this UID, under a contract.
    OfProvider { contract: &'a str, uid: &'a str },
}

impl ObjectFacts {
    pub(crate) fn of(object: DynamicObject) -> Self {
        let time = |time: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| time.map(|time| time.0);
        let mut content = match object.data {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        let status = content.remove("status");
        let meta = object.metadata;
        let writers = [names::FIELD_MANAGER, names::FIELD_MANAGER_KUBE_BIND];
        let written = meta
            .managed_fields
            .iter()
            .flatten()
            .filter(|entry| {
                entry
                    .manager
                    .as_deref()
                    .is_some_and(|manager| writers.contains(&manager))
            })
            .filter_map(|entry| time(entry.time.as_ref()))
            .max();
        Self {
            paused: meta::is_paused(&meta),
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            created: time(meta.creation_timestamp.as_ref()),
            deleting: time(meta.deletion_timestamp.as_ref()),
            finalizers: meta.finalizers.unwrap_or_default(),
            written,
            ready: status.as_ref().and_then(ready),
            labels: meta.labels.unwrap_or_default(),
            annotations: meta.annotations.unwrap_or_default(),
            content,
            status,
        }
    }

    /// Tells whether the konnector's finalizer keeps the object until its copy is gone.
    pub(crate) fn is_held(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == finalizers::SYNCER)
    }

    /// The finalizers that are not the konnector's.
    pub(crate) fn other_finalizers(&self) -> Vec<&str> {
        let others = self.finalizers.iter().map(String::as_str);
        others.filter(|finalizer| *finalizer != finalizers::SYNCER).collect()
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// Reads whose the object is.
    pub(crate) fn marked(&self) -> Marked<'_> {
        let Some(contract) = self.annotation(annotations::CLUSTER_NAMESPACE) else {
            return Marked::Not;
        };
        let owner = self.labels.get(labels::OWNER).map(String::as_str);
        let released = self.annotation(annotations::RELEASED);
        if released.is_some_and(|value| annotations::is_released(value, contract)) {
            return Marked::Released;
        }
        if owner == Some(Owner::Provider.as_str()) {
            let uid = self.annotation(annotations::PROVIDER_UID).unwrap_or_default();
            return Marked::OfProvider { contract, uid };
        }
        let uid = self.annotation(annotations::CONSUMER_UID).unwrap_or_default();
        Marked::OfConsumer { contract, uid }
    }

    /// Whether it is a copy that the provider retains after its object was deleted.
    pub(crate) fn is_retained(&self) -> bool {
        let contract = self.annotation(annotations::CLUSTER_NAMESPACE);
        contract.is_some_and(|contract| retention::is_retained(|key| self.annotation(key), contract))
    }

    /// The provider namespace that the object was copied from, if it is a copy of a provider's object.
    pub(crate) fn source_namespace(&self) -> Option<&str> {
        let is_copy = matches!(self.marked(), Marked::OfProvider { .. });
        self.annotation(annotations::PROVIDER_NAMESPACE).filter(|_| is_copy)
    }

    /// The object as `namespace/name`, or by the name alone.
    pub(crate) fn key(&self) -> String {
        match self.namespace.as_str() {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        }
    }
}

fn ready(status: &Value) -> Option<ReadyCondition> {
    let list = status.get("conditions")?.as_array()?;
    let ready = list.iter().find(|condition| condition["type"] == conditions::READY)?;
    let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
    Some(ReadyCondition {
        status: text("status"),
        reason: text("reason"),
        message: text("message"),
        since: ready["lastTransitionTime"].as_str().and_then(|time| time.parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(value: Value) -> ObjectFacts {
        ObjectFacts::of(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn an_object_tells_what_happened_to_it() {
        let facts = facts(json!({
            "apiVersion": "wildwest.dev/v1alpha1", "kind": "Cowboy",
            "metadata": { "name": "billy", "namespace": "west", "uid": "u1", "finalizers": ["kubebind.io/syncer", "x/y"],
                "deletionTimestamp": "2026-01-01T00:00:09Z",
                "managedFields": [
                    { "manager": "kube-bind.io", "operation": "Update", "time": "2026-01-01T00:00:01Z" },
                    { "manager": "kube-bind.io", "operation": "Apply", "time": "2026-01-01T00:00:05Z" },
                    { "manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:07Z" }] },
            "spec": { "intent": "x" },
            "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "R", "message": "M",
                "lastTransitionTime": "2026-01-01T00:00:03Z" }] },
        }));
        let at = |second: i64| Some(Timestamp::from_second(1_767_225_600 + second).unwrap());
        assert_eq!((facts.written, facts.deleting), (at(5), at(9)));
        assert!(facts.is_held());
        assert_eq!(facts.other_finalizers(), ["x/y"]);
        assert_eq!(facts.key(), "west/billy");
        assert_eq!(facts.content.keys().collect::<Vec<_>>(), ["spec"]);
        let ready = facts.ready.unwrap();
        assert_eq!((ready.status.as_str(), ready.since), ("False", at(3)));
    }

    #[track_caller]
    fn check(annotations: &Value, labels: &Value, expect: &Marked<'_>) {
        let facts = facts(json!({ "metadata": { "annotations": annotations, "labels": labels } }));
        assert_eq!(facts.marked(), *expect);
    }

    #[test]
    fn marks_say_whose_it_is() {
        let (contract, uid) = ("kube-bind-x", "u1");
        check(&json!({}), &json!({}), &Marked::Not);
        check(&json!({ "kube-bind.io/consumer-uid": "u1" }), &json!({}), &Marked::Not);
        let mut of_consumer =
            json!({ "kube-bind.io/cluster-namespace": "kube-bind-x", "kube-bind.io/consumer-uid": "u1" });
        check(&of_consumer, &json!({}), &Marked::OfConsumer { contract, uid });
        check(
            &of_consumer,
            &json!({ "kube-bind.io/owner": "consumer" }),
            &Marked::OfConsumer { contract, uid },
        );
        of_consumer["kube-bind.io/released"] = "2026-01-01T00:00:00Z".into();
        check(&of_consumer, &json!({}), &Marked::Released);
        check(
            &json!({ "kube-bind.io/cluster-namespace": "kube-bind-x", "kube-bind.io/provider-uid": "u1" }),
            &json!({ "kube-bind.io/owner": "provider" }),
            &Marked::OfProvider { contract, uid },
        );
    }
}
