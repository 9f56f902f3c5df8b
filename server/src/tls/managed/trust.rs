//! Keeps the trust of clients when the Secret holds other CAs than those that a replica handed out.
//!
//! The two differ if former content was put back into the Secret, or if a replica that started while the Secret was gone made a
//! CA. Then one CA goes on signing, and the others stay in the bundle until they expire.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    ManagedTls,
    plan::{Policy, REQUEUE_AFTER_MAX},
};
use crate::tls::Certificate;

/// CAs that are all younger than this belong to a new installation: each replica that knew others has read the Secret meanwhile.
const NEW_INSTALLATION: Duration = REQUEUE_AFTER_MAX.saturating_mul(2);

/// Returns what to store instead of `stored`, so that the clients of this replica go on trusting the server; `None` if `stored` is
/// good.
///
/// Each CA of `last_served` that has not expired is in the result. The two states need not have one history.
pub fn keep_trust(
    stored: &ManagedTls,
    last_served: &ManagedTls,
    policy: &Policy,
    now: Timestamp,
) -> Option<ManagedTls> {
    let stored_signs = stored_signs(stored, last_served, policy, now);
    let (mut merged, other) = if stored_signs {
        (stored.clone(), last_served)
    } else {
        (last_served.clone(), stored)
    };
    let mut is_changed = !stored_signs;
    if stored_signs {
        is_changed |= keep_next(&mut merged, last_served, now);
    }
    for ca in other.authorities().filter(|ca| !ca.is_expired(now)) {
        if !merged.trusts(ca) {
            merged.former.push(ca.clone());
            is_changed = true;
        }
    }
    is_changed.then_some(merged)
}

/// Whether the signing CA of `stored` goes on signing, and not that of `last_served`.
fn stored_signs(stored: &ManagedTls, last_served: &ManagedTls, policy: &Policy, now: Timestamp) -> bool {
    let (theirs, ours) = (&stored.signing.certificate, &last_served.signing.certificate);
    let is_next =
        |state: &ManagedTls, ca: &Certificate| state.next.as_ref().is_some_and(|next| next.certificate == *ca);
    if theirs == ours {
        return true;
    }
    // Who lets the next CA sign hands out the former one. A state that lacks the CA that signs here has another history.
    if is_next(last_served, theirs) && (stored.trusts(ours) || ours.is_expired(now)) {
        return true;
    }
    if is_next(stored, ours) {
        // It signs already, unless it is too young: then the stored CA precedes it, as it does where none knows it as the next.
        return !policy.switches(stored, now);
    }
    match (can_go_on(stored, now), can_go_on(last_served, now)) {
        (true, false) => return true,
        (false, true) => return false,
        _ => {}
    }
    if stored.trusts(ours) {
        return precedes(theirs, ours, policy, now);
    }
    // A CA that clients of this replica do not know, or that signed long ago.
    let is_new = |ca: &Certificate| is_younger(ca, NEW_INSTALLATION.min(policy.absence_max()), now);
    age(theirs) < age(ours) && last_served.authorities().all(is_new)
}

/// Whether certificates can be renewed without a CA that no client knows: the signing CA is not about to expire, or there is a next
/// one.
fn can_go_on(state: &ManagedTls, now: Timestamp) -> bool {
    let mut next = state.next.iter().map(|ca| &ca.certificate);
    next.any(|next| !next.is_expired(now)) || now < Policy::switch_by(&state.signing.certificate.validity)
}

/// Which of two CAs in one bundle signs: a CA that clients have had time to learn, and of two such CAs the later one, since CAs
/// change in this direction. The decision does not depend on which of the two a replica served, so that replicas agree.
fn precedes(one: &Certificate, other: &Certificate, policy: &Policy, now: Timestamp) -> bool {
    let is_young = |ca: &Certificate| is_younger(ca, policy.absence_max(), now);
    match (is_young(one), is_young(other)) {
        (false, true) => true,
        (true, false) => false,
        (true, true) => age(one) < age(other),
        (false, false) => age(one) > age(other),
    }
}

/// Orders CAs by their age, the oldest first; of two of one time, by their content.
fn age(ca: &Certificate) -> (Timestamp, &[u8]) {
    (ca.validity.issued, ca.der.as_ref())
}

fn is_younger(ca: &Certificate, than: Duration, now: Timestamp) -> bool {
    ca.validity
        .issued
        .checked_add(than)
        .is_ok_and(|grown_up| now < grown_up)
}

/// Takes the next CA of what a replica served, since its clients know it, unless `state` has an older one. Returns whether it did.
fn keep_next(state: &mut ManagedTls, last_served: &ManagedTls, now: Timestamp) -> bool {
    let is_valid = |ca: &Certificate| !ca.is_expired(now);
    // One that is not younger than the CA that signs has signed already.
    let is_later = |ca: &Certificate| age(ca) > age(&state.signing.certificate);
    let mut next = last_served.next.iter();
    let Some(next) = next.find(|next| is_valid(&next.certificate) && is_later(&next.certificate)) else {
        return false;
    };
    let present = state.next.as_ref().map(|present| &present.certificate);
    let present = present.filter(|present| is_valid(present));
    if present.is_some_and(|present| age(present) <= age(&next.certificate)) {
        return false;
    }
    state.former.retain(|ca| *ca != next.certificate);
    let replaced = state.next.replace(next.clone());
    state.former.extend(replaced.map(|replaced| replaced.certificate));
    true
}

#[cfg(test)]
mod tests;
