//! Consent of a user, by an annotation of a binding or bundle that holds a time until which the consent lasts.

use std::time::Duration;

use jiff::Timestamp;
use kube::{Resource, ResourceExt as _};

/// The longest pause before a consent is read again, since the clock may be set meanwhile.
const WAKE_MAX: Duration = Duration::from_hours(24);
/// A message repeats at most this many bytes of a text that is no time.
const SHOWN_MAX: usize = 64;

/// What the annotation says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consent {
    /// The annotation is missing.
    Absent,
    /// The consent lasts until this time.
    Until(Timestamp),
    /// The consent lasted until this time.
    Expired(Timestamp),
    /// The annotation holds this text, which is no time.
    Unreadable(String),
}

impl Consent {
    /// Reads the consent from an annotation of an object.
    pub fn read(object: &impl Resource, annotation: &str, now: Timestamp) -> Self {
        let Some(text) = object.annotations().get(annotation) else {
            return Self::Absent;
        };
        match text.parse::<Timestamp>() {
            Ok(until) if until > now => Self::Until(until),
            Ok(until) => Self::Expired(until),
            Err(_) => Self::Unreadable(text[..text.floor_char_boundary(SHOWN_MAX)].to_owned()),
        }
    }

    /// Until when the consent lasts; `None` if there is no consent now.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Until(until) => Some(*until),
            Self::Absent | Self::Expired(_) | Self::Unreadable(_) => None,
        }
    }

    /// Why an annotation gives no consent, as the end of a sentence; empty if it is missing or gives consent.
    pub fn complaint(&self, annotation: &str) -> String {
        match self {
            Self::Absent | Self::Until(_) => String::new(),
            Self::Expired(until) => format!("; {annotation} expired at {until}"),
            Self::Unreadable(text) => {
                format!("; {annotation} is {text:?}, which is no time like 2030-01-31T12:00:00Z")
            }
        }
    }
}

/// Returns the pause until the first of these consents expires.
pub fn next_expiry<'a>(consents: impl IntoIterator<Item = &'a Consent>, now: Timestamp) -> Option<Duration> {
    let first = consents.into_iter().filter_map(Consent::until).min()?;
    let left = Duration::try_from(first.duration_since(now)).unwrap_or_default();
    // A moment later, so that it has certainly expired.
    Some((left + Duration::from_millis(10)).min(WAKE_MAX))
}

#[cfg(test)]
mod tests {
    use bindery_api::{
        annotations::ALLOW_DELETIONS,
        v1alpha2::{APIServiceBinding, APIServiceBindingSpec},
    };

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn read(text: Option<&str>) -> Consent {
        let mut binding = APIServiceBinding::new("cowboys", APIServiceBindingSpec::default());
        if let Some(text) = text {
            let annotations = binding.annotations_mut();
            annotations.insert(ALLOW_DELETIONS.to_owned(), text.to_owned());
        }
        Consent::read(&binding, ALLOW_DELETIONS, NOW)
    }

    #[track_caller]
    fn check(text: Option<&str>, holds: bool, says: &str) {
        let consent = read(text);
        assert_eq!(consent.until().is_some(), holds, "{consent:?}");
        let complaint = consent.complaint(ALLOW_DELETIONS);
        assert!(complaint.contains(says), "{complaint}");
        assert_eq!(complaint.is_empty(), says.is_empty(), "{complaint}");
    }

    #[test]
    fn only_a_time_that_is_to_come_is_a_consent() {
        check(None, false, "");
        check(Some("1970-01-01T00:00:01Z"), true, "");
        check(Some("1970-01-01T01:00:01+01:00"), true, "");
        check(Some("1970-01-01T00:00:00Z"), false, "expired at 1970-01-01T00:00:00Z");
        check(Some("1969-12-31T00:00:00Z"), false, "allow-deletions-until expired");
        for text in ["", "yes", "true", "tomorrow", "2030-01-31", "12:00"] {
            check(Some(text), false, &format!("is {text:?}"));
        }
        let long = "é".repeat(1000);
        assert!(read(Some(&long)).complaint(ALLOW_DELETIONS).len() < 200);
    }

    #[test]
    fn the_first_consent_that_expires_counts() {
        let (soon, late) = (read(Some("1970-01-01T00:00:05Z")), read(Some("1970-01-03T00:00:00Z")));
        let none = read(None);
        assert_eq!(next_expiry([&none], NOW), None);
        assert_eq!(
            next_expiry([&late, &soon, &none], NOW),
            Some(Duration::from_millis(5010))
        );
        assert_eq!(next_expiry([&late], NOW), Some(WAKE_MAX));
    }
}
