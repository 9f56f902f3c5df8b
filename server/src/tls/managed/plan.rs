//! Decides when the CA and the serving certificate are renewed.
//!
//! A serving certificate is renewed after two thirds of its lifetime. A CA has four times: after two thirds of its lifetime the
//! next CA is made and published, that is, handed out beside it; when a sixth of the next CA's lifetime has passed, the next CA
//! signs; and the former CA is handed out until it expires. So a client that fetched the CAs at any time trusts the server for
//! a sixth of a CA's lifetime at least, if a replica runs at the times when something is due.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;

use super::{ManagedTls, Serving};
use crate::tls::{Certificate, Validity};

/// Each replica decides again after this time at the latest, in case the clock was changed.
pub(super) const REQUEUE_AFTER_MAX: Duration = Duration::from_hours(1);
/// Minimum time between two decisions that the clock causes.
const REQUEUE_AFTER_MIN: Duration = Duration::from_millis(500);

/// The lifetimes and names of certificates. Shorter lifetimes apply to certificates that exist too, longer ones to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Lifetime of a CA.
    pub ca_lifetime: Duration,
    /// Lifetime of a serving certificate, a third of the CA's at most.
    pub serving_lifetime: Duration,
    /// The DNS names and IP addresses that the serving certificate is for.
    pub names: BTreeSet<String>,
}

/// One change of what the Secret holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Forget the CAs that have expired, except the signing one.
    DropExpired,
    /// Make the next CA.
    PublishCa,
    /// Let the next CA sign, and delete the key of the one that signed until now.
    SignWithNext,
    /// Make a serving certificate for these names.
    IssueServing(BTreeSet<String>),
}

impl Step {
    /// What the step does, for the log.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::DropExpired => "an expired CA is dropped",
            Self::PublishCa => "the next CA is published",
            Self::SignWithNext => "the next CA signs from now on",
            Self::IssueServing(_) => "a serving certificate is made",
        }
    }
}

impl Policy {
    /// How long a client may be away, and still trust the server with the CAs that it knows.
    pub fn absence_max(&self) -> Duration {
        self.ca_lifetime / 6
    }

    fn publish_at(&self, signing: &Validity) -> Timestamp {
        signing.after_share(2, 3, self.ca_lifetime)
    }

    /// When the next CA signs, in the ordinary course.
    fn switch_at(&self, next: &Validity) -> Timestamp {
        next.after_share(1, 6, self.ca_lifetime)
    }

    /// Whether the next CA of `state`, if there is one, signs from now on.
    pub(super) fn switches(&self, state: &ManagedTls, now: Timestamp) -> bool {
        let next = state.next.as_ref().map(|next| &next.certificate.validity);
        next.is_some_and(|next| self.is_time_to_switch(&state.signing.certificate.validity, next, now))
    }

    fn is_time_to_switch(&self, signing: &Validity, next: &Validity, now: Timestamp) -> bool {
        self.switch_at(next).min(Self::switch_by(signing)) <= now
    }

    /// When the next CA signs at the latest: the signing CA is about to expire, as after a long standstill.
    pub(super) fn switch_by(signing: &Validity) -> Timestamp {
        signing.after_share(11, 12, Duration::MAX)
    }

    fn renew_serving_at(&self, serving: &Validity) -> Timestamp {
        serving.after_share(2, 3, self.serving_lifetime)
    }

    /// The names of the serving certificate to make; `None` if the present one is good. `switches` says that another CA signs
    /// from now on.
    fn names_to_issue(&self, state: &ManagedTls, switches: bool, now: Timestamp) -> Option<BTreeSet<String>> {
        let Some(Serving {
            certificate: serving, ..
        }) = &state.serving
        else {
            return Some(self.names.clone());
        };
        let signing = &state.signing.certificate;
        let is_due = self.renew_serving_at(&serving.validity) <= now;
        let can_last_longer = signing.validity.not_after > serving.validity.not_after;
        if switches || !serving.is_issued_by(signing) || serving.is_early(now) || (is_due && can_last_longer) {
            return Some(self.names.clone());
        }
        // The present names stay, or two replicas with different flags would replace each other's certificate for ever.
        let lacks_names = !self.names.is_subset(&serving.names);
        lacks_names.then(|| self.names.union(&serving.names).cloned().collect())
    }
}

/// Plans the steps that are due now, in order.
pub fn plan(state: &ManagedTls, policy: &Policy, now: Timestamp) -> Vec<Step> {
    let mut steps = Vec::new();
    let is_gone = |ca: &Certificate| ca.is_expired(now);
    let next = state.next.as_ref().map(|ca| &ca.certificate);
    if state.former.iter().any(is_gone) || next.is_some_and(is_gone) {
        steps.push(Step::DropExpired);
    }
    let signing = &state.signing.certificate.validity;
    let published = next.filter(|next| !is_gone(next)).map(|next| next.validity);
    let published = published.or_else(|| {
        let is_due = policy.publish_at(signing) <= now;
        is_due.then(|| {
            steps.push(Step::PublishCa);
            Validity::starting(now, policy.ca_lifetime, None)
        })
    });
    let switches = published.is_some_and(|next| policy.is_time_to_switch(signing, &next, now));
    if switches {
        steps.push(Step::SignWithNext);
    }
    if let Some(names) = policy.names_to_issue(state, switches, now) {
        steps.push(Step::IssueServing(names));
    }
    steps
}

/// The time until the next step is due if the Secret does not change, an hour at most.
pub fn requeue_after(state: &ManagedTls, policy: &Policy, now: Timestamp) -> Duration {
    let signing = &state.signing.certificate.validity;
    let mut times: Vec<_> = state.former.iter().map(|ca| ca.validity.not_after).collect();
    match &state.next {
        Some(next) => times.extend([policy.switch_at(&next.certificate.validity), Policy::switch_by(signing)]),
        None => times.push(policy.publish_at(signing)),
    }
    if let Some(serving) = &state.serving {
        times.push(policy.renew_serving_at(&serving.certificate.validity));
    }
    let first = times.into_iter().filter(|time| *time > now).min();
    let until = first.and_then(|time| Duration::try_from(time.duration_since(now)).ok());
    until
        .unwrap_or(REQUEUE_AFTER_MAX)
        .clamp(REQUEUE_AFTER_MIN, REQUEUE_AFTER_MAX)
}

#[cfg(test)]
mod tests;
