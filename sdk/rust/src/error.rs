//! What can go wrong with a call, as types.

pub(crate) mod transport;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bindery_proto::address::Address;
use bindery_proto::v1alpha2::ErrorReason;
use bindery_proto::{ERROR_DOMAIN, code_name};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::client::binding::{PendingError, RequestFailed};
use crate::token::TokenError;
use transport::TransportError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server answered with an error, or did not answer before the deadline.
    #[error(transparent)]
    Status(Box<StatusError>),
    /// The server was not reached, or the connection broke.
    #[error(transparent)]
    Transport(Box<TransportError>),
    /// There was no token to send.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The request to bind was taken and failed; its conditions say why.
    #[error(transparent)]
    RequestFailed(Box<RequestFailed>),
    /// The request to bind was taken and is not finished.
    #[error(transparent)]
    Pending(Box<PendingError>),
    /// The server broke the rules of the API.
    #[error("the server at {address} broke the rules of its API: {fault}")]
    Protocol {
        /// Where the server is.
        address: String,
        /// What it did.
        fault: String,
    },
}

/// An error that the server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusError {
    /// The canonical code.
    pub code: Code,
    /// Why. None where the server gave no reason, or one that this build does not know.
    pub reason: Option<ErrorReason>,
    /// In words for people.
    pub message: String,
    /// What varies in the message, under lowerCamelCase keys.
    pub metadata: BTreeMap<String, String>,
    /// The fields that are wrong.
    pub field_violations: Vec<FieldViolation>,
    /// What must be mended before the call can succeed.
    pub precondition_violations: Vec<PreconditionViolation>,
    /// When the server wants to be asked again.
    pub retry_after: Option<Duration>,
    /// Finds the call in the server's log.
    pub request_id: String,
}

/// A field that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    /// Path of the field, such as `bindable_resources_request.metadata.name`.
    pub field: String,
    /// What is wrong with it.
    pub description: String,
}

/// Something that must be mended first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreconditionViolation {
    /// What kind of thing.
    pub kind: String,
    /// Which one.
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

    /// The deadline passed here, whatever the server may still be doing.
    pub(crate) fn deadline(address: &Address, waited: Duration, request_id: &str) -> Self {
        Self::Status(Box::new(StatusError {
            code: Code::DeadlineExceeded,
            reason: Some(ErrorReason::Deadline),
            message: format!("no answer from {address} within {:.1} s", waited.as_secs_f64()),
            request_id: request_id.to_owned(),
            ..StatusError::default()
        }))
    }

    /// The request is larger than any server takes, and was not sent.
    pub(crate) fn too_large(length: usize, limit: usize, request_id: &str) -> Self {
        Self::Status(Box::new(StatusError {
            code: Code::ResourceExhausted,
            reason: Some(ErrorReason::MessageTooLarge),
            message: format!("the request has {length} bytes, more than the {limit} that a server takes"),
            request_id: request_id.to_owned(),
            ..StatusError::default()
        }))
    }

    /// Tells an answer of the server from a failure on the way to it.
    pub(crate) fn from_status(status: &Status, address: &Address, request_id: &str) -> Self {
        match TransportError::find(status, address) {
            Some(transport) => Self::Transport(Box::new(transport)),
            None => Self::Status(Box::new(StatusError::parse(status, request_id))),
        }
    }

    /// The canonical code, where the server answered one.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Status(status) => Some(status.code),
            _ => None,
        }
    }

    /// The reason, where the server gave one that this build knows.
    pub fn reason(&self) -> Option<ErrorReason> {
        match self {
            Self::Status(status) => status.reason,
            _ => None,
        }
    }

    /// Finds the call in the server's log; None where the server may never have seen it.
    pub fn request_id(&self) -> Option<&str> {
        match self {
            Self::Status(status) => Some(&status.request_id),
            _ => None,
        }
    }

    /// A stable UpperCamelCase or UPPER_SNAKE_CASE word, for conditions and metrics.
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
    /// Reads a status with its details. What is malformed in them is left out.
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
        Self {
            code,
            reason: info
                .and_then(|info| ErrorReason::from_reason_str(&info.reason))
                .or(local_reason),
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

/// The code as the API documents it, where tonic on either side gives another: its timeout is CANCELLED, and a message
/// beyond a limit OUT_OF_RANGE.
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

/// Text of the server as it may stand in a terminal: without control characters, which could rewrite what is shown.
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
        for (reason, domain) in [("TOKEN_EXPIRED", "example.com"), ("SOMETHING_NEWER", ERROR_DOMAIN)] {
            let details = ErrorDetails::with_error_info(reason, domain, HashMap::new());
            let error = parse(&Status::with_error_details(Code::Unauthenticated, "no", details));
            assert_eq!(error.reason, None);
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
