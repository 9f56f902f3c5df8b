//! When a credential is to be renewed, as durations since it was received.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A credential is renewed after this part of its lifetime at the latest.
pub(super) const LIFETIME_SHARE: f64 = 2.0 / 3.0;

/// Lifetime of a credential, counted from when it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalSchedule {
    pub(super) received: Instant,
    /// Time to expiry when it was received; `None` if it never expires.
    pub(super) remaining: Option<Duration>,
    /// Time to renewal when it was received; `None` if it is never renewed.
    pub(super) due: Option<Duration>,
}

impl RenewalSchedule {
    /// The schedule of a credential that was just granted, with durations from its issuer.
    pub fn granted(received: Instant, expires_in: Option<Duration>, renew_after: Option<Duration>) -> Self {
        let latest = expires_in.map(|left| left.mul_f64(LIFETIME_SHARE));
        Self {
            received,
            remaining: expires_in,
            due: match (renew_after, latest) {
                (Some(after), Some(latest)) => Some(after.min(latest)),
                (after, latest) => after.or(latest),
            },
        }
    }

    /// The schedule of a credential from a Secret: its whole lifetime, and its estimated age.
    pub fn estimated(received: Instant, total: Option<Duration>, age: Duration) -> Self {
        Self {
            received,
            remaining: total.map(|total| total.saturating_sub(age)),
            due: total.map(|total| total.mul_f64(LIFETIME_SHARE).saturating_sub(age)),
        }
    }

    /// When the credential expires, in whole seconds of this machine's clock; `None` if it never does.
    pub fn expires(&self, now: Instant, time: Timestamp) -> Option<Timestamp> {
        let left = self.remaining?.saturating_sub(now.duration_since(self.received));
        let end = time.checked_add(SignedDuration::try_from(left).ok()?).ok()?;
        Timestamp::from_second(end.as_second()).ok()
    }

    /// The seconds until the credential expires, negative once it has; `None` if it never does.
    pub fn left(&self, now: Instant) -> Option<i64> {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        Some(seconds(self.remaining?).saturating_sub(seconds(now.duration_since(self.received))))
    }

    /// Whether the credential has expired, by this machine's clock.
    pub fn is_over(&self, now: Instant) -> bool {
        self.remaining
            .is_some_and(|left| now.duration_since(self.received) >= left)
    }
}
