//! Fairness between tenants. A key is `<tenant>/<number>`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use proptest::{collection::vec, prelude::*};

use crate::{
    backoff::Backoff,
    queue::{Priority, Queue, Work},
};

type Key = (u8, u32);

fn fair(workers: usize) -> Queue<Key> {
    Queue::fair(workers, |(tenant, _): &Key| Arc::from(tenant.to_string()))
}

fn keys(queue: &Queue<Key>, count: usize) -> Vec<Key> {
    (0..count)
        .filter_map(|_| queue.try_next().map(|work| *work.key()))
        .collect()
}

#[test]
fn tenants_take_turns_whatever_one_of_them_has_queued() {
    let queue = fair(4);
    for number in 0..100_000 {
        queue.add((0, number), Priority::Live);
    }
    queue.add((1, 0), Priority::Live);
    queue.add((1, 1), Priority::Live);
    queue.add((2, 0), Priority::Live);
    assert_eq!(keys(&queue, 6), [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (0, 2)]);
    queue.add((1, 2), Priority::Live);
    assert!(keys(&queue, 2).contains(&(1, 2)));
}

#[test]
fn work_tells_how_many_keys_its_tenant_has_queued() {
    let queue = fair(3);
    for number in 0..10 {
        let priority = if number < 4 { Priority::Live } else { Priority::Backlog };
        queue.add((0, number), priority);
    }
    queue.add((1, 0), Priority::Live);
    let work: Vec<_> = (0..2).filter_map(|_| queue.try_next()).collect();
    let beside: Vec<_> = work.iter().map(Work::queued_beside).collect();
    assert_eq!(beside, [9, 0]);
    let plain = Queue::new();
    plain.add(1, Priority::Live);
    plain.add(2, Priority::Live);
    assert_eq!(plain.try_next().map(|work| work.queued_beside()), Some(0), "no tenants");
}

#[test]
fn one_tenant_leaves_a_worker_to_others_that_wait() {
    let queue = fair(3);
    for number in 0..10 {
        queue.add((0, number), Priority::Live);
    }
    let held: Vec<_> = (0..2).filter_map(|_| queue.try_next()).collect();
    queue.add((1, 0), Priority::Backlog);
    let work = queue.try_next().expect("the key of the other tenant");
    assert_eq!(*work.key(), (1, 0), "although it is less urgent");
    drop(work);
    let last = queue.try_next().expect("nobody else waits");
    assert_eq!(*last.key(), (0, 2));
    drop((held, last));
}

#[test]
fn one_tenant_alone_has_all_workers() {
    for workers in [1, 2, 8] {
        let queue = fair(workers);
        for number in 0..20 {
            queue.add((0, number), Priority::Live);
        }
        let held: Vec<_> = (0..workers).map_while(|_| queue.try_next()).collect();
        assert_eq!(held.len(), workers);
    }
}

#[test]
fn a_tenant_that_always_changes_keeps_nobody_in_the_backlog() {
    let queue = fair(4);
    queue.add((1, 0), Priority::Backlog);
    queue.add((1, 1), Priority::Backlog);
    let mut taken = Vec::new();
    for number in 0..20 {
        queue.add((0, number), Priority::Live);
        queue.add((0, number + 1_000), Priority::Live);
        taken.extend(keys(&queue, 1));
    }
    assert_eq!(taken.iter().filter(|(tenant, _)| *tenant == 1).count(), 2, "{taken:?}");
    // Without tenants, live changes pass always.
    let queue = Queue::new();
    queue.add((1, 0), Priority::Backlog);
    for number in 0..20 {
        queue.add((0, number), Priority::Live);
    }
    assert!(keys(&queue, 20).iter().all(|(tenant, _)| *tenant == 0));
}

/// One step of a user of the queue.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add { tenant: u8, number: u32, live: bool },
    AddLater { tenant: u8, number: u32, seconds: u64 },
    Take,
    Finish { which: usize, how: u8 },
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4_u8, 0..5_u32, any::<bool>()).prop_map(|(tenant, number, live)| Step::Add { tenant, number, live }),
        1 => (0..4_u8, 0..5_u32, 0..4_u64).prop_map(|(tenant, number, seconds)| Step::AddLater { tenant, number, seconds }),
        3 => Just(Step::Take),
        3 => (0..8_usize, 0..3_u8).prop_map(|(which, how)| Step::Finish { which, how }),
        1 => Just(Step::Wait),
    ];
    vec(step, 0..120)
}

const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(4));

fn finish(work: Work<Key>, how: u8) {
    match how {
        0 => drop(work),
        1 => work.retry(BACKOFF),
        _ => work.again_after(Duration::from_secs(2)),
    }
}

/// Runs with a clock that stands still but for what the steps wait.
fn paused<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(run)
}

proptest! {
    /// Whatever is added, taken and finished in any order: no key is lost, none has two workers, and a key that was added once and
    /// taken is not given again. The workers of a tenant stay below the limit while keys of others wait.
    #[test]
    fn nothing_is_lost_and_nothing_given_twice(steps in steps(), workers in 1..5_usize) {
        paused(async {
            let queue = fair(workers);
            // Keys that have to come, because they were added since they were taken last, and those that come by themselves.
            let (mut wanted, mut later) = (BTreeSet::new(), BTreeSet::new());
            let mut held: Vec<Work<Key>> = Vec::new();
            for step in steps {
                match step {
                    Step::Add { tenant, number, live } => {
                        let priority = if live { Priority::Live } else { Priority::Backlog };
                        queue.add((tenant, number), priority);
                        wanted.insert((tenant, number));
                    }
                    Step::AddLater { tenant, number, seconds } => {
                        queue.add_after((tenant, number), Duration::from_secs(seconds));
                        later.insert((tenant, number));
                    }
                    Step::Take if held.len() < workers => {
                        let mut running: HashMap<u8, usize> = HashMap::new();
                        for work in &held {
                            *running.entry(work.key().0).or_default() += 1;
                        }
                        // Keys with a worker come again only when that is done.
                        let waiting: BTreeSet<u8> = wanted
                            .iter()
                            .filter(|key| !held.iter().any(|work| work.key() == *key))
                            .map(|(tenant, _)| *tenant)
                            .collect();
                        let Some(work) = queue.try_next() else {
                            prop_assert!(waiting.is_empty(), "{waiting:?} wait");
                            continue;
                        };
                        let key = *work.key();
                        prop_assert!(held.iter().all(|other| *other.key() != key), "{key:?} has two workers");
                        prop_assert!(wanted.remove(&key) | later.remove(&key), "{key:?} came of itself");
                        later.remove(&key);
                        let limit = workers.saturating_sub(1).max(1);
                        let others = waiting.iter().any(|tenant| *tenant != key.0);
                        prop_assert!(
                            !others || running.get(&key.0).copied().unwrap_or_default() < limit,
                            "{key:?} got the last worker, and {waiting:?} wait"
                        );
                        held.push(work);
                    }
                    Step::Finish { which, how } if !held.is_empty() => {
                        let work = held.remove(which % held.len());
                        if how > 0 {
                            later.insert(*work.key());
                        }
                        finish(work, how);
                    }
                    Step::Wait => tokio::time::advance(Duration::from_secs(1)).await,
                    Step::Take | Step::Finish { .. } => {}
                }
            }
            for work in held.drain(..) {
                drop(work);
            }
            tokio::time::advance(Duration::from_mins(1)).await;
            while let Some(work) = queue.try_next() {
                wanted.remove(work.key());
                later.remove(work.key());
            }
            prop_assert!(wanted.is_empty(), "{wanted:?} are lost");
            prop_assert!(later.is_empty(), "{later:?} are lost");
            prop_assert!(queue.is_idle());
            Ok(())
        })?;
    }

    /// Of one tenant and priority the keys come in the order in which they were added, and between two keys of a tenant that waits, each
    /// other tenant gets one turn at most.
    #[test]
    fn tenants_take_turns_and_each_keeps_its_order(added in vec((0..5_u8, 0..40_u32), 0..200), live in any::<bool>()) {
        let queue = fair(4);
        let mut expect: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
        for (tenant, number) in added {
            queue.add((tenant, number), if live { Priority::Live } else { Priority::Backlog });
            let of_tenant = expect.entry(tenant).or_default();
            if !of_tenant.contains(&number) {
                of_tenant.push(number);
            }
        }
        let taken = keys(&queue, queue.len());
        for (tenant, numbers) in &expect {
            let of_tenant: Vec<_> = taken.iter().filter(|(of, _)| of == tenant).map(|(_, number)| *number).collect();
            prop_assert_eq!(&of_tenant, numbers);
            let turns: Vec<_> = (0..taken.len()).filter(|turn| taken[*turn].0 == *tenant).collect();
            for pair in turns.windows(2) {
                let mut others: Vec<_> = taken[pair[0] + 1..pair[1]].iter().map(|(of, _)| of).collect();
                let all = others.len();
                others.sort_unstable();
                others.dedup();
                prop_assert_eq!(others.len(), all, "{:?}", &taken);
            }
        }
    }
}
