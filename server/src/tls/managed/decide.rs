//! Decides what the Secret is to hold, from what it holds and what this replica served last.

use jiff::Timestamp;

use super::{
    ManagedTls,
    issue::{self, IssueCertificates, IssueError},
    plan::{self, Policy, Step},
    trust,
};

/// What to write to the Secret.
#[derive(Clone, Debug)]
pub struct Change {
    /// What the Secret is to hold.
    pub state: ManagedTls,
    /// Why, for the log.
    pub reasons: Vec<&'static str>,
}

/// Decides what to write to the Secret; `None` if what is stored is good. `stored` is `None` if there is no Secret or it is empty,
/// and `last_served` if this replica has just started.
pub fn decide(
    stored: Option<&ManagedTls>,
    last_served: Option<&ManagedTls>,
    policy: &Policy,
    issuer: &impl IssueCertificates,
    now: Timestamp,
) -> Result<Option<Change>, IssueError> {
    let (base, mut reasons) = match (stored, last_served) {
        (Some(stored), Some(last_served)) => match trust::keep_trust(stored, last_served, policy, now) {
            Some(kept) => (kept, vec!["the Secret lacked a CA that clients trust"]),
            None => (stored.clone(), Vec::new()),
        },
        (Some(stored), None) => (stored.clone(), Vec::new()),
        (None, Some(last_served)) => (last_served.clone(), vec!["the Secret was gone"]),
        (None, None) => (issue::bootstrap(policy, issuer, now)?, vec!["there was no CA"]),
    };
    let steps = plan::plan(&base, policy, now);
    if steps.is_empty() && reasons.is_empty() {
        return Ok(None);
    }
    reasons.extend(steps.iter().map(Step::reason));
    let state = issue::apply(base, &steps, policy, issuer, now)?;
    Ok(Some(Change { state, reasons }))
}

#[cfg(test)]
mod tests;
