//! Reads conditions in the status of an object.

use serde_json::Value;

use super::Health;

/// One condition of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition<'a> {
    kind: &'a str,
    content: &'a Value,
}

// === impl Condition ===

impl<'a> Condition<'a> {
    /// Returns the condition of a type.
    pub(super) fn of(conditions: &'a Value, kind: &'a str) -> Option<Self> {
        let content = conditions
            .as_array()?
            .iter()
            .find(|condition| condition["type"] == kind)?;
        Some(Self { kind, content })
    }

    /// Returns the first of these condition types that is true.
    pub(super) fn true_of(object: &'a Value, kinds: &[&'a str]) -> Option<Self> {
        let conditions = &object["status"]["conditions"];
        let mut there = kinds.iter().filter_map(|kind| Self::of(conditions, kind));
        there.find(Self::is_true)
    }

    pub(super) fn is_true(&self) -> bool {
        self.content["status"] == "True"
    }

    pub(super) fn is_false(&self) -> bool {
        self.content["status"] == "False"
    }

    pub(super) fn has_reason(&self, reason: &str) -> bool {
        self.content["reason"] == reason
    }

    /// Returns the message of the condition, else its reason.
    pub(super) fn why(&self) -> String {
        let text = |key: &str| self.content[key].as_str().filter(|text| !text.is_empty());
        match (text("reason"), text("message")) {
            (Some(reason), Some(message)) => format!("{reason}: {message}"),
            (Some(text), None) | (None, Some(text)) => text.to_owned(),
            (None, None) => format!("condition {} is {}", self.kind, text("status").unwrap_or("unknown")),
        }
    }

    /// Whether the condition is about an older generation of its object.
    fn is_behind(&self, object: &Value) -> bool {
        let observed = self.content["observedGeneration"].as_i64();
        let generation = object["metadata"]["generation"].as_i64();
        observed
            .zip(generation)
            .is_some_and(|(observed, generation)| observed < generation)
    }
}

/// Judges an object of an unknown kind by its conditions alone.
pub(super) fn general(object: &Value) -> Health {
    let conditions = &object["status"]["conditions"];
    let current = |kind| Condition::of(conditions, kind).filter(|condition| !condition.is_behind(object));
    if let Some(failed) = ["Stalled", "Failed"]
        .into_iter()
        .filter_map(current)
        .find(Condition::is_true)
    {
        return Health::Failed(failed.why());
    }
    if let Some(reconciling) = current("Reconciling").filter(Condition::is_true) {
        return Health::Progressing(reconciling.why());
    }
    let arrived = ["Ready", "Available", "Established"];
    for condition in arrived.iter().filter_map(|kind| Condition::of(conditions, kind)) {
        if condition.is_behind(object) {
            let kind = condition.kind;
            return Health::Progressing(format!("condition {kind} speaks of an older generation"));
        }
        if !condition.is_true() {
            return Health::Progressing(condition.why());
        }
    }
    Health::Healthy
}
