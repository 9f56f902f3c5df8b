//! Judges whether a live object has reached the state it is meant to reach. Pure.
//!
//! Kinds that Kubernetes itself runs have rules of their own; all others are judged by the conditions in their status, and
//! are healthy where they have none. Only what does not mend itself counts as failed: a Pod that cannot be scheduled or
//! crashes may run in a minute.

mod conditions;
mod workloads;

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::object::Gvk;
use conditions::Condition;

/// The health of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "reason")]
pub enum Health {
    /// The object has reached its intended state.
    Healthy,
    /// The object is on its way. The text says what it waits for.
    Progressing(String),
    /// The object will not become healthy by itself. The text says why.
    Failed(String),
    /// The object does not exist.
    Missing,
}

// === impl Health ===

impl Health {
    /// Judges a live object; `None` means that it does not exist.
    pub fn of(live: Option<&Value>) -> Self {
        let Some(object) = live else {
            return Self::Missing;
        };
        let metadata = &object["metadata"];
        if metadata["deletionTimestamp"].is_string() {
            return Self::progressing("it is being deleted");
        }
        let gvk = Gvk::new(
            object["apiVersion"].as_str().unwrap_or_default(),
            object["kind"].as_str().unwrap_or_default(),
        );
        let rule = rule(&gvk);
        let observed = object["status"]["observedGeneration"].as_i64();
        let is_behind = match (metadata["generation"].as_i64(), observed) {
            (Some(generation), Some(observed)) => observed < generation,
            (Some(_), None) => rule.tells_generation,
            (None, _) => false,
        };
        if is_behind {
            return Self::progressing("its controller has not seen its newest generation yet");
        }
        (rule.judge)(object)
    }

    fn progressing(reason: impl Into<String>) -> Self {
        Self::Progressing(reason.into())
    }

    /// Whether it is [`Health::Healthy`].
    pub fn is_healthy(&self) -> bool {
        *self == Self::Healthy
    }

    /// Returns why the object is not healthy.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Healthy => None,
            Self::Progressing(reason) | Self::Failed(reason) => Some(reason),
            Self::Missing => Some("it does not exist"),
        }
    }

    /// Returns the state without its reason.
    pub fn state(&self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Progressing(_) => "Progressing",
            Self::Failed(_) => "Failed",
            Self::Missing => "Missing",
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Progressing(reason) | Self::Failed(reason) => write!(f, "{}: {reason}", self.state()),
            Self::Healthy | Self::Missing => f.write_str(self.state()),
        }
    }
}

/// How objects of a kind are judged.
struct Rule {
    judge: fn(&Value) -> Health,
    /// True if the controller of the kind always reports the generation it has seen. No reported generation then means
    /// that the controller has not seen the object yet.
    tells_generation: bool,
}

fn rule(gvk: &Gvk) -> Rule {
    let rule = |judge, tells_generation| Rule {
        judge,
        tells_generation,
    };
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("apps", "Deployment") => rule(workloads::deployment, true),
        ("apps", "StatefulSet") => rule(workloads::stateful_set, true),
        ("apps", "DaemonSet") => rule(workloads::daemon_set, true),
        ("apps", "ReplicaSet") | ("", "ReplicationController") => rule(workloads::replica_set, true),
        ("batch", "Job") => rule(job, false),
        ("", "Pod") => rule(pod, false),
        ("", "PersistentVolumeClaim") => rule(claim, false),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => rule(definition, false),
        _ => rule(conditions::general, false),
    }
}

fn job(object: &Value) -> Health {
    if let Some(failed) = Condition::true_of(object, &["Failed", "FailureTarget"]) {
        return Health::Failed(failed.why());
    }
    let is_suspended = object["spec"]["suspend"].as_bool() == Some(true);
    if is_suspended || Condition::true_of(object, &["Complete"]).is_some() {
        return Health::Healthy;
    }
    let wanted = object["spec"]["completions"].as_i64().unwrap_or(1);
    let succeeded = object["status"]["succeeded"].as_i64().unwrap_or(0);
    Health::Progressing(format!("{succeeded} of {wanted} pods have completed"))
}

fn pod(object: &Value) -> Health {
    let status = &object["status"];
    let said = |fallback: &str| match status["message"].as_str().or_else(|| status["reason"].as_str()) {
        Some(said) => said.to_owned(),
        None => fallback.to_owned(),
    };
    match status["phase"].as_str() {
        Some("Succeeded") => Health::Healthy,
        Some("Failed") => Health::Failed(said("its containers ended with an error")),
        Some("Running") if Condition::true_of(object, &["Ready"]).is_some() => Health::Healthy,
        _ => Health::Progressing(unready(object).unwrap_or_else(|| said("it is not ready"))),
    }
}

/// Says why a Pod is not ready: what one of its containers waits for, or why no node accepts it.
fn unready(pod: &Value) -> Option<String> {
    let status = &pod["status"];
    let containers = ["initContainerStatuses", "containerStatuses"];
    let mut containers = containers.iter().filter_map(|key| status[key].as_array()).flatten();
    let waiting = containers.find_map(|container| {
        let reason = container["state"]["waiting"]["reason"].as_str()?;
        Some(format!(
            "container {}: {reason}",
            container["name"].as_str().unwrap_or_default()
        ))
    });
    let unscheduled = || {
        let condition = Condition::of(object_conditions(pod), "PodScheduled")?;
        condition.is_false().then(|| condition.why())
    };
    waiting.or_else(unscheduled)
}

fn object_conditions(object: &Value) -> &Value {
    &object["status"]["conditions"]
}

fn claim(object: &Value) -> Health {
    match object["status"]["phase"].as_str() {
        Some("Bound") => Health::Healthy,
        Some("Lost") => Health::Failed("the volume it was bound to does not exist any more".to_owned()),
        _ => Health::progressing("it is not bound to a volume; it may wait for the first Pod that uses it"),
    }
}

fn definition(object: &Value) -> Health {
    if let Some(names) = Condition::of(object_conditions(object), "NamesAccepted").filter(Condition::is_false) {
        return Health::Failed(names.why());
    }
    match Condition::of(object_conditions(object), "Established") {
        Some(established) if established.is_true() => Health::Healthy,
        Some(established) => Health::Progressing(established.why()),
        None => Health::progressing("its kind is not served yet"),
    }
}

#[cfg(test)]
mod tests;
