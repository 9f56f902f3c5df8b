//! The record of what users said and of what was done to the clusters, by which the invariants judge writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bindery_simulator_apiserver::ObjectKey;
use serde::{Deserialize, Serialize};

use super::Relation;
use crate::faults::ProcessName;

/// A circumstance of a violation: something that happened before, to the consumer or the provider concerned. The track record
/// names open weaknesses by circumstances, so that a violation in other circumstances is news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Circumstance {
    /// A user ended the use of the API, without saying what is to happen to copies: they stay.
    Unbound,
    /// A user ended the use of the API, with deletionPolicy Delete.
    UnboundDeleting,
    /// A user ended the use of the API, with deletionPolicy Orphan.
    UnboundKeeping,
    /// The owner unbound the export at the provider, by a call.
    UnboundByCall,
    /// The consumer's backup runs as a second cluster.
    ConsumerRestoredBeside,
    /// The consumer was restored in place.
    ConsumerRestoredInPlace,
    /// The etcd of the consumer lost objects.
    ConsumerLostObjects,
    /// The provider was restored in place.
    ProviderRestoredInPlace,
    /// The etcd of the provider lost objects.
    ProviderLostObjects,
    /// The clock of a server went ahead by as long as a credential can be renewed.
    ServerClockAhead,
    /// A user forced the end of a namespace.
    NamespaceForced,
    /// The operator had put an object of their own into a provider namespace that the product gives back: the use of the API ends,
    /// a user deleted the consumer's namespace, or no bound object is left in it.
    ObjectsBeside,
    /// The writer had stood still for longer than its Lease lasts, and sent the request right after that.
    LeaderFrozen,
    /// A watch of one namespace or resource may have failed in the last minute while others worked.
    WatchFailed,
    /// The writer is a konnector of the restored second cluster.
    WriterIsClone,
    /// The source exists on the live consumer, and nobody deleted it.
    SourceLives,
    /// The source vanished without a deletion: a restore or a loss took it.
    SourceLost,
    /// The konnector deleted the source.
    SourceEndedByKonnector,
    /// The source went with its CRD.
    SourceEndedWithDefinition,
    /// The source went with a namespace that nobody deleted.
    SourceEndedOtherwise,
    /// The source is in an earlier state since a restore, and no user changed it after that.
    SourceRewound,
    /// The source had ended, and a restore brought it back.
    SourceRevived,
    /// The copy is in an earlier state since a restore, and no konnector wrote it after that.
    CopyRewound,
    /// The copy had ended, and a restore brought it back.
    CopyRevived,
    /// The konnector of the restored second cluster wrote the copy, or its provider namespace.
    CopyOfClone,
    /// The binding, or the CRD on the consumer, is being deleted or is gone.
    BindingEnds,
    /// A user deleted the binding with propagation policy Orphan, and no other binding was made after it.
    BindingOrphaned,
    /// The request was sent before another one that arrived earlier: the network had disturbed the request, or another process
    /// sent the other one.
    RequestOvertaken,
    /// A restore put revisions far ahead, or the konnector started anew after it, so that its memory does not tell that the
    /// cluster went back in time.
    RewindUnseen,
}

/// What a user said about objects and copies, by a deletion or by a consent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Word {
    /// The user wants copies deleted with the binding, and ended the binding.
    DeletePolicy,
    /// The user ended the binding, and wants copies kept, or did not say that they go. The objects on the consumer go with the binding,
    /// as the documentation says.
    KeepsCopies,
    /// The user ordered the deletion of copies whose sources are missing.
    OrphansDeleted,
    /// The user discarded copies that were retained.
    Discarded,
    /// The user consented to the end of a bundle's binding with its objects.
    ConsentUnbind,
}

/// One statement of a user, and the binding and the sources that it is about.
#[derive(Clone, Debug)]
pub struct Said {
    /// What the user said.
    pub word: Word,
    /// UID of the binding that it is about. Nothing that comes after another binding was made is covered.
    pub binding: String,
    /// UIDs of the only sources that are covered; `None` if all are.
    pub only: Option<BTreeSet<String>>,
}

/// Everything that the invariants need to know of users and faults.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    words: BTreeMap<Relation, Vec<Said>>,
    /// What users said of bindings that others came after. A clone may have such a binding.
    former: BTreeMap<Relation, Vec<Said>>,
    facts: BTreeMap<Circumstance, BTreeSet<Scope>>,
    began: Duration,
    frozen: BTreeMap<ProcessName, Vec<Span>>,
    /// When watches of consumers failed.
    failed_watches: BTreeMap<u8, Vec<Span>>,
    /// Bindings of which a user took deletionPolicy Delete back, and since when.
    taken_back: BTreeMap<Relation, Vec<(String, Span)>>,
    /// UIDs of bindings that a user deleted with propagation policy Orphan.
    orphaned: BTreeMap<Relation, BTreeSet<String>>,
    overwritten: BTreeSet<(u8, ObjectKey)>,
    /// Relations with which a consumer went on because its user accepted that.
    accepted: BTreeSet<Relation>,
    serial: u64,
}

/// A time from its start to its end, in milliseconds since the history began.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: u64,
    until: u64,
}

/// A leader that stood still sends what it had begun within this time, in milliseconds.
const AFTER_THAW: u64 = 1_000;
/// A konnector whose watch of a binding lags or fails goes by its former policy for this time.
const AFTER_TAKEN_BACK: Duration = Duration::from_secs(30);
/// The effect of a failed watch lasts for this time, in milliseconds.
const AFTER_FAILED_WATCH: u64 = 60_000;

/// Whom a circumstance concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Consumer(u8),
    Provider(u8),
    Relation(u8, u8),
}

// === impl Ledger ===

impl Ledger {
    /// The next serial number for the spec of an object. A later edit always has a larger one, so an old spec is known by it.
    pub fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Notes a user's explicit word.
    pub fn say(&mut self, relation: Relation, said: Said) {
        self.words.entry(relation).or_default().push(said);
    }

    /// Notes that the binding of this UID exists. What users said of former ones is over.
    pub fn bound(&mut self, relation: Relation, binding: &str) {
        if let Some(words) = self.words.get_mut(&relation) {
            let former = words.extract_if(.., |said| said.binding != binding);
            self.former.entry(relation).or_default().extend(former);
        }
    }

    /// Whether a user said that the copy of this source may go. `binding` is the UID of the binding that there is now.
    pub fn allows_end_of_copy(&self, relation: Relation, source: &str, binding: Option<&str>) -> bool {
        self.covers(relation, source, binding, |word| {
            !matches!(word, Word::KeepsCopies | Word::Discarded)
        })
    }

    /// Whether a user said that this object of the consumer may go. `binding` is the UID of the binding that there is now.
    pub fn allows_end_of_source(&self, relation: Relation, source: &str, binding: Option<&str>) -> bool {
        self.covers(relation, source, binding, |word| {
            !matches!(word, Word::OrphansDeleted | Word::Discarded)
        })
    }

    /// Whether a user said that this object may go, by a word about the binding of this UID, which is ending: the present one, or one that
    /// a backup brought back.
    pub fn allows_end_with(&self, relation: Relation, source: &str, binding: &str) -> bool {
        let former = self.former.get(&relation).into_iter().flatten();
        let mut words = self.words.get(&relation).into_iter().flatten().chain(former);
        words.any(|said| {
            !matches!(said.word, Word::OrphansDeleted | Word::Discarded)
                && said.binding == binding
                && said.only.as_ref().is_none_or(|only| only.contains(source))
        })
    }

    /// Whether a user ordered that the copy of this source is deleted, though it is retained or would be.
    pub fn allows_end_of_retained(&self, relation: Relation, source: &str) -> bool {
        self.covers(relation, source, None, |word| {
            matches!(word, Word::OrphansDeleted | Word::Discarded)
        })
    }

    fn covers(&self, relation: Relation, source: &str, binding: Option<&str>, is_meant: impl Fn(Word) -> bool) -> bool {
        let mut words = self.words.get(&relation).into_iter().flatten();
        words.any(|said| {
            is_meant(said.word)
                && binding.is_none_or(|binding| binding == said.binding)
                && said.only.as_ref().is_none_or(|only| only.contains(source))
        })
    }

    /// Notes when the history began, in the time of the world.
    pub fn begin(&mut self, at: Duration) {
        self.began = at;
    }

    /// Notes that a process stands still from a time of the world for this long, which is longer than its Lease lasts.
    pub fn froze(&mut self, process: ProcessName, from: Duration, time: Duration) {
        let span = self.span(from, time);
        self.frozen.entry(process).or_default().push(span);
    }

    /// Whether a process that has been running since `started` had stood still for longer than its Lease lasts right before it sent
    /// a request. Times are in milliseconds since the history began.
    pub fn has_thawed(&self, process: ProcessName, started: u64, sent: u64) -> bool {
        let mut frozen = self.frozen.get(&process).into_iter().flatten();
        frozen.any(|span| span.from >= started && span.until <= sent && sent - span.until < AFTER_THAW)
    }

    /// Notes that watches of a consumer's konnector may fail from a time of the world for this long.
    pub fn watches_fail(&mut self, consumer: u8, from: Duration, time: Duration) {
        let span = self.span(from, time);
        self.failed_watches.entry(consumer).or_default().push(span);
    }

    /// Whether watches of a consumer's konnector may have failed within the minute before a time, in milliseconds since the history
    /// began.
    pub fn has_failed_watch(&self, consumer: u8, at: u64) -> bool {
        let mut failed = self.failed_watches.get(&consumer).into_iter().flatten();
        failed.any(|span| span.from <= at && at <= span.until + AFTER_FAILED_WATCH)
    }

    /// Notes that a user took deletionPolicy Delete of the binding of this UID back, at a time of the world.
    pub fn took_back(&mut self, relation: Relation, binding: &str, at: Duration) {
        let span = self.span(at, AFTER_TAKEN_BACK);
        let bindings = self.taken_back.entry(relation).or_default();
        bindings.push((binding.to_owned(), span));
    }

    /// Whether a konnector may not know, at a time of the world, that deletionPolicy Delete of the binding of this UID was taken back.
    pub fn has_lately_taken_back(&self, relation: Relation, binding: &str, at: Duration) -> bool {
        let at = self.span(at, Duration::ZERO).from;
        let mut taken_back = self.taken_back.get(&relation).into_iter().flatten();
        taken_back.any(|(of, span)| of == binding && at <= span.until)
    }

    fn span(&self, from: Duration, time: Duration) -> Span {
        let from = from.saturating_sub(self.began);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Span {
            from: millis(from),
            until: millis(from + time),
        }
    }

    /// Notes that a user deleted the binding of this UID with propagation policy Orphan.
    pub fn orphan(&mut self, relation: Relation, binding: &str) {
        self.orphaned.entry(relation).or_default().insert(binding.to_owned());
    }

    /// Whether a user deleted a binding with propagation policy Orphan, and there is no other one now. `binding` is the UID of the
    /// binding that there is now.
    pub fn is_orphaned(&self, relation: Relation, binding: Option<&str>) -> bool {
        let orphaned = self.orphaned.get(&relation);
        orphaned.is_some_and(|orphaned| binding.is_none_or(|binding| orphaned.contains(binding)))
    }

    /// Notes that the user of a consumer accepted that it goes on with a contract, with the objects that it has.
    pub fn accept(&mut self, relation: Relation) {
        self.accepted.insert(relation);
    }

    /// Whether the user of a consumer accepted that what a restore or a clone did to an object reaches its copy: these are its
    /// circumstances.
    pub fn accepts(&self, relation: Relation, circumstances: &BTreeSet<Circumstance>) -> bool {
        const ACCEPTED: [Circumstance; 3] = [
            Circumstance::SourceRewound,
            Circumstance::SourceRevived,
            Circumstance::CopyOfClone,
        ];
        self.accepted.contains(&relation) && ACCEPTED.iter().any(|one| circumstances.contains(one))
    }

    /// Whether a restore or a loss may have made the konnector of a consumer ask its user to accept that it goes on.
    pub fn may_ask_for_holder(&self, relation: Relation) -> bool {
        const RESTORED: [Circumstance; 5] = [
            Circumstance::ConsumerRestoredBeside,
            Circumstance::ConsumerRestoredInPlace,
            Circumstance::ConsumerLostObjects,
            Circumstance::ProviderRestoredInPlace,
            Circumstance::ProviderLostObjects,
        ];
        let known = self.circumstances(Some(relation.consumer), Some(relation.provider));
        RESTORED.iter().any(|one| known.contains(one))
    }

    /// Notes that the operator of a provider overwrote a copy.
    pub fn overwrote(&mut self, provider: u8, copy: ObjectKey) {
        self.overwritten.insert((provider, copy));
    }

    /// Whether the operator of a provider overwrote the copy of this key. If that happens again and again, the konnector leaves the
    /// copy as it is.
    pub fn was_overwritten(&self, provider: u8, copy: &ObjectKey) -> bool {
        self.overwritten.contains(&(provider, copy.clone()))
    }

    /// Notes a circumstance of everything on a consumer.
    pub fn of_consumer(&mut self, consumer: u8, circumstance: Circumstance) {
        self.note(circumstance, Scope::Consumer(consumer));
    }

    /// Notes a circumstance of everything on a provider.
    pub fn of_provider(&mut self, provider: u8, circumstance: Circumstance) {
        self.note(circumstance, Scope::Provider(provider));
    }

    /// Notes a circumstance of one use of an API.
    pub fn of_relation(&mut self, relation: Relation, circumstance: Circumstance) {
        self.note(circumstance, Scope::Relation(relation.consumer, relation.provider));
    }

    fn note(&mut self, circumstance: Circumstance, scope: Scope) {
        self.facts.entry(circumstance).or_default().insert(scope);
    }

    /// The circumstances that concern a consumer, a provider, or both.
    pub fn circumstances(&self, consumer: Option<u8>, provider: Option<u8>) -> BTreeSet<Circumstance> {
        let concerns = |scope: &Scope| match *scope {
            Scope::Consumer(number) => consumer == Some(number),
            Scope::Provider(number) => provider == Some(number),
            Scope::Relation(of, at) => {
                consumer.is_none_or(|consumer| consumer == of) && provider.is_none_or(|provider| provider == at)
            }
        };
        let facts = self.facts.iter();
        facts
            .filter(|(_, scopes)| scopes.iter().any(concerns))
            .map(|(circumstance, _)| *circumstance)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circumstances_concern_only_their_clusters() {
        let mut ledger = Ledger::default();
        let relation = Relation {
            consumer: 1,
            provider: 2,
        };
        ledger.of_relation(relation, Circumstance::Unbound);
        ledger.of_consumer(2, Circumstance::ConsumerRestoredInPlace);
        ledger.of_provider(1, Circumstance::ProviderRestoredInPlace);
        let check = |consumer, provider, expect: &[Circumstance]| {
            let got = ledger.circumstances(consumer, provider);
            assert_eq!(got, expect.iter().copied().collect(), "{consumer:?} {provider:?}");
        };
        check(Some(1), Some(2), &[Circumstance::Unbound]);
        check(Some(1), Some(1), &[Circumstance::ProviderRestoredInPlace]);
        check(Some(2), Some(2), &[Circumstance::ConsumerRestoredInPlace]);
        check(None, Some(2), &[Circumstance::Unbound]);
    }

    #[test]
    fn an_accepted_cluster_may_bring_back_what_it_had() {
        let mut ledger = Ledger::default();
        let relation = Relation {
            consumer: 1,
            provider: 1,
        };
        let rewound = BTreeSet::from([Circumstance::SourceRewound]);
        assert!(!ledger.accepts(relation, &rewound) && !ledger.may_ask_for_holder(relation));
        ledger.of_consumer(1, Circumstance::ConsumerRestoredInPlace);
        assert!(ledger.may_ask_for_holder(relation));
        ledger.accept(relation);
        assert!(ledger.accepts(relation, &rewound));
        assert!(!ledger.accepts(relation, &BTreeSet::from([Circumstance::SourceLost])));
    }

    #[test]
    fn a_new_binding_is_not_orphaned() {
        let mut ledger = Ledger::default();
        let relation = Relation {
            consumer: 1,
            provider: 1,
        };
        assert!(!ledger.is_orphaned(relation, None));
        ledger.orphan(relation, "a");
        assert!(ledger.is_orphaned(relation, None));
        assert!(ledger.is_orphaned(relation, Some("a")));
        assert!(!ledger.is_orphaned(relation, Some("b")));
    }

    #[test]
    fn a_process_has_thawed_for_a_second() {
        let process = ProcessName::Konnector {
            of: crate::topology::Cluster::Consumer(1),
            replica: 1,
        };
        let mut ledger = Ledger::default();
        ledger.begin(Duration::from_secs(10));
        ledger.froze(process, Duration::from_secs(30), Duration::from_secs(20));
        assert!(!ledger.has_thawed(process, 0, 39_999));
        assert!(ledger.has_thawed(process, 0, 40_000));
        assert!(ledger.has_thawed(process, 20_000, 40_999));
        assert!(!ledger.has_thawed(process, 0, 41_000));
        assert!(!ledger.has_thawed(process, 20_001, 40_000), "it started later");
    }

    #[test]
    fn a_failed_watch_counts_for_a_minute() {
        let mut ledger = Ledger::default();
        ledger.watches_fail(1, Duration::from_secs(5), Duration::from_secs(10));
        assert!(!ledger.has_failed_watch(1, 4_000));
        assert!(ledger.has_failed_watch(1, 75_000));
        assert!(!ledger.has_failed_watch(1, 76_000));
        assert!(!ledger.has_failed_watch(2, 6_000));
    }

    #[test]
    fn a_policy_that_was_taken_back_counts_for_half_a_minute() {
        let relation = Relation {
            consumer: 1,
            provider: 1,
        };
        let mut ledger = Ledger::default();
        ledger.took_back(relation, "a", Duration::from_secs(5));
        for (binding, at, expect) in [("a", 6, true), ("a", 35, true), ("a", 36, false), ("b", 6, false)] {
            let got = ledger.has_lately_taken_back(relation, binding, Duration::from_secs(at));
            assert_eq!(got, expect, "{binding} at {at}");
        }
    }

    #[test]
    fn a_new_binding_ends_what_users_said_of_former_ones() {
        let relation = Relation {
            consumer: 1,
            provider: 1,
        };
        let said = Said {
            word: Word::DeletePolicy,
            binding: "a".to_owned(),
            only: None,
        };
        let mut ledger = Ledger::default();
        ledger.say(relation, said);
        ledger.bound(relation, "a");
        assert!(ledger.allows_end_of_copy(relation, "s", Some("a")));
        assert!(ledger.allows_end_of_copy(relation, "s", None), "the binding has ended");
        assert!(!ledger.allows_end_of_copy(relation, "s", Some("b")));
        ledger.bound(relation, "b");
        assert!(!ledger.allows_end_of_copy(relation, "s", None));
        assert!(
            ledger.allows_end_with(relation, "s", "a"),
            "a backup has the former one"
        );
        assert!(!ledger.allows_end_with(relation, "s", "b"));
    }

    #[test]
    fn an_end_that_says_nothing_of_copies_keeps_them() {
        let relation = Relation {
            consumer: 1,
            provider: 1,
        };
        let said = Said {
            word: Word::KeepsCopies,
            binding: "a".to_owned(),
            only: None,
        };
        let mut ledger = Ledger::default();
        ledger.say(relation, said);
        assert!(!ledger.allows_end_of_copy(relation, "s", Some("a")));
        assert!(ledger.allows_end_of_source(relation, "s", Some("a")));
    }

    #[test]
    fn serials_grow() {
        let mut ledger = Ledger::default();
        assert!(ledger.next_serial() < ledger.next_serial());
    }
}
