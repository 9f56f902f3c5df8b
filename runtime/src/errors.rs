//! Classifies errors of Kubernetes requests, and explains them in one sentence.

use kube::Error;

/// Returns the HTTP status code of a refusal; `None` if the API server did not answer.
pub fn code(error: &Error) -> Option<u16> {
    match error {
        Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Whether the answer is 404.
pub fn is_not_found(error: &Error) -> bool {
    code(error) == Some(404)
}

/// Whether the API server says that the object of this name does not exist. A 404 that names no object may come from a proxy, or
/// mean that the whole API is not served: it proves nothing about the object.
pub fn is_object_gone(error: &Error, name: &str) -> bool {
    let Error::Api(status) = error else {
        return false;
    };
    status.is_not_found() && status.details.as_ref().is_some_and(|details| details.name == name)
}

/// Whether the answer is 409 because the object exists.
pub fn is_already_exists(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.is_already_exists())
}

/// Whether the answer is 409 because the object does not meet the preconditions of the write.
pub fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.is_conflict())
}

/// Whether the answer is 403.
pub fn is_forbidden(error: &Error) -> bool {
    code(error) == Some(403)
}

/// Whether the same request may succeed later by itself: there was no answer, or the API server is overloaded or failing.
pub fn is_transient(error: &Error) -> bool {
    match error {
        Error::Api(status) => status.code == 429 || status.code >= 500,
        Error::HyperError(_) | Error::Service(_) | Error::ReadEvents(_) => true,
        _ => false,
    }
}

/// Whether no connection could be made, so that the request was certainly not sent.
pub fn is_unsent(error: &Error) -> bool {
    let mut cause = match error {
        Error::Service(source) => Some(&**source as &(dyn std::error::Error + 'static)),
        _ => None,
    };
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            return error.is_connect();
        }
        cause = error.source();
    }
    false
}

/// Whether no API server answered.
pub fn is_unreachable(error: &Error) -> bool {
    matches!(error, Error::HyperError(_) | Error::Service(_))
}

/// Begins the cause of a denial by a ValidatingAdmissionPolicy, before the policy's name.
const POLICY_DENIAL: &str = "ValidatingAdmissionPolicy '";

/// Returns how the cause begins with which a policy denies a request, where its binding has its name.
pub fn policy_denial(policy: &str) -> String {
    format!("{POLICY_DENIAL}{policy}' with binding '{policy}' denied request: ")
}

/// Returns what ValidatingAdmissionPolicies said when they denied a request. The API server gives each denial as a cause of its
/// own, whose words are no part of any other refusal.
pub fn policy_denials(error: &Error) -> impl Iterator<Item = &str> {
    let details = match error {
        Error::Api(status) => status.details.as_ref(),
        _ => None,
    };
    let causes = details.into_iter().flat_map(|details| &details.causes);
    causes
        .map(|cause| cause.message.as_str())
        .filter(|message| message.starts_with(POLICY_DENIAL))
}

/// Whether a ValidatingAdmissionPolicy denied a request with exactly these words. An API server tells the denial of one policy alone.
pub fn is_policy_denial(error: &Error, policy: &str, words: &str) -> bool {
    let expected = policy_denial(policy) + words;
    policy_denials(error).any(|denial| denial == expected)
}

const UNREACHABLE: &str = "cannot reach the API server";

/// Explains an error in one sentence for a condition or log line: by the API server's own message, or by why it did not answer.
pub fn explain(error: &Error) -> String {
    match error {
        Error::Api(status) if !status.message.is_empty() => plain(&status.message),
        Error::Api(status) => format!("the API server answered {} {}", status.code, status.reason),
        Error::HyperError(source) => format!("{UNREACHABLE}: {}", chain(source)),
        Error::Service(source) => format!("{UNREACHABLE}: {}", chain(source.as_ref())),
        other => other.to_string(),
    }
}

/// The longest message of an API server that is repeated, in bytes.
const MESSAGE_LENGTH_MAX: usize = 4096;

/// A message of an API server, which the konnector does not trust if it is a provider's: cut if it is long, with control characters but
/// line feeds replaced.
fn plain(message: &str) -> String {
    let shown = &message[..message.floor_char_boundary(MESSAGE_LENGTH_MAX)];
    let rest = if shown.len() < message.len() { "..." } else { "" };
    let replaced = |char: char| if char.is_control() && char != '\n' { ' ' } else { char };
    shown.chars().map(replaced).chain(rest.chars()).collect()
}

/// Formats an error with all its sources, outermost first.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::core::{Status, response::StatusDetails};

    use super::*;

    #[test]
    fn a_message_of_an_api_server_is_short_and_plain() {
        let explained = |message: &str| explain(&Error::Api(Status::failure(message, "No").with_code(403).boxed()));
        assert_eq!(explained("it is\nforbidden"), "it is\nforbidden");
        assert_eq!(explained("a\u{1b}[2Jb"), "a [2Jb");
        assert_eq!(explained(&"é".repeat(1 << 20)).len(), MESSAGE_LENGTH_MAX + 3);
    }

    #[test]
    fn only_a_404_that_names_the_object_is_proof() {
        let error = |reason: &str, name: &str| {
            let details = StatusDetails {
                name: name.to_owned(),
                group: String::new(),
                kind: String::new(),
                uid: String::new(),
                causes: Vec::new(),
                retry_after_seconds: 0,
            };
            Error::Api(Status::failure("", reason).with_code(404).with_details(details).boxed())
        };
        assert!(is_object_gone(&error("NotFound", "billy"), "billy"));
        assert!(
            !is_object_gone(&error("NotFound", ""), "billy"),
            "the API is not served"
        );
        assert!(!is_object_gone(&error("", "billy"), "billy"), "a proxy answered");
        assert!(!is_object_gone(
            &Error::Api(Status::failure("page not found", "").with_code(404).boxed()),
            "billy"
        ));
    }
}
