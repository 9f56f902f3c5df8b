//! What is known of one object on both clusters: what each side last showed, and what we wrote since.
//!
//! Content is held only as long as it may be needed; once both sides agree, fingerprints stay and the bytes go.

use std::sync::Arc;

use bindery_api::{adoption::Candidate, annotations, finalizers};
use jiff::Timestamp;

use super::{
    object::{Object, Version},
    projection::{self, Fingerprint, LastProjection},
};

/// An object and its copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    pub consumer: Option<Consumer>,
    pub provider: Option<Provider>,
    /// The provider said that there is no object, after it had one or when it was asked.
    pub provider_gone: bool,
    /// UID of the last copy whose end was seen: the answer to a write of it may come later.
    pub last_gone: Option<Arc<str>>,
    /// UID of the last object of the consumer whose end was seen: evidence enough to delete its copy.
    pub source_gone: Option<Arc<str>>,
    /// The last comparison of contents.
    pub compared: Option<Compared>,
    /// What was written when the provider's object got our marks, where it had none before.
    pub marked: Option<Box<Fingerprint>>,
}

/// The consumer's object.
#[derive(Clone, Debug)]
pub(crate) struct Consumer {
    pub uid: Arc<str>,
    pub version: Version,
    pub deleting: bool,
    /// Its owner wants it left alone for a while.
    pub paused: bool,
    /// Our finalizer is on it.
    pub held: bool,
    pub other_finalizers: Vec<Box<str>>,
    /// The provider namespace and UID noted on it.
    pub noted_namespace: Option<Box<str>>,
    pub noted_uid: Option<Box<str>>,
    /// UID of the provider's object that it was created of.
    pub adopted: Option<Box<str>>,
    pub projection: Fingerprint,
    pub status: Option<Fingerprint>,
    pub content: Option<Arc<Object>>,
}

/// The provider's copy.
#[derive(Clone, Debug)]
pub(crate) struct Provider {
    pub uid: Arc<str>,
    pub version: Version,
    pub deleting: bool,
    pub owner: Owner,
    /// It is marked as one that has a counterpart.
    pub bound: bool,
    /// What this contract wrote last.
    pub last: Option<LastProjection>,
    /// What each contract wrote last, as annotations: of an object that several write.
    pub projections: Vec<(Box<str>, Box<str>)>,
    /// What it showed. `None` for our own write that the watch has not shown yet.
    pub seen: Option<Seen>,
    pub content: Option<Arc<Object>>,
}

/// Fingerprints of what the provider's copy showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub content: Fingerprint,
    pub status: Option<Fingerprint>,
}

/// Whose the provider's copy is, by its marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// This contract's, made of the consumer object with this UID.
    Ours { source_uid: Box<str> },
    /// This contract's once, and let go then: the provider keeps it. Made of the consumer object with this UID.
    Released {
        source_uid: Option<Box<str>>,
        at: Option<Timestamp>,
    },
    /// Another contract's.
    Other { contract: Box<str> },
    /// This contract's by its place or by the provider's word, and without a counterpart ever.
    Fresh { opted_in: bool },
    /// Nobody's that we know of.
    Unmarked,
}

/// The outcome of comparing a projection with the provider's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compared {
    pub projection: Fingerprint,
    pub content: Fingerprint,
    pub holds: bool,
}

// === impl Consumer ===

impl Consumer {
    pub(crate) fn of(object: Object) -> Self {
        let meta = &object.meta;
        let mut other_finalizers = meta.finalizers.clone();
        other_finalizers.retain(|finalizer| &**finalizer != finalizers::SYNCER);
        Self {
            uid: Arc::clone(&meta.uid),
            version: meta.resource_version,
            deleting: meta.deletion_timestamp,
            paused: meta
                .annotations
                .get(annotations::PAUSED)
                .is_some_and(|value| **value == *annotations::TRUE),
            held: other_finalizers.len() < meta.finalizers.len(),
            other_finalizers,
            noted_namespace: meta.annotations.get(annotations::PROVIDER_NAMESPACE).cloned(),
            noted_uid: meta.annotations.get(annotations::PROVIDER_UID).cloned(),
            adopted: meta.annotations.get(annotations::ADOPTED).cloned(),
            projection: projection::fingerprint(&object),
            status: projection::status_fingerprint(object.status.as_deref()),
            content: Some(Arc::new(object)),
        }
    }
}

// === impl Provider ===

impl Provider {
    /// `namespace` is that of the consumer's object of this name. Where consumers share names, no place says whose it is.
    pub(crate) fn of(object: Object, contract: &str, namespace: &str, names_are_shared: bool) -> Self {
        let meta = &object.meta;
        let mark = |key: &str| meta.annotations.get(key).map(|value| &**value);
        let is_from_here = mark(annotations::CONSUMER_NAMESPACE).is_none_or(|from| from == namespace);
        let source_uid = mark(annotations::CONSUMER_UID).filter(|uid| !uid.is_empty() && is_from_here);
        let released = mark(annotations::RELEASED);
        let owner = match (mark(annotations::CLUSTER_NAMESPACE), source_uid) {
            (Some(other), _) if other != contract => Owner::Other { contract: other.into() },
            (Some(_), _) if released.is_some_and(|value| annotations::is_released(value, contract)) => {
                Owner::Released {
                    source_uid: source_uid.map(Into::into),
                    at: released
                        .and_then(annotations::released_at)
                        .and_then(|at| at.parse().ok()),
                }
            }
            (Some(_), Some(source_uid)) => Owner::Ours {
                source_uid: source_uid.into(),
            },
            _ => match Candidate::of(mark, contract, names_are_shared) {
                Candidate::Fresh { opted_in } => Owner::Fresh { opted_in },
                _ => Owner::Unmarked,
            },
        };
        let bound = mark(annotations::BOUND) == Some(annotations::TRUE);
        let mut projections: Vec<_> = meta
            .annotations
            .iter()
            .filter(|(key, _)| projection::contract_of(key).is_some())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        // Whoever writes it takes it into use again: no contract that let it go is kept out by its own old mark. An apply
        // removes only what it owns, so that the mark is emptied first, and goes with the next write.
        if released.is_some_and(|value| !value.is_empty()) {
            projections.push((annotations::RELEASED.into(), Box::default()));
        }
        let last = if matches!(owner, Owner::Other { .. }) {
            let own = projections
                .iter()
                .find(|(key, _)| projection::contract_of(key) == Some(contract));
            own.map(|(_, value)| &**value)
        } else {
            mark(annotations::PROJECTION_HASH)
        };
        Self {
            uid: Arc::clone(&meta.uid),
            version: meta.resource_version,
            deleting: meta.deletion_timestamp,
            owner,
            bound,
            last: last.and_then(|text| text.parse().ok()),
            projections,
            seen: Some(Seen {
                content: projection::fingerprint(&object),
                status: projection::status_fingerprint(object.status.as_deref()),
            }),
            content: Some(Arc::new(object)),
        }
    }

    /// Whether some contract shares it under `LastWins`, for which each notes what it wrote last. The API may be offered
    /// otherwise too, and the provider's policy lets nobody overwrite what lacks such a note.
    pub(crate) fn is_shared(&self) -> bool {
        let mut projections = self.projections.iter();
        projections.any(|(key, _)| projection::contract_of(key).is_some())
    }
}

// === impl Pair ===

impl Pair {
    /// Compares the contents where both are at hand and that was not done yet.
    pub(crate) fn compare(&mut self) {
        let (Some(consumer), Some(provider)) = (&self.consumer, &self.provider) else {
            return;
        };
        let (Some(seen), Some(wanted), Some(actual)) = (provider.seen, &consumer.content, &provider.content) else {
            return;
        };
        let known = self
            .compared
            .is_some_and(|compared| compared.projection == consumer.projection && compared.content == seen.content);
        if !known {
            self.compared = Some(Compared {
                projection: consumer.projection,
                content: seen.content,
                holds: projection::holds(actual, wanted),
            });
        }
    }

    /// Lets go of the contents.
    pub(crate) fn forget_content(&mut self) {
        if let Some(consumer) = &mut self.consumer {
            consumer.content = None;
        }
        if let Some(provider) = &mut self.provider {
            provider.content = None;
        }
    }

    /// True while our own write has not come back by the watch, which is when contents are compared.
    pub(crate) fn is_unseen(&self) -> bool {
        self.provider.as_ref().is_some_and(|provider| provider.seen.is_none())
    }
}
