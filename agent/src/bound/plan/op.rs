//! What a plan is made of: one write or read each.

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
    /// Reads the consumer's object again: its content is needed and was let go.
    ReadConsumer,
    /// Reads the provider's object: its content is needed, or its absence is to be confirmed.
    ReadProvider,
    /// Creates the consumer's object of the provider's; fails if there is any object of that name.
    Adopt { source: Arc<Object>, place: Arc<str> },
    /// Makes the fields of the provider's object of this UID ours that the consumer's says, whoever wrote them.
    Disown { uid: Arc<str>, source: Arc<Object> },
    /// Puts our finalizer, and namespace and UID of the provider's copy, on the consumer's object.
    Hold {
        version: Version,
        finalizers: Vec<Box<str>>,
        namespace: Arc<str>,
        provider_uid: Arc<str>,
    },
    /// Creates the provider's copy; fails if there is any object of that name.
    Create { source: Arc<Object>, last: LastProjection },
    /// Writes what the consumer's object says to the provider's copy of this UID.
    Update {
        source: Arc<Object>,
        uid: Arc<str>,
        last: LastProjection,
        /// What others wrote last, to be remembered.
        projections: Box<[Annotation]>,
        /// It has the mark of a contract that let it go. An apply removes only what it owns, so that the mark is emptied
        /// first, and goes with the next write.
        has_release: bool,
    },
    /// Puts the provider's status on the consumer's object of this UID, or removes it there.
    Status {
        uid: Arc<str>,
        source: Option<Arc<Object>>,
        fingerprint: Option<Fingerprint>,
        subresource: bool,
    },
    /// Deletes the provider's copy of this UID.
    DeleteProvider { uid: Arc<str> },
    /// Asks the consumer whether the source of a copy is gone, and if so deletes the copy of this UID.
    DeleteOrphan { uid: Arc<str> },
    /// Deletes the consumer's object of this UID.
    DeleteConsumer { uid: Arc<str> },
    /// Takes our finalizer off the consumer's object.
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
            | Self::Disown { .. }
            | Self::Create { .. }
            | Self::Update { .. }
            | Self::DeleteProvider { .. }
            | Self::DeleteOrphan { .. } => false,
        }
    }

    /// Name of the operation in metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::ReadConsumer => "read_consumer",
            Self::ReadProvider => "read_provider",
            Self::Adopt { .. } => "adopt",
            Self::Disown { .. } => "disown",
            Self::Hold { .. } => "hold",
            Self::Create { .. } => "create",
            Self::Update { .. } => "update",
            Self::Status { .. } => "status",
            Self::DeleteProvider { .. } => "delete_provider",
            Self::DeleteOrphan { .. } => "delete_orphan",
            Self::DeleteConsumer { .. } => "delete_consumer",
            Self::Release { .. } => "release",
        }
    }
}
