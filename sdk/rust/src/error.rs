//! Errors of calls.

pub(crate) mod request;
pub(crate) mod transport;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bindery_proto::address::Address;
use bindery_proto::v1alpha2::ErrorReason;
use bindery_proto::{ERROR_DOMAIN, code_name};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::token::TokenError;
use request::{PendingError, RequestFailed};
use transport::TransportError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server answered with an error, or did not answer before the deadline.
    #[error(transparent)]
    Status(Box<StatusError>),
    /// The server could not be reached, or the connection broke.
    #[error(transparent)]
    Transport(Box<TransportError>),
    /// The token source has no token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The server accepted the request to bind and could not fulfill it; its conditions say why.
    #[error(transparent)]
    RequestFailed(Box<RequestFailed>),
    /// The request to bind is still pending after the client has waited.
    #[error(transparent)]
    Pending(Box<PendingError>),
    /// The server broke the protocol of the API.
    #[error("the server at {address} broke the rules of its API: {fault}")]
    Protocol {
        /// Address of the server.
        address: String,
        /// What the server did.
        fault: String,
    },
}

/// An error response of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusError {
    /// The canonical code.
    pub code: Code,
    /// The reason; `None` if the server gave none, or one that this build does not know.
    pub reason: Option<ErrorReason>,
    /// The text of a reason that this build does not know, from a newer server.
    pub unknown_reason: Option<String>,
    /// Explanation for people.
    pub message: String,
    /// The variable parts of the message, under lowerCamelCase keys.
    pub metadata: BTreeMap<String, String>,
    /// The fields that are wrong.
    pub field_violations: Vec<FieldViolation>,
    /// What must be changed before the call can succeed.
    pub precondition_violations: Vec<PreconditionViolation>,
    /// Delay after which the server asks for a retry.
    pub retry_after: Option<Duration>,
    /// Id of the call in the server's log.
    pub request_id: String,
}

/// A field of a request with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    /// Path of the field, such as `bindable_resources_request.metadata.name`.
    pub field: String,
    /// What is wrong with it.
    pub description: String,
}

/// A precondition of a call that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreconditionViolation {
    /// Kind of the precondition.
    pub kind: String,
    /// The object that it is about.
    pub subject: String,
    /// What is wrong with it.
    pub description: String,
}

impl Error {
    pub(crate) fn protocol(address: &Address, fault: impl Into<String>) -> Self {
        Self::Protocol {
            address: address.to_string(),
            fault: fault.into(),
        }
    }

    /// Makes the error for a deadline that passed on the client; the server may still work on the call.
    pub(crate) fn deadline(address: &Address, waited: Duration, request_id: &str) -> Self {
        Self::Status(Box::new(StatusError {
            code: Code::DeadlineExceeded,
            reason: Some(ErrorReason::Deadline),
            message: format!("no answer from {address} within {:.1} s", waited.as_secs_f64()),
            request_id: request_id.to_owned(),
            ..StatusError::default()
        }))
    }

    /// Makes the error for a request that is too large and was not sent.
    pub(crate) fn too_large(length: usize, limit: usize, request_id: &str) -> Self {
        Self::Status(Box::new(StatusError {
            code: Code::ResourceExhausted,
            reason: Some(ErrorReason::MessageTooLarge),
            message: format!("the request has {length} bytes, more than the {limit} that a server takes"),
            request_id: request_id.to_owned(),
            ..StatusError::default()
        }))
    }

    /// Tells an error response of the server from a failure of the connection.
    pub(crate) fn from_status(status: &Status, address: &Address, request_id: &str) -> Self {
        match TransportError::find(status, address) {
            Some(transport) => Self::Transport(Box::new(transport)),
            None => Self::Status(Box::new(StatusError::parse(status, request_id))),
        }
    }

    /// Returns the canonical code of an error response.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Status(status) => Some(status.code),
            _ => None,
        }
    }

    /// Returns the reason of an error response, if this build knows it.
    pub fn reason(&self) -> Option<ErrorReason> {
        match self {
            Self::Status(status) => status.reason,
            _ => None,
        }
    }

    /// Returns the id of the call in the server's log; `None` if the server may never have got the call.
    pub fn request_id(&self) -> Option<&str> {
        match self {
            Self::Status(status) => Some(&status.request_id),
            _ => None,
        }
    }

    /// Returns the reason for conditions and metrics, in UpperCamelCase or UPPER_SNAKE_CASE, which never changes.
    pub fn reason_str(&self) -> &str {
        match self {
            Self::Status(status) => match status.reason {
                Some(reason) => reason.reason_str(),
                None => code_name(status.code),
            },
            Self::Transport(transport) => transport.fault.reason(),
            Self::Token(token) => token.reason(),
            Self::RequestFailed(failed) => failed.reason(),
            Self::Pending(_) => "RequestPending",
            Self::Protocol { .. } => "ProtocolViolation",
        }
    }
}

impl Default for StatusError {
    fn default() -> Self {
        Self {
            code: Code::Unknown,
            reason: None,
            unknown_reason: None,
            message: String::new(),
            metadata: BTreeMap::new(),
            field_violations: Vec::new(),
            precondition_violations: Vec::new(),
            retry_after: None,
            request_id: String::new(),
        }
    }
}

impl StatusError {
    /// Reads a status with its details. Malformed details are left out.
    fn parse(status: &Status, request_id: &str) -> Self {
        let details = status.get_error_details();
        let info = details.error_info().filter(|info| info.domain == ERROR_DOMAIN);
        let (code, local_reason) = canonical(status);
        let violations = details.bad_request().map_or(&[][..], |bad| &bad.field_violations);
        let preconditions = details
            .precondition_failure()
            .map_or(&[][..], |failure| &failure.violations);
        let sent_id = details
            .request_info()
            .map(|info| info.request_id.as_str())
            .filter(|id| !id.is_empty());
        let header_id = status
            .metadata()
            .get("x-request-id")
            .and_then(|value| value.to_str().ok());
        let known = info.and_then(|info| ErrorReason::from_reason_str(&info.reason));
        Self {
            code,
            reason: known.or(local_reason),
            unknown_reason: info
                .filter(|info| known.is_none() && !info.reason.is_empty())
                .map(|info| printable(&info.reason)),
            message: printable(status.message()),
            metadata: info.map_or_else(BTreeMap::new, |info| {
                info.metadata
                    .iter()
                    .map(|(key, value)| (printable(key), printable(value)))
                    .collect()
            }),
            field_violations: violations
                .iter()
                .map(|violation| FieldViolation {
                    field: printable(&violation.field),
                    description: printable(&violation.description),
                })
                .collect(),
            precondition_violations: preconditions
                .iter()
                .map(|violation| PreconditionViolation {
                    kind: printable(&violation.r#type),
                    subject: printable(&violation.subject),
                    description: printable(&violation.description),
                })
                .collect(),
            retry_after: details.retry_info().and_then(|retry| retry.retry_delay),
            request_id: printable(sent_id.or(header_id).unwrap_or(request_id)),
        }
    }
}

/// Returns the code that the API documents where tonic uses another one: CANCELLED for its timeout, and OUT_OF_RANGE for a message
/// that is too large.
fn canonical(status: &Status) -> (Code, Option<ErrorReason>) {
    match status.code() {
        Code::Cancelled if status.message() == "Timeout expired" => {
            (Code::DeadlineExceeded, Some(ErrorReason::Deadline))
        }
        Code::OutOfRange if status.message().contains("message length too large") => {
            (Code::ResourceExhausted, Some(ErrorReason::MessageTooLarge))
        }
        code => (code, None),
    }
}

/// Replaces control characters in a text of the server, which could rewrite a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|char| if char.is_control() && char != '\n' { ' ' } else { char })
        .collect()
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            write!(f, "the server answered {}", code_name(self.code))?;
        } else {
            f.write_str(&self.message)?;
        }
        for violation in &self.field_violations {
            write!(f, "; {}: {}", violation.field, violation.description)?;
        }
        for violation in &self.precondition_violations {
            write!(f, "; {}: {}", violation.subject, violation.description)?;
        }
        f.write_str(" (")?;
        match self.reason {
            Some(reason) => f.write_str(reason.reason_str())?,
            None => f.write_str(code_name(self.code))?,
        }
        if !self.request_id.is_empty() {
            write!(f, ", request {}", self.request_id)?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for StatusError {}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::ErrorDetails;

    use super::*;

    fn parse(status: &Status) -> StatusError {
        StatusError::parse(status, "sent-1")
    }

    #[test]
    fn details_become_fields() {
        let mut details = ErrorDetails::new();
        details
            .set_error_info(
                "FIELD_INVALID",
                ERROR_DOMAIN,
                HashMap::from([("field".to_owned(), "name".to_owned())]),
            )
            .add_bad_request_violation("metadata.name", "must not be empty")
            .add_precondition_failure_violation("TEMPLATE", "cowboys", "is not ready")
            .set_retry_info(Some(Duration::from_millis(1500)))
            .set_request_info("got-1", "");
        let error = parse(&Status::with_error_details(Code::InvalidArgument, "wrong", details));
        assert_eq!(error.reason, Some(ErrorReason::FieldInvalid));
        assert_eq!(error.metadata["field"], "name");
        assert_eq!(error.field_violations[0].field, "metadata.name");
        assert_eq!(error.precondition_violations[0].subject, "cowboys");
        assert_eq!(error.retry_after, Some(Duration::from_millis(1500)));
        assert_eq!(
            error.to_string(),
            "wrong; metadata.name: must not be empty; cowboys: is not ready (FIELD_INVALID, request got-1)"
        );
    }

    #[test]
    fn reasons_of_others_and_newer_ones_are_no_reason() {
        for (reason, domain, unknown) in [
            ("TOKEN_EXPIRED", "example.com", None),
            ("SOMETHING_NEWER", ERROR_DOMAIN, Some("SOMETHING_NEWER")),
        ] {
            let details = ErrorDetails::with_error_info(reason, domain, HashMap::new());
            let error = parse(&Status::with_error_details(Code::Unauthenticated, "no", details));
            assert_eq!(error.reason, None);
            assert_eq!(error.unknown_reason.as_deref(), unknown);
            assert_eq!(error.to_string(), "no (UNAUTHENTICATED, request sent-1)");
        }
    }

    #[test]
    fn codes_of_the_transport_become_those_of_the_api() {
        let error = parse(&Status::cancelled("Timeout expired"));
        assert_eq!(
            (error.code, error.reason),
            (Code::DeadlineExceeded, Some(ErrorReason::Deadline))
        );
        let error = parse(&Status::out_of_range(
            "Error, decoded message length too large: found 9 bytes",
        ));
        assert_eq!(
            (error.code, error.reason),
            (Code::ResourceExhausted, Some(ErrorReason::MessageTooLarge))
        );
        let error = parse(&Status::cancelled("by the user"));
        assert_eq!((error.code, error.reason), (Code::Cancelled, None));
    }

    #[test]
    fn what_a_server_says_cannot_rewrite_a_terminal() {
        let error = parse(&Status::internal("all \u{1b}[2Jgood"));
        assert_eq!(error.message, "all  [2Jgood");
    }
}
