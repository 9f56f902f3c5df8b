//! Plans the end of a copy whose source was deleted, and what becomes of a copy that is retained.

use std::sync::Arc;

use bindery_api::retention::RetentionAction;

use super::{Mode, Op, Plan, delete, is_version_lost};
use crate::{
    bound::pair::{Consumer, Owner, Provider, Retained},
    model::uid::Uid,
};

/// The operation that ends a copy for the deletion of its source, which was seen: the copy is retained, or deleted. Where the provider
/// keeps its objects and the binding ends, it is released.
pub(super) fn end(provider: &Provider, source_uid: &Uid, mode: Mode) -> Op {
    if !mode.retains || (mode.keeps && mode.draining) {
        return delete(provider, mode);
    }
    if is_version_lost(provider.version) || (mode.suspends && provider.content.is_none()) {
        return Op::ReadProvider;
    }
    Op::Retain {
        uid: provider.uid.text(),
        version: provider.version,
        source_uid: source_uid.text(),
        content: provider.content.clone().filter(|_| mode.suspends),
        keeps: mode.keeps,
    }
}

/// Plans a retained copy whose name no object of the consumer has: it stays until the user or the server ends it.
pub(super) fn alone(provider: &Provider, retained: &Retained, place: &Arc<str>, mode: Mode) -> Plan {
    if provider.deleting {
        return Plan::default();
    }
    match mode.ends_retention {
        Some(RetentionAction::Discard) => discard(provider),
        _ if mode.draining || mode.closing => Plan::default(),
        Some(RetentionAction::Restore) if !retained.restoring => Plan::of(Op::Restore {
            uid: provider.uid.text(),
        }),
        _ if !retained.restoring => Plan::default(),
        _ => Plan::of(match &provider.content {
            None => Op::ReadProvider,
            Some(source) => Op::Adopt {
                source: Arc::clone(source),
                place: Arc::clone(place),
            },
        }),
    }
}

/// Plans the end of a retained copy that the user discards.
pub(super) fn discard(provider: &Provider) -> Plan {
    if provider.deleting {
        return Plan::default();
    }
    if is_version_lost(provider.version) {
        return Plan::of(Op::ReadProvider);
    }
    Plan::of(Op::Discard {
        uid: provider.uid.text(),
        version: provider.version,
    })
}

/// Plans a retained copy whose source exists: it becomes the copy of it again. The next plan updates its content.
pub(super) fn relink(consumer: &Consumer, provider: &Provider) -> Plan {
    if provider.deleting {
        return Plan::default();
    }
    Plan::of(match &provider.content {
        Some(copy) if !is_version_lost(provider.version) => Op::Relink {
            copy: Arc::clone(copy),
            version: provider.version,
            source_uid: consumer.uid.text(),
        },
        _ => Op::ReadProvider,
    })
}

// === impl Provider ===

impl Provider {
    /// Whether it is a copy that is retained.
    pub(super) fn is_retained(&self) -> bool {
        matches!(self.owner, Owner::Retained(_))
    }

    /// Whether it is a copy that is retained for the deletion of this very object.
    pub(super) fn is_retained_for(&self, consumer: &Consumer) -> bool {
        matches!(&self.owner, Owner::Retained(retained) if retained.source_uid == consumer.uid)
    }
}

// === impl Retained ===

impl Retained {
    /// Whether a retained copy is that of this object: its source, or what was created anew from it.
    pub(super) fn is_for(&self, consumer: &Consumer, copy: &Provider) -> bool {
        self.source_uid == consumer.uid || consumer.adopted.as_deref() == Some(&copy.uid)
    }
}
