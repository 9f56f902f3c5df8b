//! What the user ordered for orphans.

use std::collections::HashMap;

use bindery_api::orphans::{OrphanAction, OrphanSet};
use bindery_runtime::{cache::ObjectKey, queue::Priority};
use parking_lot::RwLock;

use super::{Shared, strategy::SyncStrategy};
use crate::model::uid::Uid;

/// The orders for orphans, by UID of the copy. An order is for the copies that were orphans when the user gave it, and lasts while they
/// are. A konnector that restarts forgets orders: what is left is shown, and the user orders again.
#[derive(Debug, Default)]
pub(crate) struct Orders(RwLock<HashMap<Uid, OrphanAction>>);

// === impl Orders ===

impl Orders {
    /// Returns the order for a copy. A copy that is no orphan any more, since its source is back, loses its order.
    pub(crate) fn of(&self, copy: Option<&Uid>, is_orphan: bool) -> Option<OrphanAction> {
        let order = copy.and_then(|copy| self.0.read().get(copy).copied())?;
        if is_orphan {
            return Some(order);
        }
        if let Some(copy) = copy {
            self.0.write().remove(copy);
        }
        None
    }

    fn set(&self, copies: impl IntoIterator<Item = Uid>, action: OrphanAction) {
        *self.0.write() = copies.into_iter().map(|copy| (copy, action)).collect();
    }
}

impl<F: SyncStrategy> Shared<F> {
    /// Ends a set of orphans; nothing if the orphans are others now. Replaces earlier orders.
    pub(crate) fn end_orphans(&self, action: OrphanAction, orphans: OrphanSet) {
        let Some(orphans) = self.index.lock().orphans_in(orphans) else {
            return;
        };
        let keys: Vec<ObjectKey> = orphans.values().cloned().collect();
        self.strategy.orders().set(orphans.into_keys(), action);
        self.enqueue(keys, Priority::Backlog);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_lasts_while_the_copy_is_an_orphan() {
        let (orders, copy) = (Orders::default(), Uid::from("a"));
        orders.set([copy.clone()], OrphanAction::Delete);
        assert_eq!(orders.of(None, true), None);
        assert_eq!(orders.of(Some(&Uid::from("b")), true), None);
        assert_eq!(orders.of(Some(&copy), true), Some(OrphanAction::Delete));
        orders.set([copy.clone()], OrphanAction::Release);
        assert_eq!(orders.of(Some(&copy), true), Some(OrphanAction::Release));
        assert_eq!(orders.of(Some(&copy), false), None, "its source is back");
        assert_eq!(orders.of(Some(&copy), true), None, "it is lost anew");
    }
}
