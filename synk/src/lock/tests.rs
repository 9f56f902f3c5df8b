use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::testing::Memory;

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/synk-web";

fn target() -> Target {
    Target {
        set: "web".parse().unwrap(),
        namespace: "shop".to_owned(),
    }
}

/// The holders that an apply told of.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

async fn take(memory: &Memory, told: &Told) -> Result<Held, Failure> {
    let listen = |event: Event<'_>| {
        if let Event::Held { holder } = event {
            told.0.lock().push(holder.to_owned());
        }
    };
    Lock::take(&memory.clients(), &target(), &listen).await
}

fn foreign(renewed: u32) -> Value {
    // Its clock is years ahead.
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "synk-web"},
        "spec": {
            "holderIdentity": "ada@elsewhere-7-0a", "leaseDurationSeconds": 15, "leaseTransitions": renewed,
            "acquireTime": "2040-01-02T03:04:05.000000Z", "renewTime": "2040-01-02T03:04:05.000000Z",
        },
    })
}

#[tokio::test(start_paused = true)]
async fn who_holds_it_names_itself_and_leaves_nothing() {
    let (memory, told) = (Memory::default(), Told::default());
    let held = take(&memory, &told).await.unwrap();
    let lease = memory.get(PATH).unwrap();
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap();
    assert!(
        holder.contains('@') && holder.contains(&format!("-{}-", std::process::id())),
        "{holder}"
    );
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 15);
    assert!(!held.is_lost());
    held.release().await;
    assert_eq!(memory.paths(), [""; 0]);
    assert!(told.0.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_that_lives_keeps_it_and_the_other_learns_who_it_is() {
    let (memory, told) = (Memory::default(), Told::default());
    let first = take(&memory, &told).await.unwrap();
    let holder = memory.get(PATH).unwrap()["spec"]["holderIdentity"]
        .as_str()
        .unwrap()
        .to_owned();
    let begun = Instant::now();
    let Err(Failure::Held {
        set,
        holder: named,
        since,
    }) = take(&memory, &told).await
    else {
        panic!("two hold it");
    };
    assert_eq!((set.as_str(), &named), ("web", &holder));
    assert!(since.starts_with("20") && since.ends_with('Z'), "{since}");
    assert!(begun.elapsed() <= Duration::from_secs(6), "{:?}", begun.elapsed());
    assert_eq!(*told.0.lock(), [holder]);

    sleep(Duration::from_mins(10)).await;
    assert!(!first.is_lost());
    first.release().await;
    assert_eq!(memory.paths(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn one_that_crashed_is_passed_when_its_time_is_over_whatever_its_clock_says() {
    let (memory, told) = (Memory::default(), Told::default());
    memory.put(PATH, foreign(0));
    let begun = Instant::now();
    let held = take(&memory, &told).await.unwrap();
    let waited = begun.elapsed();
    assert!(
        waited >= Duration::from_secs(15) && waited < Duration::from_secs(17),
        "{waited:?}"
    );
    assert_eq!(*told.0.lock(), ["ada@elsewhere-7-0a"]);
    held.release().await;
    assert_eq!(memory.paths(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn one_whose_renewal_task_was_dropped_counts_as_crashed() {
    let (memory, told) = (Memory::default(), Told::default());
    let first = take(&memory, &told).await.unwrap();
    drop(first);
    let begun = Instant::now();
    let second = take(&memory, &told).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(15));
    second.release().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_renews_late_lives() {
    let (memory, told) = (Memory::default(), Told::default());
    memory.put(PATH, foreign(0));
    let later = memory.clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(14)).await;
        later.put(PATH, foreign(1));
    });
    let refused = take(&memory, &told).await.unwrap_err();
    assert_eq!(refused.reason(), "Held");
    assert_eq!(
        refused.to_string(),
        "set web is being changed by ada@elsewhere-7-0a since 2040-01-02T03:04:05Z: wait for it"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_released_is_taken_at_once() {
    let (memory, told) = (Memory::default(), Told::default());
    memory.put(PATH, foreign(0));
    let later = memory.clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(3)).await;
        later.remove(PATH);
    });
    let begun = Instant::now();
    let held = take(&memory, &told).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    held.release().await;
}

#[tokio::test(start_paused = true)]
async fn of_many_at_once_one_gets_it() {
    let (memory, told) = (Memory::default(), Told::default());
    let all = (0..8).map(|_| take(&memory, &told));
    let taken = futures::future::join_all(all).await;
    assert_eq!(taken.iter().filter(|taken| taken.is_ok()).count(), 1);
    assert!(
        taken
            .iter()
            .filter_map(|taken| taken.as_ref().err())
            .all(|error| error.reason() == "Held")
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_one_stops_the_work_and_is_not_deleted() {
    let (memory, told) = (Memory::default(), Told::default());
    let held = take(&memory, &told).await.unwrap();
    memory.put(PATH, foreign(0));
    let forever = std::future::pending::<Result<(), Failure>>();
    let stopped = timeout(Duration::from_secs(11), held.guard(forever)).await.unwrap();
    assert_eq!(stopped.unwrap_err().reason(), "LeaseLost");
    assert!(held.is_lost());
    assert!(
        held.guard(async { Ok(()) }).await.is_err(),
        "nothing begins after the loss"
    );
    held.release().await;
    assert_eq!(
        memory.get(PATH).unwrap()["spec"]["holderIdentity"],
        "ada@elsewhere-7-0a"
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_is_taken_away_between_two_renewals_is_not_deleted_either() {
    let (memory, told) = (Memory::default(), Told::default());
    let held = take(&memory, &told).await.unwrap();
    memory.put(PATH, foreign(0));
    held.release().await;
    assert_eq!(
        memory.get(PATH).unwrap()["spec"]["holderIdentity"],
        "ada@elsewhere-7-0a"
    );
}

#[tokio::test(start_paused = true)]
async fn it_is_lost_before_others_may_pass_when_the_api_server_is_away() {
    let (memory, told) = (Memory::default(), Told::default());
    let held = take(&memory, &told).await.unwrap();
    let begun = Instant::now();
    memory.silence(true);
    timeout(Duration::from_secs(15), held.lost()).await.unwrap();
    assert!(begun.elapsed() < TIMING.duration, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stood_still_knows_before_its_tasks_ran() {
    let (memory, told) = (Memory::default(), Told::default());
    let held = take(&memory, &told).await.unwrap();
    tokio::time::advance(TIMING.renew_deadline.checked_sub(Duration::from_millis(1)).unwrap()).await;
    assert!(!held.is_lost());
    memory.silence(true);
    tokio::time::advance(TIMING.renew_deadline).await;
    assert!(held.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_short_silence_costs_nothing() {
    let (memory, told) = (Memory::default(), Told::default());
    let held = take(&memory, &told).await.unwrap();
    memory.silence(true);
    sleep(Duration::from_secs(8)).await;
    memory.silence(false);
    sleep(Duration::from_mins(1)).await;
    assert!(!held.is_lost());
    held.release().await;
    assert_eq!(memory.paths(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_taken_says_why() {
    let told = Told::default();
    let silent = Memory::default();
    silent.silence(true);
    let error = take(&silent, &told).await.unwrap_err();
    assert_eq!(error.reason(), "ApiError");
    assert!(
        error.to_string().contains("take Lease synk-web in namespace shop"),
        "{error}"
    );

    let nowhere = Memory::default();
    nowhere.without_namespace("shop");
    assert_eq!(take(&nowhere, &told).await.unwrap_err().reason(), "NamespaceNotFound");

    let ending = Memory::default();
    ending.terminate("shop");
    assert_eq!(take(&ending, &told).await.unwrap_err().reason(), "NamespaceTerminating");
}

#[tokio::test(start_paused = true)]
async fn a_promise_of_days_is_not_believed() {
    let (memory, told) = (Memory::default(), Told::default());
    let mut lease = foreign(0);
    lease["spec"]["leaseDurationSeconds"] = json!(1_000_000);
    memory.put(PATH, lease);
    let held = timeout(Duration::from_mins(3), take(&memory, &told))
        .await
        .unwrap()
        .unwrap();
    held.release().await;
    assert_eq!(memory.paths(), [""; 0]);
}

async fn take_over(memory: &Memory) -> Result<Held, Failure> {
    let there = Target {
        namespace: "elsewhere".to_owned(),
        ..target()
    };
    Lock::take_over(&memory.clients(), &there, Some("shop"), &|_| {}).await
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_moved_is_held_in_both_namespaces() {
    let memory = Memory::default();
    let held = take_over(&memory).await.unwrap();
    assert_eq!(memory.paths().len(), 2);
    assert!(held.covers("shop") && held.covers("elsewhere") && !held.covers("third"));
    // The other of the two is lost.
    memory.put(PATH, foreign(0));
    let forever = std::future::pending::<Result<(), Failure>>();
    let stopped = timeout(Duration::from_secs(11), held.guard(forever)).await.unwrap();
    assert_eq!(stopped.unwrap_err().reason(), "LeaseLost");
    assert!(held.is_lost());
    held.release().await;
    assert_eq!(memory.paths(), [PATH], "that of somebody else stays");
}

#[tokio::test(start_paused = true)]
async fn a_set_at_work_in_its_namespace_is_not_moved() {
    let (memory, told) = (Memory::default(), Told::default());
    let first = take(&memory, &told).await.unwrap();
    let refused = take_over(&memory).await.unwrap_err();
    assert_eq!(refused.reason(), "Held");
    assert_eq!(memory.paths(), [PATH], "its own is given back");
    first.release().await;
}
