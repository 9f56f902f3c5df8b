//! Retention: the copy of a deleted object stays with the provider for some time, suspended, so that the object can be restored.

use std::{fmt, str::FromStr, time::Duration};

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::{
    duration::InvalidDuration,
    v1alpha2::{GroupResource, Retention},
};

/// Why a retention cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRetention {
    /// The time is no duration.
    #[error("spec.retention.for: {0}")]
    Duration(#[from] InvalidDuration),
    /// The time is zero.
    #[error("spec.retention.for is zero; name a time such as 72h, or remove spec.retention")]
    Zero,
    /// The patch is no object.
    #[error("spec.retention.suspend is no object; write a merge patch such as {{spec: {{replicas: 0}}}}")]
    NoObject,
    /// The patch would change a field that is not the content of an object.
    #[error("spec.retention.suspend changes {field}; it may change the content of an object only, such as its spec")]
    Field {
        /// The top-level field.
        field: String,
    },
}

/// The value of annotation [`crate::annotations::RETAINED`]: whose copy is retained, by which contract, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionMark<'a> {
    /// The UID of the source that was deleted.
    pub source_uid: &'a str,
    /// The contract whose konnector retained the copy.
    pub contract: &'a str,
    /// When it did, by the clock of the konnector.
    pub since: Timestamp,
}

/// How the retention of a copy ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionAction {
    /// The object is created anew from the copy.
    Restore,
    /// The copy is deleted.
    Discard,
}

/// What the user orders for one retained copy, as annotation [`crate::annotations::END_RETENTION`] of a binding holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionOrder {
    /// How the retention ends.
    pub action: RetentionAction,
    /// The resource of the object that was deleted.
    pub resource: GroupResource,
    /// The namespace of the object; empty for a cluster-scoped one.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
}

/// The text is no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not <restore|discard>/<plural>.<group>/<namespace>/<name>")]
pub struct RetentionOrderError;

/// The retention time of a template, if its retention can be offered.
pub fn check(retention: &Retention) -> Result<Duration, InvalidRetention> {
    let duration = retention.duration.parse()?;
    if duration.is_zero() {
        return Err(InvalidRetention::Zero);
    }
    let Some(suspend) = &retention.suspend else {
        return Ok(duration);
    };
    let suspend = suspend.as_object().ok_or(InvalidRetention::NoObject)?;
    let mut fields = suspend.keys();
    match fields.find(|field| matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "status")) {
        Some(field) => Err(InvalidRetention::Field { field: field.clone() }),
        None => Ok(duration),
    }
}

/// Applies a JSON merge patch (RFC 7396).
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        patch.clone_into(target);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// The merge patch that undoes a merge patch on this value, where the value holds no null.
pub fn inverse(value: &Value, patch: &Value) -> Value {
    let (Value::Object(patch), Value::Object(value)) = (patch, value) else {
        return value.clone();
    };
    let undone = patch.iter().filter_map(|(key, change)| match value.get(key) {
        None if change.is_null() => None,
        None => Some((key.clone(), Value::Null)),
        Some(before) => Some((key.clone(), inverse(before, change))),
    });
    Value::Object(undone.collect())
}

// === impl RetentionMark ===

impl<'a> RetentionMark<'a> {
    /// Reads the value of an annotation.
    pub fn read(value: &'a str) -> Option<Self> {
        let mut parts = value.splitn(3, '/');
        let (source_uid, contract, since) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            source_uid,
            contract,
            since: since.parse().ok()?,
        })
    }
}

impl fmt::Display for RetentionMark<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.source_uid, self.contract, self.since)
    }
}

/// Whether annotations say that a contract retains the copy, which was made of a source that was deleted. A mark that names another
/// source is an old one.
pub fn is_retained<'a>(annotation: impl Fn(&str) -> Option<&'a str>, contract: &str) -> bool {
    let mark = annotation(crate::annotations::RETAINED).and_then(RetentionMark::read);
    mark.is_some_and(|mark| {
        mark.contract == contract && annotation(crate::annotations::CONSUMER_UID) == Some(mark.source_uid)
    })
}

// === impl RetentionAction ===

impl RetentionAction {
    /// All actions.
    pub const ALL: [Self; 2] = [Self::Restore, Self::Discard];

    /// The name of the action in an order, which is that of the command too.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Restore => "restore",
            Self::Discard => "discard",
        }
    }
}

// === impl RetentionOrder ===

impl fmt::Display for RetentionOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            action,
            resource,
            namespace,
            name,
        } = self;
        write!(f, "{}/{resource}/{namespace}/{name}", action.as_str())
    }
}

impl FromStr for RetentionOrder {
    type Err = RetentionOrderError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<_> = text.split('/').collect();
        let [action, resource, namespace, name] = parts[..] else {
            return Err(RetentionOrderError);
        };
        let (plural, group) = resource.split_once('.').ok_or(RetentionOrderError)?;
        if [plural, group, name].contains(&"") {
            return Err(RetentionOrderError);
        }
        let mut all = RetentionAction::ALL.into_iter();
        Ok(Self {
            action: all.find(|known| known.as_str() == action).ok_or(RetentionOrderError)?,
            resource: GroupResource::new(group, plural),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::annotations;

    fn retention(duration: &str, suspend: Option<Value>) -> Retention {
        let duration = serde_json::from_value(json!(duration)).unwrap();
        Retention { duration, suspend }
    }

    #[test]
    fn a_patch_changes_content_only_and_the_time_is_one() {
        let check = |duration: &str, suspend: Option<Value>| check(&retention(duration, suspend));
        assert_eq!(check("72h", None), Ok(Duration::from_hours(72)));
        assert_eq!(
            check("5s", Some(json!({"spec": {"replicas": 0}}))),
            Ok(Duration::from_secs(5))
        );
        assert!(matches!(check("soon", None), Err(InvalidRetention::Duration(_))));
        assert_eq!(check("0s", None), Err(InvalidRetention::Zero));
        for no_object in [json!(7), json!([]), json!("spec"), json!(null)] {
            assert_eq!(check("1h", Some(no_object)), Err(InvalidRetention::NoObject));
        }
        for field in ["apiVersion", "kind", "metadata", "status"] {
            let refused = check("1h", Some(json!({"spec": {}, field: {}})));
            assert_eq!(
                refused,
                Err(InvalidRetention::Field {
                    field: field.to_owned()
                })
            );
        }
    }

    #[test]
    fn a_mark_is_of_one_source_and_one_contract() {
        let mark = RetentionMark {
            source_uid: "u1",
            contract: "kube-bind-a",
            since: Timestamp::UNIX_EPOCH,
        };
        let text = mark.to_string();
        assert_eq!(text, "u1/kube-bind-a/1970-01-01T00:00:00Z");
        assert_eq!(RetentionMark::read(&text), Some(mark));
        let of = |uid: &'static str, value: &'static str, contract: &str| {
            let annotation = move |key: &str| match key {
                annotations::RETAINED => Some(value),
                annotations::CONSUMER_UID => Some(uid),
                _ => None,
            };
            is_retained(annotation, contract)
        };
        let value = "u1/kube-bind-a/1970-01-01T00:00:00Z";
        assert!(of("u1", value, "kube-bind-a"));
        assert!(!of("u2", value, "kube-bind-a"), "it was linked anew");
        assert!(!of("u1", value, "kube-bind-b"));
        for wrong in ["", "u1", "u1/kube-bind-a", "u1/kube-bind-a/then"] {
            assert!(!of("u1", wrong, "kube-bind-a"), "{wrong}");
        }
    }

    #[test]
    fn an_order_is_read_as_it_is_written() {
        for action in RetentionAction::ALL {
            for namespace in ["", "wild-west"] {
                let order = RetentionOrder {
                    action,
                    resource: GroupResource::new("wildwest.dev", "cowboys"),
                    namespace: namespace.to_owned(),
                    name: "billy".to_owned(),
                };
                let text = order.to_string();
                assert_eq!(
                    text,
                    format!("{}/cowboys.wildwest.dev/{namespace}/billy", action.as_str())
                );
                assert_eq!(text.parse(), Ok(order));
            }
        }
        for wrong in [
            "",
            "restore",
            "restore/cowboys.wildwest.dev/wild-west",
            "restore/cowboys/wild-west/billy",
            "restore/cowboys.wildwest.dev/wild-west/",
            "restore/cowboys.wildwest.dev/wild-west/billy/more",
            "forget/cowboys.wildwest.dev/wild-west/billy",
        ] {
            assert_eq!(wrong.parse::<RetentionOrder>(), Err(RetentionOrderError), "{wrong}");
        }
    }

    fn without_null() -> impl Strategy<Value = Value> {
        values(false)
    }

    /// A value such as an API server stores, or with nulls such as a merge patch has.
    fn values(with_null: bool) -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            (0..4_i32).prop_map(Value::from),
            "[ab]{0,2}".prop_map(Value::from),
            Just(if with_null { Value::Null } else { json!([1]) }),
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop::collection::btree_map("[a-c]", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect()))
        })
    }

    fn object(value: Value) -> Value {
        if value.is_object() {
            value
        } else {
            json!({"spec": value})
        }
    }

    proptest! {
        #[test]
        fn what_was_suspended_is_resumed_as_it_was(value in without_null(), patch in values(true)) {
            let (value, patch) = (object(value), object(patch));
            let resume = inverse(&value, &patch);
            let mut changed = value.clone();
            merge(&mut changed, &patch);
            merge(&mut changed, &resume);
            prop_assert_eq!(changed, value);
        }
    }
}
