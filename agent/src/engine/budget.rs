//! How much is under way at a time, and whose turn it is.
//!
//! The engines of one provider share its places: each object that is worked on has one. More at once would only stand in
//! line in the API servers, where nobody can tell the change that somebody waits for from a thousand others. An engine
//! stands in line once, for the most urgent of its objects, so that a line goes round engine by engine however much each
//! has to do. Live changes pass the backlog; either has a quarter of the places for itself, that of the backlog as long as an
//! engine with nothing else to do waits for it: within an engine, what is live comes first always. No engine has more than
//! three quarters, so that the change of another finds a place at once. While single changes come in one engine, the others
//! keep to an eighth each: a place is worth little where the API server is busy with a crowd.

mod turns;

use std::{sync::Arc, time::Duration};

use bindery_runtime::queue::Priority;
use parking_lot::Mutex;
use tokio::{sync::oneshot, time::Instant};

use turns::{Turns, quarter};

/// Objects worked on at once.
const PLACES: usize = 16;

/// A change is single if its engine had nothing to do for so long before: one of many that come one by one is not.
const PAUSE: Duration = Duration::from_millis(50);

/// For so long after a single change the next one is expected.
const EXPECTED: Duration = Duration::from_secs(1);

/// The places of one provider. Clones share them.
#[derive(Clone, Debug)]
pub struct Budget {
    turns: Arc<Mutex<Turns<oneshot::Sender<Turn>>>>,
    single: Arc<Mutex<Option<Instant>>>,
    places: usize,
}

/// The part of one engine in a [`Budget`].
#[derive(Debug)]
pub(crate) struct Share<'a> {
    budget: &'a Budget,
    /// When this engine last began with an object, and when with a single change.
    begun: Option<Instant>,
    single: Option<Instant>,
}

/// Leave to work on one object, until dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    budget: Budget,
    priority: Priority,
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
            single: Arc::default(),
            places,
        }
    }

    /// For one engine.
    pub(crate) fn share(&self) -> Share<'_> {
        Share {
            budget: self,
            begun: None,
            single: None,
        }
    }

    /// Waits for a place. Whoever waits no more has only to drop this.
    pub(crate) async fn turn(&self, priority: Priority) -> Turn {
        loop {
            let (sender, receiver) = oneshot::channel();
            self.turns.lock().wait(priority, sender);
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
            let Some((sender, priority)) = next else { return };
            if sender.is_closed() {
                self.turns.lock().give_back(priority);
                continue;
            }
            let budget = self.clone();
            // Not locked meanwhile: where nobody takes it after all, it is given back.
            drop(sender.send(Turn { budget, priority }));
        }
    }
}

impl Share<'_> {
    /// How many places the engine may have now.
    pub(crate) fn places(&self) -> usize {
        let places = self.budget.places;
        let single = *self.budget.single.lock();
        // If the last one is our own, nobody else had one since.
        if single.is_some_and(|last| Some(last) != self.single && last.elapsed() < EXPECTED) {
            (places / 8).max(1)
        } else {
            places - quarter(places)
        }
    }

    /// The engine begins with an object, which may be live and all that there is to do.
    pub(crate) fn begin(&mut self, is_alone: bool) {
        let now = Instant::now();
        let last = self.begun.replace(now);
        if is_alone && last.is_none_or(|last| now - last >= PAUSE) {
            self.single = Some(now);
            *self.budget.single.lock() = Some(now);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.budget.turns.lock().give_back(self.priority);
        self.budget.give();
    }
}

#[cfg(test)]
mod tests {
    use Priority::{Backlog, Live};
    use futures::FutureExt as _;
    use tokio::time::advance;

    use super::*;

    fn place(budget: &Budget, priority: Priority) -> impl Future<Output = Turn> + Unpin {
        let budget = budget.clone();
        Box::pin(async move { budget.turn(priority).await })
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
        let taken = [Live, Live].map(|priority| place(&budget, priority).now_or_never().unwrap());
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
        let crowd: Vec<_> = (0..budget.share().places())
            .map(|_| place(&budget, Live).now_or_never().expect("within its share"))
            .collect();
        let change = place(&budget, Live).now_or_never();
        assert!(change.is_some());
        drop(crowd);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_a_crowd_keeps_to_few_places_while_single_changes_come_elsewhere() {
        let budget = Budget::new(16);
        let (mut crowd, mut other) = (budget.share(), budget.share());
        crowd.begin(true);
        assert_eq!((crowd.places(), other.places()), (12, 2));
        advance(PAUSE).await;
        other.begin(true);
        assert_eq!((crowd.places(), other.places()), (2, 12));
        advance(EXPECTED).await;
        assert_eq!((crowd.places(), other.places()), (12, 12));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_not_single_that_has_others_beside_it_or_just_before() {
        let budget = Budget::new(16);
        let (crowd, mut other) = (budget.share(), budget.share());
        other.begin(false);
        assert_eq!(crowd.places(), 12);
        advance(PAUSE / 2).await;
        other.begin(true);
        assert_eq!(crowd.places(), 12);
        advance(PAUSE).await;
        other.begin(true);
        assert_eq!(crowd.places(), 2);
    }
}
