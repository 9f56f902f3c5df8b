//! Counts the objects of all engines of a session, for its heartbeats.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use bindery_api::v1alpha2::ClusterBindingSync;
use parking_lot::Mutex;

use super::{Shared, strategy::SyncStrategy};

/// The engines of a session. Clones share one list.
#[derive(Clone, Default)]
pub struct Tally {
    engines: Arc<Mutex<Vec<Weak<dyn EngineCounts>>>>,
}

/// The counts of one engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    objects: usize,
    pending: usize,
    failing: usize,
    /// How long the object that waits longest has waited.
    lag: Option<Duration>,
}

trait EngineCounts: Send + Sync {
    fn counts(&self) -> Counts;

    /// True unless a consumer namespace certainly has no copy on the provider.
    fn may_hold_copies(&self, consumer_namespace: &Arc<str>) -> bool;
}

impl Tally {
    /// Adds an engine, and forgets those that have ended.
    pub(super) fn join<F: SyncStrategy>(&self, engine: &Arc<Shared<F>>) {
        let engine: Arc<dyn EngineCounts> = Arc::<Shared<F>>::clone(engine);
        let mut engines = self.engines.lock();
        engines.retain(|engine| engine.strong_count() > 0);
        engines.push(Arc::downgrade(&engine));
    }

    /// True unless a consumer namespace certainly has no copy on the provider, of any engine. No index may be locked.
    pub(super) fn may_hold_copies(&self, consumer_namespace: &Arc<str>) -> bool {
        let engines: Vec<_> = self.engines.lock().iter().filter_map(Weak::upgrade).collect();
        engines.iter().any(|engine| engine.may_hold_copies(consumer_namespace))
    }

    /// The counts of all engines that run now, as a heartbeat reports them; `None` if no engine runs.
    pub fn sync(&self) -> Option<ClusterBindingSync> {
        let engines: Vec<_> = self.engines.lock().iter().filter_map(Weak::upgrade).collect();
        (!engines.is_empty()).then(|| sum(engines.iter().map(|engine| engine.counts())))
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tally").finish_non_exhaustive()
    }
}

impl<F: SyncStrategy> EngineCounts for Shared<F> {
    fn counts(&self) -> Counts {
        Counts {
            objects: self.index.lock().consumer_count(),
            pending: self.queue.len(),
            failing: self.issues.lock().count(),
            lag: self.queue.longest_wait(),
        }
    }

    fn may_hold_copies(&self, consumer_namespace: &Arc<str>) -> bool {
        !*self.places_known.borrow() || self.index.lock().may_hold_copies(consumer_namespace)
    }
}

fn sum(counts: impl Iterator<Item = Counts>) -> ClusterBindingSync {
    let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
    let (mut objects, mut pending, mut failing, mut lag) = (0_i64, 0_i64, 0_i64, None);
    for engine in counts {
        objects = objects.saturating_add(number(engine.objects));
        pending = pending.saturating_add(number(engine.pending));
        failing = failing.saturating_add(number(engine.failing));
        lag = lag.max(engine.lag);
    }
    // Whole seconds are precise enough for people, and readable.
    let lag = lag.map(|lag| Duration::from_secs(lag.as_secs()).into());
    ClusterBindingSync {
        objects: Some(objects),
        pending: Some(pending),
        failing: Some(failing),
        lag,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_the_longest_wait_is_the_lag() {
        let counts = |objects, pending, failing, lag: Option<u64>| Counts {
            objects,
            pending,
            failing,
            lag: lag.map(Duration::from_millis),
        };
        let sync = sum([
            counts(3, 0, 1, None),
            counts(4, 2, 0, Some(90_500)),
            counts(0, 1, 0, Some(20)),
        ]
        .into_iter());
        assert_eq!((sync.objects, sync.pending, sync.failing), (Some(7), Some(3), Some(1)));
        assert_eq!(sync.lag.map(|lag| lag.as_str().to_owned()).as_deref(), Some("1m30s"));
    }

    #[test]
    fn an_engine_that_ended_does_not_count() {
        let tally = Tally::default();
        let ended: Weak<dyn EngineCounts> = {
            struct Ended;
            impl EngineCounts for Ended {
                fn counts(&self) -> Counts {
                    Counts {
                        objects: 9,
                        ..Counts::default()
                    }
                }

                fn may_hold_copies(&self, _: &Arc<str>) -> bool {
                    true
                }
            }
            let engine: Arc<dyn EngineCounts> = Arc::new(Ended);
            Arc::downgrade(&engine)
        };
        tally.engines.lock().push(ended);
        assert_eq!(tally.sync(), None);
        assert!(!tally.may_hold_copies(&"ns".into()));
    }
}
