//! Judges kinds that run Pods.

use serde_json::Value;

use super::{Health, conditions::Condition};

pub(super) fn deployment(object: &Value) -> Health {
    let conditions = &object["status"]["conditions"];
    let progress = Condition::of(conditions, "Progressing");
    if let Some(late) = progress.filter(|progress| progress.has_reason("ProgressDeadlineExceeded")) {
        return Health::Failed(late.why());
    }
    if object["spec"]["paused"].as_bool() == Some(true) {
        // A paused Deployment is not rolled out, so there is nothing to wait for.
        return Health::Healthy;
    }
    let pods = Pods::of(object, "replicas");
    if let Some(short) = pods.short("updated", "updatedReplicas").or_else(|| pods.old()) {
        return failing(object).unwrap_or(short);
    }
    let unavailable = pods
        .short("ready", "readyReplicas")
        .or_else(|| pods.short("available", "availableReplicas"));
    if let Some(short) = unavailable {
        return failing(object).unwrap_or(short);
    }
    match Condition::of(conditions, "Available") {
        Some(available) if !available.is_true() => Health::Progressing(available.why()),
        _ => Health::Healthy,
    }
}

pub(super) fn stateful_set(object: &Value) -> Health {
    let (spec, status) = (&object["spec"], &object["status"]);
    let pods = Pods::of(object, "replicas");
    let strategy = &spec["updateStrategy"];
    let by_hand = strategy["type"] == "OnDelete";
    let partition = strategy["rollingUpdate"]["partition"].as_i64().unwrap_or(0);
    if !by_hand {
        let part = Pods {
            wanted: (pods.wanted - partition).max(0),
            ..pods
        };
        if let Some(short) = part.short("updated", "updatedReplicas") {
            return short;
        }
    }
    if let Some(short) = pods.short("ready", "readyReplicas").or_else(|| pods.old()) {
        return short;
    }
    let (current, update) = (&status["currentRevision"], &status["updateRevision"]);
    if !by_hand && partition == 0 && current != update {
        return Health::progressing("pods of an older revision are being replaced");
    }
    Health::Healthy
}

pub(super) fn daemon_set(object: &Value) -> Health {
    let status = &object["status"];
    let Some(wanted) = status["desiredNumberScheduled"].as_i64() else {
        return Health::progressing("it is not known yet on how many nodes it is to run");
    };
    let pods = Pods { status, wanted };
    let by_hand = object["spec"]["updateStrategy"]["type"] == "OnDelete";
    let short = pods
        .short("scheduled", "currentNumberScheduled")
        .or_else(|| {
            if by_hand {
                None
            } else {
                pods.short("updated", "updatedNumberScheduled")
            }
        })
        .or_else(|| pods.short("ready", "numberReady"))
        .or_else(|| pods.short("available", "numberAvailable"));
    short.unwrap_or(Health::Healthy)
}

pub(super) fn replica_set(object: &Value) -> Health {
    let pods = Pods::of(object, "replicas");
    let short = pods
        .short("ready", "readyReplicas")
        .or_else(|| pods.short("available", "availableReplicas"))
        .or_else(|| pods.old());
    match short {
        Some(short) => failing(object).unwrap_or(short),
        None => Health::Healthy,
    }
}

/// Says why no Pod can be created, for example because of a quota.
fn failing(object: &Value) -> Option<Health> {
    let failing = Condition::true_of(object, &["ReplicaFailure"])?;
    Some(Health::Progressing(failing.why()))
}

/// The wanted and the actual number of Pods.
#[derive(Clone, Copy)]
struct Pods<'a> {
    status: &'a Value,
    wanted: i64,
}

// === impl Pods ===

impl<'a> Pods<'a> {
    fn of(object: &'a Value, wanted: &str) -> Self {
        Self {
            status: &object["status"],
            wanted: object["spec"][wanted].as_i64().unwrap_or(1),
        }
    }

    /// Reports that fewer Pods exist than wanted.
    fn short(&self, what: &str, key: &str) -> Option<Health> {
        let (count, wanted) = (self.status[key].as_i64().unwrap_or(0), self.wanted);
        (count < wanted).then(|| Health::Progressing(format!("{count} of {wanted} pods are {what}")))
    }

    /// Reports that Pods of an older revision still exist.
    fn old(&self) -> Option<Health> {
        let more = self.status["replicas"].as_i64().unwrap_or(0) - self.wanted;
        (more > 0).then(|| Health::Progressing(format!("{more} old pods are still there")))
    }
}
