//! Limits how many objects the engines of one provider process at a time, and decides which engine goes next.
//!
//! Each object that is processed holds a permit (`Turn`). More requests at once would only queue in the API servers, which
//! cannot tell an urgent change from the backlog. An engine waits for one permit at a time, for its most urgent object, so
//! permits go round engine by engine. Live changes overtake the backlog, which never holds more than three quarters of the
//! permits. While an engine that has nothing live waits, the backlog is served first until it holds a quarter. No engine
//! holds more than three quarters, so that a change in another engine gets a permit at once. While single changes come in
//! one engine, each other engine holds an eighth at most, since more requests would delay these changes in the API server.

mod turns;

use std::{sync::Arc, time::Duration};

use bindery_runtime::queue::Priority;
use parking_lot::Mutex;
use tokio::{sync::oneshot, time::Instant};

use turns::{Turns, quarter};

/// Permits of one provider: the number of objects that are processed at the same time.
const PLACES: usize = 16;

/// A live change counts as single if its engine has nothing else to do, and began no other object for this long before.
const PAUSE: Duration = Duration::from_millis(50);

/// For this long after a single change another one is expected, and the other engines get fewer permits.
const EXPECTED: Duration = Duration::from_secs(1);

/// The permits of one provider. Clones share them.
#[derive(Clone, Debug)]
pub struct Budget {
    turns: Arc<Mutex<Turns<oneshot::Sender<Turn>>>>,
    /// When any engine last began a single change.
    single: Arc<Mutex<Option<Instant>>>,
    places: usize,
}

/// The quota of one engine: how many permits of a [`Budget`] it may hold.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    budget: &'a Budget,
    /// When this engine last began an object, and (`single`) when it last began a single change.
    begun: Option<Instant>,
    single: Option<Instant>,
}

/// A permit to process one object. Dropping it returns it to the budget.
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

    /// Returns the quota of one engine.
    pub(crate) fn share(&self) -> Share<'_> {
        Share {
            budget: self,
            begun: None,
            single: None,
        }
    }

    /// Waits for a permit. Dropping the future ends the wait.
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

    /// Hands free permits to the engines that wait for them.
    fn give(&self) {
        loop {
            let next = self.turns.lock().next();
            let Some((sender, priority)) = next else { return };
            if sender.is_closed() {
                self.turns.lock().give_back(priority);
                continue;
            }
            let budget = self.clone();
            // The lock is not held here: a permit that no engine waits for any more is dropped, which takes the lock again.
            drop(sender.send(Turn { budget, priority }));
        }
    }
}

impl Share<'_> {
    /// How many permits the engine may hold now.
    pub(crate) fn places(&self) -> usize {
        let places = self.budget.places;
        let single = *self.budget.single.lock();
        // If the latest single change is this engine's own, no other engine has had one since.
        if single.is_some_and(|last| Some(last) != self.single && last.elapsed() < EXPECTED) {
            (places / 8).max(1)
        } else {
            places - quarter(places)
        }
    }

    /// Notes that the engine begins an object. `is_alone` is true if the object is live and all that the engine has to do.
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

    /// Two engines share eight permits: one has much to do, the other a single change.
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
