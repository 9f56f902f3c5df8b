//! Decides which occurrence becomes a new event, and which is counted in an event that was written before.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::Instant;

/// A repetition is counted in the same event if it comes within this time of the last one.
const WINDOW: Duration = Duration::from_mins(6);
/// The count of one event is written at most this often.
const COUNT_PAUSE: Duration = Duration::from_secs(30);
/// At most this many events are remembered; the older half is forgotten beyond that.
const REMEMBERED_MAX: usize = 2048;
/// At most this many events are created within one [`WINDOW`], so that trouble with thousands of objects does not fill etcd.
const CREATED_MAX: usize = 1000;

/// What happened to an object, before it is an event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Occurrence {
    pub(super) object: ObjectReference,
    /// The type of the event: Normal or Warning.
    pub(super) kind: &'static str,
    pub(super) reason: String,
    pub(super) message: String,
}

/// What the writer does with an [`Occurrence`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Create { name: String },
    Count { name: String, count: i32 },
    Drop,
}

/// The events that were written recently, and their counts.
#[derive(Debug, Default)]
pub(super) struct Aggregate {
    events: HashMap<EventKey, RecordedEvent>,
    created: usize,
    window_began: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EventKey {
    object: String,
    reason: String,
    message: String,
}

#[derive(Debug)]
struct RecordedEvent {
    name: String,
    count: i32,
    last: Instant,
    written: Instant,
}

impl Aggregate {
    /// Decides what to write for an occurrence, and remembers that as written. If the write of a new event fails, the caller
    /// has to [`forget`](Self::forget) it.
    pub(super) fn decide(&mut self, occurrence: &Occurrence, now: Instant) -> Decision {
        let object = &occurrence.object;
        let key = EventKey::of(occurrence);
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
        let recorded = RecordedEvent {
            name: name.clone(),
            count: 1,
            last: now,
            written: now,
        };
        self.events.insert(key, recorded);
        Decision::Create { name }
    }

    /// Forgets the event of an occurrence, so that the next repetition creates an event anew.
    pub(super) fn forget(&mut self, occurrence: &Occurrence) {
        self.events.remove(&EventKey::of(occurrence));
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

// === impl EventKey ===

impl EventKey {
    fn of(occurrence: &Occurrence) -> Self {
        let object = &occurrence.object;
        Self {
            object: [&object.uid, &object.kind, &object.namespace, &object.name]
                .map(|part| part.as_deref().unwrap_or_default())
                .join("/"),
            reason: occurrence.reason.clone(),
            message: occurrence.message.clone(),
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
