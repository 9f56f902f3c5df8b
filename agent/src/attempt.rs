//! Work in the background that is tried until it succeeds, and ways to hear of its outcome.

use std::{
    future::Future,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bindery_runtime::{
    backoff::Backoff,
    queue::{Priority, Queue},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

/// One piece of work, tried until it succeeds. Dropping it ends it.
#[derive(Debug)]
pub struct Attempt<T, E> {
    outcome: watch::Receiver<Option<Result<T, E>>>,
    failures: Arc<AtomicU32>,
    _task: AbortOnDropHandle<()>,
}

/// Puts a key into a queue whenever a value changes. Dropping it ends that.
#[derive(Debug)]
pub struct Link {
    _task: AbortOnDropHandle<()>,
}

// === impl Attempt ===

impl<T, E> Attempt<T, E>
where
    T: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    /// Starts at once; after a failure waits as the backoff says.
    pub fn start<F>(backoff: Backoff, work: impl Fn() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<T, E>> + Send,
    {
        Self::paced(move |attempt| backoff.delay(attempt), work)
    }

    /// Starts at once; `delay` says how long to wait after which failure, counted from 0.
    pub fn paced<F>(delay: impl Fn(u32) -> Duration + Send + 'static, work: impl Fn() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<T, E>> + Send,
    {
        let (sender, outcome) = watch::channel(None);
        let failures = Arc::<AtomicU32>::default();
        let counter = Arc::clone(&failures);
        let task = tokio::spawn(async move {
            for attempt in 0_u32.. {
                let outcome = work().await;
                let done = outcome.is_ok();
                counter.store(if done { 0 } else { attempt.saturating_add(1) }, Ordering::Relaxed);
                sender.send_replace(Some(outcome));
                if done {
                    // The last word stays readable as long as somebody holds the attempt.
                    sender.closed().await;
                    return;
                }
                sleep(delay(attempt)).await;
            }
        });
        Self {
            outcome,
            failures,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// How the last try ended; `None` before the first has.
    pub fn outcome(&self) -> Option<Result<T, E>> {
        self.outcome.borrow().clone()
    }

    /// How often it has failed in a row.
    pub fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Tells of every new outcome.
    pub fn changes(&self) -> watch::Receiver<Option<Result<T, E>>> {
        self.outcome.clone()
    }
}

// === impl Link ===

impl Link {
    /// Queues the key at every change.
    pub fn new<T, K>(changes: watch::Receiver<T>, queue: Queue<K>, key: K) -> Self
    where
        T: Send + Sync + 'static,
        K: Eq + Hash + Clone + Send + Sync + 'static,
    {
        Self::throttled(changes, queue, key, Duration::ZERO, |_| true)
    }

    /// Queues the key at a change that is urgent, and at others at most once in a while.
    pub fn throttled<T, K>(
        mut changes: watch::Receiver<T>,
        queue: Queue<K>,
        key: K,
        pause: Duration,
        urgent: impl Fn(&T) -> bool + Send + Sync + 'static,
    ) -> Self
    where
        T: Send + Sync + 'static,
        K: Eq + Hash + Clone + Send + Sync + 'static,
    {
        // What it holds by now has been seen, or is about to be: the caller reads after linking.
        let task = tokio::spawn(async move {
            let mut last = Instant::now();
            while changes.changed().await.is_ok() {
                let at_once = urgent(&changes.borrow_and_update());
                if !at_once && !pause.is_zero() {
                    tokio::select! {
                        () = sleep_until(last + pause) => {}
                        _ = changes.wait_for(&urgent) => {}
                    }
                    changes.mark_unchanged();
                }
                last = Instant::now();
                queue.add(key.clone(), Priority::Live);
            }
        });
        Self {
            _task: AbortOnDropHandle::new(task),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tries_until_it_succeeds_and_tells_of_each_try() {
        let tries = std::sync::Arc::new(AtomicU32::new(0));
        let counter = std::sync::Arc::clone(&tries);
        let attempt = Attempt::start(
            Backoff::new(Duration::from_secs(1), Duration::from_secs(5)),
            move || {
                let count = counter.fetch_add(1, Ordering::Relaxed) + 1;
                async move { if count < 4 { Err(count) } else { Ok(count) } }
            },
        );
        let mut changes = attempt.changes();
        let first = *changes.wait_for(Option::is_some).await.unwrap();
        assert_eq!((first, attempt.failures()), (Some(Err(1)), 1));
        let done = *changes
            .wait_for(|outcome| matches!(outcome, Some(Ok(_))))
            .await
            .unwrap();
        assert_eq!(done, Some(Ok(4)));
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(tries.load(Ordering::Relaxed), 4, "it goes on after success");
        assert_eq!((attempt.outcome(), attempt.failures()), (Some(Ok(4)), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_attempt_ends() {
        let tries = std::sync::Arc::new(AtomicU32::new(0));
        let counter = std::sync::Arc::clone(&tries);
        let attempt: Attempt<(), ()> = Attempt::start(
            Backoff::new(Duration::from_secs(1), Duration::from_secs(1)),
            move || {
                counter.fetch_add(1, Ordering::Relaxed);
                async { Err(()) }
            },
        );
        tokio::time::sleep(Duration::from_secs(3)).await;
        drop(attempt);
        let before = tries.load(Ordering::Relaxed);
        assert!(before > 1);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(tries.load(Ordering::Relaxed), before);
    }

    #[tokio::test(start_paused = true)]
    async fn an_urgent_change_passes_the_throttle() {
        let (sender, changes) = watch::channel(0_u32);
        let queue = Queue::new();
        let _link = Link::throttled(changes, queue.clone(), "key", Duration::from_secs(10), |value| {
            *value == 100
        });
        let start = Instant::now();
        sender.send_replace(1);
        drop(queue.next().await);
        assert_eq!(start.elapsed().as_secs(), 10);
        sender.send_replace(2);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(queue.is_empty());
        sender.send_replace(100);
        drop(queue.next().await);
        assert_eq!(start.elapsed().as_secs(), 11);
    }
}
