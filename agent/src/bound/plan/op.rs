//! The operations of a plan for a bound object.

use std::sync::Arc;

use crate::{
    bound::pair::Annotation,
    model::{
        object::{Object, Version},
        projection::{Fingerprint, LastProjection},
    },
};

/// One write or read. Operations of one plan are done in their order.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Reads the consumer's object again, because the plan needs its content and it was dropped.
    ReadConsumer,
    /// Reads the provider's object, because the plan needs its content, or proof that it is gone.
    ReadProvider,
    /// Creates the consumer's object from the provider's; fails if there is any object of that name.
    Adopt { source: Arc<Object>, place: Arc<str> },
    /// Transfers to us, in the provider's object of this UID, ownership of all fields that the consumer's object has. That makes a
    /// new version of the object.
    TransferOwnership { uid: Arc<str>, source: Arc<Object> },
    /// Adds our finalizer to the consumer's object, and annotations with the namespace and UID of the copy.
    Hold {
        version: Version,
        finalizers: Vec<Box<str>>,
        namespace: Arc<str>,
        provider_uid: Arc<str>,
    },
    /// Creates the provider's copy; fails if there is any object of that name.
    Create { source: Arc<Object>, last: LastProjection },
    /// Writes the content of the consumer's object to the copy of this UID; fails if the copy has another version.
    Update {
        source: Arc<Object>,
        uid: Arc<str>,
        version: Version,
        last: LastProjection,
        /// The annotations that record the last writes of all contracts; the write keeps them.
        projections: Box<[Annotation]>,
        /// The copy has the annotation of a contract that released it. An apply removes only fields that it owns, so this
        /// write empties the annotation, and the next one removes it.
        has_release: bool,
    },
    /// Writes the provider's status to the consumer's object of this UID, or removes the status there.
    Status {
        uid: Arc<str>,
        source: Option<Arc<Object>>,
        fingerprint: Option<Fingerprint>,
        subresource: bool,
    },
    /// Deletes the provider's copy of this UID, for a deletion of its source that was seen. With a `version`, the copy is released in
    /// this version instead if the CRD is being deleted, because that deletes each source and says nothing of one.
    DeleteProvider { uid: Arc<str>, version: Option<Version> },
    /// Deletes the retained copy of this UID, as the user ordered, in the version in which it is retained: by the time that the request
    /// arrives, a restore may have made it the copy of an object.
    Discard { uid: Arc<str>, version: Version },
    /// Asks the consumer whether the source of a copy is gone, and if so deletes the copy of this UID, as the user ordered.
    DeleteOrphan { uid: Arc<str> },
    /// Marks the provider's copy of this UID as released: it stays, and is no copy any more.
    ReleaseProvider { uid: Arc<str>, version: Version },
    /// Marks the provider's copy of this UID as retained, and suspends it, for the deletion of the source that was seen. With `keeps`, it
    /// is released instead if the CRD is being deleted.
    Retain {
        uid: Arc<str>,
        version: Version,
        /// UID of the source.
        source_uid: Arc<str>,
        /// The copy, if its content is changed.
        content: Option<Arc<Object>>,
        keeps: bool,
    },
    /// Marks the retained copy of this UID as one whose source is being restored, so that the server does not end it before a time of its
    /// own.
    Restore { uid: Arc<str> },
    /// Makes the retained copy the copy of the consumer's object of this UID, and undoes its suspension.
    Relink {
        copy: Arc<Object>,
        version: Version,
        source_uid: Arc<str>,
    },
    /// Deletes the consumer's object of this UID.
    DeleteConsumer { uid: Arc<str> },
    /// Removes our finalizer from the consumer's object.
    Release {
        version: Version,
        finalizers: Vec<Box<str>>,
    },
}

// === impl Op ===

impl Op {
    /// True for operations on the consumer's cluster.
    pub(crate) fn on_consumer(&self) -> bool {
        match self {
            Self::ReadConsumer
            | Self::Adopt { .. }
            | Self::Hold { .. }
            | Self::Status { .. }
            | Self::DeleteConsumer { .. }
            | Self::Release { .. } => true,
            Self::ReadProvider
            | Self::TransferOwnership { .. }
            | Self::Create { .. }
            | Self::Update { .. }
            | Self::DeleteProvider { .. }
            | Self::Discard { .. }
            | Self::DeleteOrphan { .. }
            | Self::Retain { .. }
            | Self::Restore { .. }
            | Self::Relink { .. }
            | Self::ReleaseProvider { .. } => false,
        }
    }

    /// Name of the operation in metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::ReadConsumer => "read_consumer",
            Self::ReadProvider => "read_provider",
            Self::Adopt { .. } => "adopt",
            Self::TransferOwnership { .. } => "transfer_ownership",
            Self::Hold { .. } => "hold",
            Self::Create { .. } => "create",
            Self::Update { .. } => "update",
            Self::Status { .. } => "status",
            Self::DeleteProvider { .. } => "delete_provider",
            Self::Discard { .. } => "discard",
            Self::DeleteOrphan { .. } => "delete_orphan",
            Self::ReleaseProvider { .. } => "release_provider",
            Self::Retain { .. } => "retain",
            Self::Restore { .. } => "restore",
            Self::Relink { .. } => "relink",
            Self::DeleteConsumer { .. } => "delete_consumer",
            Self::Release { .. } => "release",
        }
    }
}
