use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, sample::Index};

use super::*;
use crate::tls::{
    Certificate,
    managed::numbered::{NumberedCertificates, at, bundle, policy, signer},
};

/// A replica without I/O: what it served last, and the CAs that it has handed out since its start.
#[derive(Debug, Default)]
struct Replica {
    last_served: Option<ManagedTls>,
    handed_out: Vec<Certificate>,
}

/// The Secret, and all that it has held.
#[derive(Debug, Default)]
struct World {
    issuer: NumberedCertificates,
    secret: Option<ManagedTls>,
    history: Vec<ManagedTls>,
    now: i64,
}

impl World {
    /// Lets a replica read the Secret, write it if need be, and serve what it holds. Returns whether it was written.
    fn reconcile(&mut self, replica: &mut Replica) -> Result<bool, TestCaseError> {
        let change = decide(
            self.secret.as_ref(),
            replica.last_served.as_ref(),
            &policy(),
            &self.issuer,
            at(self.now),
        );
        let change = change.expect("certificates");
        let is_changed = change.is_some();
        if let Some(Change { state, reasons }) = change {
            prop_assert!(!reasons.is_empty());
            self.history.push(state.clone());
            self.secret = Some(state);
        }
        replica.last_served.clone_from(&self.secret);
        let served = self.secret.as_ref().expect("a state");
        replica.handed_out.retain(|ca| !served.trusts(ca));
        for lost in &replica.handed_out {
            prop_assert!(lost.is_expired(at(self.now)), "{lost:?} was handed out and is lost");
        }
        replica.handed_out = served.authorities().cloned().collect();
        let serving = &served.serving.as_ref().expect("a certificate").certificate;
        prop_assert!(!serving.is_expired(at(self.now)));
        prop_assert!(serving.is_issued_by(&served.signing.certificate));
        let numbers = bundle(served);
        prop_assert_eq!(
            numbers.iter().collect::<BTreeSet<_>>().len(),
            numbers.len(),
            "{:?}",
            &numbers
        );
        Ok(is_changed)
    }

    /// Puts back what the Secret held at some time.
    fn restore(&mut self, which: Index) {
        if !self.history.is_empty() {
            self.secret = Some(which.get(&self.history).clone());
        }
    }
}

proptest! {
    /// Whatever was deleted or put back, and in whatever order replicas reconcile: no replica forgets a CA that it handed out, and
    /// all end with one state.
    #[test]
    fn replicas_agree_and_forget_no_ca(
        events in prop::collection::vec((0..3_usize, 0..8_u8, any::<Index>(), 1..400_i64), 1..80),
    ) {
        let mut world = World::default();
        let mut replicas: [Replica; 3] = Default::default();
        for (replica, event, which, pause) in &events {
            match event {
                0 => world.secret = None,
                1 => replicas[*replica] = Replica::default(),
                2 => world.restore(*which),
                _ => {
                    world.now += pause;
                    world.reconcile(&mut replicas[*replica])?;
                }
            }
        }
        for _ in 0..3 {
            for replica in &mut replicas {
                world.reconcile(replica)?;
            }
        }
        for replica in &mut replicas {
            prop_assert!(!world.reconcile(replica)?, "they never agree");
        }
    }

    /// One replica runs all the time and reconciles after each change of the Secret. Meanwhile the Secret is deleted, former content
    /// or that of an earlier installation is put back, and other replicas start, end and write. Each client that the replica gave
    /// the CAs within the longest absence trusts the server.
    #[test]
    fn clients_of_a_replica_that_runs_trust_the_server(
        events in prop::collection::vec((0..2_usize, 0..8_u8, any::<Index>(), 1..900_i64), 1..60),
    ) {
        let policy = policy();
        let absence = i64::try_from(policy.absence_max().as_secs()).expect("seconds");
        let mut world = World { now: -900, ..World::default() };
        world.reconcile(&mut Replica::default())?;
        world.secret = None;
        world.now = 0;
        let mut running = Replica::default();
        let mut others: [Replica; 2] = Default::default();
        let mut bundles = BTreeMap::new();
        let mut reconcile = |world: &mut World, running: &mut Replica| {
            world.reconcile(running)?;
            let served = running.last_served.as_ref().expect("a state");
            let fetched = world.now - absence;
            let since = bundles.range(..=fetched).next_back().map_or(0, |(time, _)| *time);
            for (time, known) in bundles.range(since..) {
                let known: &Vec<u32> = known;
                prop_assert!(known.contains(&signer(served)), "{known:?} of {time}, {:?} at {}", bundle(served), world.now);
            }
            bundles.insert(world.now, bundle(served));
            Ok(())
        };
        reconcile(&mut world, &mut running)?;
        for (other, event, which, pause) in &events {
            let until = world.now + pause;
            while world.now < until {
                let served = running.last_served.as_ref().expect("a state");
                let due = plan::requeue_after(served, &policy, at(world.now)).as_secs();
                let due = i64::try_from(due.max(1)).expect("seconds");
                world.now = until.min(world.now + due);
                reconcile(&mut world, &mut running)?;
            }
            match event {
                0 => world.secret = None,
                1 => others[*other] = Replica::default(),
                // The CA of a new installation yields to that of an earlier one.
                2 | 3 if world.now >= absence => world.restore(*which),
                _ => {}
            }
            // Another replica may be faster.
            if event % 2 == 1 || *event > 3 {
                world.reconcile(&mut others[*other])?;
            }
            reconcile(&mut world, &mut running)?;
        }
    }
}

#[test]
fn the_log_gets_each_reason() {
    let mut world = World::default();
    let check = |world: &World, last_served: Option<&ManagedTls>, expect: &[&str]| {
        let change = decide(
            world.secret.as_ref(),
            last_served,
            &policy(),
            &world.issuer,
            at(world.now),
        );
        let change = change.expect("certificates");
        assert_eq!(change.map_or_else(Vec::new, |change| change.reasons), expect);
    };
    check(&world, None, &["there was no CA", "a serving certificate is made"]);
    let mut replica = Replica::default();
    world.reconcile(&mut replica).expect("a state");
    let served = replica.last_served;
    check(&world, None, &[]);
    check(&world, served.as_ref(), &[]);
    world.secret = None;
    check(&world, served.as_ref(), &["the Secret was gone"]);
    world.reconcile(&mut Replica::default()).expect("a state");
    check(&world, served.as_ref(), &["the Secret lacked a CA that clients trust"]);
}
