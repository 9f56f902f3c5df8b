//! Conversion of conditions: those of kube-bind, and those of Kubernetes.

use bindery_api::Condition;
use bindery_proto::v1alpha2 as proto;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as KubernetesCondition;

use crate::front::wire::convert::meta::time;

/// The messages of conditions of kube-bind, which have a severity.
pub(crate) fn conditions(conditions: &[Condition]) -> Vec<proto::Condition> {
    let condition = |condition: &Condition| proto::Condition {
        r#type: condition.type_.clone(),
        status: condition.status.as_str().to_owned(),
        severity: condition.severity.as_str().to_owned(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        last_transition_time: Some(time(&condition.last_transition_time)),
        observed_generation: 0,
    };
    conditions.iter().map(condition).collect()
}

/// The messages of conditions of Kubernetes, which have none.
pub(crate) fn kubernetes_conditions(conditions: &[KubernetesCondition]) -> Vec<proto::Condition> {
    let condition = |condition: &KubernetesCondition| proto::Condition {
        r#type: condition.type_.clone(),
        status: condition.status.clone(),
        severity: String::new(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        last_transition_time: Some(time(&condition.last_transition_time)),
        observed_generation: condition.observed_generation.unwrap_or_default(),
    };
    conditions.iter().map(condition).collect()
}
