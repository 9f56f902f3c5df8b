//! What an issuer's refusals mean.

use openidconnect::{
    ClaimsVerificationError, ErrorResponse, RequestTokenError, StandardErrorResponse, core::CoreErrorResponseType,
};
use serde_json::Value;

use super::redacted;
use crate::login::{error::LoginError, http::HttpError};

/// The error for a failed request to an endpoint of tokens. `secrets` are what the request held.
pub(crate) fn of_token_request<E: ErrorResponse + std::fmt::Display>(
    issuer: &str,
    error: &RequestTokenError<HttpError, E>,
    secrets: &[&str],
) -> LoginError {
    let issuer = issuer.to_owned();
    match error {
        RequestTokenError::Request(source) => LoginError::Http {
            issuer,
            source: source.clone(),
        },
        RequestTokenError::ServerResponse(refused) => LoginError::Refused {
            issuer,
            answer: redacted(&refused.to_string(), secrets),
        },
        // The parser's own message could quote a token.
        RequestTokenError::Parse(error, body) => LoginError::Answer {
            issuer,
            fault: match error.path().to_string().as_str() {
                "." | "?" if has_id_token(body) => "its ID token is none, or lacks a claim that each has".to_owned(),
                "." | "?" => "it is no JSON of a token answer".to_owned(),
                path => format!("field {path} is missing or not valid"),
            },
        },
        RequestTokenError::Other(fault) => LoginError::Answer {
            issuer,
            fault: redacted(fault, secrets),
        },
    }
}

/// Whether an answer has what should be an ID token.
fn has_id_token(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|answer| answer["id_token"].is_string())
}

/// Whether a grant, such as a refresh token, is not valid any more.
pub(super) fn is_invalid_grant(refused: &StandardErrorResponse<CoreErrorResponseType>) -> bool {
    *refused.error() == CoreErrorResponseType::InvalidGrant
}

/// Why an ID token is refused.
pub(super) fn id_token_fault(error: &ClaimsVerificationError) -> String {
    let text = match error {
        ClaimsVerificationError::SignatureVerification(fault) => format!("its signature: {fault}"),
        ClaimsVerificationError::InvalidIssuer(fault) => format!("its issuer: {fault}"),
        ClaimsVerificationError::InvalidAudience(fault) => format!("its audience: {fault}"),
        ClaimsVerificationError::InvalidNonce(fault) => format!("its nonce: {fault}"),
        ClaimsVerificationError::Expired(fault) => format!("it has expired: {fault}"),
        other => other.to_string(),
    };
    redacted(&text, &[])
}
