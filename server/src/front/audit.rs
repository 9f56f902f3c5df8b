//! What a call leaves behind: a line of the audit log, and an event on the object that it was about, or on the server's Pod.
//!
//! The handler of an audited method notes what the call is about, as soon as it knows; the interceptor records the call when it
//! ends, whether it was answered, given up by its client or broken off by a panic.

use std::{fmt, sync::Arc};

use bindery_api::{names::CLUSTER_BINDING, v1alpha2::ClusterBinding};
use bindery_runtime::{cache::Cache, events::Recorder};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

mod note;

pub(crate) use note::{AuditAction, CallNote, Noted};

use crate::{
    audit::{AuditEntry, AuditLog, Decision},
    front::limits::{Rate, STRANGERS_AUDITED_RATE, UNSUCCESSFUL_AUDITED_RATE},
    settings::Settings,
    state::State,
};

/// A call of an audited method, apart from what its handler noted.
#[derive(Clone, Debug)]
pub(crate) struct AuditedCall {
    pub(crate) action: AuditAction,
    /// Path of the method.
    pub(crate) path: &'static str,
    pub(crate) request_id: String,
    pub(crate) peer: Option<String>,
    /// The error, if the call ended with one.
    pub(crate) error: Option<Status>,
}

/// A call under way that will be recorded: when it is answered, or when this is dropped without that.
#[derive(Debug)]
pub(crate) struct FollowedCall {
    auditor: Auditor,
    call: AuditedCall,
    note: CallNote,
    is_recorded: bool,
}

/// Records calls that ended.
#[derive(Clone)]
pub(crate) struct Auditor {
    log: AuditLog,
    strangers: Arc<Rate<()>>,
    /// Calls of each username that were refused or failed.
    unsuccessful: Arc<Rate<String>>,
    events: Option<CallEvents>,
}

/// Where events of calls are recorded.
#[derive(Clone)]
struct CallEvents {
    recorder: Recorder,
    bindings: Cache<ClusterBinding>,
    /// The server's own Pod, for calls that were about no object that exists.
    pod: ObjectReference,
}

// === impl FollowedCall ===

impl FollowedCall {
    /// Records the call, which was answered, with this error if any.
    pub(crate) fn answered(mut self, error: Option<Status>) {
        self.record(error);
    }

    fn record(&mut self, error: Option<Status>) {
        self.is_recorded = true;
        self.call.error = error;
        self.auditor.record(&self.call, &self.note);
    }
}

impl Drop for FollowedCall {
    /// Records a call whose future was dropped. It may have been carried out, in part or as a whole.
    fn drop(&mut self) {
        if self.is_recorded {
            return;
        }
        let status = if std::thread::panicking() {
            Status::internal("the call panicked")
        } else {
            Status::cancelled("the client gave the call up")
        };
        self.record(Some(status));
    }
}

// === impl Auditor ===

impl Auditor {
    /// Records in the audit log and by the recorder of `state`.
    pub(crate) fn new(state: &State) -> Self {
        let events = CallEvents {
            recorder: state.recorder.clone(),
            bindings: state.caches.cluster_bindings.clone(),
            pod: own_pod(&state.settings),
        };
        Self {
            events: Some(events),
            ..Self::to_log(state.audit.clone())
        }
    }

    /// Records in `log`, and no events.
    pub(crate) fn to_log(log: AuditLog) -> Self {
        Self {
            log,
            strangers: Arc::new(Rate::new(STRANGERS_AUDITED_RATE)),
            unsuccessful: Arc::new(Rate::new(UNSUCCESSFUL_AUDITED_RATE)),
            events: None,
        }
    }

    /// Follows a call until it ends.
    pub(crate) fn follow(&self, call: AuditedCall, note: CallNote) -> FollowedCall {
        FollowedCall {
            auditor: self.clone(),
            call,
            note,
            is_recorded: false,
        }
    }

    /// Records a call. Calls that are not audited have no note.
    fn record(&self, call: &AuditedCall, note: &CallNote) {
        let Some(noted) = &note.0 else {
            return;
        };
        let noted = noted.lock().clone();
        let (decision, reason) = decision(call.error.as_ref(), noted.outcome.as_ref());
        let admitted = match (&noted.principal, decision) {
            (None, _) => self.strangers.check(&()),
            (Some(principal), Decision::Refused | Decision::Failed) => self.unsuccessful.check(&principal.username),
            (Some(_), Decision::Allowed | Decision::Pending) => Ok(()),
        };
        if admitted.is_err() {
            self.log.skip();
            return;
        }
        self.log.record(|| AuditEntry {
            time: Timestamp::now(),
            request_id: call.request_id.clone(),
            principal: noted.principal.clone(),
            claimed_author: String::new(),
            peer: call.peer.clone(),
            method: call.path.trim_start_matches("/kubebind.v1alpha2.").to_owned(),
            contract: noted.contract.clone(),
            template: noted.template.clone(),
            name: noted.name.clone(),
            groups: noted.groups.clone(),
            dry_run: noted.dry_run,
            decision,
            reason: reason.clone(),
        });
        self.tell(call, &noted, decision, &reason);
    }

    /// Records an event, if there is a caller that it can name.
    fn tell(&self, call: &AuditedCall, noted: &Noted, decision: Decision, reason: &str) {
        let (Some(events), Some(principal)) = (&self.events, &noted.principal) else {
            return;
        };
        if !is_event(noted.dry_run, decision) {
            return;
        }
        let recorder = &events.recorder;
        let binding = events.bindings.get(&noted.contract, CLUSTER_BINDING);
        let object = binding
            .map(|binding| binding.object_ref(&()))
            .or_else(|| noted.request.clone())
            .unwrap_or_else(|| events.pod.clone());
        let username = &principal.username;
        match decision {
            Decision::Allowed => {
                let what = call.action.what(noted);
                recorder.normal(&object, call.action.reason(), format!("{username} called to {what}"));
            }
            // The controllers' own conditions say what becomes of it.
            Decision::Pending => {}
            Decision::Refused => recorder.warn(
                &object,
                call.action.refusal(),
                format!("{username} called to {}, and was refused: {reason}", call.action.kind()),
            ),
            Decision::Failed => recorder.warn(
                &object,
                call.action.failure(),
                format!(
                    "{username} called to {}, which ended with {reason} and may have been done in part",
                    call.action.kind()
                ),
            ),
        }
    }
}

impl fmt::Debug for Auditor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auditor")
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}

/// The Pod of this server, in whose namespace the server may write events anyway. Those of a template, which is cluster-scoped,
/// would be in namespace `default`.
fn own_pod(settings: &Settings) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(settings.instance.clone()),
        namespace: Some(settings.namespace.clone()),
        ..ObjectReference::default()
    }
}

/// Whether a call is worth an event. A client that asks first what a bind would do goes no further if that is refused, so that
/// the refusal of a dry run is one.
fn is_event(dry_run: bool, decision: Decision) -> bool {
    !dry_run || decision == Decision::Refused
}

/// What became of a call, and why it was not done.
fn decision(error: Option<&Status>, outcome: Option<&(Decision, String)>) -> (Decision, String) {
    let Some(error) = error else {
        return outcome.cloned().unwrap_or((Decision::Allowed, String::new()));
    };
    let details = error.get_error_details();
    let reason = details.error_info().map(|info| info.reason.clone());
    let reason = reason.unwrap_or_else(|| bindery_proto::code_name(error.code()).to_owned());
    let decision = match error.code() {
        Code::Unauthenticated
        | Code::PermissionDenied
        | Code::NotFound
        | Code::AlreadyExists
        | Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::ResourceExhausted => Decision::Refused,
        _ => Decision::Failed,
    };
    (decision, reason)
}

#[cfg(test)]
mod tests {
    use bindery_proto::v1alpha2::ErrorReason;

    use super::*;
    use crate::front::Failure;

    #[test]
    fn a_call_is_judged_by_its_status() {
        for (reason, expect) in [
            (ErrorReason::TokenExpired, Decision::Refused),
            (ErrorReason::TemplateBindDenied, Decision::Refused),
            (ErrorReason::ExportNotEmpty, Decision::Refused),
            (ErrorReason::RateLimited, Decision::Refused),
            (ErrorReason::Deadline, Decision::Failed),
            (ErrorReason::ApiServerUnreachable, Decision::Failed),
            (ErrorReason::Internal, Decision::Failed),
        ] {
            let status = Status::from(Failure::new(reason, "why"));
            let judged = decision(Some(&status), None);
            assert_eq!(judged, (expect, reason.reason_str().to_owned()));
        }
        let without_reason = Status::new(Code::Unavailable, "x");
        let judged = decision(Some(&without_reason), None);
        assert_eq!(judged, (Decision::Failed, "UNAVAILABLE".to_owned()));
        assert_eq!(decision(None, None), (Decision::Allowed, String::new()));
        let pending = (Decision::Pending, String::new());
        assert_eq!(decision(None, Some(&pending)), pending);
    }

    #[test]
    fn of_dry_runs_only_refusals_are_events() {
        for decision in [
            Decision::Allowed,
            Decision::Pending,
            Decision::Refused,
            Decision::Failed,
        ] {
            assert!(is_event(false, decision), "{decision:?}");
            assert_eq!(is_event(true, decision), decision == Decision::Refused, "{decision:?}");
        }
    }

    #[test]
    fn a_call_that_is_about_no_object_is_an_event_in_the_servers_own_namespace() {
        let pod = own_pod(&crate::settings::tests::settings());
        assert_eq!(pod.namespace.as_deref(), Some("kube-bind"));
        assert_eq!(
            (pod.kind.as_deref(), pod.name.as_deref()),
            (Some("Pod"), Some("bindery-server"))
        );
    }
}
