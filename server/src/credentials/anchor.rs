//! Anchors: empty Secrets that tokens are bound to. The deletion of an anchor revokes its tokens.

use std::{collections::BTreeMap, time::Duration};

use bindery_api::{annotations, labels, meta};
use jiff::{Timestamp, civil::Time, tz::TimeZone};
use k8s_openapi::api::core::v1::Secret;
use kube::{ResourceExt as _, api::ObjectMeta};

use crate::settings::Settings;

/// How long an anchor is kept after its last token has expired, for clocks differ.
const MARGIN: Duration = Duration::from_hours(1);

/// The anchor for the tokens of one day. A revocation ends its use, and the next token gets another anchor.
pub(super) fn new(contract: &str, revocation: Option<&str>, now: Timestamp, settings: &Settings) -> Secret {
    let day = now.to_zoned(TimeZone::UTC).date();
    let midnight = day.tomorrow().unwrap_or(day).to_datetime(Time::midnight());
    let end = midnight.to_zoned(TimeZone::UTC).map_or(now, |end| end.timestamp());
    let longest = settings.token_lifetime.max(settings.renewal_lifetime);
    let until = end.checked_add(longest).unwrap_or(Timestamp::MAX);
    let name = format!("kube-binder-anchor-{}", day.strftime("%Y%m%d"));
    Secret {
        metadata: ObjectMeta {
            name: Some(revocation.map_or_else(|| name.clone(), |id| format!("{name}-{id}"))),
            namespace: Some(contract.to_owned()),
            labels: Some(BTreeMap::from([
                (labels::CONTRACT.to_owned(), contract.to_owned()),
                (labels::COMPONENT.to_owned(), labels::TOKEN_ANCHOR.to_owned()),
            ])),
            annotations: Some(BTreeMap::from([(
                annotations::TOKENS_EXPIRE_BY.to_owned(),
                until.to_string(),
            )])),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

/// When the last token bound to an anchor has expired.
pub(super) fn expires_by(anchor: &Secret) -> Option<Timestamp> {
    anchor.annotations().get(annotations::TOKENS_EXPIRE_BY)?.parse().ok()
}

/// Whether all tokens that are bound to an anchor have expired. False for an anchor without that time.
pub(super) fn is_spent(anchor: &Secret, now: Timestamp) -> bool {
    meta::is_anchor(&anchor.metadata)
        && expires_by(anchor)
            .and_then(|last| last.checked_add(MARGIN).ok())
            .is_some_and(|last| last < now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::settings;

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    #[test]
    fn a_day_has_one_anchor_that_outlives_its_tokens() {
        let new = |revocation, time| new("kube-bind-a", revocation, at(time), &settings());
        let first = new(None, "2025-11-21T00:00:00Z");
        let last = new(None, "2025-11-21T23:59:59Z");
        assert_eq!(first, last);
        assert_eq!(first.name_any(), "kube-binder-anchor-20251121");
        assert_eq!(expires_by(&first), Some(at("2025-11-29T00:00:00Z")));
        assert_ne!(first.name_any(), new(None, "2025-11-22T00:00:00Z").name_any());
        let after = new(Some("0a1b"), "2025-11-21T23:59:59Z");
        assert_eq!(after.name_any(), "kube-binder-anchor-20251121-0a1b");
    }

    #[test]
    fn only_spent_anchors_of_ours_are_collected() {
        let mut anchor = new("kube-bind-a", None, at("2025-11-21T12:00:00Z"), &settings());
        assert!(!is_spent(&anchor, at("2025-11-29T00:30:00Z")));
        assert!(is_spent(&anchor, at("2025-11-29T01:00:01Z")));
        anchor
            .annotations_mut()
            .insert(annotations::TOKENS_EXPIRE_BY.to_owned(), "soon".to_owned());
        assert!(!is_spent(&anchor, at("2035-01-01T00:00:00Z")));
        let mut foreign = new("kube-bind-a", None, at("2025-11-21T12:00:00Z"), &settings());
        foreign.labels_mut().remove(labels::COMPONENT);
        assert!(!is_spent(&foreign, at("2035-01-01T00:00:00Z")));
    }
}
