//! What generated histories have, and what shrinking keeps.

use std::collections::BTreeMap;

use super::*;
use crate::{
    faults::{ProcessName, RevisionsAfter},
    topology::Cluster,
    users::{Kind, ObjectName},
};

const SEEDS: u64 = 2_000;

fn object(name: u8) -> ObjectName {
    ObjectName {
        kind: Kind::Bound(1),
        namespace: 1,
        name,
    }
}

fn create(name: u8) -> Action {
    Action::Create {
        on: Cluster::Consumer(1),
        object: object(name),
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..50 {
        let history = generate(seed, STEPS_DEFAULT);
        assert_eq!(history, generate(seed, STEPS_DEFAULT));
        let text = serde_json::to_string(&history).unwrap();
        assert_eq!(serde_json::from_str::<History>(&text).unwrap(), history);
    }
    assert_ne!(generate(1, STEPS_DEFAULT).events, generate(2, STEPS_DEFAULT).events);
}

#[test]
fn each_kind_of_event_is_in_one_of_a_hundred_seeds() {
    let mut seeds: BTreeMap<&str, u64> = BTreeMap::new();
    let mut faults = Vec::new();
    for seed in 0..SEEDS {
        let history = generate(seed, STEPS_DEFAULT);
        faults.push(history.faults().count());
        let kinds = history.actions().flat_map(Action::kinds);
        let mut kinds: Vec<_> = kinds.chain(history.faults().flat_map(Fault::kinds)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            *seeds.entry(kind).or_default() += 1;
        }
    }
    let named = Action::KINDS.iter().chain(&Fault::KINDS);
    let rare: Vec<_> = named
        .map(|kind| (*kind, seeds.remove(kind).unwrap_or_default()))
        .filter(|(_, count)| *count < SEEDS / 50)
        .collect();
    assert!(rare.is_empty(), "of {SEEDS} seeds: {rare:?}");
    assert!(seeds.is_empty(), "kinds that are not listed: {seeds:?}");
    faults.sort_unstable();
    assert!(faults[faults.len() / 2] >= 3);
}

#[test]
fn events_are_in_the_order_of_time() {
    for seed in 0..100 {
        let history = generate(seed, STEPS_DEFAULT);
        assert!(history.events.is_sorted_by_key(|event| event.at));
    }
}

#[test]
fn shrinking_keeps_what_the_violation_needs() {
    let mut history = History::pair(7);
    for number in 0..40 {
        history = history.user(u64::from(number) * 100, create(number));
    }
    let crash = Fault::Crash {
        process: ProcessName::Konnector {
            of: Cluster::Consumer(1),
            replica: 1,
        },
        millis: 1_000,
    };
    history = history.fault(4_100, crash).user(4_200, create(99));
    let mut runs = 0;
    let needs = |history: &History| {
        runs += 1;
        let has = |name| history.actions().any(|action| *action == create(name));
        has(13) && has(99) && history.faults().count() == 1
    };
    let shortest = shrink(&history, 300, needs);
    assert_eq!(shortest.events.len(), 3, "{shortest}");
    assert!(runs <= 300);
    let shrunk = shrink(&history, 5, |_| false);
    assert_eq!(shrunk, history, "nothing shorter fails");
}

#[test]
fn a_history_reads_as_plain_words() {
    let history = History::pair(3)
        .user(0, create(1))
        .fault(
            1_500,
            Fault::Backup {
                of: Cluster::Consumer(1),
            },
        )
        .fault(
            61_007,
            Fault::RestoreBeside {
                consumer: 1,
                revisions: RevisionsAfter::Kept,
            },
        );
    let expect = "\
seed 3
provider 1 (1 servers) offers a namespaced API
consumer 1 (1 konnectors) has bound provider 1 by a binding
   0.000 s  a user of consumer 1 creates the object of provider 1's API team-1/object-1
   1.500 s  a backup of consumer 1 is taken
  61.007 s  the backup of consumer 1 is started beside it, with a konnector (revisions Kept)
";
    assert_eq!(history.to_string(), expect);
    assert_eq!(history.end(), 61_007);
}

#[test]
fn one_history_in_ten_begins_with_many_objects() {
    let is_create = |event: &&HistoryEvent| matches!(event.event, Event::User(Action::Create { .. }));
    let mut large = 0;
    for seed in 0..SEEDS {
        let history = generate(seed, STEPS_DEFAULT);
        let early = history.events.iter().take_while(|event| event.at < 1_200);
        large += u64::from(early.filter(is_create).count() >= 14);
    }
    assert!((SEEDS / 20..SEEDS / 6).contains(&large), "{large} of {SEEDS}");
}

#[test]
fn most_crashes_and_freezes_wait_for_a_request() {
    let (mut armed, mut others) = (0, 0);
    for seed in 0..SEEDS {
        for fault in generate(seed, STEPS_DEFAULT).faults() {
            match fault {
                Fault::CrashAt { .. } | Fault::FreezeAt { .. } => armed += 1,
                Fault::Crash { .. } | Fault::Freeze { .. } => others += 1,
                _ => {}
            }
        }
    }
    assert!(armed > others, "{armed} are armed, and {others} are not");
}
