//! How watches, reads and writes change what an engine knows of a bound object and its copy.

use std::sync::Arc;

use bindery_runtime::cache::ObjectKey;
use jiff::Timestamp;

use crate::{
    bound::{
        pair::{Consumer, Owner, Pair, Provider, Released},
        plan,
    },
    index::{Contents as _, Index, Known, Orphan, PlannedUids, RetentionTimes},
    model::{
        Placement,
        object::{Names, Object, Version},
        projection::{Fingerprint, LastProjection},
        uid::Uid,
    },
};

/// What a pair needs to interpret a bound object and its copy.
#[derive(Debug)]
pub(crate) struct Reader {
    contract: Arc<str>,
    placement: Placement,
    /// Interned names of provider namespaces, which annotations of objects repeat.
    namespaces: Names,
}

/// The outcome of an operation, to be noted before the next plan.
#[derive(Debug)]
pub(crate) enum Learned {
    /// A read or an adoption showed the consumer's object; `None` if there is none.
    Consumer(Option<Object>),
    /// A read showed the provider's object; `None` if there is none.
    Provider(Option<Object>),
    /// Our finalizer and annotations were added to the consumer's object.
    Held {
        version: Version,
        namespace: Arc<str>,
        provider_uid: Arc<str>,
    },
    /// The fields of the provider's object are ours, in this version.
    Transferred { version: Version },
    /// The copy was written.
    Written {
        uid: Arc<str>,
        source_uid: Arc<str>,
        version: Version,
        last: LastProjection,
        /// The annotation on the generation of the source, as it was written.
        generation: Option<Box<str>>,
    },
    /// The status of the consumer's object was written.
    StatusWritten {
        version: Version,
        status: Option<Fingerprint>,
    },
    /// The copy was deleted, and is gone.
    ProviderGone,
    /// The copy was deleted, and finalizers hold it.
    ProviderDeleting,
    /// The copy was released: it stays, and no longer belongs to its source.
    ProviderReleased {
        uid: Arc<str>,
        version: Version,
        at: Timestamp,
    },
    /// The marks of the copy's retention were written, so that it is this owner's now. The watch shows its content.
    Remarked {
        uid: Arc<str>,
        version: Version,
        owner: Owner,
    },
    /// A retained copy is marked as one whose source is being restored.
    Restoring { uid: Arc<str>, version: Version },
    /// Our finalizer was removed, and the consumer's object is gone.
    ConsumerGone,
}

impl Known for Pair {
    type Reader = Reader;

    fn consumer(&self) -> Option<(&Uid, Version)> {
        self.consumer.as_ref().map(|known| (&known.uid, known.version))
    }

    fn provider(&self) -> Option<(&Uid, Version)> {
        self.provider.as_ref().map(|known| (&known.uid, known.version))
    }

    fn see_consumer(&mut self, _: &ObjectKey, object: Object, reader: &mut Reader) {
        let consumer = Consumer::of(object, &mut reader.namespaces);
        if let Some(ended) = &mut self.ended
            && ended.source.as_ref() == Some(&consumer.uid)
        {
            // After a restore, an object whose end was seen may exist again.
            ended.source = None;
        }
        self.consumer = Some(consumer);
        self.settle();
    }

    fn see_provider(&mut self, key: &ObjectKey, object: Object, reader: &mut Reader) -> bool {
        let names_are_shared = reader.placement.names_are_shared();
        let mut provider = Provider::of(object, &reader.contract, &key.namespace, names_are_shared);
        if let Some(known) = &self.provider
            && (&known.uid, known.version) == (&provider.uid, provider.version)
        {
            provider.transferred = known.transferred;
        }
        let is_foreign = matches!(
            provider.owner,
            Owner::Other { .. } | Owner::Unmarked | Owner::Released(_)
        );
        if names_are_shared && self.consumer.is_none() && is_foreign {
            // Objects of other consumers may be many, and this contract never syncs them.
            return self.provider.take().is_some();
        }
        self.provider = Some(provider);
        self.provider_gone = false;
        self.settle();
        true
    }

    fn consumer_ended(&mut self, uid: &str) {
        self.ended.get_or_insert_default().source = Some(uid.into());
    }

    fn lose_consumer(&mut self) {
        self.consumer = None;
        self.compared = None;
    }

    fn lose_provider(&mut self, uid: Option<&str>) {
        let known = self.provider.take().map(|known| known.uid);
        if let Some(gone) = uid.map(Uid::from).or(known) {
            self.ended.get_or_insert_default().copy = Some(gone);
        }
        self.provider_gone = true;
    }

    fn forget_provider(&mut self) {
        self.provider = None;
        self.provider_gone = false;
    }

    fn rewind_consumer(&mut self) {
        // The object whose end was seen may exist again.
        if let Some(ended) = &mut self.ended {
            ended.source = None;
        }
        if let Some(consumer) = &mut self.consumer {
            consumer.version = Version::default();
        }
    }

    fn rewind_provider(&mut self) {
        if let Some(ended) = &mut self.ended {
            ended.copy = None;
        }
        if let Some(provider) = &mut self.provider {
            provider.version = Version::default();
        }
    }

    fn wants_place(&self, _: &ObjectKey, _: &Reader) -> bool {
        plan::wants_place(self)
    }

    fn orphan(&self) -> Option<Orphan<'_>> {
        self.orphan()
    }

    fn missed_source(&self) -> Option<&Uid> {
        self.orphan()?;
        match &self.provider.as_ref()?.owner {
            Owner::Ours { source_uid } => Some(source_uid),
            _ => None,
        }
    }

    fn has_copy(&self) -> bool {
        let is_copy = |provider: &Provider| is_ours(provider) || matches!(provider.owner, Owner::Retained(_));
        self.provider.as_ref().is_some_and(is_copy)
    }

    fn retention(&self) -> Option<RetentionTimes> {
        let provider = self.provider.as_ref().filter(|provider| !provider.deleting)?;
        match &provider.owner {
            Owner::Retained(retained) => Some(RetentionTimes {
                since: retained.since,
                until: retained.until,
            }),
            _ => None,
        }
    }
}

fn is_ours(provider: &Provider) -> bool {
    matches!(provider.owner, Owner::Ours { .. })
}

impl Index<Pair> {
    pub(crate) fn new(contract: Arc<str>, placement: Placement) -> Self {
        let reader = Reader {
            contract: Arc::clone(&contract),
            placement: placement.clone(),
            namespaces: Names::default(),
        };
        Self::with(contract, placement, reader)
    }

    /// The number of pairs that a drain has to see gone: those with a consumer object or with a copy of this contract.
    pub(crate) fn remaining(&self) -> usize {
        self.pairs()
            .filter(|(_, pair)| pair.consumer.is_some() || pair.provider.as_ref().is_some_and(is_ours))
            .count()
    }

    /// Notes the outcome of an operation. It says nothing about objects that took the name since the plan was made.
    pub(crate) fn learn(&mut self, key: &ObjectKey, learned: Learned, planned: &PlannedUids) {
        match learned {
            // A read that was answered late shows an object that has ended since.
            Learned::Consumer(Some(object)) if self.has_ended(&object.meta.uid) => {}
            Learned::Consumer(Some(object)) => drop(self.consumer_seen(key, object)),
            Learned::Provider(Some(object)) => drop(self.provider_seen(key, object)),
            Learned::Consumer(None) | Learned::ConsumerGone => {
                // An object that ended with our finalizer was seen to end; one that a read does not find is only missing.
                let ended = matches!(learned, Learned::ConsumerGone);
                let current = self
                    .pair(key)
                    .and_then(|pair| pair.consumer.as_ref())
                    .map(|consumer| &consumer.uid);
                if current == planned.consumer.as_ref() {
                    let ended = planned.consumer.as_ref().filter(|_| ended).map(Uid::text);
                    self.consumer_deleted(key, ended.as_deref());
                }
            }
            Learned::Provider(None) | Learned::ProviderGone => {
                let current = self
                    .pair(key)
                    .and_then(|pair| pair.provider.as_ref())
                    .map(|provider| &provider.uid);
                if current == planned.provider.as_ref() {
                    self.provider_deleted(key, None);
                }
            }
            Learned::ProviderDeleting => self.note(key, |pair| {
                let provider = pair.provider.as_mut();
                if let Some(provider) = provider.filter(|provider| Some(&provider.uid) == planned.provider.as_ref()) {
                    provider.deleting = true;
                }
            }),
            Learned::Transferred { version } => self.note(key, |pair| {
                let provider = pair.provider.as_mut();
                if let Some(provider) = provider.filter(|provider| Some(&provider.uid) == planned.provider.as_ref()) {
                    provider.transferred(version);
                }
            }),
            Learned::ProviderReleased { uid, version, at } => self.note(key, |pair| {
                let provider = pair.provider.as_mut();
                if let Some(provider) = provider.filter(|known| known.uid == *uid && known.version < version) {
                    provider.release(version, at);
                }
            }),
            Learned::Remarked { uid, version, owner } => self.note(key, |pair| {
                let provider = pair.provider.as_mut();
                if let Some(provider) = provider.filter(|known| known.uid == *uid && known.version < version) {
                    provider.remark(version, owner);
                }
            }),
            Learned::Restoring { uid, version } => self.note(key, |pair| {
                let provider = pair.provider.as_mut();
                if let Some(provider) = provider.filter(|known| known.uid == *uid && known.version < version)
                    && let Owner::Retained(retained) = &mut provider.owner
                {
                    (retained.restoring, retained.until) = (true, None);
                    provider.version = version;
                }
            }),
            Learned::Written {
                uid,
                source_uid,
                version,
                last,
                generation,
            } => self.note(key, |pair| {
                pair.written(Uid::from(&uid), &source_uid, version, last, generation);
            }),
            Learned::Held { .. } | Learned::StatusWritten { .. } => self.note(key, |pair| {
                let consumer = pair.consumer.as_mut();
                if let Some(consumer) = consumer.filter(|consumer| Some(&consumer.uid) == planned.consumer.as_ref()) {
                    consumer.learn(learned);
                }
            }),
        }
    }
}

// === impl Pair ===

impl Pair {
    /// Notes our own write of the copy, unless the watch has already shown it, a newer version or the end of the copy.
    fn written(
        &mut self,
        uid: Uid,
        source_uid: &str,
        version: Version,
        last: LastProjection,
        generation: Option<Box<str>>,
    ) {
        let known = |known: &Provider| known.uid == uid && known.version >= version;
        if self.provider.as_ref().is_some_and(known) || self.ended_copy() == Some(&uid) {
            return;
        }
        self.provider_gone = false;
        let before = self.provider.take();
        if before
            .as_ref()
            .is_some_and(|before| matches!(before.owner, Owner::Fresh { .. }))
        {
            self.marked = Some(Box::new(last.fingerprint));
        }
        let has_release = before.as_ref().is_some_and(|before| before.has_release);
        let projections = before.map(|before| before.projections);
        self.provider = Some(Provider {
            projections: projections.unwrap_or_default(),
            has_release,
            uid,
            version,
            deleting: false,
            owner: Owner::Ours {
                source_uid: source_uid.into(),
            },
            transferred: false,
            bound: true,
            last: Some(last),
            generation,
            seen: None,
            content: None,
        });
    }
}

// === impl Provider ===

impl Provider {
    /// Notes that the fields of the object are ours, unless the watch has shown a newer version.
    fn transferred(&mut self, version: Version) {
        if self.version > version {
            return;
        }
        self.transferred = true;
        self.version = version;
    }

    /// Notes that we released the copy, in the version that the write gave it.
    fn release(&mut self, version: Version, at: Timestamp) {
        let Some(source_uid) = self.owner.source() else {
            return;
        };
        let released = Released {
            source_uid: Some(source_uid.clone()),
            at: Some(at),
        };
        self.owner = Owner::Released(Box::new(released));
        self.version = version;
        self.has_release = true;
    }

    /// Notes that we wrote or removed the marks of its retention, in the version that the write gave it. The write may have changed the
    /// content, and removed the record of what we wrote last.
    fn remark(&mut self, version: Version, owner: Owner) {
        if self.owner.source() != owner.source() {
            // What is noted is about the former source.
            self.generation = None;
        }
        self.owner = owner;
        self.version = version;
        self.transferred = false;
        self.last = None;
        self.seen = None;
        self.content = None;
    }
}

// === impl Consumer ===

impl Consumer {
    /// Notes our own write, unless the watch has shown a newer version. An answer with the known version means that nothing
    /// changed, as by a status that the schema prunes. It is noted too, or the same would be written again.
    fn learn(&mut self, learned: Learned) {
        let (Learned::Held { version, .. } | Learned::StatusWritten { version, .. }) = learned else {
            return;
        };
        if self.version > version {
            return;
        }
        self.version = version;
        match learned {
            Learned::Held {
                namespace,
                provider_uid,
                ..
            } => {
                self.held = true;
                self.noted_namespace = Some(namespace);
                self.noted_uid = Some(Uid::from(&provider_uid));
            }
            Learned::StatusWritten { status, .. } => self.status = status,
            _ => {}
        }
    }
}
