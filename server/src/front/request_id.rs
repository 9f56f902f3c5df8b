//! The id under which a call is found in the log: the caller's, if it is fit to stand there, else one of ours.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header, in both directions.
pub(super) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

const LENGTH_MAX: usize = 64;

/// The id of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestId(String);

impl RequestId {
    /// Takes the caller's, or makes one.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut sent = headers.get_all(HEADER).iter();
        match (sent.next(), sent.next()) {
            (Some(id), None) => id
                .to_str()
                .ok()
                .filter(|id| is_fit(id))
                .map_or_else(Self::random, |id| Self(id.to_owned())),
            _ => Self::random(),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// No two are alike, so that it has no place in the table of headers that HTTP/2 keeps for a connection.
    pub(super) fn to_header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&self.0).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()))
    }
}

fn is_fit(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=LENGTH_MAX).contains(&id.len()) && id.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sent: &[&str], kept: bool) {
        let mut headers = HeaderMap::new();
        for id in sent {
            headers.append(HEADER, HeaderValue::from_str(id).expect("a header"));
        }
        let id = RequestId::of(&headers);
        assert_eq!(sent.contains(&id.as_str()), kept, "{sent:?}");
        assert!(is_fit(id.as_str()));
        assert!(id.to_header().is_some_and(|value| value.is_sensitive()));
    }

    #[test]
    fn only_what_is_safe_in_a_log_is_taken() {
        check(&["a.B_9-"], true);
        check(&[&"x".repeat(64)], true);
        check(&[&"x".repeat(65)], false);
        check(&[], false);
        check(&[""], false);
        check(&["a b"], false);
        check(&["a\tb"], false);
        check(&["one", "two"], false);
    }
}
