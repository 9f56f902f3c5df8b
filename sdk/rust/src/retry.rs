//! Which failed calls are retried, and when.

use std::time::Duration;

use tonic::Code;

use crate::error::Error;

/// How often and how soon a failed call is retried.
///
/// Retried are UNAVAILABLE, after the delay that the server asks for, connections that could not be made, and streams that the
/// server refused before it processed anything of them. For idempotent methods, connections that broke, DEADLINE_EXCEEDED, and RESOURCE_EXHAUSTED with a RetryInfo are retried too. No retry is sent
/// after the deadline of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Number of attempts at most, the first included; 1 means no retry.
    pub attempts: u32,
    /// Upper limit of the first random delay; it doubles with each attempt.
    pub base: Duration,
    /// Upper limit of a random delay, to which the delay that the server asks for is added.
    pub cap: Duration,
}

/// Limit on the random part of a delay, whatever a policy says.
const DELAY_MAX: Duration = Duration::from_hours(24);

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 5,
            base: Duration::from_millis(200),
            cap: Duration::from_secs(5),
        }
    }
}

impl RetryPolicy {
    /// Returns the delay after this many failures: what the server asks for, plus a random part (`random` in 0..1) of a time that
    /// doubles.
    pub(crate) fn delay(&self, failures: u32, least: Duration, random: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let window = self.base.saturating_mul(1 << doublings).min(self.cap).min(DELAY_MAX);
        least.saturating_add(window.mul_f64(random.clamp(0.0, 1.0)))
    }

    /// Returns the delay before the next attempt; `None` if there is none.
    pub(crate) fn next(
        &self,
        error: &Error,
        idempotent: bool,
        attempts_made: u32,
        time_left: Duration,
        random: f64,
    ) -> Option<Duration> {
        if attempts_made >= self.attempts {
            return None;
        }
        let least = retryable(error, idempotent)?;
        let delay = self.delay(attempts_made, least, random);
        (delay < time_left).then_some(delay)
    }
}

/// Returns the shortest delay before a retry can help; `None` if it cannot.
fn retryable(error: &Error, idempotent: bool) -> Option<Duration> {
    match error {
        Error::Status(status) => match status.code {
            Code::Unavailable => Some(status.retry_after.unwrap_or_default()),
            Code::DeadlineExceeded if idempotent => Some(status.retry_after.unwrap_or_default()),
            Code::ResourceExhausted if idempotent => status.retry_after,
            _ => None,
        },
        Error::Transport(transport) => {
            let passing = !transport.fault.is_permanent();
            (passing && (idempotent || transport.unprocessed)).then_some(Duration::ZERO)
        }
        Error::Token(_) | Error::RequestFailed(_) | Error::Pending(_) | Error::Protocol { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::StatusError;
    use crate::error::transport::{TransportError, TransportFault};

    const AGES: Duration = Duration::from_hours(1);

    fn status(code: Code, retry_after: Option<u64>) -> Error {
        let retry_after = retry_after.map(Duration::from_secs);
        Error::Status(Box::new(StatusError {
            code,
            retry_after,
            ..StatusError::default()
        }))
    }

    fn transport(fault: TransportFault, unprocessed: bool) -> Error {
        Error::Transport(Box::new(TransportError {
            address: "https://bind.example.com".to_owned(),
            fault,
            detail: String::new(),
            unprocessed,
        }))
    }

    #[track_caller]
    fn check(error: &Error, idempotent: bool, expect: Option<u64>) {
        let delay = RetryPolicy::default().next(error, idempotent, 1, AGES, 0.0);
        assert_eq!(delay, expect.map(Duration::from_secs), "{error:?}");
    }

    #[test]
    fn decides_by_code_and_method() {
        check(&status(Code::Unavailable, None), false, Some(0));
        check(&status(Code::Unavailable, Some(3)), false, Some(3));
        check(&status(Code::DeadlineExceeded, None), true, Some(0));
        check(&status(Code::DeadlineExceeded, None), false, None);
        check(&status(Code::ResourceExhausted, Some(2)), true, Some(2));
        check(&status(Code::ResourceExhausted, Some(2)), false, None);
        check(&status(Code::ResourceExhausted, None), true, None);
        for code in [
            Code::NotFound,
            Code::PermissionDenied,
            Code::Internal,
            Code::Aborted,
            Code::Unauthenticated,
        ] {
            check(&status(code, Some(1)), true, None);
        }
    }

    #[test]
    fn decides_by_what_the_connection_did() {
        check(&transport(TransportFault::Refused, true), false, Some(0));
        check(&transport(TransportFault::Broken, false), true, Some(0));
        check(&transport(TransportFault::Broken, false), false, None);
        check(&transport(TransportFault::Broken, true), false, Some(0));
        check(&transport(TransportFault::CertificateUntrusted, true), true, None);
    }

    #[test]
    fn no_policy_makes_a_delay_that_overflows() {
        let policy = RetryPolicy {
            attempts: 5,
            base: Duration::MAX,
            cap: Duration::MAX,
        };
        assert_eq!(policy.delay(u32::MAX, Duration::ZERO, 1.0), DELAY_MAX);
    }

    #[test]
    fn attempts_and_time_end() {
        let policy = RetryPolicy::default();
        let error = status(Code::Unavailable, Some(3));
        assert!(policy.next(&error, true, 4, AGES, 0.5).is_some());
        assert_eq!(policy.next(&error, true, 5, AGES, 0.5), None);
        assert_eq!(
            policy.next(&error, true, 1, Duration::from_secs(2), 0.5),
            None,
            "the wait outlasts the deadline"
        );
    }

    proptest! {
        #[test]
        fn delays_are_bounded_and_never_shorter_than_the_server_asks(failures in 0_u32.., least in 0_u64..1000, random in 0.0..1.0) {
            let policy = RetryPolicy::default();
            let least = Duration::from_secs(least);
            let delay = policy.delay(failures, least, random);
            prop_assert!(delay >= least && delay <= least + policy.cap);
        }
    }
}
