//! Keeps what the watches of `load` have shown of each object, and what each change must still cause.

use std::{collections::HashMap, sync::Arc, time::Instant};

use parking_lot::Mutex;

use super::{
    command::Key,
    phase::{Arrival, Record},
};
use crate::order::Change;

/// An object as it was seen on one side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub uid: Box<str>,
    /// The namespace that the object is in. For a copy, this is the provider namespace.
    pub namespace: Box<str>,
    /// The sequence number in the spec, and that in the status: each change writes a higher one.
    pub seq: Option<u64>,
    pub status_seq: Option<u64>,
    /// Whether the object has the konnector's finalizer.
    pub held: bool,
}

/// The cluster on which an object was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Consumer,
    Provider,
}

/// A change that was requested, and what the watches must show before it counts as arrived.
#[derive(Debug)]
pub(crate) struct Goal {
    pub record: Arc<Record>,
    /// The number of the change within its phase.
    pub number: usize,
    pub change: Change,
    pub seq: u64,
    pub arrival: Partial,
}

/// When the two effects of a change were seen; `None` for an effect that was not seen yet. See `is_there`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Partial {
    first: Option<Instant>,
    second: Option<Instant>,
}

/// All objects, with what is known of each.
#[derive(Debug, Default)]
pub(crate) struct Board {
    entries: Mutex<HashMap<Key, Entry>>,
}

#[derive(Debug, Default)]
struct Entry {
    /// The consumer's object and its copy, each with the number of the listing in which it was last seen.
    ours: Option<(Seen, u64)>,
    copy: Option<(Seen, u64)>,
    /// Changes that have not arrived yet.
    goals: Vec<Goal>,
}

/// How many objects the consumers and the provider have, and how many of the consumers' have the konnector's finalizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub consumer: usize,
    pub provider: usize,
    pub held: usize,
}

/// Whether each of the two effects of a change is there. The latency of a create ends with the first; every other latency,
/// and every change, ends with both.
fn is_there(change: Change, seq: u64, ours: Option<&Seen>, copy: Option<&Seen>) -> [bool; 2] {
    let copied = copy.is_some_and(|copy| copy.seq >= Some(seq));
    match change {
        Change::Create => [copied, ours.is_some_and(|ours| ours.held)],
        Change::Update => [copied, true],
        Change::Status => [ours.is_some_and(|ours| ours.status_seq >= Some(seq)), true],
        Change::Delete => [copy.is_none(), ours.is_none()],
    }
}

// === impl Board ===

impl Board {
    /// Notes that a watch showed an object. `listing` counts the lists of this watch.
    pub(crate) fn saw(&self, at: At, key: Key, seen: Seen, when: Instant, listing: u64) {
        let mut entries = self.entries.lock();
        let entry = entries.entry(key).or_default();
        *entry.side(at) = Some((seen, listing));
        entry.settle(when);
    }

    /// Notes that a watch showed the deletion of an object.
    pub(crate) fn lost(&self, at: At, key: &Key, when: Instant) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(key) else {
            return;
        };
        *entry.side(at) = None;
        entry.settle(when);
        if entry.is_nothing() {
            entries.remove(key);
        }
    }

    /// Notes that a list is complete. Objects of the watch (`is_about`) that this list did not show are gone.
    pub(crate) fn listed(&self, at: At, is_about: impl Fn(&Key) -> bool, listing: u64, when: Instant) {
        self.entries.lock().retain(|key, entry| {
            if is_about(key) {
                let side = entry.side(at);
                side.take_if(|(_, seen)| *seen != listing);
                entry.settle(when);
            }
            !entry.is_nothing()
        });
    }

    /// Adds a goal to an object.
    pub(crate) fn expect(&self, key: &Key, goal: Goal) {
        let mut entries = self.entries.lock();
        entries.entry(key.clone()).or_default().goals.push(goal);
    }

    /// Removes the goal of a change. Returns what was seen of it; `None` if the change has arrived.
    pub(crate) fn withdraw(&self, key: &Key, record: &Arc<Record>, number: usize) -> Option<Partial> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(key)?;
        let is_it = |goal: &Goal| goal.number == number && Arc::ptr_eq(&goal.record, record);
        let index = entry.goals.iter().position(is_it)?;
        let goal = entry.goals.swap_remove(index);
        if entry.is_nothing() {
            entries.remove(key);
        }
        Some(goal.arrival)
    }

    /// Returns the UID of an object and the namespace of its copy; `None` unless both exist.
    pub(crate) fn pair(&self, key: &Key) -> Option<(Box<str>, Box<str>)> {
        let entries = self.entries.lock();
        let entry = entries.get(key)?;
        let (ours, copy) = (entry.ours.as_ref()?, entry.copy.as_ref()?);
        Some((ours.0.uid.clone(), copy.0.namespace.clone()))
    }

    /// Returns the keys of those consumers' objects that exist.
    pub(crate) fn keys(&self, is_about: impl Fn(&Key) -> bool) -> Vec<Key> {
        let entries = self.entries.lock();
        let there = entries
            .iter()
            .filter(|(key, entry)| entry.ours.is_some() && is_about(key));
        there.map(|(key, _)| key.clone()).collect()
    }

    /// Counts objects.
    pub(crate) fn count(&self, is_about: impl Fn(&Key) -> bool) -> Count {
        let entries = self.entries.lock();
        let mut count = Count::default();
        for (_, entry) in entries.iter().filter(|(key, _)| is_about(key)) {
            count.consumer += usize::from(entry.ours.is_some());
            count.provider += usize::from(entry.copy.is_some());
            count.held += usize::from(entry.ours.as_ref().is_some_and(|(ours, _)| ours.held));
        }
        count
    }
}

// === impl Entry ===

impl Entry {
    const fn side(&mut self, at: At) -> &mut Option<(Seen, u64)> {
        match at {
            At::Consumer => &mut self.ours,
            At::Provider => &mut self.copy,
        }
    }

    fn is_nothing(&self) -> bool {
        self.ours.is_none() && self.copy.is_none() && self.goals.is_empty()
    }

    /// Removes each goal that is reached, and notes its arrival in its record.
    fn settle(&mut self, when: Instant) {
        let (ours, copy) = (self.ours.as_ref().map(|it| &it.0), self.copy.as_ref().map(|it| &it.0));
        self.goals.retain_mut(|goal| {
            let arrival = &mut goal.arrival;
            let [first, second] = is_there(goal.change, goal.seq, ours, copy);
            if first {
                arrival.first.get_or_insert(when);
            }
            if second {
                arrival.second.get_or_insert(when);
            }
            let Some((first, second)) = arrival.first.zip(arrival.second) else {
                return true;
            };
            let done = first.max(second);
            let told = if goal.change == Change::Create { first } else { done };
            goal.record.arrived(goal.number, Arrival { told, done });
            false
        });
    }
}

// === impl Partial ===

impl Partial {
    /// Says in words which effect of a change was not seen.
    pub(crate) fn lacks(self, change: Change) -> &'static str {
        match (change, self.first, self.second) {
            (Change::Create, None, None) => "neither copied nor held",
            (Change::Create, None, _) => "not copied",
            (Change::Create, ..) => "not held",
            (Change::Update, ..) => "the copy was not changed",
            (Change::Status, ..) => "the status did not come down",
            (Change::Delete, None, None) => "neither is gone",
            (Change::Delete, None, _) => "the copy is left",
            (Change::Delete, ..) => "the object is left",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn seen(seq: u64, status_seq: Option<u64>, held: bool) -> Seen {
        Seen {
            seq: Some(seq),
            status_seq,
            held,
            ..Seen::default()
        }
    }

    #[track_caller]
    fn check(change: Change, seq: u64, ours: Option<&Seen>, copy: Option<&Seen>, expect: [bool; 2]) {
        assert_eq!(is_there(change, seq, ours, copy), expect);
    }

    #[test]
    fn only_what_a_change_causes_counts_as_seen() {
        let (bare, held) = (seen(1, None, false), seen(1, None, true));
        let (copy, newer) = (seen(1, Some(3), false), seen(2, Some(3), false));
        check(Change::Create, 1, Some(&bare), None, [false, false]);
        check(Change::Create, 1, Some(&bare), Some(&copy), [true, false]);
        check(Change::Create, 1, Some(&held), Some(&copy), [true, true]);
        check(Change::Create, 1, Some(&held), None, [false, true]);
        check(Change::Update, 2, Some(&held), Some(&copy), [false, true]);
        check(Change::Update, 2, Some(&held), Some(&newer), [true, true]);
        check(Change::Update, 1, Some(&held), Some(&newer), [true, true]);
        // A status counts only once it is on the consumer's object.
        check(Change::Status, 3, Some(&held), Some(&copy), [false, true]);
        check(
            Change::Status,
            3,
            Some(&seen(1, Some(3), true)),
            Some(&copy),
            [true, true],
        );
        check(Change::Delete, 0, Some(&held), Some(&copy), [false, false]);
        check(Change::Delete, 0, Some(&held), None, [true, false]);
        check(Change::Delete, 0, None, None, [true, true]);
    }

    fn key() -> Key {
        Key {
            resource: 0,
            consumer: 0,
            namespace: "bench-0".into(),
            name: "a-0".into(),
        }
    }

    fn goal(record: &Arc<Record>, change: Change, seq: u64) -> Goal {
        Goal {
            record: Arc::clone(record),
            number: 0,
            change,
            seq,
            arrival: Partial::default(),
        }
    }

    #[test]
    fn an_object_is_followed_through_its_life() {
        let board = Board::default();
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);

        let created = Arc::new(Record::new(1));
        board.expect(&key(), goal(&created, Change::Create, 1));
        board.saw(At::Consumer, key(), seen(1, None, false), at(1), 1);
        board.saw(At::Provider, key(), seen(1, None, false), at(5), 1);
        assert_eq!(created.arrival(0), None);
        board.saw(At::Consumer, key(), seen(1, None, true), at(9), 1);
        let (told, done) = (at(5), at(9));
        assert_eq!(created.arrival(0), Some(Arrival { told, done }));
        let all = Count {
            consumer: 1,
            provider: 1,
            held: 1,
        };
        assert_eq!(board.count(|_| true), all);

        let deleted = Arc::new(Record::new(1));
        board.expect(&key(), goal(&deleted, Change::Delete, 0));
        board.saw(At::Consumer, key(), seen(1, None, true), at(11), 1);
        board.lost(At::Provider, &key(), at(12));
        board.lost(At::Consumer, &key(), at(15));
        let (told, done) = (at(15), at(15));
        assert_eq!(deleted.arrival(0), Some(Arrival { told, done }));
        assert!(board.entries.lock().is_empty());
    }

    #[test]
    fn what_a_list_does_not_show_is_gone() {
        let board = Board::default();
        let now = Instant::now();
        board.saw(At::Consumer, key(), seen(1, None, true), now, 1);
        board.saw(At::Provider, key(), seen(1, None, true), now, 1);
        board.listed(At::Provider, |_| true, 1, now);
        assert_eq!(board.count(|_| true).provider, 1);
        board.listed(At::Provider, |key| key.resource == 1, 2, now);
        assert_eq!(board.count(|_| true).provider, 1);
        board.listed(At::Provider, |_| true, 2, now);
        assert_eq!(board.count(|_| true).provider, 0);
        assert_eq!(board.count(|_| true).consumer, 1);
    }

    #[test]
    fn what_was_refused_is_not_waited_for() {
        let board = Board::default();
        let record = Arc::new(Record::new(1));
        board.expect(&key(), goal(&record, Change::Create, 1));
        board.saw(At::Provider, key(), seen(1, None, false), Instant::now(), 1);
        let left = board.withdraw(&key(), &record, 0).unwrap();
        assert_eq!(left.lacks(Change::Create), "not held");
        assert!(board.withdraw(&key(), &record, 0).is_none());
    }
}
