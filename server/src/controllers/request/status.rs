//! The status of a request, and how long a decided one is kept.

use std::time::Duration;

use bindery_api::v1alpha2::{BindableResourcesRequest, Phase};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

use super::plan::Outcome;

/// The one condition of a request.
const READY: &str = "Ready";

/// When a request goes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    Undecided,
    Never,
    In(Duration),
    Now,
}

pub(super) fn expiry(request: &BindableResourcesRequest, now: Timestamp) -> Expiry {
    let Some(status) = request.status.as_ref().filter(|status| status.phase != Phase::Pending) else {
        return Expiry::Undecided;
    };
    let kept = request
        .spec
        .ttl_after_finished
        .as_ref()
        .and_then(|kept| kept.parse().ok());
    let (Some(kept), Some(decided)) = (kept, &status.completion_time) else {
        return Expiry::Never;
    };
    let Ok(end) = decided.0.checked_add(kept) else {
        return Expiry::Never;
    };
    match Duration::try_from(end.duration_since(now)) {
        Ok(left) if !left.is_zero() => Expiry::In(left),
        _ => Expiry::Now,
    }
}

/// Whether a request says this already.
pub(super) fn says(request: &BindableResourcesRequest, outcome: &Outcome) -> bool {
    let Some(status) = &request.status else {
        return false;
    };
    let (condition_status, reason, message) = words(outcome);
    status.phase == outcome.phase()
        && status.conditions.iter().any(|condition| {
            condition.type_ == READY
                && condition.status == condition_status
                && condition.reason == reason
                && condition.message == message
        })
}

/// The whole status, as a merge patch has it.
pub(super) fn status(request: &BindableResourcesRequest, outcome: &Outcome, now: Timestamp) -> Value {
    let (status, reason, message) = words(outcome);
    let before = request.status.iter().flat_map(|status| &status.conditions);
    let since = before
        .filter(|condition| condition.type_ == READY && condition.status == status)
        .map(|condition| condition.last_transition_time.clone())
        .next();
    let ready = Condition {
        type_: READY.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: since.unwrap_or(Time(now)),
        observed_generation: request.metadata.generation,
    };
    let phase = outcome.phase();
    let decided = (phase != Phase::Pending).then_some(Time(now));
    json!({
        "phase": phase,
        "namespace": outcome.contract(),
        "completionTime": decided,
        "conditions": [ready],
    })
}

fn words(outcome: &Outcome) -> (&'static str, &str, String) {
    match outcome {
        Outcome::Succeeded { .. } => ("True", "ExportReady", "the export is ready to be used".to_owned()),
        Outcome::Pending(refused) | Outcome::Failed(refused) => ("False", &refused.reason, refused.message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{BindableResourcesRequestSpec, BindableResourcesRequestStatus};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[track_caller]
    fn check(phase: Phase, kept: Option<u64>, decided: Option<i64>, expect: Expiry) {
        let spec = BindableResourcesRequestSpec {
            ttl_after_finished: kept.map(|kept| Duration::from_secs(kept).into()),
            ..BindableResourcesRequestSpec::default()
        };
        let mut request = BindableResourcesRequest::new("a", spec);
        request.status = Some(BindableResourcesRequestStatus {
            phase,
            completion_time: decided.map(|decided| Time(at(decided))),
            ..BindableResourcesRequestStatus::default()
        });
        assert_eq!(expiry(&request, at(100)), expect);
    }

    #[test]
    fn a_decided_request_is_kept_for_as_long_as_it_says() {
        check(Phase::Pending, Some(1), Some(0), Expiry::Undecided);
        check(Phase::Succeeded, None, Some(0), Expiry::Never);
        check(Phase::Succeeded, Some(10), None, Expiry::Never);
        check(Phase::Succeeded, Some(10), Some(95), Expiry::In(Duration::from_secs(5)));
        check(Phase::Failed, Some(10), Some(90), Expiry::Now);
        check(Phase::Failed, Some(10), Some(1), Expiry::Now);
    }
}
