//! Decides, from what probes of one admission policy showed, when to probe it again and what may be done with rights that rely
//! on it. It does no IO: each event brings its time.

use std::time::Duration;

use tokio::time::Instant;

/// How long a change waits for more changes, so that one probe serves all of them.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// How long after a change the policy is probed once more. API servers take a moment until they apply a changed policy.
const SETTLE: Duration = Duration::from_secs(15);
/// How soon to probe again a policy that is gone, or that could not be probed.
const RETRY: Duration = Duration::from_secs(15);
/// The longest time between two probes that showed nothing.
const RETRY_MAX: Duration = Duration::from_mins(10);

/// When a policy is probed, and what follows if it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyTiming {
    /// How often the policy is probed if nothing changes.
    pub interval: Duration,
    /// How long a policy may be gone before rights that rely on it are taken back.
    pub grace: Duration,
    /// Whether rights are taken back at all.
    pub withdraws: bool,
}

/// What happened to a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyEvent {
    /// The policy, its binding or the API server changed, or the connection to the API server was lost and is back.
    Changed,
    /// The policy refused its probe.
    Refused,
    /// The probe, which the policy forbids, was admitted.
    Admitted,
    /// The probe was refused, and not in the words of this program's version of the policy: an older version or another policy did.
    OtherWords,
    /// The probe did not show anything: it failed, or nobody answered in time.
    Unclear,
    /// There is no account yet that the policy limits.
    NothingToProbe,
}

/// What may be done with the rights that rely on a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Nothing is known of the policy: each right that is given is proved by itself.
    #[default]
    Unknown,
    /// The policy is in force.
    InForce,
    /// The policy is not in force: no right that relies on it is given, and those that were given stay.
    Withheld,
    /// The policy is gone for so long that the rights that rely on it are taken back.
    Withdrawn,
}

/// What is known of one policy.
#[derive(Clone, Debug)]
pub(super) struct PolicyForce {
    timing: PolicyTiming,
    standing: Standing,
    /// When a probe was first admitted, with no other answer of the policy since.
    gone_since: Option<Instant>,
    /// How many probes in a row showed nothing.
    unclear: u32,
    /// When to probe.
    next: Instant,
    /// When to probe once more after a change.
    settled: Option<Instant>,
}

// === impl Standing ===

impl Standing {
    /// Whether rights that rely on the policy must not be given.
    pub const fn withholds(self) -> bool {
        matches!(self, Self::Withheld | Self::Withdrawn)
    }
}

// === impl PolicyForce ===

impl PolicyForce {
    /// Knows nothing yet, and probes at once.
    pub(super) fn new(timing: PolicyTiming, now: Instant) -> Self {
        Self {
            timing,
            standing: Standing::Unknown,
            gone_since: None,
            unclear: 0,
            next: now,
            settled: None,
        }
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    /// When the policy is to be probed.
    pub(super) fn probe_at(&self) -> Instant {
        self.settled.map_or(self.next, |settled| settled.min(self.next))
    }

    /// Takes in an event. `at` is when a change was seen, or when a probe began: a probe tells of no later time.
    pub(super) fn on(&mut self, event: PolicyEvent, at: Instant) {
        if event == PolicyEvent::Changed {
            self.next = self.next.min(at + DEBOUNCE);
            self.settled = Some(at + SETTLE);
            return;
        }
        self.settled = self.settled.filter(|settled| *settled > at);
        self.unclear = match event {
            PolicyEvent::Unclear => self.unclear.saturating_add(1),
            _ => 0,
        };
        match event {
            PolicyEvent::Refused => {
                self.standing = Standing::InForce;
                self.gone_since = None;
            }
            PolicyEvent::Admitted => self.admitted(at),
            PolicyEvent::OtherWords => {
                self.gone_since = None;
                // Rights that were taken back stay so until the policy of this version is there.
                if self.standing != Standing::Withdrawn {
                    self.standing = Standing::Withheld;
                }
            }
            PolicyEvent::Unclear | PolicyEvent::NothingToProbe | PolicyEvent::Changed => {}
        }
        self.next = at + self.pause(event, at);
    }

    fn admitted(&mut self, at: Instant) {
        let since = *self.gone_since.get_or_insert(at);
        let is_over = at.saturating_duration_since(since) >= self.timing.grace;
        if self.timing.withdraws && is_over {
            self.standing = Standing::Withdrawn;
        } else if self.standing != Standing::Withdrawn {
            self.standing = Standing::Withheld;
        }
    }

    /// How long after a probe the next one is due.
    fn pause(&self, event: PolicyEvent, at: Instant) -> Duration {
        let pause = match event {
            PolicyEvent::Refused | PolicyEvent::NothingToProbe | PolicyEvent::Changed => self.timing.interval,
            PolicyEvent::OtherWords => RETRY,
            PolicyEvent::Admitted => {
                let end = self.gone_since.map(|since| since + self.timing.grace);
                let left = end
                    .map(|end| end.saturating_duration_since(at))
                    .filter(|left| !left.is_zero());
                left.map_or(RETRY, |left| left.min(RETRY))
            }
            PolicyEvent::Unclear => {
                let doublings = self.unclear.saturating_sub(1).min(16);
                RETRY.saturating_mul(1 << doublings).min(RETRY_MAX)
            }
        };
        pause.min(self.timing.interval)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::{PolicyEvent::*, Standing::*, *};

    pub(in crate::policy) const TIMING: PolicyTiming = PolicyTiming {
        interval: Duration::from_hours(1),
        grace: Duration::from_mins(10),
        withdraws: true,
    };

    /// Takes in events, each a number of seconds after the start, and expects a standing after each.
    #[track_caller]
    fn check(timing: PolicyTiming, events: &[(u64, PolicyEvent, Standing)]) -> PolicyForce {
        let start = Instant::now();
        let mut force = PolicyForce::new(timing, start);
        for (seconds, event, expect) in events {
            force.on(*event, start + Duration::from_secs(*seconds));
            assert_eq!(force.standing(), *expect, "after {event:?} at {seconds} s");
        }
        force
    }

    #[test]
    fn a_policy_that_is_gone_withholds_at_once_and_takes_back_after_its_time() {
        check(
            TIMING,
            &[
                (0, Refused, InForce),
                (3600, Admitted, Withheld),
                (4199, Admitted, Withheld),
                (4200, Admitted, Withdrawn),
                (4201, Admitted, Withdrawn),
                (4210, Refused, InForce),
                (4220, Admitted, Withheld),
                (4819, Admitted, Withheld),
                (4820, Admitted, Withdrawn),
            ],
        );
    }

    #[test]
    fn nothing_is_taken_back_without_the_flag() {
        let timing = PolicyTiming {
            withdraws: false,
            ..TIMING
        };
        check(timing, &[(0, Admitted, Withheld), (100_000, Admitted, Withheld)]);
    }

    #[test]
    fn an_error_or_a_time_out_is_no_sign_that_the_policy_is_gone() {
        check(
            TIMING,
            &[
                (0, Unclear, Unknown),
                (1, Refused, InForce),
                (2, Unclear, InForce),
                (10_000, Unclear, InForce),
                (10_001, Admitted, Withheld),
                // Only a probe that is admitted takes back, however long ago the first one was.
                (20_000, Unclear, Withheld),
                (20_001, Admitted, Withdrawn),
                (20_002, Unclear, Withdrawn),
                (20_003, NothingToProbe, Withdrawn),
            ],
        );
    }

    #[test]
    fn other_words_withhold_and_never_take_back() {
        check(
            TIMING,
            &[
                (0, OtherWords, Withheld),
                (1000, OtherWords, Withheld),
                (1001, Admitted, Withheld),
                (1300, OtherWords, Withheld),
                // What was before does not count.
                (1601, Admitted, Withheld),
                (2201, Admitted, Withdrawn),
                (2202, OtherWords, Withdrawn),
                (2203, Refused, InForce),
            ],
        );
    }

    #[track_caller]
    fn check_next(events: &[(u64, PolicyEvent)], expect: u64) {
        let start = Instant::now();
        let mut force = PolicyForce::new(TIMING, start);
        for (seconds, event) in events {
            force.on(*event, start + Duration::from_secs(*seconds));
        }
        assert_eq!(force.probe_at() - start, Duration::from_secs(expect), "{events:?}");
    }

    #[test]
    fn a_policy_is_probed_hourly_and_after_changes() {
        check_next(&[], 0);
        check_next(&[(0, Refused)], 3600);
        check_next(&[(0, NothingToProbe)], 3600);
        // Soon, and once more when API servers have taken up the change.
        check_next(&[(0, Refused), (100, Changed)], 101);
        check_next(&[(0, Refused), (100, Changed), (101, Refused)], 115);
        check_next(&[(0, Refused), (100, Changed), (101, Refused), (115, Refused)], 3715);
        check_next(&[(0, Refused), (100, Changed), (110, Changed), (111, Refused)], 125);
        // Gone: often, and at the end of its time.
        check_next(&[(0, Admitted)], 15);
        check_next(&[(0, Admitted), (590, Admitted)], 600);
        check_next(&[(0, Admitted), (600, Admitted)], 615);
        check_next(&[(0, OtherWords)], 15);
        // Less and less often where nothing is shown.
        check_next(&[(0, Unclear)], 15);
        check_next(&[(0, Unclear), (15, Unclear)], 45);
        let long: Vec<_> = (0..40).map(|at| (at, Unclear)).collect();
        check_next(&long, 39 + 600);
    }

    fn events() -> impl Strategy<Value = Vec<(u64, PolicyEvent)>> {
        let event = prop_oneof![
            1 => Just(Changed),
            1 => Just(Refused),
            4 => Just(Admitted),
            1 => Just(OtherWords),
            1 => Just(Unclear),
            1 => Just(NothingToProbe),
        ];
        vec((0_u64..900, event), 0..60)
    }

    proptest! {
        #[test]
        fn what_was_given_is_taken_only_from_who_was_seen_to_do_what_is_forbidden_for_long(
            events in events(),
            withdraws: bool,
        ) {
            let timing = PolicyTiming { withdraws, ..TIMING };
            let start = Instant::now();
            let mut force = PolicyForce::new(timing, start);
            let mut at = start;
            // All admitted probes since the last one that showed something else.
            let mut admitted: Vec<Instant> = Vec::new();
            for (pause, event) in events {
                at += Duration::from_secs(pause);
                let before = force.standing();
                force.on(event, at);
                match event {
                    Admitted => admitted.push(at),
                    Refused | OtherWords => admitted.clear(),
                    Changed | Unclear | NothingToProbe => {}
                }
                let (standing, next) = (force.standing(), force.probe_at());
                if before != Withdrawn && standing == Withdrawn {
                    prop_assert!(withdraws && event == Admitted);
                    prop_assert!(at - admitted[0] >= TIMING.grace);
                }
                match event {
                    Refused => prop_assert_eq!(standing, InForce),
                    Admitted | OtherWords => prop_assert!(standing.withholds()),
                    Changed | Unclear | NothingToProbe => prop_assert_eq!(standing, before),
                }
                prop_assert!(next <= at + TIMING.interval, "probed seldom");
                prop_assert!(next > at || event == Changed, "probed without a pause");
            }
        }

        /// Whoever follows `probe_at` finds out in time.
        #[test]
        fn a_policy_that_stays_gone_is_taken_back_at_its_time(gone in 0_u64..4000) {
            let start = Instant::now();
            let mut force = PolicyForce::new(TIMING, start);
            let gone = start + Duration::from_secs(gone);
            let mut first = None;
            while force.standing() != Withdrawn {
                let at = force.probe_at();
                let event = if at < gone { Refused } else { Admitted };
                if event == Admitted {
                    first.get_or_insert(at);
                }
                force.on(event, at);
                prop_assert!(at <= gone + Duration::from_hours(2));
            }
            let seen = first.expect("an admitted probe");
            prop_assert!(seen <= gone + TIMING.interval);
        }
    }
}
