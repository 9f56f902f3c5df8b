//! Failures of calls, and the one place where they become statuses: a code, exactly one ErrorInfo, and the details that belong to
//! its reason.
//!
//! A status says what the server could not do. The cause goes to the log only, for it may name objects of others.

use std::{collections::HashMap, fmt, time::Duration};

use bindery_proto::{ERROR_DOMAIN, v1alpha2::ErrorReason};
use bindery_runtime::errors;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, PreconditionViolation, StatusExt as _};

use crate::{limits::LimitReached, writes::WriteError};

/// When the client may retry, if nothing better is known.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Keys of the metadata that name the subject of a failed precondition, the most specific first.
const SUBJECTS: [&str; 4] = ["export", "template", "object", "contract"];

/// Longer messages are cut, for a status travels in headers, of which many clients take 16 KiB.
const MESSAGE_BYTES_MAX: usize = 2_048;
/// No more wrong fields are named at once, for the same reason.
const VIOLATIONS_MAX: usize = 20;

/// Result of a call.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// Why a call fails. It becomes a [`Status`] when the call is answered.
pub(crate) struct Failure(Box<FailureParts>);

struct FailureParts {
    reason: ErrorReason,
    message: String,
    metadata: HashMap<String, String>,
    violations: Vec<FieldViolation>,
    retry_after: Option<Duration>,
}

impl Failure {
    /// A failure for a reason, with a message that names the object and the mend.
    pub(crate) fn new(reason: ErrorReason, message: impl Into<String>) -> Self {
        let retry_after = match reason.code() {
            Code::Unavailable => Some(RETRY_AFTER),
            _ if matches!(reason, ErrorReason::RateLimited | ErrorReason::StreamLimit) => Some(RETRY_AFTER),
            _ => None,
        };
        Self(Box::new(FailureParts {
            reason,
            message: fit(message.into()),
            metadata: HashMap::new(),
            violations: Vec::new(),
            retry_after,
        }))
    }

    /// A failure that names all wrong fields of a request.
    pub(crate) fn invalid(mut violations: Vec<FieldViolation>) -> Self {
        violations.truncate(VIOLATIONS_MAX);
        let fields: Vec<_> = violations
            .iter()
            .map(|violation| format!("{}: {}", violation.field, violation.description))
            .collect();
        let mut failure = Self::new(ErrorReason::FieldInvalid, fields.join("; "));
        failure.0.violations = violations;
        failure
    }

    /// A failure of the server itself. The log gets `cause`, the client gets the request id to find it by.
    pub(crate) fn internal(cause: impl fmt::Display) -> Self {
        tracing::error!(%cause, "internal error");
        Self::new(
            ErrorReason::Internal,
            "the server failed; the provider finds the cause in its log under the request id",
        )
    }

    /// The failure of a call because the API server refused a request or did not answer. `doing` completes "cannot …".
    pub(crate) fn of_kube(doing: &str, error: &kube::Error) -> Self {
        let cause = errors::explain(error);
        if errors::is_transient(error) {
            tracing::warn!(doing, %cause, "the API server does not answer");
            return Self::unanswered(doing);
        }
        if errors::is_forbidden(error) {
            tracing::error!(doing, %cause, "the server lacks a right");
            return Self::new(
                ErrorReason::ServerLacksRights,
                format!(
                    "the server lacks a right that it needs to {doing}; its log names the rule for the provider's admin"
                ),
            )
            .with("operation", doing);
        }
        if errors::is_conflict(error) {
            return Self::new(
                ErrorReason::ObjectChanged,
                format!("cannot {doing}: the object changed meanwhile; read it again"),
            );
        }
        Self::internal(format_args!("cannot {doing}: {cause}"))
    }

    /// The failure of a call because the API server did not answer in time. `doing` completes "cannot …".
    pub(crate) fn unanswered(doing: &str) -> Self {
        Self::new(
            ErrorReason::ApiServerUnreachable,
            format!("cannot {doing}: the provider's API server does not answer; try again"),
        )
    }

    /// The failure of a call that was not answered before its deadline.
    pub(crate) fn deadline() -> Self {
        Self::new(ErrorReason::Deadline, "the call's deadline passed")
    }

    /// Adds a value of the message to the metadata of the ErrorInfo, under a lowerCamelCase key.
    #[must_use]
    pub(crate) fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.0.metadata.insert(key.to_owned(), value.into());
        self
    }

    /// Replaces the message.
    #[must_use]
    pub(crate) fn saying(mut self, message: impl Into<String>) -> Self {
        self.0.message = fit(message.into());
        self
    }

    /// The failure of a call because a contract or a principal has as much of something as it may.
    pub(crate) fn of_limit(reached: &LimitReached) -> Self {
        Self::new(ErrorReason::LimitReached, reached.to_string())
            .with("limit", reached.name.as_str())
            .with("max", reached.limit.to_string())
    }

    /// Sets the time after which the client may retry.
    #[must_use]
    pub(crate) fn retry_after(mut self, delay: Duration) -> Self {
        self.0.retry_after = Some(delay);
        self
    }

    /// The reason, which clients can rely on.
    pub(crate) fn reason(&self) -> ErrorReason {
        self.0.reason
    }

    /// The message for people.
    #[cfg(test)]
    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// The failure of a call because an object was not written. `doing` completes "cannot …".
    pub(crate) fn of_write(doing: &str, error: &WriteError) -> Self {
        match error {
            WriteError::Api(error) => Self::of_kube(doing, error),
            WriteError::Unasked(error) => Self::of_kube(doing, error),
            WriteError::Foreign { kind, name } => {
                let message =
                    format!("cannot {doing}: {kind} {name} is in the way; the provider's admin renames or removes it");
                Self::new(ErrorReason::PlacementConflict, message).with("object", name)
            }
        }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.reason.reason_str(), self.0.message)
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let inner = *failure.0;
        let reason = inner.reason.reason_str();
        let code = inner.reason.code();
        let mut details = ErrorDetails::new();
        if code == Code::FailedPrecondition {
            let subject = SUBJECTS
                .iter()
                .find_map(|key| inner.metadata.get(*key))
                .cloned()
                .unwrap_or_default();
            let violation = PreconditionViolation::new(reason, subject, first_line(&inner.message));
            details.set_precondition_failure(vec![violation]);
        }
        if !inner.violations.is_empty() {
            details.set_bad_request(inner.violations);
        }
        if inner.retry_after.is_some() {
            details.set_retry_info(inner.retry_after);
        }
        details.set_error_info(reason, ERROR_DOMAIN, inner.metadata);
        Self::with_error_details(code, inner.message, details)
    }
}

/// The message, cut if it is too long.
fn fit(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        message.push('…');
    }
    message
}

fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default()
}

/// Completes the status of a response: adds the id of the request, and gives a reason to a status that tonic made.
pub(crate) fn complete(status: &Status, request_id: &str) -> Status {
    let mut details = status.get_error_details();
    if details.error_info().is_some() {
        details.set_request_info(request_id, "");
        return Status::with_error_details(status.code(), status.message(), details);
    }
    // tonic decodes requests, and answers those that it cannot decode.
    let failure = match status.code() {
        Code::OutOfRange | Code::ResourceExhausted => Failure::new(
            ErrorReason::MessageTooLarge,
            "the request is larger than the server takes; see GetProvider",
        ),
        Code::Unimplemented => Failure::new(ErrorReason::FeatureOff, status.message().to_owned()),
        Code::Internal | Code::InvalidArgument => Failure::invalid(vec![FieldViolation::new(
            "",
            "the request cannot be decoded as the message that this method takes",
        )]),
        Code::Cancelled | Code::DeadlineExceeded => Failure::deadline(),
        // The client went, or cut the request off. That is no failure of the server, and nothing that strangers may fill its log with.
        Code::Unknown => Failure::invalid(vec![FieldViolation::new(
            "",
            "the request ended before all of it was there",
        )]),
        _ => Failure::internal(status.message()),
    };
    complete(&failure.into(), request_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_becomes_a_status_with_one_error_info() {
        for reason in ErrorReason::all() {
            let status = Status::from(Failure::new(reason, "why").with("name", "cowboys"));
            assert_eq!(status.code(), reason.code());
            let details = status.get_error_details();
            let info = details.error_info().expect("an ErrorInfo");
            assert_eq!(
                (info.reason.as_str(), info.domain.as_str()),
                (reason.reason_str(), "kube-bind.io")
            );
            assert_eq!(info.metadata["name"], "cowboys");
            assert_eq!(
                details.retry_info().is_some(),
                reason.code() == Code::Unavailable
                    || matches!(reason, ErrorReason::RateLimited | ErrorReason::StreamLimit)
            );
            assert_eq!(
                details.precondition_failure().is_some(),
                reason.code() == Code::FailedPrecondition
            );
        }
    }

    #[test]
    fn wrong_fields_are_named_one_by_one() {
        let failure = Failure::invalid(vec![
            FieldViolation::new("name", "is empty"),
            FieldViolation::new("uid", "is empty"),
        ]);
        let details = Status::from(failure).get_error_details();
        let fields: Vec<_> = details
            .bad_request()
            .expect("a BadRequest")
            .field_violations
            .iter()
            .map(|v| v.field.as_str())
            .collect();
        assert_eq!(fields, ["name", "uid"]);
    }

    #[test]
    fn a_status_fits_into_headers() {
        let fields =
            (0..1_000).map(|number| FieldViolation::new(format!("names[{number}]"), "must be a DNS label".repeat(5)));
        for failure in [
            Failure::invalid(fields.collect()),
            Failure::new(ErrorReason::ServerLacksRights, "é\n".repeat(100_000)),
        ] {
            let mut headers = http::HeaderMap::new();
            Status::from(failure).add_header(&mut headers).expect("headers");
            let bytes: usize = headers.values().map(http::HeaderValue::len).sum();
            assert!(bytes < 15 * 1024, "{bytes}");
        }
    }

    #[track_caller]
    fn check_kube(code: u16, reason: &str, expect: ErrorReason) {
        let mut status = kube::core::Status::failure("secret detail of the cluster", reason);
        status.code = code;
        let failure = Failure::of_kube("read the template", &kube::Error::Api(status.boxed()));
        assert_eq!(failure.reason(), expect);
        assert!(!failure.message().contains("secret detail"), "{failure:?}");
    }

    #[test]
    fn refusals_of_the_api_server_are_told_without_their_cause() {
        check_kube(403, "Forbidden", ErrorReason::ServerLacksRights);
        check_kube(409, "Conflict", ErrorReason::ObjectChanged);
        check_kube(429, "TooManyRequests", ErrorReason::ApiServerUnreachable);
        check_kube(503, "ServiceUnavailable", ErrorReason::ApiServerUnreachable);
        check_kube(422, "Invalid", ErrorReason::Internal);
    }

    #[test]
    fn a_status_of_tonic_gets_a_reason_and_the_request_id() {
        for (code, expect) in [
            (Code::OutOfRange, "MESSAGE_TOO_LARGE"),
            (Code::Internal, "FIELD_INVALID"),
            (Code::Unimplemented, "FEATURE_OFF"),
            (Code::Cancelled, "DEADLINE"),
            (Code::Unknown, "FIELD_INVALID"),
            (Code::DataLoss, "INTERNAL"),
        ] {
            let details = complete(&Status::new(code, "x"), "id-1").get_error_details();
            assert_eq!(details.error_info().expect("an ErrorInfo").reason, expect);
            assert_eq!(details.request_info().expect("a RequestInfo").request_id, "id-1");
        }
    }
}
