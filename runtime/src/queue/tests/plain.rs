use tokio::time::Instant;

use crate::{
    backoff::Backoff,
    queue::{Priority, Queue, Work},
};
use std::time::Duration;

async fn next(queue: &Queue<&'static str>) -> Work<&'static str> {
    tokio::time::timeout(Duration::from_hours(1), queue.next())
        .await
        .expect("a key within the hour")
        .expect("an open queue")
}

#[tokio::test(start_paused = true)]
async fn a_key_is_queued_once_and_live_passes_the_backlog() {
    let queue = Queue::new();
    queue.add("listed", Priority::Backlog);
    queue.add("changed", Priority::Backlog);
    queue.add("changed", Priority::Live);
    queue.add("changed", Priority::Live);
    assert_eq!(queue.len(), 2);
    assert_eq!(*next(&queue).await.key(), "changed");
    assert_eq!(*next(&queue).await.key(), "listed");
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_key_with_a_worker_is_given_to_no_other_and_comes_again() {
    let queue = Queue::new();
    queue.add("a", Priority::Live);
    let work = next(&queue).await;
    queue.add("a", Priority::Live);
    queue.add("a", Priority::Live);
    queue.add("b", Priority::Backlog);
    assert_eq!(*next(&queue).await.key(), "b");
    assert!(!queue.is_quiet(), "a is being worked on");
    drop(work);
    assert_eq!(*next(&queue).await.key(), "a");
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn failures_wait_longer_each_time_and_a_change_ends_the_wait() {
    let queue = Queue::new();
    let backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
    let start = Instant::now();
    queue.add("a", Priority::Live);
    next(&queue).await.retry(backoff);
    assert!(queue.is_quiet() && !queue.is_idle(), "a waits for its time");
    next(&queue).await.retry(backoff);
    let work = next(&queue).await;
    assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(work.failures(), 2);
    work.retry(backoff);
    let before = Instant::now();
    queue.add("a", Priority::Live);
    drop(next(&queue).await);
    assert_eq!(before.elapsed(), Duration::ZERO);
    queue.add("a", Priority::Live);
    assert_eq!(next(&queue).await.failures(), 0, "a success forgets the failures");
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_counted_from_the_first_change_and_a_delay_is_none() {
    let second = Duration::from_secs(1);
    let queue = Queue::new();
    queue.add("a", Priority::Backlog);
    tokio::time::advance(second).await;
    queue.add("a", Priority::Live);
    tokio::time::advance(second).await;
    let work = next(&queue).await;
    assert_eq!(work.waited(), 2 * second, "moved up, not queued anew");
    queue.add("a", Priority::Live);
    tokio::time::advance(second).await;
    queue.add("a", Priority::Live);
    drop(work);
    assert_eq!(next(&queue).await.waited(), second, "it came while it was worked on");
    queue.add_after("a", second);
    tokio::time::advance(3 * second).await;
    assert_eq!(next(&queue).await.waited(), 2 * second);
}

#[tokio::test(start_paused = true)]
async fn the_sooner_of_two_delays_holds() {
    let queue = Queue::new();
    let start = Instant::now();
    queue.add_after("a", Duration::from_secs(10));
    queue.add_after("a", Duration::from_secs(5));
    queue.add_after("a", Duration::from_secs(20));
    drop(next(&queue).await);
    assert_eq!(start.elapsed().as_secs(), 5);
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn counts_are_those_of_the_keys_whatever_happens_to_them() {
    let counts = |queue: &Queue<&'static str>| (queue.len(), queue.is_quiet(), queue.is_idle());
    let queue = Queue::new();
    assert_eq!(counts(&queue), (0, true, true));
    queue.add("a", Priority::Backlog);
    queue.add("a", Priority::Live);
    queue.add("b", Priority::Backlog);
    queue.add_after("c", Duration::from_secs(1));
    assert_eq!(counts(&queue), (2, false, false));
    let (a, b) = (next(&queue).await, next(&queue).await);
    queue.add("a", Priority::Live);
    assert_eq!(counts(&queue), (0, false, false), "a runs, and comes again after that");
    drop(a);
    assert_eq!(counts(&queue), (1, false, false));
    drop(next(&queue).await);
    b.again_after(Duration::from_secs(2));
    assert_eq!(counts(&queue), (0, true, false), "b and c wait for their time");
    queue.add("b", Priority::Live);
    assert_eq!(counts(&queue), (1, false, false));
    drop(next(&queue).await);
    next(&queue)
        .await
        .retry(Backoff::new(Duration::from_secs(1), Duration::from_secs(1)));
    assert_eq!(counts(&queue), (0, true, false));
    drop(next(&queue).await);
    assert_eq!(counts(&queue), (0, true, true));
}

#[tokio::test(start_paused = true)]
async fn ready_waits_for_a_key_that_is_urgent_enough() {
    let queue = Queue::new();
    queue.add("listed", Priority::Backlog);
    assert_eq!(queue.ready(Priority::Backlog).await, Some(Priority::Backlog));
    let waiting = queue.ready(Priority::Live);
    let change = async { queue.add("listed", Priority::Live) };
    assert_eq!(tokio::join!(waiting, change).0, Some(Priority::Live));
    assert_eq!(queue.len(), 1);
    let work = queue.try_next().expect("it is still there");
    assert!(queue.try_next().is_none());
    work.again_after(Duration::from_secs(1));
    assert_eq!(
        queue.ready(Priority::Live).await,
        Some(Priority::Live),
        "what was delayed is due"
    );
    drop(queue.try_next());
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn keys_that_change_priority_leave_no_entries_behind() {
    let queue = Queue::new();
    for _ in 0..10 {
        for key in ["a", "b", "c"] {
            queue.add(key, Priority::Backlog);
        }
        for key in ["a", "b", "c"] {
            queue.add(key, Priority::Live);
            drop(next(&queue).await);
        }
    }
    assert!(queue.is_idle());
    let state = queue.shared.state.lock();
    assert!(
        [&state.live, &state.backlog]
            .into_iter()
            .all(|lane| lane.tenants.values().all(|fifo| fifo.entries.is_empty()))
    );
}

#[tokio::test(start_paused = true)]
async fn closing_ends_every_worker() {
    let queue = Queue::<u8>::new();
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.next().await.is_none() })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.close();
    for worker in workers {
        assert!(worker.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_live_change_keeps_its_time_until_work_succeeds() {
    let queue = Queue::new();
    let backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
    let since = |work: &Work<&'static str>| work.changed().map(|changed| changed.elapsed().as_secs());
    queue.add("a", Priority::Backlog);
    let work = next(&queue).await;
    assert_eq!(since(&work), None, "a list shows no change");
    queue.add("a", Priority::Live);
    tokio::time::advance(Duration::from_secs(5)).await;
    work.retry(backoff);
    let work = next(&queue).await;
    assert_eq!(since(&work), Some(5), "the change came while a worker had the key");
    work.retry(backoff);
    tokio::time::advance(Duration::from_mins(5)).await;
    queue.add("a", Priority::Live);
    let work = next(&queue).await;
    assert_eq!(since(&work), Some(305), "a later change does not hide the first");
    drop(work);
    queue.add("a", Priority::Live);
    let work = next(&queue).await;
    assert_eq!(since(&work), Some(0));
    work.again_after(Duration::from_mins(5));
    assert_eq!(since(&next(&queue).await), None, "nothing has changed");
}
