//! What becomes of a seed whose operating-system process does not come to its end.

use std::{collections::BTreeSet, time::Duration};

use nix::unistd::alarm;

use crate::{
    invariants::{Invariant, Violation},
    play::Outcome,
};

/// The longest wall time of a seed, in seconds. Seeds take less than one; a task that loops without waiting takes for ever.
const SECONDS_MAX: u32 = 120;
/// The exit code of a process that panicked.
pub(super) const PANICKED: u8 = 101;

/// Has the kernel end this process by SIGALRM when a seed exceeds its wall time. Nothing in the process can be relied on then: the thread
/// that plays the seed may loop.
pub(super) fn limit_time() {
    alarm::set(SECONDS_MAX);
}

/// Ends what [`limit_time`] began.
pub(super) fn end_limit() {
    alarm::cancel();
}

/// The outcome of a seed whose process ended after this wall time with this exit code, `None` if a signal ended it. Returns no outcome if
/// the process reported an error, which is none of the seed's.
pub(super) fn outcome(seed: u64, code: Option<i32>, time: Duration) -> Option<Outcome> {
    let (invariant, message) = match code {
        None if time.as_secs() >= u64::from(SECONDS_MAX) => (
            Invariant::Hang,
            format!("it was killed after {SECONDS_MAX} s of wall time"),
        ),
        None => (Invariant::Panic, "a signal ended it".to_owned()),
        Some(code) if code == i32::from(PANICKED) => (
            Invariant::Panic,
            format!("it panicked; `simulator --seed {seed}` shows where"),
        ),
        Some(_) => return None,
    };
    let violation = Violation {
        invariant,
        at: 0,
        subject: "the process of the seed".to_owned(),
        message,
        circumstances: BTreeSet::new(),
    };
    Some(Outcome {
        seed,
        violations: vec![violation],
        ..Outcome::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: Option<i32>, seconds: u64, expect: Option<Invariant>) {
        let outcome = outcome(7, code, Duration::from_secs(seconds));
        let found = outcome.map(|outcome| (outcome.seed, outcome.violations[0].invariant));
        assert_eq!(found, expect.map(|invariant| (7, invariant)));
    }

    #[test]
    fn a_process_that_does_not_come_to_its_end_violates_an_invariant() {
        check(None, 120, Some(Invariant::Hang));
        check(None, 3, Some(Invariant::Panic));
        check(Some(101), 3, Some(Invariant::Panic));
        check(Some(1), 3, None);
    }
}
