//! What is known of one object on both clusters: what each side last showed, and what we wrote since.
//!
//! Of an object that is in sync, UIDs, versions and fingerprints are kept, and that is some 300 bytes. Contents are held only
//! from when a side shows them until nothing is to be done with them ([`Contents`]).

use std::sync::Arc;

use bindery_api::{adoption::Candidate, annotations, finalizers};
use jiff::Timestamp;

use crate::{
    index::{Compared, Contents, Shown},
    model::{
        object::{Names, Object, Version},
        projection::{self, Fingerprint, LastProjection},
        uid::Uid,
    },
};

/// An object and its copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    pub consumer: Option<Consumer>,
    pub provider: Option<Provider>,
    /// The provider said that there is no object, after it had one or when it was asked.
    pub provider_gone: bool,
    /// What has ended, of a pair that goes on.
    pub ended: Option<Box<Ended>>,
    /// The last comparison of contents that are not the same, until either changes.
    pub compared: Option<Box<Compared>>,
    /// What was written when the provider's object got our marks, where it had none before.
    pub marked: Option<Box<Fingerprint>>,
}

/// UIDs of objects that had the name of a pair before, or of which one side is left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    /// The last object of the consumer whose end was seen: evidence enough to delete its copy.
    pub source: Option<Uid>,
    /// The last copy whose end was seen: the answer to a write of it may come later.
    pub copy: Option<Uid>,
}

/// The consumer's object.
#[derive(Clone, Debug)]
pub(crate) struct Consumer {
    pub uid: Uid,
    pub version: Version,
    pub deleting: bool,
    /// Its owner wants it left alone for a while.
    pub paused: bool,
    /// Our finalizer is on it.
    pub held: bool,
    pub other_finalizers: Box<[Box<str>]>,
    /// The provider namespace noted on it, of which there is one text for all objects.
    pub noted_namespace: Option<Arc<str>>,
    /// The UID of the copy noted on it.
    pub noted_uid: Option<Uid>,
    /// UID of the provider's object that it was created of.
    pub adopted: Option<Box<Uid>>,
    pub projection: Fingerprint,
    pub status: Option<Fingerprint>,
    /// What it says, while something may be done with it.
    pub content: Option<Arc<Object>>,
}

/// The provider's copy.
#[derive(Clone, Debug)]
pub(crate) struct Provider {
    pub uid: Uid,
    pub version: Version,
    pub deleting: bool,
    pub owner: Owner,
    /// It is marked as one that has a counterpart.
    pub bound: bool,
    /// It has the mark of a contract that let it go. Whoever writes it takes it into use again, so that no contract is kept
    /// out by its own old mark.
    pub has_release: bool,
    /// What this contract wrote last.
    pub last: Option<LastProjection>,
    /// What each contract wrote last, as annotations: of an object that several write.
    pub projections: Box<[Annotation]>,
    /// What it showed. `None` for our own write that the watch has not shown yet.
    pub seen: Option<Seen>,
    /// What it says, while something may be done with it.
    pub content: Option<Arc<Object>>,
}

/// Key and value.
pub(crate) type Annotation = (Box<str>, Box<str>);

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
    Ours { source_uid: Uid },
    /// This contract's once, and let go then: the provider keeps it.
    Released(Box<Released>),
    /// Another contract's.
    Other { contract: Box<str> },
    /// This contract's by its place or by the provider's word, and without a counterpart ever.
    Fresh { opted_in: bool },
    /// Nobody's that we know of.
    Unmarked,
}

/// What a copy says that was let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    /// UID of the consumer object that it was made of.
    pub source_uid: Option<Uid>,
    pub at: Option<Timestamp>,
}

// === impl Consumer ===

impl Consumer {
    pub(crate) fn of(object: Object, names: &mut Names) -> Self {
        let meta = &object.meta;
        let others = meta.finalizers.iter().filter(|one| ***one != *finalizers::SYNCER);
        let other_finalizers: Box<[_]> = others.cloned().collect();
        let mark = |key: &str| meta.annotations.get(key);
        Self {
            uid: Uid::from(&meta.uid),
            version: meta.resource_version,
            deleting: meta.deletion_timestamp,
            paused: meta.is_paused(),
            held: other_finalizers.len() < meta.finalizers.len(),
            other_finalizers,
            noted_namespace: mark(annotations::PROVIDER_NAMESPACE).map(|name| names.shared(name)),
            noted_uid: mark(annotations::PROVIDER_UID).map(Uid::from),
            adopted: mark(annotations::ADOPTED).map(|uid| Box::new(uid.into())),
            projection: projection::fingerprint(&object),
            status: projection::status_fingerprint(object.status.as_deref()),
            // Of an object that ends, only its marks matter.
            content: (!object.meta.deletion_timestamp).then(|| Arc::new(object)),
        }
    }
}

// === impl Provider ===

impl Provider {
    /// `namespace` is that of the consumer's object of this name. Where consumers share names, no place says whose it is.
    pub(crate) fn of(object: Object, contract: &str, namespace: &str, names_are_shared: bool) -> Self {
        let meta = &object.meta;
        let mark = |key: &str| meta.annotations.get(key);
        let is_from_here = mark(annotations::CONSUMER_NAMESPACE).is_none_or(|from| from == namespace);
        let source_uid = mark(annotations::CONSUMER_UID).filter(|uid| !uid.is_empty() && is_from_here);
        let released = mark(annotations::RELEASED);
        let owner = match (mark(annotations::CLUSTER_NAMESPACE), source_uid) {
            (Some(other), _) if other != contract => Owner::Other { contract: other.into() },
            (Some(_), _) if released.is_some_and(|value| annotations::is_released(value, contract)) => {
                let at = released.and_then(annotations::released_at);
                Owner::Released(Box::new(Released {
                    source_uid: source_uid.map(Uid::from),
                    at: at.and_then(|at| at.parse().ok()),
                }))
            }
            (Some(_), Some(source_uid)) => Owner::Ours {
                source_uid: source_uid.into(),
            },
            _ => match Candidate::of(mark, contract, names_are_shared) {
                Candidate::Fresh { opted_in } => Owner::Fresh { opted_in },
                _ => Owner::Unmarked,
            },
        };
        let marks = meta.annotations.iter();
        let projections: Box<[Annotation]> = marks
            .filter(|(key, _)| projection::contract_of(key).is_some())
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        let last = if matches!(owner, Owner::Other { .. }) {
            let mut all = projections.iter();
            let own = all.find(|(key, _)| projection::contract_of(key) == Some(contract));
            own.map(|(_, value)| &**value)
        } else {
            mark(annotations::PROJECTION_HASH)
        };
        Self {
            uid: Uid::from(&meta.uid),
            version: meta.resource_version,
            deleting: meta.deletion_timestamp,
            owner,
            bound: mark(annotations::BOUND) == Some(annotations::TRUE),
            has_release: released.is_some_and(|value| !value.is_empty()),
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
        !self.projections.is_empty()
    }
}

// === impl Pair ===

impl Contents for Pair {
    fn source_and_copy(&self) -> Option<(Shown<'_>, Shown<'_>)> {
        let (consumer, provider) = self.consumer.as_ref().zip(self.provider.as_ref())?;
        Some((
            Shown::of(consumer.projection, consumer.content.as_ref()),
            Shown::of(provider.seen?.content, provider.content.as_ref()),
        ))
    }

    fn compared(&self) -> Option<&Compared> {
        self.compared.as_deref()
    }

    fn set_compared(&mut self, compared: Compared) {
        self.compared = Some(Box::new(compared));
    }

    fn agrees(&self) -> bool {
        let Some((consumer, provider)) = self.consumer.as_ref().zip(self.provider.as_ref()) else {
            return false;
        };
        let is_its_own = matches!(&provider.owner, Owner::Ours { source_uid } if *source_uid == consumer.uid);
        let is_written = provider
            .last
            .is_some_and(|last| last.fingerprint == consumer.projection);
        let is_status_down = provider.seen.is_some_and(|seen| seen.status == consumer.status);
        is_its_own && is_written && is_status_down && provider.bound && self.holds() == Some(true)
    }

    fn is_unseen(&self) -> bool {
        self.provider.as_ref().is_some_and(|provider| provider.seen.is_none())
    }

    fn forget_content(&mut self) {
        if let Some(consumer) = &mut self.consumer {
            consumer.content = None;
        }
        if let Some(provider) = &mut self.provider {
            provider.content = None;
        }
    }
}

impl Pair {
    /// The last object of the consumer whose end was seen.
    pub(crate) fn ended_source(&self) -> Option<&Uid> {
        self.ended.as_ref()?.source.as_ref()
    }

    /// The last copy whose end was seen.
    pub(crate) fn ended_copy(&self) -> Option<&Uid> {
        self.ended.as_ref()?.copy.as_ref()
    }
}
