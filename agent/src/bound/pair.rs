//! What is known of one bound object on both clusters: what each cluster last showed, and what we wrote since.
//!
//! A pair in sync holds UIDs, versions and fingerprints, some 300 bytes. It holds the contents of its objects only from
//! when a cluster shows them until no plan needs them ([`Contents`]).

use std::sync::Arc;

use bindery_api::{
    adoption::Candidate,
    annotations, finalizers,
    retention::{self, RetentionMark},
};
use jiff::Timestamp;

use crate::{
    index::{Compared, Contents, Orphan, OrphanKind, Shown},
    model::{
        object::{Names, Object, Version},
        projection::{self, Fingerprint, LastProjection},
        uid::Uid,
    },
};

/// What is known of a bound object of the consumer and of its copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    pub consumer: Option<Consumer>,
    pub provider: Option<Provider>,
    /// Whether the provider was seen to have no object of this name since the last creation was sent, so that our finalizer may be
    /// removed.
    pub provider_gone: bool,
    /// UIDs of objects of this name that have ended, if any.
    pub ended: Option<Box<Ended>>,
    /// The last comparison of contents with different fingerprints, until either changes.
    pub compared: Option<Box<Compared>>,
    /// Fingerprint of the content that was written when an object that the provider made got our annotations.
    pub marked: Option<Box<Fingerprint>>,
}

/// UIDs of objects that ended while their pair lives on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    /// The last object of the consumer whose end was seen, which is proof enough to delete its copy.
    pub source: Option<Uid>,
    /// The last copy whose end was seen. The answer to an earlier write of it may still come.
    pub copy: Option<Uid>,
}

/// What is known of the consumer's object.
#[derive(Clone, Debug)]
pub(crate) struct Consumer {
    pub uid: Uid,
    pub version: Version,
    /// How often its content was changed.
    pub generation: i64,
    pub deleting: bool,
    /// Whether the user paused it by annotation, so that nothing is written.
    pub paused: bool,
    /// Whether it has our finalizer, so that it stays until its copy is gone.
    pub held: bool,
    pub other_finalizers: Box<[Box<str>]>,
    /// The provider namespace that its annotation names. All objects share one text of it.
    pub noted_namespace: Option<Arc<str>>,
    /// The UID of the copy that its annotation names.
    pub noted_uid: Option<Uid>,
    /// UID of the provider's object that it was created from by adoption.
    pub adopted: Option<Box<Uid>>,
    pub projection: Fingerprint,
    pub status: Option<Fingerprint>,
    /// The object itself, while a plan may need it.
    pub content: Option<Arc<Object>>,
}

/// What is known of the provider's object: the copy, or an object that has the name of the copy.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Provider {
    pub uid: Uid,
    pub version: Version,
    pub deleting: bool,
    pub owner: Owner,
    /// Whether the fields that the consumer's object has were transferred to us, in the known version.
    pub transferred: bool,
    /// Whether its annotations say that it has, or had, a counterpart on the consumer.
    pub bound: bool,
    /// Whether it has the annotation of a contract that released it. The next write removes that, so that no contract is
    /// kept out by its own old release.
    pub has_release: bool,
    /// The content that this contract wrote last.
    pub last: Option<LastProjection>,
    /// The generation of the source that it was last written from, and the holder that wrote it, as its annotation says.
    pub generation: Option<Box<str>>,
    /// The annotations that record what each contract wrote last, if several contracts write the object.
    pub projections: Box<[Annotation]>,
    /// Fingerprints of what it showed. `None` for our own write that the watch has not shown yet.
    pub seen: Option<Seen>,
    /// The object itself, while a plan may need it.
    pub content: Option<Arc<Object>>,
}

/// Key and value of an annotation.
pub(crate) type Annotation = (Box<str>, Box<str>);

/// Fingerprints of what the provider's copy showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub content: Fingerprint,
    pub status: Option<Fingerprint>,
}

/// Whose the provider's object is, by its annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// It is this contract's copy of the consumer object with this UID.
    Ours { source_uid: Uid },
    /// It was this contract's copy, and was released: the provider keeps it.
    Released(Box<Released>),
    /// It was this contract's copy, its source was deleted, and the provider keeps it for some time so that the source can be restored.
    Retained(Box<Retained>),
    /// It belongs to another contract.
    Other { contract: Box<str> },
    /// The provider made it for this contract, and it never had a counterpart on the consumer: adoption may take it.
    Fresh { opted_in: bool },
    /// It has no annotation that says whose it is.
    Unmarked,
}

/// What the annotations of a released copy say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    /// UID of the consumer object that the copy was made of.
    pub source_uid: Option<Uid>,
    pub at: Option<Timestamp>,
}

/// What the annotations of a retained copy say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Retained {
    /// UID of the consumer object that was deleted.
    pub source_uid: Uid,
    pub since: Timestamp,
    /// When the server ends it; `None` until the server has said it.
    pub until: Option<Timestamp>,
    /// Whether the consumer's object is being created anew.
    pub restoring: bool,
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
            generation: meta.generation,
            deleting: meta.deletion_timestamp,
            paused: meta.is_paused(),
            held: other_finalizers.len() < meta.finalizers.len(),
            other_finalizers,
            noted_namespace: mark(annotations::PROVIDER_NAMESPACE).map(|name| names.shared(name)),
            noted_uid: mark(annotations::PROVIDER_UID).map(Uid::from),
            adopted: mark(annotations::ADOPTED).map(|uid| Box::new(uid.into())),
            projection: projection::fingerprint(&object),
            status: projection::status_fingerprint(object.status.as_deref()),
            // The content of an object that is being deleted is not copied any more.
            content: (!object.meta.deletion_timestamp).then(|| Arc::new(object)),
        }
    }

    /// Whether its annotation names another provider namespace than this one.
    pub(crate) fn is_noted_elsewhere(&self, place: &str) -> bool {
        self.noted_namespace.as_deref().is_some_and(|noted| noted != place)
    }
}

// === impl Provider ===

impl Provider {
    /// Reads an object of the provider. `namespace` is its consumer namespace; with `names_are_shared`, it proves no owner.
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
            (Some(_), Some(source_uid)) => match Retained::of(mark, contract) {
                Some(retained) => Owner::Retained(Box::new(retained)),
                None => Owner::Ours {
                    source_uid: source_uid.into(),
                },
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
            transferred: false,
            bound: mark(annotations::BOUND) == Some(annotations::TRUE),
            has_release: released.is_some_and(|value| !value.is_empty()),
            last: last.and_then(|text| text.parse().ok()),
            generation: mark(annotations::SOURCE_GENERATION).map(Box::from),
            projections,
            seen: Some(Seen {
                content: projection::fingerprint(&object),
                status: projection::status_fingerprint(object.status.as_deref()),
            }),
            content: Some(Arc::new(object)),
        }
    }

    /// Whether this holder wrote it from a later state of its source than one with this generation.
    pub(crate) fn is_newer_than(&self, generation: i64, instance: &str) -> bool {
        let noted = self.generation.as_deref();
        let noted = noted.and_then(|noted| annotations::generation_by(noted, instance));
        noted.is_some_and(|noted| noted > generation)
    }

    /// Whether contracts share it under `LastWins`, for which each records its last write in an annotation. The provider's
    /// policy lets no contract overwrite an object without such an annotation.
    pub(crate) fn is_shared(&self) -> bool {
        !self.projections.is_empty()
    }
}

// === impl Owner ===

impl Owner {
    /// The UID of the source whose copy it is, or was until that was deleted.
    pub(crate) fn source(&self) -> Option<&Uid> {
        match self {
            Self::Ours { source_uid } => Some(source_uid),
            Self::Retained(retained) => Some(&retained.source_uid),
            Self::Released(_) | Self::Other { .. } | Self::Fresh { .. } | Self::Unmarked => None,
        }
    }
}

// === impl Retained ===

impl Retained {
    /// Reads the annotations of a copy; `None` if it is not retained by this contract.
    pub(crate) fn of<'a>(mark: impl Fn(&str) -> Option<&'a str>, contract: &str) -> Option<Self> {
        if !retention::is_retained(&mark, contract) {
            return None;
        }
        let RetentionMark { source_uid, since, .. } = RetentionMark::read(mark(annotations::RETAINED)?)?;
        Some(Self {
            source_uid: source_uid.into(),
            since,
            until: mark(annotations::RETAINED_UNTIL).and_then(|until| until.parse().ok()),
            restoring: mark(annotations::RESTORING) == Some(annotations::TRUE),
        })
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
        let both = self.consumer.as_ref().zip(self.provider.as_ref());
        // The end of a source may change the content of its copy.
        let Some((consumer, provider)) = both.filter(|(consumer, _)| !consumer.deleting) else {
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
    /// The UID of the last object of the consumer whose end was seen.
    pub(crate) fn ended_source(&self) -> Option<&Uid> {
        self.ended.as_ref()?.source.as_ref()
    }

    /// The copy, if its source is missing or another object, and the deletion of the source was not seen. A copy that is being
    /// deleted is none.
    pub(crate) fn orphan(&self) -> Option<Orphan<'_>> {
        let provider = self.provider.as_ref().filter(|provider| !provider.deleting)?;
        let Owner::Ours { source_uid } = &provider.owner else {
            return None;
        };
        let kind = match &self.consumer {
            Some(consumer) if consumer.uid == *source_uid => return None,
            Some(_) => OrphanKind::Replaced,
            None => OrphanKind::Missing,
        };
        (self.ended_source() != Some(source_uid)).then_some(Orphan {
            copy: &provider.uid,
            kind,
        })
    }

    /// The UID of the last copy whose end was seen.
    pub(crate) fn ended_copy(&self) -> Option<&Uid> {
        self.ended.as_ref()?.copy.as_ref()
    }
}
