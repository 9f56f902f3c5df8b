//! Which occurrence is an event of its own, and which only counts.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::Instant;

/// A repetition within this time of the last is the same event.
const WINDOW: Duration = Duration::from_mins(6);
/// A growing count is written at most this often.
const COUNT_PAUSE: Duration = Duration::from_secs(30);
/// Events remembered at most; beyond that the oldest are forgotten.
const REMEMBERED_MAX: usize = 2048;
/// New events within one window at most: a storm over thousands of objects is no reason to fill etcd.
const CREATED_MAX: usize = 1000;

/// Something that happened to an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Occurrence {
    pub(super) object: ObjectReference,
    /// Normal or Warning.
    pub(super) kind: &'static str,
    pub(super) reason: String,
    pub(super) message: String,
}

/// What to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Create { name: String },
    Count { name: String, count: i32 },
    Drop,
}

/// The events of late.
#[derive(Debug, Default)]
pub(super) struct Aggregate {
    events: HashMap<Key, Seen>,
    created: usize,
    window_began: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    object: String,
    reason: String,
    message: String,
}

#[derive(Debug)]
struct Seen {
    name: String,
    count: i32,
    last: Instant,
    written: Instant,
}

impl Aggregate {
    pub(super) fn decide(&mut self, occurrence: &Occurrence, now: Instant) -> Decision {
        let object = &occurrence.object;
        let key = Key {
            object: [&object.uid, &object.kind, &object.namespace, &object.name]
                .map(|part| part.as_deref().unwrap_or_default())
                .join("/"),
            reason: occurrence.reason.clone(),
            message: occurrence.message.clone(),
        };
        if let Some(seen) = self.events.get_mut(&key).filter(|seen| now - seen.last < WINDOW) {
            seen.last = now;
            seen.count = seen.count.saturating_add(1);
            if now - seen.written < COUNT_PAUSE {
                return Decision::Drop;
            }
            seen.written = now;
            return Decision::Count {
                name: seen.name.clone(),
                count: seen.count,
            };
        }
        if self.is_storm(now) {
            return Decision::Drop;
        }
        self.make_room(now);
        let name = format!(
            "{}.{:016x}",
            bindery_api::names::fit(object.name.clone().unwrap_or_default(), 200),
            rand::random::<u64>()
        );
        let seen = Seen {
            name: name.clone(),
            count: 1,
            last: now,
            written: now,
        };
        self.events.insert(key, seen);
        Decision::Create { name }
    }

    fn is_storm(&mut self, now: Instant) -> bool {
        if self.window_began.is_none_or(|began| now - began >= WINDOW) {
            self.window_began = Some(now);
            self.created = 0;
        }
        self.created += 1;
        self.created > CREATED_MAX
    }

    fn make_room(&mut self, now: Instant) {
        if self.events.len() < REMEMBERED_MAX {
            return;
        }
        self.events.retain(|_, seen| now - seen.last < WINDOW);
        if self.events.len() >= REMEMBERED_MAX {
            let mut ages: Vec<_> = self.events.values().map(|seen| seen.last).collect();
            ages.sort_unstable();
            let middle = ages[ages.len() / 2];
            self.events.retain(|_, seen| seen.last > middle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occurrence(name: &str, message: &str) -> Occurrence {
        Occurrence {
            object: ObjectReference {
                name: Some(name.to_owned()),
                ..ObjectReference::default()
            },
            kind: "Warning",
            reason: "Conflict".to_owned(),
            message: message.to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn repetitions_count_and_others_do_not() {
        let mut seen = Aggregate::default();
        let start = Instant::now();
        let Decision::Create { name } = seen.decide(&occurrence("a", "x"), start) else {
            panic!("the first is no event");
        };
        assert!(name.starts_with("a."), "{name}");
        assert_eq!(
            seen.decide(&occurrence("a", "x"), start + Duration::from_secs(1)),
            Decision::Drop
        );
        assert!(matches!(
            seen.decide(&occurrence("a", "y"), start),
            Decision::Create { .. }
        ));
        assert!(matches!(
            seen.decide(&occurrence("b", "x"), start),
            Decision::Create { .. }
        ));
        let later = start + Duration::from_secs(31);
        assert_eq!(
            seen.decide(&occurrence("a", "x"), later),
            Decision::Count { name, count: 3 }
        );
        let much_later = later + WINDOW;
        assert!(matches!(
            seen.decide(&occurrence("a", "x"), much_later),
            Decision::Create { .. }
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_is_cut_and_passes() {
        let mut seen = Aggregate::default();
        let start = Instant::now();
        let created = |seen: &mut Aggregate, now| {
            (0..3000)
                .filter(|number| {
                    matches!(
                        seen.decide(&occurrence(&number.to_string(), "x"), now),
                        Decision::Create { .. }
                    )
                })
                .count()
        };
        assert_eq!(created(&mut seen, start), CREATED_MAX);
        assert_eq!(created(&mut seen, start + WINDOW * 2), CREATED_MAX);
        assert!(seen.events.len() <= REMEMBERED_MAX);
    }
}
