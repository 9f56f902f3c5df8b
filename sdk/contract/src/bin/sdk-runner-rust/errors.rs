//! Errors of the SDK as JSON.

use bindery_proto::code_name;
use bindery_sdk::Error;
use serde_json::{Value, json};

pub(super) fn to_json(error: &Error) -> Value {
    let mut fields = match error {
        Error::Status(status) => json!({
            "kind": "status",
            "code": code_name(status.code),
            "reason": status.reason.map(|reason| reason.reason_str().to_owned()).or_else(|| status.unknown_reason.clone()),
            "metadata": (!status.metadata.is_empty()).then_some(&status.metadata),
            "fieldViolations": (!status.field_violations.is_empty()).then(|| {
                let violations = status.field_violations.iter();
                violations.map(|it| json!({ "field": it.field, "description": it.description })).collect::<Vec<_>>()
            }),
            "preconditionViolations": (!status.precondition_violations.is_empty()).then(|| {
                let violations = status.precondition_violations.iter();
                let violation = |it: &bindery_sdk::PreconditionViolation| {
                    json!({ "kind": it.kind, "subject": it.subject, "description": it.description })
                };
                violations.map(violation).collect::<Vec<_>>()
            }),
            "retryAfterMs": status.retry_after.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
            "requestId": (!status.request_id.is_empty()).then_some(&status.request_id),
        }),
        Error::Transport(transport) => json!({ "kind": "transport", "fault": format!("{:?}", transport.fault) }),
        Error::Token(token) => json!({ "kind": "token", "reason": token.reason() }),
        Error::RequestFailed(failed) => json!({ "kind": "requestFailed", "reason": failed.reason() }),
        Error::Pending(_) => json!({ "kind": "pending" }),
        Error::Protocol { .. } => json!({ "kind": "protocol" }),
        _ => json!({ "kind": "unknown" }),
    };
    fields["message"] = error.to_string().into();
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    fields
}
