//! Simulated processes: time moves only when the test says so, and the same seed gives the same random bytes.

use std::{
    collections::HashSet,
    time::{Duration, Instant, SystemTime},
};

use bindery_simulator_host::{Clocks, Process, Run, set_clocks, simulate};

fn clocks(seconds: u64) -> Clocks {
    Clocks {
        monotonic: Duration::from_secs(seconds),
        wall: Duration::from_secs(1_000_000_000 + seconds),
    }
}

async fn spin() {
    loop {
        tokio::task::yield_now().await;
    }
}

async fn fail() {
    tokio::task::yield_now().await;
    panic!("a task that fails");
}

// One test: the simulation is global.
#[test]
fn a_process_runs_until_it_waits_and_time_stands_still() {
    simulate(7, clocks(100));
    let started = Instant::now();
    let mut process = Process::start(async {
        let other = tokio::spawn(async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            "slept"
        });
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        let slept = other.await.expect("a task that ends");
        tokio::time::sleep(Duration::from_millis(1)).await;
        slept
    })
    .expect("a runtime");
    // A runtime may wake a little early, to sort the timers of the near future.
    let soon =
        |run| matches!(run, Run::Waits(Some(time)) if time <= Duration::from_secs(3) && time > Duration::from_secs(2));
    assert!(soon(process.run()));
    assert!(soon(process.run()), "no time has passed");
    set_clocks(clocks(103));
    assert_eq!(process.run(), Run::Waits(Some(Duration::from_millis(1))));
    assert_eq!(started.elapsed(), Duration::from_secs(3));
    let wall = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("a time");
    assert_eq!(wall.as_secs(), 1_000_000_103);
    set_clocks(clocks(104));
    assert_eq!(process.run(), Run::Ended("slept"));

    let mut spinning = Process::start(spin()).expect("a runtime");
    assert_eq!(spinning.run(), Run::Spins);

    let mut idle = Process::start(std::future::pending::<()>()).expect("a runtime");
    assert_eq!(idle.run(), Run::Waits(None));

    // The runtime catches the panic of a task that no other task joins.
    let mut failing = Process::start(async {
        drop(tokio::spawn(fail()));
        std::future::pending::<()>().await;
    })
    .expect("a runtime");
    let run = failing.run();
    assert!(
        matches!(&run, Run::Panicked(message) if message.contains("host.rs") && message.ends_with("a task that fails")),
        "{run:?}"
    );
    assert_eq!(idle.run(), Run::Waits(None), "the panic was that of another process");

    // The order of a set with random state is that of the seed.
    let set: HashSet<u32> = (0..8).collect();
    let order: Vec<_> = set.into_iter().collect();
    println!("{order:?}");
    let random: [u8; 16] = std::array::from_fn(|_| rand::random());
    println!("{random:?}");
}
