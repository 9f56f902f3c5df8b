//! Renews the credential of a session before it expires.
//!
//! All times are durations since the credential was received; clocks of two machines are never compared. The age of a
//! credential from a Secret is an estimate by this machine's clock. If the estimate is wrong, the API server refuses the
//! credential, and a renewal follows at once.

use std::{future::Future, sync::Arc, time::Duration};

use bindery_runtime::backoff::Backoff;
use tokio::time::{Instant, sleep};

use super::{
    backend::{self, RenewError, RenewedCredential},
    credential::{HeldCredential, RenewalState, SessionCredential},
    renewal_schedule::RenewalSchedule,
    session_core::SessionCore,
};
use crate::contract::{Contract, is_unverified};

/// Pauses between failed renewals.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
/// Pause before a backend that refused is asked again, since an admin may lift a revocation.
const DENIED_PAUSE: Duration = Duration::from_mins(10);
/// A renewal may be earlier by this part, so that konnectors do not renew all at once.
const JITTER: f64 = 0.15;

/// The input of a decision about a renewal.
#[derive(Clone, Debug)]
pub struct RenewalInput<'a> {
    /// Time since the credential was received.
    pub elapsed: Duration,
    /// Schedule of the credential.
    pub schedule: &'a RenewalSchedule,
    /// Whether the kubeconfig names a backend.
    pub has_backend: bool,
    /// Whether the API server refused the credential.
    pub refused: bool,
    /// State of the renewal.
    pub renewal: &'a RenewalState,
    /// Time since the last attempt, if there was one.
    pub since_attempt: Option<Duration>,
    /// Random number between 0 and 1, constant for one credential.
    pub jitter: f64,
}

/// What to do about the renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalStep {
    /// Request a new credential.
    Renew,
    /// Decide again after this time.
    Wait(Duration),
    /// Decide again when the credential changes.
    Rest,
}

/// Decides whether to renew a credential now.
pub fn next(input: &RenewalInput<'_>) -> RenewalStep {
    let retry = |pause: Duration| match input.since_attempt {
        Some(since) if since < pause => RenewalStep::Wait(pause.saturating_sub(since)),
        _ => RenewalStep::Renew,
    };
    // The expiry itself needs a decision, since it may end the credential for good.
    let until_expiry = input.schedule.remaining.map(|left| left.saturating_sub(input.elapsed));
    if !input.has_backend {
        return match until_expiry {
            Some(left) if !left.is_zero() && !input.refused => RenewalStep::Wait(left),
            _ => RenewalStep::Rest,
        };
    }
    match input.renewal {
        RenewalState::Denied { .. } | RenewalState::Locked { .. } => match retry(DENIED_PAUSE) {
            RenewalStep::Wait(pause) => match until_expiry {
                Some(left) if !left.is_zero() => RenewalStep::Wait(pause.min(left)),
                _ => RenewalStep::Wait(pause),
            },
            step => step,
        },
        RenewalState::Failing { count, .. } => {
            let step = RETRY
                .first
                .saturating_mul(1 << count.saturating_sub(1).min(10))
                .min(RETRY.max);
            retry(step.mul_f64(1.0 - input.jitter / 2.0))
        }
        RenewalState::Well if input.refused => retry(RETRY.first),
        RenewalState::Well => match input.schedule.due {
            None => RenewalStep::Rest,
            Some(due) => {
                let due = due.mul_f64(1.0 - JITTER * input.jitter);
                if input.elapsed >= due {
                    retry(RETRY.first)
                } else {
                    RenewalStep::Wait(due.saturating_sub(input.elapsed))
                }
            }
        },
    }
}

/// Renews the credential of a session until dropped.
pub(super) async fn run(core: Arc<SessionCore>) {
    let credential = core.credential.clone();
    drive(&credential, |held| {
        let core = Arc::clone(&core);
        async move { renew(&core, &held).await }
    })
    .await;
}

/// Calls `renew` whenever a renewal is due.
async fn drive<F: Future<Output = ()>>(credential: &SessionCredential, renew: impl Fn(HeldCredential) -> F) {
    let mut changes = credential.changes();
    let mut last_attempt: Option<Instant> = None;
    let mut jitter = (credential.held().access.fingerprint.clone(), rand::random());
    loop {
        let held = changes.borrow_and_update().clone();
        if jitter.0 != held.access.fingerprint {
            jitter = (held.access.fingerprint.clone(), rand::random());
        }
        let now = Instant::now();
        let step = next(&RenewalInput {
            elapsed: now.duration_since(held.schedule.received),
            schedule: &held.schedule,
            has_backend: held.access.backend.is_some(),
            refused: held.refused,
            renewal: &held.renewal,
            since_attempt: last_attempt.map(|at| now.duration_since(at)),
            jitter: jitter.1,
        });
        match step {
            RenewalStep::Renew => {
                last_attempt = Some(now);
                renew(held).await;
            }
            RenewalStep::Wait(pause) => {
                tokio::select! {
                    ended = changes.changed() => if ended.is_err() { return },
                    // The conditions depend on the time, so their controllers must look again.
                    () = sleep(pause) => credential.touch(),
                }
            }
            RenewalStep::Rest if changes.changed().await.is_err() => return,
            RenewalStep::Rest => {}
        }
    }
}

/// Whether a renewed credential is for another contract. The UID of an unverified contract is not known.
fn is_of_other(renewed: &RenewedCredential, contract: &Contract) -> bool {
    let is_same_uid = is_unverified(&contract.uid) || renewed.contract_uid == *contract.uid;
    !is_same_uid || renewed.access.namespace != contract.namespace
}

/// Renews a credential once, and sets the state of its renewal.
async fn renew(core: &SessionCore, held: &HeldCredential) {
    let contract = &core.contract;
    let answer = match core.credential.backend() {
        Ok((_, client)) => {
            // A credential that was taken only because a newer one was refused proves nothing about a copy.
            let holder = core.holder.records().filter(|_| core.credential.is_newest());
            backend::renew(&client, &contract.namespace, &holder.unwrap_or_default()).await
        }
        Err(error) => Err(error.into()),
    };
    match answer {
        Ok(renewed) if is_of_other(&renewed, contract) => {
            core.metrics.renewal(false);
            core.credential.set_renewal(RenewalState::Denied {
                message: "the backend answered with a kubeconfig of another contract".to_owned(),
            });
        }
        Ok(renewed) => {
            let taken = core.take(renewed);
            core.metrics.renewal(taken.is_ok());
            match taken {
                Ok(()) => tracing::info!(contract = %contract.namespace, "credential renewed"),
                Err(message) => {
                    tracing::warn!(contract = %contract.namespace, message, "renewed credential not used");
                    core.credential.set_renewal(failing(held, message.to_owned()));
                }
            }
        }
        Err(error) => {
            core.metrics.renewal(false);
            tracing::warn!(contract = %contract.namespace, %error, "credential not renewed");
            core.credential.set_renewal(match error {
                RenewError::Refused(message) => RenewalState::Denied { message },
                RenewError::Locked(message) => RenewalState::Locked { message },
                RenewError::Failed(_) | RenewError::Unusable(_) => failing(held, error.to_string()),
            });
        }
    }
}

/// Returns the state of the renewal after one more failure.
fn failing(held: &HeldCredential, message: String) -> RenewalState {
    let count = match &held.renewal {
        RenewalState::Failing { count, .. } => count.saturating_add(1),
        RenewalState::Well | RenewalState::Denied { .. } | RenewalState::Locked { .. } => 1,
    };
    RenewalState::Failing { message, count }
}

#[cfg(test)]
#[path = "tests/renewal.rs"]
mod tests;
