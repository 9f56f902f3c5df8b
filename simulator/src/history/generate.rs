//! Makes the history of a seed: clusters, user actions and faults.
//!
//! A seed uses only some kinds of events, each often. Histories that use all kinds a little show less, since each kind hides
//! what another one needs.
//!
//! Some seeds in a row have the same beginning: the same clusters, and the same schedule until all bindings are ready. Making those takes
//! nearly half of a seed's time, and is done once for all of them.

use std::ops::Range;

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use super::{Event, History, HistoryEvent};

mod clusters;
mod faults;
mod users;

/// The number of user actions of a history, if the command line does not say another.
pub const STEPS_DEFAULT: u32 = 26;

/// The fewest faults of a history. Some of them have no effect.
const FAULTS_MIN: u32 = 4;
/// The most faults of a history.
const FAULTS_MAX: u32 = 8;

/// How many seeds have the same beginning.
const SEEDS_OF_BEGINNING: u64 = 5;

/// The beginning of a seed.
pub fn beginning_of(seed: u64) -> u64 {
    seed / SEEDS_OF_BEGINNING
}

/// The seeds that have this beginning.
pub fn seeds_of_beginning(beginning: u64) -> Range<u64> {
    let first = beginning.saturating_mul(SEEDS_OF_BEGINNING);
    first..first.saturating_add(SEEDS_OF_BEGINNING)
}

/// Makes the history of a seed with this many user actions.
pub fn generate(seed: u64, steps: u32) -> History {
    let beginning = beginning_of(seed);
    // Schedules draw from other streams of the same numbers.
    let topology = clusters::topology(&mut StdRng::seed_from_u64(beginning ^ 0x636c_7573_7465_7273));
    let mut rng = StdRng::seed_from_u64(seed ^ 0x6869_7374_6f72_7921);
    let mut users = users::Users::new(&mut rng, &topology);
    let mut events = Vec::new();
    let mut at = 0_u64;
    let mut push = |at, action| {
        let event = Event::User(action);
        events.push(HistoryEvent { at, event });
    };
    for action in users.burst(&mut rng) {
        at += rng.random_range(0..40_u64);
        push(at, action);
    }
    for _ in 0..steps {
        at += pause(&mut rng);
        for (after, action) in users.next(&mut rng) {
            push(at + after, action);
        }
    }
    let count = rng.random_range(FAULTS_MIN..=FAULTS_MAX);
    let actions: Vec<_> = events.iter().map(|event| event.at).collect();
    let when = faults::ActionTimes { actions, end: at };
    let drawn = faults::draw(&mut rng, &topology, count, &when, users.has_many_objects());
    events.extend(drawn);
    // Stable, so that events of one moment keep the order in which they were drawn.
    events.sort_by_key(|event| event.at);
    users::redirect_to_clones(&mut rng, &mut events);
    History {
        seed,
        beginning,
        topology,
        events,
    }
}

/// Milliseconds between two actions: bursts, steady work and long pauses.
fn pause(rng: &mut StdRng) -> u64 {
    match rng.random_range(0..100_u32) {
        0..50 => rng.random_range(0..200),
        50..85 => rng.random_range(200..3_000),
        _ => rng.random_range(3_000..15_000),
    }
}
