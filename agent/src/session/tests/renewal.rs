use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::session::{
    client_certificate::ClientCertificateFiles, kubeconfigs, network::Network, renewal_schedule::LIFETIME_SHARE,
};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn failed(count: u32) -> RenewalState {
    RenewalState::Failing {
        message: String::new(),
        count,
    }
}

fn denied() -> RenewalState {
    RenewalState::Denied { message: String::new() }
}

struct Case {
    schedule: RenewalSchedule,
    elapsed: u64,
    has_backend: bool,
    refused: bool,
    renewal: RenewalState,
    since_attempt: Option<u64>,
}

/// An hour's credential with a backend, just received.
fn hour() -> Case {
    Case {
        schedule: RenewalSchedule::granted(Instant::now(), Some(seconds(3600)), Some(seconds(2400))),
        elapsed: 0,
        has_backend: true,
        refused: false,
        renewal: RenewalState::Well,
        since_attempt: None,
    }
}

#[track_caller]
fn check(case: &Case, expect: RenewalStep) {
    let got = next(&RenewalInput {
        elapsed: seconds(case.elapsed),
        schedule: &case.schedule,
        has_backend: case.has_backend,
        refused: case.refused,
        renewal: &case.renewal,
        since_attempt: case.since_attempt.map(seconds),
        jitter: 0.0,
    });
    assert_eq!(got, expect);
}

#[tokio::test]
async fn renews_at_two_thirds() {
    check(&hour(), RenewalStep::Wait(seconds(2400)));
    check(
        &Case {
            elapsed: 2399,
            ..hour()
        },
        RenewalStep::Wait(seconds(1)),
    );
    check(
        &Case {
            elapsed: 2400,
            ..hour()
        },
        RenewalStep::Renew,
    );
    let estimated = |age| RenewalSchedule::estimated(Instant::now(), Some(seconds(3600)), seconds(age));
    check(
        &Case {
            schedule: estimated(600),
            ..hour()
        },
        RenewalStep::Wait(seconds(1800)),
    );
    check(
        &Case {
            schedule: estimated(3000),
            ..hour()
        },
        RenewalStep::Renew,
    );
    let late = RenewalSchedule::granted(Instant::now(), Some(seconds(3600)), Some(seconds(9999)));
    check(
        &Case {
            schedule: late,
            ..hour()
        },
        RenewalStep::Wait(seconds(2400)),
    );
}

#[tokio::test]
async fn what_does_not_expire_or_cannot_be_renewed_is_left_alone() {
    let eternal = RenewalSchedule::estimated(Instant::now(), None, Duration::ZERO);
    check(
        &Case {
            schedule: eternal,
            ..hour()
        },
        RenewalStep::Rest,
    );
    check(
        &Case {
            has_backend: false,
            ..hour()
        },
        RenewalStep::Wait(seconds(3600)),
    );
    check(
        &Case {
            has_backend: false,
            elapsed: 3600,
            ..hour()
        },
        RenewalStep::Rest,
    );
    check(
        &Case {
            has_backend: false,
            refused: true,
            ..hour()
        },
        RenewalStep::Rest,
    );
}

#[tokio::test]
async fn a_refusal_of_the_api_server_brings_a_renewal_at_once() {
    check(
        &Case {
            refused: true,
            ..hour()
        },
        RenewalStep::Renew,
    );
    let again = Case {
        refused: true,
        since_attempt: Some(0),
        ..hour()
    };
    check(&again, RenewalStep::Wait(seconds(1)));
}

#[tokio::test]
async fn failures_wait_longer_and_a_denial_longest() {
    let after = |renewal, since| Case {
        elapsed: 2500,
        renewal,
        since_attempt: Some(since),
        ..hour()
    };
    check(&after(failed(1), 0), RenewalStep::Wait(seconds(1)));
    check(&after(failed(4), 0), RenewalStep::Wait(seconds(8)));
    check(&after(failed(60), 0), RenewalStep::Wait(seconds(60)));
    check(&after(failed(60), 60), RenewalStep::Renew);
    check(&after(denied(), 0), RenewalStep::Wait(seconds(600)));
    check(
        &Case {
            elapsed: 3500,
            ..after(denied(), 0)
        },
        RenewalStep::Wait(seconds(100)),
    );
    check(&after(denied(), 600), RenewalStep::Renew);
}

/// Times, in seconds from the start, at which a renewal is requested, up to `within` seconds; `answer` gets the number of
/// the attempt.
async fn attempts(within: u64, answer: impl Fn(&SessionCredential, usize)) -> Vec<u64> {
    let access = kubeconfigs::access("x", 1000, 3600);
    let schedule = RenewalSchedule::granted(Instant::now(), Some(seconds(3600)), None);
    let credential = SessionCredential::new(
        access,
        schedule,
        None,
        ClientCertificateFiles::default(),
        Network::default(),
    );
    let (start, times) = (Instant::now(), Mutex::new(Vec::new()));
    let driven = drive(&credential, |_| {
        times.lock().push(start.elapsed().as_secs());
        answer(&credential, times.lock().len());
        std::future::ready(())
    });
    let _ = tokio::time::timeout(seconds(within), driven).await;
    times.into_inner()
}

#[tokio::test(start_paused = true)]
async fn a_renewed_credential_is_renewed_in_its_turn() {
    let times = attempts(3 * 3600, |credential, number| {
        let issued = 1000 + i64::try_from(number).unwrap() * 2000;
        let renewed = kubeconfigs::access_without_token(issued);
        assert!(credential.offer(
            &renewed,
            RenewalSchedule::granted(Instant::now(), Some(seconds(3600)), None)
        ));
    })
    .await;
    assert!((4..=5).contains(&times.len()), "{times:?}");
    let gaps = std::iter::once(times[0]).chain(times.windows(2).map(|pair| pair[1] - pair[0]));
    for gap in gaps {
        assert!((2039..=2400).contains(&gap), "{times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_is_away_is_asked_again_and_again_but_not_in_a_spin() {
    let times = attempts(3600, |credential, number| {
        credential.set_renewal(RenewalState::Failing {
            message: "no route".to_owned(),
            count: u32::try_from(number).unwrap(),
        });
    })
    .await;
    let tries = times.len();
    assert!((20..=60).contains(&tries), "{times:?}");
    assert!(times[1] - times[0] <= 1, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_not_taken_is_not_asked_for_in_a_spin() {
    let older = attempts(3600, |credential, _| {
        let schedule = RenewalSchedule::granted(Instant::now(), Some(seconds(3600)), None);
        assert!(!credential.offer(&kubeconfigs::access_without_token(500), schedule));
        credential.touch();
    })
    .await;
    assert!(older.windows(2).all(|pair| pair[1] > pair[0]), "{older:?}");
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_taken_seriously() {
    let times = attempts(3600, |credential, _| {
        credential.set_renewal(RenewalState::Denied {
            message: "revoked".to_owned(),
        });
    })
    .await;
    assert!((2..=3).contains(&times.len()), "{times:?}");
}

proptest! {
    #[test]
    fn never_later_than_two_thirds_and_never_in_a_spin(
        total in 1_u64..1_000_000, elapsed in 0_u64..2_000_000, jitter in 0.0..1.0_f64, count in 0_u32..100,
    ) {
        let schedule = RenewalSchedule::estimated(Instant::now(), Some(seconds(total)), Duration::ZERO);
        let seen = |renewal: &RenewalState, since_attempt| next(&RenewalInput {
            elapsed: seconds(elapsed), schedule: &schedule, has_backend: true, refused: false, renewal,
            since_attempt, jitter,
        });
        match seen(&RenewalState::Well, None) {
            RenewalStep::Wait(wait) => prop_assert!(seconds(elapsed) + wait <= seconds(total).mul_f64(LIFETIME_SHARE)),
            step => prop_assert_eq!(step, RenewalStep::Renew),
        }
        for renewal in [RenewalState::Well, failed(count), denied()] {
            let RenewalStep::Wait(wait) = seen(&renewal, Some(Duration::ZERO)) else {
                return Err(TestCaseError::fail("it spins"));
            };
            prop_assert!(!wait.is_zero(), "it spins");
        }
    }
}

#[test]
fn what_is_left_of_a_credential_is_counted_on_past_its_end() {
    let received = Instant::now();
    let left = |lifetime: Option<u64>, after: u64| {
        let schedule = RenewalSchedule::granted(received, lifetime.map(Duration::from_secs), None);
        schedule.left(received + Duration::from_secs(after))
    };
    assert_eq!(
        [left(Some(100), 30), left(Some(100), 130), left(None, 30)],
        [Some(70), Some(-30), None]
    );
}
