use super::*;
use crate::tls::managed::{
    issue::{apply, bootstrap},
    numbered::{NumberedCertificates, at, bundle, policy, signer},
    plan::plan,
};

/// Carries out the steps that are due at each of these times.
fn steps(mut state: ManagedTls, issuer: &NumberedCertificates, times: &[i64]) -> ManagedTls {
    for now in times.iter().copied().map(at) {
        let steps = plan(&state, &policy(), now);
        state = apply(state, &steps, &policy(), issuer, now).expect("certificates");
    }
    state
}

/// A state of a new CA with what is due at each of these times, the first of which is that of the CA.
fn made(issuer: &NumberedCertificates, times: &[i64]) -> ManagedTls {
    let first = bootstrap(&policy(), issuer, at(times[0])).expect("a CA");
    steps(first, issuer, times)
}

fn kept(stored: &ManagedTls, last_served: &ManagedTls, now: i64) -> Option<ManagedTls> {
    keep_trust(stored, last_served, &policy(), at(now))
}

/// What is kept: the CAs with the one that signs first, and the next one.
#[track_caller]
fn check(stored: &ManagedTls, last_served: &ManagedTls, now: i64, expect: &[u32], next: Option<u32>) -> ManagedTls {
    let kept = kept(stored, last_served, now).expect("a change");
    let of_next = kept.next.as_ref().map(|ca| bundle(&ManagedTls::of(ca.clone()))[0]);
    assert_eq!((bundle(&kept), of_next), (expect.to_vec(), next));
    assert_eq!(signer(&kept), expect[0]);
    assert!(
        keep_trust(&kept, last_served, &policy(), at(now)).is_none(),
        "it is kept once"
    );
    assert!(
        keep_trust(&kept, stored, &policy(), at(now)).is_none(),
        "the others agree"
    );
    kept
}

#[test]
fn what_other_replicas_rotated_is_accepted() {
    let issuer = NumberedCertificates::default();
    let first = made(&issuer, &[0]);
    let published = steps(first.clone(), &issuer, &[2400]);
    let switched = steps(published.clone(), &issuer, &[3000]);
    let dropped = steps(switched.clone(), &issuer, &[3600]);
    assert!(kept(&published, &first, 2400).is_none());
    assert!(kept(&switched, &published, 3000).is_none());
    assert!(kept(&switched, &first, 3000).is_none(), "it slept all the time");
    assert!(kept(&dropped, &switched, 3600).is_none());
    // A CA that has expired may be missing.
    assert!(kept(&dropped, &published, 3600).is_none());
}

#[test]
fn former_content_that_was_put_back_does_not_change_who_signs() {
    let issuer = NumberedCertificates::default();
    let first = made(&issuer, &[0]);
    let published = steps(first.clone(), &issuer, &[2400]);
    let switched = steps(published.clone(), &issuer, &[3000]);
    check(&first, &switched, 3001, &[2, 1], None);
    check(&published, &switched, 3001, &[2, 1], None);
}

#[test]
fn a_ca_that_expired_never_signs_instead_of_one_that_is_valid() {
    let issuer = NumberedCertificates::default();
    let first = made(&issuer, &[0]);
    let dropped = steps(first.clone(), &issuer, &[2400, 3000, 3600]);
    assert_eq!(bundle(&dropped), [2], "the first one is forgotten");
    for now in [3601, 4000, 5000] {
        check(&first, &dropped, now, &[2], None);
    }
}

#[test]
fn a_next_ca_that_was_published_stays_the_next() {
    let issuer = NumberedCertificates::default();
    let first = made(&issuer, &[0]);
    let published = steps(first.clone(), &issuer, &[2400]);
    check(&first, &published, 2500, &[1, 2], Some(2));
    // A replica that has just started published another one.
    let other = steps(first, &issuer, &[2500]);
    let kept = check(&other, &published, 2501, &[1, 2, 3], Some(2));
    assert!(
        kept.next
            .is_some_and(|next| next.certificate.validity.issued == at(2400))
    );
    // Or it was too late to publish one first.
    let hasty = steps(made(&issuer, &[0]), &issuer, &[3300]);
    assert_eq!(signer(&hasty), 5);
    let merged = check(&hasty, &published, 3300, &[1, 2, 5, 4], Some(2));
    assert_eq!(
        signer(&steps(merged, &issuer, &[3301])),
        2,
        "clients know it since 2400"
    );
}

#[test]
fn a_next_ca_stays_the_next_when_another_ca_signs() {
    let issuer = NumberedCertificates::default();
    let mut sibling = made(&issuer, &[0]);
    let mut signs = made(&issuer, &[0]);
    sibling.former.push(signs.signing.certificate.clone());
    signs.former.push(sibling.signing.certificate.clone());
    let sibling = steps(sibling, &issuer, &[2400]);
    // Of two CAs of one time, the one with the greater certificate signs. Its replica published its next CA later.
    check(&steps(signs, &issuer, &[2500]), &sibling, 2501, &[2, 3, 1, 4], Some(3));
}

#[test]
fn the_ca_of_an_earlier_installation_does_not_sign_instead_of_one_that_clients_know() {
    let issuer = NumberedCertificates::default();
    let earlier = made(&issuer, &[-900]);
    let installed = made(&issuer, &[0]);
    check(&earlier, &installed, 700, &[2, 1], None);
    // The Secret was restored just after a new installation began without it.
    check(&earlier, &installed, 599, &[1, 2], None);
    // But not if its CA is about to expire.
    check(&earlier, &made(&issuer, &[2500]), 2600, &[3, 1], None);
}

#[test]
fn a_ca_that_a_starting_replica_made_while_the_secret_was_gone_yields() {
    let issuer = NumberedCertificates::default();
    let running = made(&issuer, &[0]);
    let starting = made(&issuer, &[2000]);
    let merged = check(&starting, &running, 2001, &[1, 2], None);
    // Whichever replica is asked first.
    assert_eq!(
        bundle(&check(&running, &starting, 2001, &[1, 2], None)),
        bundle(&merged)
    );
}

#[test]
fn replicas_that_know_both_cas_agree_which_one_signs() {
    let issuer = NumberedCertificates::default();
    let with = |state: &ManagedTls, other: &ManagedTls| {
        let mut state = state.clone();
        state.former.push(other.signing.certificate.clone());
        state
    };
    let (older, younger) = (made(&issuer, &[0]), made(&issuer, &[1000]));
    let (of_older, of_younger) = (with(&older, &younger), with(&younger, &older));
    // The younger one is too new at first.
    for (now, expect, good, bad) in [
        (1500, [1, 2], &of_older, &of_younger),
        (1600, [2, 1], &of_younger, &of_older),
    ] {
        check(bad, good, now, &expect, None);
        assert!(kept(good, bad, now).is_none());
    }
}
