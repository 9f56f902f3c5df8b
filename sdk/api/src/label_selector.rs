//! Label selectors of resources, evaluated by kube.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::{Expression, Selector};

/// Why an API server would refuse a label selector, in words for its author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelSelectorError {
    /// `In` or `NotIn` has no values to compare with.
    #[error("the requirement on label {key:?} needs values for {operator}")]
    ValuesMissing {
        /// The label.
        key: String,
        /// `In` or `NotIn`.
        operator: String,
    },
    /// `Exists` or `DoesNotExist` has values.
    #[error("the requirement on label {key:?} has values, and {operator} none")]
    ValuesUnexpected {
        /// The label.
        key: String,
        /// `Exists` or `DoesNotExist`.
        operator: String,
    },
    /// Kubernetes has no such operator.
    #[error("{operator:?} on label {key:?} is no operator; write In, NotIn, Exists or DoesNotExist")]
    OperatorUnknown {
        /// The label.
        key: String,
        /// What stands in the operator's place.
        operator: String,
    },
}

/// Turns a label selector into kube's evaluator. The function refuses what API servers refuse, which kube's own conversion does
/// not: by that, `NotIn` without values would select every object.
pub fn label_evaluator(selector: &LabelSelector) -> Result<Selector, LabelSelectorError> {
    let equal = selector.match_labels.iter().flatten();
    let equal = equal.map(|(key, value)| Ok(Expression::Equal(key.clone(), value.clone())));
    equal
        .chain(selector.match_expressions.iter().flatten().map(expression))
        .collect()
}

fn expression(requirement: &LabelSelectorRequirement) -> Result<Expression, LabelSelectorError> {
    let (key, operator) = (requirement.key.clone(), requirement.operator.clone());
    let values: BTreeSet<_> = requirement.values.iter().flatten().cloned().collect();
    match (requirement.operator.as_str(), values.is_empty()) {
        ("In", false) => Ok(Expression::In(key, values)),
        ("NotIn", false) => Ok(Expression::NotIn(key, values)),
        ("Exists", true) => Ok(Expression::Exists(key)),
        ("DoesNotExist", true) => Ok(Expression::DoesNotExist(key)),
        ("In" | "NotIn", true) => Err(LabelSelectorError::ValuesMissing { key, operator }),
        ("Exists" | "DoesNotExist", false) => Err(LabelSelectorError::ValuesUnexpected { key, operator }),
        _ => Err(LabelSelectorError::OperatorUnknown { key, operator }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::core::SelectorExt as _;
    use serde_json::{Value, json};

    use super::*;

    /// Whether a selector selects an object with these labels; `None` if the selector is refused.
    #[track_caller]
    fn check(selector: Value, labels: &[(&str, &str)], expect: Option<bool>) {
        let labels: BTreeMap<_, _> = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let selector: LabelSelector = serde_json::from_value(selector).unwrap();
        let selects = label_evaluator(&selector).map(|evaluator| evaluator.matches(&labels));
        assert_eq!(selects.ok(), expect, "{selector:?} {labels:?}");
    }

    fn on(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn labels_are_compared_as_kubernetes_does() {
        check(json!({}), &[], Some(true));
        check(json!({"matchLabels": {}}), &[("a", "b")], Some(true));
        check(
            json!({"matchLabels": {"a": "b"}}),
            &[("a", "b"), ("c", "d")],
            Some(true),
        );
        check(json!({"matchLabels": {"a": "b", "c": "x"}}), &[("a", "b")], Some(false));
        check(on("a", "In", &["b", "c"]), &[("a", "c")], Some(true));
        check(on("a", "In", &["b", "c"]), &[], Some(false));
        check(on("a", "NotIn", &["b"]), &[("a", "c")], Some(true));
        check(on("a", "NotIn", &["b"]), &[], Some(true));
        check(on("a", "NotIn", &["b"]), &[("a", "b")], Some(false));
        check(on("a", "Exists", &[]), &[("a", "")], Some(true));
        check(on("a", "Exists", &[]), &[("b", "")], Some(false));
        check(on("a", "DoesNotExist", &[]), &[("b", "")], Some(true));
        check(on("a", "DoesNotExist", &[]), &[("a", "")], Some(false));
    }

    #[test]
    fn what_an_api_server_refuses_is_refused() {
        for nonsense in [
            on("a", "Is", &["b"]),
            on("a", "In", &[]),
            on("a", "NotIn", &[]),
            on("a", "Exists", &["b"]),
            on("a", "DoesNotExist", &["b"]),
            json!({"matchExpressions": [{"key": "a", "operator": "NotIn"}]}),
        ] {
            check(nonsense, &[("a", "b")], None);
        }
    }
}
