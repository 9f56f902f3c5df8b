//! What a scripted server does, as the files of `cases/` say it.

use std::collections::BTreeMap;
use std::time::Duration;

use bindery_proto::ERROR_DOMAIN;
use serde::Deserialize;
use serde_json::Value;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// What the server of one case does.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServerScript {
    /// How the server secures connections.
    pub tls: Tls,
    /// What stands before the server, if anything does.
    pub proxy: Option<Proxy>,
    /// No program listens at the address.
    pub absent: bool,
    /// What happens to connections, in their order, before HTTP/2 begins. Connections after the last one are served.
    pub connections: Vec<Opening>,
    /// How many streams a connection may have at a time; without a limit by default.
    pub streams: Option<u32>,
    /// The answers to calls, in the order in which they arrive, on all connections together.
    pub answers: Vec<Answer>,
    /// Answers to calls with a certain header or page token, each time; they go before `answers`.
    pub matching: Vec<Match>,
    /// The answer to calls beyond `answers`, each time; by default INTERNAL.
    pub otherwise: Option<Answer>,
}

/// The answer to calls of one kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Match {
    /// The name of the header.
    pub header: String,
    /// The value of the header.
    pub value: String,
    /// The field `page_token` of the request, if there is no header.
    pub page: String,
    /// The answer.
    pub answer: Answer,
}

/// The answer to one call: what happens, in order. If no step ends it, it ends with OK.
pub type Answer = Vec<Step>;

/// How a server secures connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Tls {
    /// Not at all, and the client dials `http://`.
    #[default]
    Plaintext,
    /// Not at all, though the client dials `https://`.
    Missing,
    /// By a certificate for 127.0.0.1 of the CA that the client trusts.
    Trusted,
    /// By a certificate of a CA that the client does not trust.
    Untrusted,
    /// By a certificate for bind.example.com of the CA that the client trusts.
    OtherName,
    /// By a certificate that expired in the year 2001.
    Expired,
    /// By a certificate that is good from the year 2900 on.
    NotYetValid,
    /// By a good certificate, and it wants one of the client.
    ClientCertificate,
    /// By a good certificate, but it speaks HTTP/1.1 alone.
    NoHttp2,
}

/// A proxy, which speaks HTTP/1.1 and HTTP/2 as far as TLS allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Proxy {
    /// It passes gRPC and gRPC-Web on.
    Web,
    /// It passes gRPC-Web on, and answers gRPC with this HTTP status and a page.
    Refuses(u16),
    /// It answers all calls with this HTTP status and a page.
    Page(u16),
}

/// What happens to a connection before HTTP/2 begins.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Opening {
    /// It is served.
    Serve,
    /// It is closed at once.
    Close,
    /// Nothing is ever sent.
    Silence,
    /// This text is sent, and then the connection is closed.
    Text(String),
}

/// One thing that happens within an answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Sends the headers of the response now, with these in addition or in place; `:status` is the HTTP status.
    Headers(BTreeMap<String, String>),
    /// Sends a message, given as proto JSON of the method's response.
    Message(Value),
    /// Sends a GetExportResponse with a name of this length.
    Large(usize),
    /// Sends these bytes, in hexadecimal digits.
    Raw(String),
    /// Ends the call with a status, in trailers.
    Status(StatusStep),
    /// Ends the call with these trailers.
    Trailers(BTreeMap<String, String>),
    /// Ends the call without trailers.
    End,
    /// Resets the stream with this HTTP/2 error code.
    Reset(u32),
    /// Waits for this many milliseconds, or until the client resets the stream.
    Sleep(u64),
    /// Waits until the client resets the stream.
    Stall,
    /// Tells the client to use another connection for new calls, and serves this one to its end.
    GoAway,
    /// Closes the connection.
    Break,
    /// Closes all connections, and listens again after this many milliseconds.
    Restart(u64),
    /// Replaces the content of the client's token file.
    WriteToken(String),
}

/// A status with details.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StatusStep {
    code: String,
    message: String,
    /// `ErrorInfo.reason`.
    reason: Option<String>,
    /// `ErrorInfo.domain`, if it is not that of the API.
    domain: Option<String>,
    metadata: BTreeMap<String, String>,
    /// Pairs of field and description.
    fields: Vec<(String, String)>,
    /// Kind, subject and description of each.
    preconditions: Vec<(String, String, String)>,
    retry_after_ms: Option<u64>,
    request_id: Option<String>,
}

impl StatusStep {
    /// A status with this code and reason.
    pub(crate) fn of_reason(code: &str, reason: &str) -> Self {
        Self {
            code: code.to_owned(),
            reason: Some(reason.to_owned()),
            ..Self::default()
        }
    }

    /// The status on the wire.
    pub(crate) fn status(&self) -> Status {
        let mut details = ErrorDetails::new();
        let has_details = self.reason.is_some()
            || self.retry_after_ms.is_some()
            || self.request_id.is_some()
            || !self.fields.is_empty()
            || !self.preconditions.is_empty();
        if let Some(reason) = &self.reason {
            let domain = self.domain.as_deref().unwrap_or(ERROR_DOMAIN);
            details.set_error_info(
                reason,
                domain,
                self.metadata
                    .clone()
                    .into_iter()
                    .collect::<std::collections::HashMap<_, _>>(),
            );
        }
        for (field, description) in &self.fields {
            details.add_bad_request_violation(field, description);
        }
        for (kind, subject, description) in &self.preconditions {
            details.add_precondition_failure_violation(kind, subject, description);
        }
        if let Some(delay) = self.retry_after_ms {
            details.set_retry_info(Some(Duration::from_millis(delay)));
        }
        if let Some(id) = &self.request_id {
            details.set_request_info(id, "");
        }
        let code = code(&self.code);
        if has_details {
            Status::with_error_details(code, &self.message, details)
        } else {
            Status::new(code, &self.message)
        }
    }
}

/// The code of this name; UNKNOWN for another text.
pub(crate) fn code(name: &str) -> Code {
    let mut codes = (0..=16).map(Code::from_i32);
    codes
        .find(|code| bindery_proto::code_name(*code) == name)
        .unwrap_or(Code::Unknown)
}
