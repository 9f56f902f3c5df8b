//! Renews the credential of a session before it expires.
//!
//! All is reckoned in durations since a credential was received, never by comparing clocks of two machines. Of a
//! credential that was read from a Secret the age is an estimate by this machine's clock; where that is wrong, the API
//! server's refusal tells, and a renewal follows at once.

use std::{future::Future, sync::Arc, time::Duration};

use bindery_runtime::backoff::Backoff;
use tokio::time::{Instant, sleep};

use super::{
    Core,
    backend::{self, RenewError},
    credential::{Credential, Held, Renewal},
};

/// Between attempts that failed.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
/// How often a backend that refused is asked again: somebody may have lifted a revocation.
const DENIED_PAUSE: Duration = Duration::from_mins(10);
/// Renewed at this part of the lifetime at the latest.
const SHARE: f64 = 2.0 / 3.0;
/// How much sooner it may be, so that agents do not come together.
const JITTER: f64 = 0.15;

/// How long a credential holds, counted from when it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    received: Instant,
    /// What was left then; `None` for ever.
    left: Option<Duration>,
    /// When to renew, counted from then.
    due: Option<Duration>,
}

/// What is known when deciding.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// How long since the credential was received.
    pub elapsed: Duration,
    /// The credential's schedule.
    pub schedule: &'a Schedule,
    /// There is a backend to ask.
    pub has_backend: bool,
    /// The API server refused the credential.
    pub refused: bool,
    /// How the renewal goes so far.
    pub renewal: &'a Renewal,
    /// How long since the last attempt, if there was one.
    pub since_attempt: Option<Duration>,
    /// Between 0 and 1.
    pub jitter: f64,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask for a new one.
    Renew,
    /// Look again after this time.
    Wait(Duration),
    /// Nothing, until the credential changes.
    Rest,
}

// === impl Schedule ===

impl Schedule {
    /// Of a credential that was just granted: durations as its issuer gave them.
    pub fn granted(received: Instant, expires_in: Option<Duration>, renew_after: Option<Duration>) -> Self {
        let latest = expires_in.map(|left| left.mul_f64(SHARE));
        Self {
            received,
            left: expires_in,
            due: match (renew_after, latest) {
                (Some(after), Some(latest)) => Some(after.min(latest)),
                (after, latest) => after.or(latest),
            },
        }
    }

    /// Of a credential that somebody else received: its whole lifetime, and the estimated part that has passed.
    pub fn estimated(received: Instant, total: Option<Duration>, age: Duration) -> Self {
        Self {
            received,
            left: total.map(|total| total.saturating_sub(age)),
            due: total.map(|total| total.mul_f64(SHARE).saturating_sub(age)),
        }
    }

    /// Whether it has expired, as far as can be told here.
    pub fn is_over(&self, now: Instant) -> bool {
        self.left.is_some_and(|left| now.duration_since(self.received) >= left)
    }
}

/// Decides.
pub fn next(seen: &Seen<'_>) -> Step {
    let retry = |pause: Duration| match seen.since_attempt {
        Some(since) if since < pause => Step::Wait(pause.saturating_sub(since)),
        _ => Step::Renew,
    };
    // Expiry itself is looked at, since it may end the credential for good.
    let until_expiry = seen.schedule.left.map(|left| left.saturating_sub(seen.elapsed));
    if !seen.has_backend {
        return match until_expiry {
            Some(left) if !left.is_zero() && !seen.refused => Step::Wait(left),
            _ => Step::Rest,
        };
    }
    match seen.renewal {
        Renewal::Denied { .. } => match retry(DENIED_PAUSE) {
            Step::Wait(pause) => match until_expiry {
                Some(left) if !left.is_zero() => Step::Wait(pause.min(left)),
                _ => Step::Wait(pause),
            },
            step => step,
        },
        Renewal::Failing { count, .. } => {
            let step = RETRY
                .first
                .saturating_mul(1 << count.saturating_sub(1).min(10))
                .min(RETRY.max);
            retry(step.mul_f64(1.0 - seen.jitter / 2.0))
        }
        Renewal::Well if seen.refused => retry(RETRY.first),
        Renewal::Well => match seen.schedule.due {
            None => Step::Rest,
            Some(due) => {
                let due = due.mul_f64(1.0 - JITTER * seen.jitter);
                if seen.elapsed >= due {
                    retry(RETRY.first)
                } else {
                    Step::Wait(due.saturating_sub(seen.elapsed))
                }
            }
        },
    }
}

/// Renews until dropped.
pub(super) async fn run(core: Arc<Core>) {
    let credential = core.credential.clone();
    drive(&credential, |held| {
        let core = Arc::clone(&core);
        async move { renew(&core, &held).await }
    })
    .await;
}

/// Calls `renew` whenever it is time to.
async fn drive<F: Future<Output = ()>>(credential: &Credential, renew: impl Fn(Held) -> F) {
    let mut changes = credential.changes();
    let mut last_attempt: Option<Instant> = None;
    let mut jitter = (credential.held().access.fingerprint.clone(), rand::random());
    loop {
        let held = changes.borrow_and_update().clone();
        if jitter.0 != held.access.fingerprint {
            jitter = (held.access.fingerprint.clone(), rand::random());
        }
        let now = Instant::now();
        let step = next(&Seen {
            elapsed: now.duration_since(held.schedule.received),
            schedule: &held.schedule,
            has_backend: held.access.backend.is_some(),
            refused: held.refused,
            renewal: &held.renewal,
            since_attempt: last_attempt.map(|at| now.duration_since(at)),
            jitter: jitter.1,
        });
        match step {
            Step::Renew => {
                last_attempt = Some(now);
                renew(held).await;
            }
            Step::Wait(pause) => {
                tokio::select! {
                    ended = changes.changed() => if ended.is_err() { return },
                    // Whoever shows the credential looks again, since time passed.
                    () = sleep(pause) => credential.touch(),
                }
            }
            Step::Rest if changes.changed().await.is_err() => return,
            Step::Rest => {}
        }
    }
}

async fn renew(core: &Core, held: &Held) {
    let Some(client) = core.credential.backend() else {
        core.credential.note(Renewal::Denied {
            message: "the backend's address or CA in the kubeconfig cannot be used".to_owned(),
        });
        return;
    };
    let contract = &core.contract;
    match backend::renew(&client, &contract.namespace).await {
        Ok(renewed) if renewed.contract_uid != *contract.uid || renewed.access.namespace != contract.namespace => {
            core.metrics.renewal(false);
            core.credential.note(Renewal::Denied {
                message: "it answered with a kubeconfig of another contract".to_owned(),
            });
        }
        Ok(renewed) => {
            let taken = core.take(renewed);
            core.metrics.renewal(taken.is_ok());
            match taken {
                Ok(()) => tracing::info!(contract = %contract.namespace, "credential renewed"),
                Err(message) => {
                    tracing::warn!(contract = %contract.namespace, message, "renewed credential not used");
                    core.credential.note(failing(held, message.to_owned()));
                }
            }
        }
        Err(error) => {
            core.metrics.renewal(false);
            tracing::warn!(contract = %contract.namespace, %error, "credential not renewed");
            core.credential.note(match error {
                RenewError::Refused(message) => Renewal::Denied { message },
                RenewError::Failed(_) | RenewError::Unusable(_) => failing(held, error.to_string()),
            });
        }
    }
}

/// Once more.
fn failing(held: &Held, message: String) -> Renewal {
    let count = match &held.renewal {
        Renewal::Failing { count, .. } => count.saturating_add(1),
        Renewal::Well | Renewal::Denied { .. } => 1,
    };
    Renewal::Failing { message, count }
}

#[cfg(test)]
#[path = "renewal_tests.rs"]
mod tests;
