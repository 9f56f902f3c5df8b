//! Whether this konnector holds a contract now, for all that write its objects.

use std::{collections::BTreeSet, sync::Arc};

use bindery_api::holder::HolderDigest;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::Finding;

/// Other holders than these are not doubted any more: a provider that names one after the other cannot hold up the contract for ever.
const MET_MAX: usize = 64;

/// Where this konnector stands with a contract.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It is not known yet, or the provider has not taken the first step of this process yet: nothing is written.
    #[default]
    Pending,
    /// It holds the contract.
    Held {
        /// Name of the holder.
        instance: Arc<str>,
    },
    /// The provider keeps no record, so that nothing keeps two konnectors apart.
    Unfenced {
        /// Why the provider keeps none.
        why: Arc<str>,
    },
    /// Another one may hold the contract: nothing is written until the user accepts this konnector.
    Waiting {
        /// What was seen.
        finding: Finding,
        /// What the provider recorded then.
        recorded: HolderDigest,
    },
    /// The contract was given up, because its last binding ends.
    Released,
}

/// Tells whether objects of a contract may be written. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Holding(Arc<Cell>);

#[derive(Debug, Default)]
struct Cell {
    standing: watch::Sender<Standing>,
    doubts: watch::Sender<Doubts>,
    /// Other holders that copies name, each of which was doubted once.
    met: Mutex<BTreeSet<Box<str>>>,
}

/// Doubts whether the contract is still held: each is cleared by a proof that begins after it was raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Doubts {
    raised: u64,
    cleared: u64,
}

// === impl Standing ===

impl Standing {
    /// Whether objects may be written.
    pub fn may_write(&self) -> bool {
        matches!(self, Self::Held { .. } | Self::Unfenced { .. })
    }

    /// What was seen, and what the provider recorded, while the user has to accept this konnector.
    pub fn waiting(&self) -> Option<(Finding, &HolderDigest)> {
        match self {
            Self::Waiting { finding, recorded } => Some((*finding, recorded)),
            _ => None,
        }
    }
}

// === impl Holding ===

impl Holding {
    /// Where this konnector stands, to read or to wait for.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.0.standing.subscribe()
    }

    /// Name of the holder, if this konnector holds the contract and the provider records it.
    pub(crate) fn instance(&self) -> Option<Arc<str>> {
        match &*self.0.standing.borrow() {
            Standing::Held { instance } => Some(Arc::clone(instance)),
            _ => None,
        }
    }

    /// Whether objects may be written now.
    pub(crate) fn is_proven(&self) -> bool {
        let doubts = *self.0.doubts.borrow();
        doubts.raised == doubts.cleared && self.0.standing.borrow().may_write()
    }

    /// Waits until objects may be written.
    pub(crate) async fn proven(&self) {
        let (mut standing, mut doubts) = (self.0.standing.subscribe(), self.0.doubts.subscribe());
        while !self.is_proven() {
            // Waiting cannot fail: this value owns the senders.
            tokio::select! { _ = standing.changed() => {}, _ = doubts.changed() => {} }
        }
    }

    /// Holds back all writes until a new proof, because a cluster may have gone back in time: objects of it are listed anew.
    pub(crate) fn doubt(&self) {
        self.0.doubts.send_modify(|doubts| doubts.raised += 1);
    }

    /// Takes note of a holder that wrote a copy. Another one than this may be a former one, or hold the contract by now, which the watch
    /// of the ClusterBinding shows later: all writes are held back until a new proof, once for each.
    pub(crate) fn meet(&self, writer: &str) {
        if self.instance().is_none_or(|own| *own == *writer) {
            return;
        }
        let mut met = self.0.met.lock();
        if met.len() < MET_MAX && met.insert(writer.into()) {
            self.doubt();
        }
    }

    /// The doubts, to wait for.
    pub(crate) fn raised(&self) -> watch::Receiver<Doubts> {
        self.0.doubts.subscribe()
    }

    /// The doubts that a proof which begins now clears; `None` if there are none.
    pub(super) fn doubts(&self) -> Option<u64> {
        let doubts = *self.0.doubts.borrow();
        (doubts.raised != doubts.cleared).then_some(doubts.raised)
    }

    /// Notes a proof that began when there were these doubts.
    pub(super) fn clear(&self, doubts: u64) {
        self.0
            .doubts
            .send_modify(|known| known.cleared = known.cleared.max(doubts));
    }

    /// Notes where this konnector stands.
    pub(super) fn set(&self, standing: Standing) {
        self.0.standing.send_if_modified(|known| {
            let before = std::mem::replace(known, standing);
            before != *known
        });
    }

    /// A contract that this konnector holds.
    #[cfg(test)]
    pub(crate) fn held() -> Self {
        let holding = Self::default();
        holding.set(Standing::Held { instance: "i".into() });
        holding
    }

    /// A contract that this konnector holds, and each doubt of which ends in a proof.
    #[cfg(test)]
    pub(crate) fn proven_at_once() -> Self {
        let holding = Self::held();
        let (proven, mut raised) = (holding.clone(), holding.raised());
        tokio::spawn(async move {
            while raised.changed().await.is_ok() {
                if let Some(doubts) = proven.doubts() {
                    proven.clear(doubts);
                }
            }
        });
        holding
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn objects_are_written_by_the_holder_alone_and_not_in_doubt() {
        let holding = Holding::default();
        assert!(!holding.is_proven(), "nothing is known yet");
        holding.set(Standing::Held { instance: "i".into() });
        assert!(holding.is_proven());
        holding.doubt();
        let first = holding.doubts().unwrap();
        holding.doubt();
        holding.clear(first);
        assert!(!holding.is_proven(), "the proof began before the second doubt");
        assert_eq!(holding.proven().now_or_never(), None);
        holding.clear(holding.doubts().unwrap());
        assert!(holding.is_proven());
        holding.set(Standing::Waiting {
            finding: Finding::Contested,
            recorded: bindery_api::holder::RecordedHolder::default().digest(),
        });
        assert!(!holding.is_proven());
        holding.set(Standing::Unfenced { why: "".into() });
        assert!(holding.is_proven());
        holding.set(Standing::Released);
        assert!(!holding.is_proven());
    }

    #[test]
    fn another_holder_is_doubted_once() {
        let holding = Holding::held();
        holding.meet("i");
        assert!(holding.is_proven());
        holding.meet("j");
        assert!(!holding.is_proven());
        holding.clear(holding.doubts().unwrap());
        holding.meet("j");
        assert!(holding.is_proven(), "it is a former one");
    }

    #[tokio::test]
    async fn who_waits_hears_of_the_proof() {
        let holding = Holding::held();
        holding.doubt();
        let waiting = tokio::spawn({
            let holding = holding.clone();
            async move { holding.proven().await }
        });
        tokio::task::yield_now().await;
        holding.clear(holding.doubts().unwrap());
        waiting.await.unwrap();
    }
}
