//! Explains refusals of the API server for one object, and whether a retry may succeed.

use bindery_runtime::errors;
use kube::core::Status;

use crate::object::ObjectRef;

/// Reasons of transient refusals that have no HTTP status code of their own.
const PASSING: [&str; 10] = [
    "Conflict",
    "Expired",
    "AlreadyExists",
    "NotFound",
    "Gone",
    "InternalError",
    "ServerTimeout",
    "Timeout",
    "TooManyRequests",
    "ServiceUnavailable",
];

/// Messages of permanent refusals that the API server answers with the status code of a server failure. It sends neither
/// a reason nor a cause that tells them from others.
const LASTING: [&str; 2] = ["request is too large", "failed to create typed patch object"];

/// The reason why an action failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The message of the API server.
    pub message: String,
    /// Whether a retry may succeed.
    pub transient: bool,
    /// Whether the caller lacks a right.
    pub forbidden: bool,
    /// Whether the API server did not answer.
    pub unreachable: bool,
}

// === impl Problem ===

impl Problem {
    /// Explains a request on an object that was refused or not answered.
    pub fn of(object: &ObjectRef, error: &kube::Error) -> Self {
        let message = match error {
            kube::Error::Api(status) if object.gvk.is_secret() => without_values(status),
            error => errors::explain(error),
        };
        Self {
            message,
            transient: is_transient(error),
            forbidden: errors::is_forbidden(error),
            unreachable: errors::is_unreachable(error),
        }
    }

    /// Makes a permanent problem.
    pub fn lasting(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            transient: false,
            forbidden: false,
            unreachable: false,
        }
    }

    /// Makes a transient problem.
    pub fn passing(message: impl Into<String>) -> Self {
        Self {
            transient: true,
            ..Self::lasting(message)
        }
    }
}

/// Whether the same request may succeed later although nobody changes anything.
pub fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) if LASTING.iter().any(|text| status.message.contains(text)) => false,
        kube::Error::Api(status) => {
            PASSING.contains(&status.reason.as_str())
                || matches!(status.code, 404 | 409 | 410 | 429 | 500..)
                || is_terminating(status)
        }
        error => errors::is_transient(error),
    }
}

/// Whether a create failed because its namespace is being deleted.
pub(crate) fn is_terminating(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "NamespaceTerminating")
}

/// Explains a refusal without its message, because the message may repeat the content of a Secret.
fn without_values(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut fields: Vec<_> = causes
        .map(|cause| cause.field.as_str())
        .filter(|field| !field.is_empty())
        .collect();
    fields.dedup();
    match (status.reason.as_str(), fields.is_empty()) {
        ("NotFound" | "AlreadyExists" | "Conflict" | "Forbidden" | "TooManyRequests", _) if is_of_server(status) => {
            status.message.clone()
        }
        (reason, false) => format!("the API server refuses it ({reason}) because of {}", fields.join(", ")),
        (reason, true) => format!("the API server refuses it: {} {reason}", status.code),
    }
}

/// Whether a message comes from the API server itself. Such messages contain names and existing state, never the
/// request. Policies and webhooks write their own messages, which may repeat the request. No other field of a status tells
/// the two apart.
fn is_of_server(status: &Status) -> bool {
    let message = &status.message;
    let own = [
        "secrets \"",
        "namespaces \"",
        "Operation cannot be fulfilled on secrets \"",
    ];
    let lower = message.to_lowercase();
    own.iter().any(|text| message.starts_with(text))
        && !["admission", "denied", "policy"]
            .iter()
            .any(|text| lower.contains(text))
}

#[cfg(test)]
mod tests {
    use kube::core::response::{StatusCause, StatusDetails};

    use super::*;
    use crate::object::Gvk;

    fn refusal(code: u16, reason: &str, message: &str) -> Status {
        Status::failure(message, reason).with_code(code)
    }

    fn details(cause: StatusCause) -> StatusDetails {
        StatusDetails {
            name: "a".to_owned(),
            causes: vec![cause],
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            retry_after_seconds: 0,
        }
    }

    #[track_caller]
    fn check(code: u16, reason: &str, message: &str, expect: bool) {
        let error = kube::Error::Api(refusal(code, reason, message).boxed());
        assert_eq!(is_transient(&error), expect, "{code} {reason}");
    }

    #[test]
    fn what_passes_is_told_from_what_has_to_be_mended() {
        check(409, "Conflict", "the object has been modified", true);
        check(404, "NotFound", "namespaces \"shop\" not found", true);
        check(404, "", "page not found", true);
        check(503, "", "apiserver is shutting down", true);
        check(429, "TooManyRequests", "", true);
        check(504, "Timeout", "", true);
        check(403, "Forbidden", "may not", false);
        check(422, "Invalid", "field is immutable", false);
        check(500, "", "etcdserver: request is too large", false);
        check(
            500,
            "InternalError",
            "failed to create typed patch object (shop/a; v1, Kind=ConfigMap): .data",
            false,
        );
        check(400, "BadRequest", "", false);
    }

    #[test]
    fn a_namespace_that_is_being_deleted_is_known_by_its_cause() {
        let cause = StatusCause {
            field: "metadata.namespace".to_owned(),
            message: "namespace shop is being terminated".to_owned(),
            reason: "NamespaceTerminating".to_owned(),
        };
        let message = "unable to create new content in namespace shop because it is being terminated";
        let without = refusal(403, "Forbidden", message);
        let with = without.clone().with_details(details(cause));
        assert!(is_transient(&kube::Error::Api(with.boxed())));
        assert!(!is_transient(&kube::Error::Api(without.boxed())));
    }

    #[test]
    fn nothing_that_was_sent_of_a_secret_is_repeated() {
        let cause = StatusCause {
            field: "data[key]".to_owned(),
            message: "Invalid value: \"hunter2\"".to_owned(),
            reason: "FieldValueInvalid".to_owned(),
        };
        let status =
            refusal(422, "Invalid", "Secret \"a\" is invalid: data[key]: \"hunter2\"").with_details(details(cause));
        let error = kube::Error::Api(status.boxed());
        let object = |kind| ObjectRef {
            gvk: Gvk::new("v1", kind),
            namespace: Some("shop".to_owned()),
            name: "a".to_owned(),
        };
        let secret = Problem::of(&object("Secret"), &error);
        assert_eq!(
            secret.message,
            "the API server refuses it (Invalid) because of data[key]"
        );
        assert!(Problem::of(&object("ConfigMap"), &error).message.contains("hunter2"));
    }

    #[test]
    fn what_admission_says_of_a_secret_is_not_repeated() {
        #[track_caller]
        fn check(code: u16, reason: &str, message: &str, expect: &str) {
            let error = kube::Error::Api(refusal(code, reason, message).boxed());
            let object = ObjectRef {
                gvk: Gvk::new("v1", "Secret"),
                namespace: Some("shop".to_owned()),
                name: "a".to_owned(),
            };
            assert_eq!(Problem::of(&object, &error).message, expect);
        }
        let hidden = |code: u16, reason: &str, message: &str| {
            check(
                code,
                reason,
                message,
                &format!("the API server refuses it: {code} {reason}"),
            );
        };
        let own = |code: u16, reason: &str, message: &str| check(code, reason, message, message);
        hidden(
            403,
            "Forbidden",
            "admission webhook \"w\" denied the request: hunter2 is no password",
        );
        hidden(404, "NotFound", "hunter2 is unknown");
        hidden(
            403,
            "Forbidden",
            "secrets \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: hunter2",
        );
        own(
            403,
            "Forbidden",
            "secrets \"a\" is forbidden: User \"u\" cannot patch resource \"secrets\"",
        );
        own(
            403,
            "Forbidden",
            "secrets \"a\" is forbidden: exceeded quota: q, requested: count/secrets=1",
        );
        own(404, "NotFound", "namespaces \"shop\" not found");
        own(
            409,
            "Conflict",
            "Operation cannot be fulfilled on secrets \"a\": the object has been modified",
        );
    }
}
