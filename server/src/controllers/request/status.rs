//! The status of a BindableResourcesRequest, and how long a decided one is kept.

use std::time::Duration;

use bindery_api::{
    conditions::READY,
    names,
    v1alpha2::{BindableResourcesRequest, LocalSecretKeyRef, Phase},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

use crate::{
    limits::{LIMIT_REACHED, LimitName, LimitReached},
    request::ready,
    writes::Write,
};

/// The server checks that a response still exists after a quarter of the request's age, and not sooner than this.
const LOOK_FIRST: Duration = Duration::from_secs(5);
/// The server checks that a response still exists at least this often.
const LOOK_MAX: Duration = Duration::from_mins(5);

/// What the status of a request reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    /// The request goes on by itself, once somebody else has acted.
    Pending(Refused),
    /// The request can never be served.
    Failed(Refused),
    Succeeded {
        contract: String,
        /// The Secret with the response; `None` for a call, which returns it.
        secret: Option<LocalSecretKeyRef>,
    },
    /// The request has succeeded; its response was lost and cannot be written again.
    Unanswered(Refused),
}

/// Why a request does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) contract: Option<String>,
    /// The limit that refuses the request, if one does.
    pub(super) limit: Option<LimitName>,
}

/// When a request is deleted by its time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    Undecided,
    Never,
    In(Duration),
    Now,
}

/// When a request is deleted by its `spec.ttlAfterFinished`.
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

/// How soon to check that the response of a request that succeeded still exists.
pub(super) fn look_after(request: &BindableResourcesRequest, now: Timestamp) -> Duration {
    let decided = request
        .status
        .as_ref()
        .and_then(|status| status.completion_time.as_ref());
    let age = decided.and_then(|decided| Duration::try_from(now.duration_since(decided.0)).ok());
    (age.unwrap_or_default() / 4).clamp(LOOK_FIRST, LOOK_MAX)
}

/// Whether a request reports success and an intact response.
pub(super) fn is_ready(request: &BindableResourcesRequest) -> bool {
    ready(request).is_some_and(|ready| ready.status == "True")
}

/// Whether the status of a request reports this outcome already.
pub(super) fn says(request: &BindableResourcesRequest, outcome: &RequestOutcome) -> bool {
    let Some(status) = &request.status else {
        return false;
    };
    let (condition_status, reason, message) = words(outcome);
    status.phase == outcome.phase()
        && status.namespace.as_deref() == contract(request, outcome)
        && status.kubeconfig_secret_ref.as_ref() == outcome.secret()
        && ready(request).is_some_and(|condition| {
            condition.status == condition_status && condition.reason == reason && condition.message == message
        })
}

/// Reports an outcome in the status of a request; `None` if it is reported already.
pub(super) fn report(request: &BindableResourcesRequest, outcome: &RequestOutcome, now: Timestamp) -> Option<Write> {
    let is_new = !says(request, outcome);
    is_new.then(|| {
        Write::status(
            "the state of the request changed",
            request,
            &status(request, outcome, now),
        )
    })
}

/// The whole status, as a merge patch has it.
pub(super) fn status(request: &BindableResourcesRequest, outcome: &RequestOutcome, now: Timestamp) -> Value {
    let (status, reason, message) = words(outcome);
    let before = ready(request).filter(|condition| condition.status == status);
    let since = before.map(|condition| condition.last_transition_time.clone());
    let ready = Condition {
        type_: READY.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: since.unwrap_or(Time(now)),
        observed_generation: request.metadata.generation,
    };
    let phase = outcome.phase();
    // A request is decided once; the time stays when its response is lost later.
    let before = request.status.as_ref().filter(|before| before.phase == phase);
    let decided = before.and_then(|before| before.completion_time.clone());
    let decided = (phase != Phase::Pending).then(|| decided.unwrap_or(Time(now)));
    json!({
        "phase": phase,
        "namespace": contract(request, outcome),
        "kubeconfigSecretRef": outcome.secret(),
        "completionTime": decided,
        "conditions": [ready],
    })
}

/// The contract that the status names. A request that has succeeded keeps it, also when its response is lost.
fn contract<'a>(request: &'a BindableResourcesRequest, outcome: &'a RequestOutcome) -> Option<&'a str> {
    let before = request
        .status
        .as_ref()
        .filter(|_| matches!(outcome, RequestOutcome::Unanswered(_)));
    outcome.contract().or_else(|| before?.namespace.as_deref())
}

fn words(outcome: &RequestOutcome) -> (&'static str, &str, String) {
    match outcome {
        RequestOutcome::Succeeded { secret: None, .. } => {
            ("True", "ExportReady", "the export is ready to be used".to_owned())
        }
        RequestOutcome::Succeeded {
            secret: Some(secret), ..
        } => (
            "True",
            "SecretReady",
            format!(
                "the export is ready to be used: Secret {} holds the kubeconfig under {} and the response under {}",
                secret.name,
                secret.key,
                names::BINDING_RESPONSE_KEY
            ),
        ),
        RequestOutcome::Pending(refused) | RequestOutcome::Failed(refused) | RequestOutcome::Unanswered(refused) => {
            ("False", &refused.reason, refused.message.clone())
        }
    }
}

impl RequestOutcome {
    pub(super) fn phase(&self) -> Phase {
        match self {
            Self::Pending(_) => Phase::Pending,
            Self::Failed(_) => Phase::Failed,
            Self::Succeeded { .. } | Self::Unanswered(_) => Phase::Succeeded,
        }
    }

    pub(super) fn contract(&self) -> Option<&str> {
        match self {
            Self::Pending(refused) | Self::Failed(refused) | Self::Unanswered(refused) => refused.contract.as_deref(),
            Self::Succeeded { contract, .. } => Some(contract),
        }
    }

    /// The limit that refuses the request, if one does.
    pub(super) fn limit(&self) -> Option<LimitName> {
        match self {
            Self::Pending(refused) | Self::Failed(refused) | Self::Unanswered(refused) => refused.limit,
            Self::Succeeded { .. } => None,
        }
    }

    pub(super) fn secret(&self) -> Option<&LocalSecretKeyRef> {
        match self {
            Self::Succeeded { secret, .. } => secret.as_ref(),
            Self::Pending(_) | Self::Failed(_) | Self::Unanswered(_) => None,
        }
    }

    /// The same outcome for a request that has succeeded before: it stays succeeded, without a response.
    pub(super) fn once_succeeded(self) -> Self {
        match self {
            Self::Pending(refused) | Self::Failed(refused) => Self::Unanswered(refused),
            other => other,
        }
    }
}

impl Refused {
    /// A refusal before any contract is known.
    pub(super) fn new(reason: &str, message: &(impl ToString + ?Sized)) -> Self {
        Self {
            reason: reason.to_owned(),
            message: message.to_string(),
            contract: None,
            limit: None,
        }
    }

    /// A refusal by a limit.
    pub(super) fn by_limit(reached: &LimitReached) -> Self {
        Self {
            limit: Some(reached.name),
            ..Self::new(LIMIT_REACHED, reached)
        }
    }

    /// The same refusal, about this contract.
    pub(super) fn within(self, contract: &str) -> Self {
        Self {
            contract: Some(contract.to_owned()),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{BindableResourcesRequestSpec, BindableResourcesRequestStatus, LocalSecretKeyRef};

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

    #[track_caller]
    fn check_look(decided: Option<i64>, expect: u64) {
        let mut request = BindableResourcesRequest::new("a", BindableResourcesRequestSpec::default());
        request.status = Some(BindableResourcesRequestStatus {
            phase: Phase::Succeeded,
            completion_time: decided.map(|decided| Time(at(decided))),
            ..BindableResourcesRequestStatus::default()
        });
        assert_eq!(look_after(&request, at(10_000)), Duration::from_secs(expect));
    }

    #[test]
    fn a_response_is_looked_for_ever_more_seldom() {
        check_look(None, 5);
        // A clock that is behind.
        check_look(Some(20_000), 5);
        check_look(Some(10_000), 5);
        check_look(Some(9_900), 25);
        check_look(Some(0), 300);
    }

    #[test]
    fn a_request_is_decided_once() {
        let mut request = BindableResourcesRequest::new("a", BindableResourcesRequestSpec::default());
        let secret = LocalSecretKeyRef {
            name: "response".to_owned(),
            key: "kubeconfig".to_owned(),
        };
        let succeeded = RequestOutcome::Succeeded {
            contract: "kube-bind-a".to_owned(),
            secret: Some(secret.clone()),
        };
        let mut say = |outcome: &RequestOutcome, second| {
            assert!(!says(&request, outcome));
            request.status = serde_json::from_value(status(&request, outcome, at(second))).unwrap();
            assert!(says(&request, outcome));
            (request.status.clone().unwrap(), is_ready(&request))
        };
        let (written, ready) = say(&succeeded, 100);
        assert_eq!((written.kubeconfig_secret_ref, ready), (Some(secret), true));
        let refused = Refused::new("ForeignSecret", "mine");
        let (lost, ready) = say(&RequestOutcome::Unanswered(refused), 200);
        assert_eq!((lost.phase, ready), (Phase::Succeeded, false));
        assert_eq!(lost.completion_time, Some(Time(at(100))));
        assert_eq!(lost.namespace.as_deref(), Some("kube-bind-a"));
        assert_eq!(
            (lost.kubeconfig_secret_ref, &*lost.conditions[0].reason),
            (None, "ForeignSecret")
        );
    }
}
