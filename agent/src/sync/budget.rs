//! How much is under way at a time, and whose turn it is.
//!
//! The engines of one provider share its places: each object that is worked on has one. More at once would only stand in
//! line in the API servers, where nobody can tell the change that somebody waits for from a thousand others. An engine
//! stands in line once, for the most urgent of its objects, so that a line goes round engine by engine however much each
//! has to do. Live changes pass the backlog; either has a quarter of the places for itself, that of the backlog as long as an
//! engine with nothing else to do waits for it: within an engine, what is live comes first always. No engine has more than
//! three quarters, so that the change of another finds a place at once.

mod turns;

use std::sync::Arc;

use bindery_runtime::queue::Lane;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use turns::{Turns, quarter};

/// Objects worked on at once.
const PLACES: usize = 16;

/// The places of one provider. Clones share them.
#[derive(Clone, Debug)]
pub struct Budget {
    turns: Arc<Mutex<Turns<oneshot::Sender<Turn>>>>,
    share: usize,
}

/// Leave to work on one object, until dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    budget: Budget,
    lane: Lane,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(PLACES)
    }
}

impl Budget {
    fn new(places: usize) -> Self {
        Self {
            turns: Arc::new(Mutex::new(Turns::new(places))),
            share: places - quarter(places),
        }
    }

    /// How many places one engine may have.
    pub(crate) fn share(&self) -> usize {
        self.share
    }

    /// Waits for a place. Whoever waits no more has only to drop this.
    pub(crate) async fn turn(&self, lane: Lane) -> Turn {
        loop {
            let (sender, receiver) = oneshot::channel();
            self.turns.lock().wait(lane, sender);
            self.give();
            if let Ok(turn) = receiver.await {
                return turn;
            }
        }
    }

    /// Gives free places to those whose turn it is.
    fn give(&self) {
        loop {
            let next = self.turns.lock().next();
            let Some((sender, lane)) = next else { return };
            if sender.is_closed() {
                self.turns.lock().give_back(lane);
                continue;
            }
            let budget = self.clone();
            // Not locked meanwhile: where nobody takes it after all, it is given back.
            drop(sender.send(Turn { budget, lane }));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.budget.turns.lock().give_back(self.lane);
        self.budget.give();
    }
}

#[cfg(test)]
mod tests {
    use Lane::{Backlog, Live};
    use futures::FutureExt as _;

    use super::*;

    fn place(budget: &Budget, lane: Lane) -> impl Future<Output = Turn> + Unpin {
        let budget = budget.clone();
        Box::pin(async move { budget.turn(lane).await })
    }

    #[test]
    fn who_waits_no_more_is_passed_over() {
        let budget = Budget::new(2);
        let taken = place(&budget, Live).now_or_never().unwrap();
        let second = place(&budget, Live).now_or_never().unwrap();
        let (mut gives_up, mut waits) = (place(&budget, Backlog), place(&budget, Live));
        assert!((&mut gives_up).now_or_never().is_none());
        assert!((&mut waits).now_or_never().is_none());
        drop(gives_up);
        drop(taken);
        let third = waits.now_or_never().expect("the place that was given back");
        assert!(place(&budget, Live).now_or_never().is_none());
        drop((second, third));
        assert!(place(&budget, Live).now_or_never().is_some());
    }

    #[test]
    fn a_place_that_is_given_and_not_taken_goes_to_the_next() {
        let budget = Budget::new(2);
        let taken = [Live, Live].map(|lane| place(&budget, lane).now_or_never().unwrap());
        let (mut given, mut waits) = (place(&budget, Live), place(&budget, Live));
        assert!((&mut given).now_or_never().is_none() && (&mut waits).now_or_never().is_none());
        let [first, second] = taken;
        drop(first);
        drop(given);
        assert!(waits.now_or_never().is_some());
        drop(second);
    }

    /// Two engines share eight places: one has much to do, the other one change.
    #[test]
    fn a_single_change_waits_for_nobodys_crowd() {
        let budget = Budget::new(8);
        let crowd: Vec<_> = (0..budget.share())
            .map(|_| place(&budget, Live).now_or_never().expect("within its share"))
            .collect();
        let change = place(&budget, Live).now_or_never();
        assert!(change.is_some());
        drop(crowd);
    }
}
