//! Guards a process from what an API server sends that it does not trust, as the konnector does not trust a provider: names are
//! checked before they are used, and the objects and bytes that are held are counted and limited.
//!
//! Each watch, list or stream of such a server has a [`Reader`]. It skips objects whose names could lead elsewhere, and fails once a
//! limit is exceeded. That a list broke off, or lacks a skipped object, proves nothing: nothing counts as deleted because of it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bindery_api::names;
use tokio::sync::watch;

/// Of a list that comes anew, so many times the limit may be held: what the former list showed is given up only when it is complete.
const WHILE_LISTING: u64 = 2;

/// How much of what one server sends may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Objects, of all kinds.
    pub objects: u64,
    /// Bytes of the text of objects that are held as they came, as caches do, and as the sync does until an object is in sync.
    pub bytes: u64,
}

/// The guard of one server, with the count of what is held of it. Clones share the count.
#[derive(Clone)]
pub struct Guard(Arc<Shared>);

struct Shared {
    limits: Limits,
    objects: AtomicU64,
    bytes: AtomicU64,
    readers: AtomicU64,
    faults: watch::Sender<Faults>,
}

/// What is wrong with what a server sends now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The limit that each reader exceeds.
    exceeded: BTreeMap<u64, Exceeded>,
    /// The invalid names that each reader found.
    names: BTreeMap<u64, InvalidNames>,
}

/// A limit that is exceeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// Which one.
    pub limit: Limit,
    /// Its value.
    pub max: u64,
    /// How much there was when it was met.
    pub count: u64,
    /// The path of the collection, or the stream, that was read when the limit was met.
    pub path: Arc<str>,
}

/// One of the [`Limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`Limits::objects`].
    Objects,
    /// [`Limits::bytes`].
    Bytes,
    /// The length of one answer, which no flag changes.
    Answer,
}

/// Objects that are skipped for their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidNames {
    /// The path of the collection, or the stream, that has them.
    pub path: Arc<str>,
    /// The first of the names with its namespace, escaped.
    pub first: String,
    /// How many there are.
    pub count: u64,
}

/// The names that objects of a collection may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameRule {
    /// Names that can be a segment of a path, as Kubernetes asks of all objects.
    #[default]
    Object,
    /// DNS subdomains, as most kinds have.
    Subdomain,
    /// DNS labels: the objects have the names of namespaces.
    Label,
}

/// A count of objects and bytes that are held. They count until it is dropped; a clone counts once more.
pub struct Held {
    guard: Guard,
    objects: u64,
    bytes: u64,
}

/// Judges the objects of one collection or stream as they come.
#[derive(Debug)]
pub struct Reader {
    guard: Guard,
    id: u64,
    path: Arc<str>,
    rule: NameRule,
    /// Objects of the list that is under way.
    listed: u64,
    /// Objects with invalid names, since the last list began.
    invalid: u64,
    is_exceeded: bool,
}

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is used.
    Take,
    /// Its name is not valid: it is skipped, and the others are used.
    Skip,
    /// A limit is exceeded: reading ends.
    Exceeded,
}

// === impl Guard ===

impl Guard {
    /// A guard with these limits.
    pub fn new(limits: Limits) -> Self {
        Self(Arc::new(Shared {
            limits,
            objects: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            readers: AtomicU64::new(0),
            faults: watch::Sender::default(),
        }))
    }

    /// A guard that checks names and limits nothing.
    pub fn unlimited() -> Self {
        Self::new(Limits {
            objects: u64::MAX,
            bytes: u64::MAX,
        })
    }

    /// The faults, to read or to wait for.
    pub fn faults(&self) -> watch::Receiver<Faults> {
        self.0.faults.subscribe()
    }

    /// Counts what is held from now on.
    pub fn hold(&self, objects: u64, bytes: u64) -> Held {
        let mut held = Held {
            guard: self.clone(),
            objects: 0,
            bytes: 0,
        };
        held.resize(objects, bytes);
        held
    }

    /// Objects and bytes that are held now.
    pub fn held(&self) -> (u64, u64) {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (count(&self.0.objects), count(&self.0.bytes))
    }

    /// A reader of the collection at this path, whose objects have names by this rule.
    pub fn reader(&self, path: impl Into<Arc<str>>, rule: NameRule) -> Reader {
        Reader {
            guard: self.clone(),
            id: self.0.readers.fetch_add(1, Ordering::Relaxed),
            path: path.into(),
            rule,
            listed: 0,
            invalid: 0,
            is_exceeded: false,
        }
    }

    /// The limit that is exceeded by what is held, or would be if each were `times` as high.
    fn exceeded(&self, times: u64) -> Option<Limit> {
        let (objects, bytes) = self.held();
        let limits = self.0.limits;
        if objects > limits.objects.saturating_mul(times) {
            Some(Limit::Objects)
        } else if bytes > limits.bytes.saturating_mul(times) {
            Some(Limit::Bytes)
        } else {
            None
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("limits", &self.0.limits)
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

impl PartialEq for Guard {
    /// Whether both count together.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Guard {}

// === impl Faults ===

impl Faults {
    /// Whether no limit is exceeded.
    pub fn is_within_limits(&self) -> bool {
        self.exceeded.is_empty()
    }

    /// The limit that is exceeded, if any.
    pub fn exceeded(&self) -> Option<&Exceeded> {
        self.exceeded.values().next()
    }

    /// Whether this limit is exceeded.
    pub fn exceeds(&self, limit: Limit) -> bool {
        self.exceeded.values().any(|exceeded| exceeded.limit == limit)
    }

    /// Objects that are skipped for their names, of one collection of those that have any.
    pub fn invalid_names(&self) -> Option<&InvalidNames> {
        self.names.values().next()
    }
}

// === impl Limit ===

impl Limit {
    /// All limits.
    pub const ALL: [Self; 3] = [Self::Objects, Self::Bytes, Self::Answer];

    /// Value of the label `limit` of metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::Bytes => "bytes",
            Self::Answer => "answer",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Objects => "objects",
            Self::Bytes => "bytes",
            Self::Answer => "bytes in one answer",
        })
    }
}

// === impl NameRule ===

impl NameRule {
    fn admits(self, namespace: &str, name: &str) -> bool {
        let is_name = match self {
            Self::Object => names::is_path_segment(name),
            Self::Subdomain => names::is_subdomain(name),
            Self::Label => names::is_label(name),
        };
        is_name && (namespace.is_empty() || names::is_label(namespace))
    }
}

// === impl Held ===

impl Held {
    /// Changes what is held.
    pub fn resize(&mut self, objects: u64, bytes: u64) {
        let change = |count: &AtomicU64, before: u64, after: u64| {
            if after > before {
                count.fetch_add(after - before, Ordering::Relaxed);
            } else if after < before {
                count.fetch_sub(before - after, Ordering::Relaxed);
            }
        };
        change(&self.guard.0.objects, self.objects, objects);
        change(&self.guard.0.bytes, self.bytes, bytes);
        (self.objects, self.bytes) = (objects, bytes);
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        self.guard.hold(self.objects, self.bytes)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.resize(0, 0);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("objects", &self.objects)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

// === impl Reader ===

impl Reader {
    /// Begins a list.
    pub fn begin(&mut self) {
        (self.listed, self.invalid) = (0, 0);
    }

    /// Judges an object of a list.
    pub fn listed(&mut self, namespace: &str, name: &str) -> Verdict {
        self.listed += 1;
        let limit = if self.listed > self.guard.0.limits.objects {
            Some(Limit::Objects)
        } else {
            self.guard.exceeded(WHILE_LISTING)
        };
        self.judge(limit, namespace, name)
    }

    /// Judges an object that was created or changed.
    pub fn applied(&mut self, namespace: &str, name: &str) -> Verdict {
        self.judge(self.guard.exceeded(1), namespace, name)
    }

    /// Judges an object that was deleted. No limit holds that up.
    pub fn deleted(&mut self, namespace: &str, name: &str) -> Verdict {
        if self.rule.admits(namespace, name) {
            return Verdict::Take;
        }
        self.invalid = self.invalid.saturating_sub(1);
        if self.invalid == 0 {
            self.tell(|faults, id| faults.names.remove(&id).is_some());
        }
        Verdict::Skip
    }

    /// Ends a list that is complete. Returns false if a limit is exceeded by what is held now.
    pub fn complete(&mut self) -> bool {
        if self.invalid == 0 {
            self.tell(|faults, id| faults.names.remove(&id).is_some());
        }
        if let Some(limit) = self.guard.exceeded(1) {
            self.exceed(limit);
            return false;
        }
        self.is_exceeded = false;
        self.tell(|faults, id| faults.exceeded.remove(&id).is_some());
        true
    }

    /// Whether a limit was exceeded since a list was complete.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Whether what is held besides exceeds a limit, so that nothing more may be read. Notes that.
    pub fn is_full(&mut self) -> bool {
        let limit = self.guard.exceeded(WHILE_LISTING);
        if let Some(limit) = limit {
            self.exceed(limit);
        }
        limit.is_some()
    }

    /// Counts an object and its text.
    pub fn hold(&self, objects: u64, length: usize) -> Held {
        self.guard.hold(objects, length as u64)
    }

    /// Notes that an answer to a request for one object is longer than this.
    pub fn exceed_answer(&mut self, max: usize) {
        let max = max as u64;
        self.note_exceeded(Limit::Answer, max, max);
    }

    fn judge(&mut self, limit: Option<Limit>, namespace: &str, name: &str) -> Verdict {
        if let Some(limit) = limit {
            self.exceed(limit);
            return Verdict::Exceeded;
        }
        if self.rule.admits(namespace, name) {
            return Verdict::Take;
        }
        self.invalid += 1;
        self.note_name(namespace, name);
        Verdict::Skip
    }

    fn exceed(&mut self, limit: Limit) {
        let limits = self.guard.0.limits;
        let (objects, bytes) = self.guard.held();
        let (max, count) = match limit {
            Limit::Objects => (limits.objects, objects.max(self.listed)),
            Limit::Bytes | Limit::Answer => (limits.bytes, bytes),
        };
        self.note_exceeded(limit, max, count);
    }

    fn note_exceeded(&mut self, limit: Limit, max: u64, count: u64) {
        self.is_exceeded = true;
        let exceeded = Exceeded {
            limit,
            max,
            count,
            path: Arc::clone(&self.path),
        };
        self.tell(|faults, id| faults.exceeded.insert(id, exceeded.clone()) != Some(exceeded));
    }

    /// Notes an invalid name. Only the first one of a collection is news.
    fn note_name(&self, namespace: &str, name: &str) {
        let count = self.invalid;
        self.tell(|faults, id| {
            if let Some(known) = faults.names.get_mut(&id) {
                known.count = count;
                return false;
            }
            let name = names::quoted(name);
            let first = if namespace.is_empty() {
                name
            } else {
                format!("{name} in namespace {}", names::quoted(namespace))
            };
            tracing::warn!(path = %self.path, %first, "an object with an invalid name is skipped");
            let path = Arc::clone(&self.path);
            faults.names.insert(id, InvalidNames { path, first, count });
            true
        });
    }

    fn tell(&self, change: impl FnOnce(&mut Faults, u64) -> bool) {
        self.guard.0.faults.send_if_modified(|faults| change(faults, self.id));
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.tell(|faults, id| faults.exceeded.remove(&id).is_some() | faults.names.remove(&id).is_some());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn guard(objects: u64, bytes: u64) -> Guard {
        Guard::new(Limits { objects, bytes })
    }

    fn faults(guard: &Guard) -> Faults {
        guard.faults().borrow().clone()
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_skipped_and_told() {
        let guard = Guard::unlimited();
        let mut reader = guard.reader("/api/v1/things", NameRule::Label);
        reader.begin();
        assert_eq!(reader.listed("west", "team1"), Verdict::Take);
        assert_eq!(reader.listed("west", "team1/otherresources/x?y="), Verdict::Skip);
        assert_eq!(reader.listed("west", "a\u{1b}[2J"), Verdict::Skip);
        assert!(reader.complete());
        let told = faults(&guard).invalid_names().unwrap().clone();
        assert_eq!(told.first, r#""team1/otherresources/x?y=" in namespace "west""#);
        assert_eq!(told.count, 2);
        assert_eq!(faults(&guard).exceeded(), None);
        reader.deleted("west", "a\u{1b}[2J");
        assert_eq!(reader.deleted("west", "team1/otherresources/x?y="), Verdict::Skip);
        assert_eq!(faults(&guard), Faults::default(), "both are gone");
        assert_eq!(reader.applied("a/b", "c"), Verdict::Skip, "no namespace has that name");
        reader.begin();
        assert!(reader.complete());
        assert_eq!(faults(&guard), Faults::default());
    }

    #[test]
    fn each_kind_has_its_rule() {
        for (rule, name, expect) in [
            (NameRule::Object, "system:node", true),
            (NameRule::Subdomain, "system:node", false),
            (NameRule::Subdomain, "a.b", true),
            (NameRule::Label, "a.b", false),
            (NameRule::Object, "..", false),
            (NameRule::Object, "", false),
        ] {
            assert_eq!(rule.admits("", name), expect, "{rule:?} {name}");
        }
    }

    #[test]
    fn a_list_without_end_is_ended_and_a_shorter_one_mends_it() {
        let guard = guard(3, 1_000);
        let mut reader = guard.reader("/api/v1/things", NameRule::Object);
        let list = |reader: &mut Reader, length: usize| {
            reader.begin();
            let verdicts = (0..length).map(|at| reader.listed("", &format!("a{at}")));
            verdicts.take_while(|verdict| *verdict == Verdict::Take).count()
        };
        assert_eq!(list(&mut reader, 10), 3);
        assert!(reader.is_exceeded());
        let exceeded = faults(&guard).exceeded().unwrap().clone();
        assert_eq!((exceeded.limit, exceeded.max, exceeded.count), (Limit::Objects, 3, 4));
        assert_eq!(list(&mut reader, 2), 2);
        assert!(reader.complete() && !reader.is_exceeded());
        assert_eq!(faults(&guard), Faults::default());
    }

    #[test]
    fn what_is_held_is_limited_for_all_readers_together() {
        let guard = guard(10, 100);
        let mut one = guard.reader("/one", NameRule::Object);
        let mut other = guard.reader("/other", NameRule::Object);
        let held = one.hold(1, 101);
        assert_eq!(other.applied("", "a"), Verdict::Exceeded);
        assert_eq!(other.deleted("", "a"), Verdict::Take, "that makes room");
        assert_eq!(
            other.listed("", "a"),
            Verdict::Take,
            "what a list replaces is still held"
        );
        assert!(!other.complete());
        let twice = held.clone();
        assert_eq!(one.listed("", "a"), Verdict::Exceeded);
        drop((held, twice));
        assert_eq!(guard.held(), (0, 0));
        assert!(other.complete());
        assert!(
            faults(&guard).exceeded().is_some(),
            "the first reader has not listed anew"
        );
        drop(one);
        assert_eq!(faults(&guard), Faults::default());
    }

    proptest! {
        /// Whatever is held, resized, copied and dropped: the count is that of what is left.
        #[test]
        fn the_count_is_that_of_what_is_held(steps in proptest::collection::vec((0..3_u8, 0..5_u64, 0..9_u64), 0..40)) {
            let guard = guard(1, 1);
            let mut held: Vec<Held> = Vec::new();
            for (step, objects, bytes) in steps {
                match (step, held.last_mut()) {
                    (0, _) | (_, None) => held.push(guard.hold(objects, bytes)),
                    (1, Some(last)) => last.resize(objects, bytes),
                    (_, Some(last)) if objects < 3 => { let copy = last.clone(); held.push(copy); }
                    _ => drop(held.pop()),
                }
                let sum = |part: fn(&Held) -> u64| held.iter().map(part).sum::<u64>();
                prop_assert_eq!(guard.held(), (sum(|held| held.objects), sum(|held| held.bytes)));
            }
        }
    }
}
