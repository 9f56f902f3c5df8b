//! Decides when a retained copy ends, and when to look again.

use std::{collections::BTreeSet, time::Duration};

use bindery_api::{annotations, retention};
use jiff::{SignedDuration, Timestamp};
use kube::api::ObjectMeta;

/// The shortest and the longest time until retained copies are listed again.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// A restore has at least this time, from when the server saw it first: the user may have to mend what keeps the object from being created.
const RESTORE_MIN: Duration = Duration::from_hours(24);
/// Copies are listed this many times within the shortest time of retention, at least.
const LOOKS: u32 = 8;

/// What to do about a retained copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetentionStep {
    /// Nothing before this time.
    Wait(Timestamp),
    /// Write this time into the copy, at which it ends.
    Stamp(Timestamp),
    /// Delete the copy: its time is over.
    End,
}

/// What to do about a copy that may be retained by this contract, for this time; `None` if it is not, or is released or being deleted. A
/// restore takes the former time off the copy, and gets a time of its own, so that one that nobody finishes ends too.
pub(super) fn step(copy: &ObjectMeta, contract: &str, duration: Duration, now: Timestamp) -> Option<RetentionStep> {
    let value = |key: &str| copy.annotations.as_ref()?.get(key).map(String::as_str);
    let is_released = value(annotations::RELEASED).is_some_and(|value| annotations::is_released(value, contract));
    if is_released || copy.deletion_timestamp.is_some() || !retention::is_retained(value, contract) {
        return None;
    }
    let duration = if is_restored(copy) {
        duration.max(RESTORE_MIN)
    } else {
        duration
    };
    let until = value(annotations::RETAINED_UNTIL).and_then(|until| until.parse::<Timestamp>().ok());
    Some(match until {
        Some(until) if until <= now => RetentionStep::End,
        Some(until) => RetentionStep::Wait(until),
        None => RetentionStep::Stamp(after(now, duration)),
    })
}

/// Which of the retained copies of a contract end early, by their places in `copies`, where the contract may have `limit` more of them.
/// Each is given with the time at which it ends, and those that would end first end first. A copy that is being restored is given
/// without a time, and never ends early.
pub(super) fn beyond(copies: &[Option<Timestamp>], limit: usize) -> BTreeSet<usize> {
    let mut ends: Vec<_> = (0..copies.len())
        .filter_map(|place| copies[place].map(|end| (end, place)))
        .collect();
    ends.sort_unstable();
    ends.truncate(copies.len().saturating_sub(limit));
    ends.into_iter().map(|(_, place)| place).collect()
}

/// Whether a restore of a copy has begun and is not finished.
pub(super) fn is_restored(copy: &ObjectMeta) -> bool {
    let annotations = copy.annotations.as_ref();
    annotations
        .and_then(|annotations| annotations.get(annotations::RESTORING))
        .map(String::as_str)
        == Some(annotations::TRUE)
}

/// When to list retained copies again, if the shortest retention of an export is this and these are the ends of copies; `None` if
/// nothing retains copies.
pub(super) fn pause(shortest: Option<Duration>, ends: &[Timestamp], now: Timestamp) -> Option<Duration> {
    let (least, most) = PAUSE;
    let by_end = ends
        .iter()
        .map(|end| Duration::try_from(end.duration_since(now)).unwrap_or_default())
        .min();
    let by_export = shortest.map(|shortest| shortest / LOOKS);
    let pause = [by_end, by_export].into_iter().flatten().min()?;
    Some(pause.clamp(least, most))
}

fn after(now: Timestamp, duration: Duration) -> Timestamp {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    now.checked_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn copy(marks: &[(&str, &str)]) -> ObjectMeta {
        let ours = [
            (annotations::CONSUMER_UID, "u1"),
            (annotations::RETAINED, "u1/kube-bind-a/2026-01-01T00:00:00Z"),
        ];
        let marks = ours.iter().chain(marks);
        ObjectMeta {
            annotations: Some(
                marks
                    .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                    .collect(),
            ),
            ..ObjectMeta::default()
        }
    }

    fn check(marks: &[(&str, &str)], now: i64, expect: Option<RetentionStep>) {
        assert_eq!(step(&copy(marks), "kube-bind-a", HOUR, at(now)), expect, "{marks:?}");
    }

    #[test]
    fn beyond_the_limit_those_end_that_would_end_first() {
        let (early, late) = (Some(at(1)), Some(at(2)));
        let check = |copies: &[Option<Timestamp>], limit, expect: &[usize]| {
            assert!(beyond(copies, limit).iter().eq(expect), "{copies:?} {limit}");
        };
        check(&[late, early, late], 3, &[]);
        check(&[late, early, late], 2, &[1]);
        check(&[late, early, late], 1, &[0, 1]);
        check(&[late, early, late], 0, &[0, 1, 2]);
        // A restore that was begun is finished, whatever the limit.
        check(&[None, early, None], 1, &[1]);
        check(&[], 0, &[]);
    }

    #[test]
    fn a_copy_is_stamped_once_and_ends_at_its_time() {
        let until = [(annotations::RETAINED_UNTIL, "1970-01-01T01:00:00Z")];
        check(&[], 0, Some(RetentionStep::Stamp(at(3600))));
        check(&until, 3599, Some(RetentionStep::Wait(at(3600))));
        check(&until, 3600, Some(RetentionStep::End));
        check(
            &[(annotations::RETAINED_UNTIL, "soon")],
            0,
            Some(RetentionStep::Stamp(at(3600))),
        );
    }

    #[test]
    fn a_restore_gets_a_day_at_least_and_ends_then() {
        let restoring = (annotations::RESTORING, "true");
        let day = RetentionStep::Stamp(at(24 * 3_600));
        check(&[restoring], 0, Some(day));
        let until = (annotations::RETAINED_UNTIL, "1970-01-02T00:00:00Z");
        let end = 24 * 3_600;
        check(&[restoring, until], end - 1, Some(RetentionStep::Wait(at(end))));
        check(&[restoring, until], end, Some(RetentionStep::End));
        let week = step(&copy(&[restoring]), "kube-bind-a", HOUR * 24 * 7, at(0));
        assert_eq!(
            week,
            Some(RetentionStep::Stamp(at(end * 7))),
            "or as long as copies are retained"
        );
    }

    #[test]
    fn what_is_no_retained_copy_is_left_alone() {
        let over = (annotations::RETAINED_UNTIL, "1970-01-01T00:00:00Z");
        check(&[over], 1, Some(RetentionStep::End));
        check(&[over, (annotations::CONSUMER_UID, "u2")], 1, None);
        check(&[over, (annotations::RETAINED, "")], 1, None);
        check(
            &[over, (annotations::RELEASED, "1970-01-01T00:00:00Z/kube-bind-a")],
            1,
            None,
        );
        assert_eq!(step(&copy(&[over]), "kube-bind-b", HOUR, at(1)), None);
    }

    #[test]
    fn nothing_is_listed_where_nothing_is_retained() {
        assert_eq!(pause(None, &[], at(0)), None);
        assert_eq!(pause(Some(HOUR * 72), &[], at(0)), Some(PAUSE.1));
        assert_eq!(
            pause(Some(Duration::from_secs(16)), &[], at(0)),
            Some(Duration::from_secs(2))
        );
        assert_eq!(pause(None, &[at(30)], at(0)), Some(Duration::from_secs(30)));
        assert_eq!(pause(None, &[at(0)], at(30)), Some(PAUSE.0));
    }

    proptest! {
        #[test]
        fn no_copy_ends_before_the_time_that_was_written(written in 0..1_000_i64, later in 0..10_000_i64, hours in 1..100_u64) {
            let duration = Duration::from_hours(hours);
            let Some(RetentionStep::Stamp(until)) = step(&copy(&[]), "kube-bind-a", duration, at(written)) else {
                panic!("it was not stamped");
            };
            let stamped = copy(&[(annotations::RETAINED_UNTIL, &until.to_string())]);
            let ends = step(&stamped, "kube-bind-a", duration, at(later)) == Some(RetentionStep::End);
            prop_assert_eq!(ends, later >= written + i64::try_from(hours).unwrap() * 3_600);
        }
    }
}
