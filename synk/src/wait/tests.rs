use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::object::Gvk;

/// A cluster in which each object goes through a number of looks, and stays at the last.
#[derive(Clone, Default)]
struct World {
    looks: Arc<Mutex<BTreeMap<String, VecDeque<Look>>>>,
    asked: Arc<Mutex<Vec<usize>>>,
    told: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone, Copy)]
enum Look {
    Missing,
    Ready,
    Unready,
    Stalled,
    Broken,
    Forbidden,
    Hanging,
}

use Look::{Broken, Forbidden, Hanging, Missing, Ready, Stalled, Unready};

impl World {
    fn of(objects: &[(&str, &[Look])]) -> Self {
        let looks = objects
            .iter()
            .map(|(name, looks)| ((*name).to_owned(), looks.iter().copied().collect()));
        Self {
            looks: Arc::new(Mutex::new(looks.collect())),
            ..Self::default()
        }
    }

    async fn read(&self, objects: &[ObjectRef]) -> Result<Vec<Option<Value>>, Failure> {
        self.asked.lock().push(objects.len());
        let looks: Vec<_> = objects.iter().map(|object| self.look(&object.name)).collect();
        let mut live = Vec::new();
        for look in looks {
            let condition = |kind: &str, status: &str| {
                let condition = json!({"type": kind, "status": status, "reason": "R", "message": "why"});
                Some(json!({"kind": "Db", "metadata": {}, "status": {"conditions": [condition]}}))
            };
            live.push(match look {
                Missing => None,
                Ready => condition("Ready", "True"),
                Unready => condition("Ready", "False"),
                Stalled => condition("Stalled", "True"),
                Broken => return Err(Failure::api("read dbs")(kube::Error::Service("reset".into()))),
                Forbidden => return Err(Failure::NotInstalled),
                Hanging => std::future::pending().await,
            });
        }
        Ok(live)
    }

    fn look(&self, name: &str) -> Look {
        let mut all = self.looks.lock();
        let looks = all.get_mut(name).unwrap();
        if looks.len() > 1 {
            looks.pop_front().unwrap()
        } else {
            looks[0]
        }
    }

    async fn wait(&self, limit: u64) -> Result<(), String> {
        let names: Vec<_> = self.looks.lock().keys().cloned().collect();
        let objects: Vec<_> = names.into_iter().map(named_object).collect();
        let listen = |event: Event<'_>| {
            if let Event::Waiting { object, reason, count } = event {
                self.told.lock().push(format!("{} {reason} {count}", object.name));
            }
        };
        let read = async |objects: Vec<ObjectRef>| self.read(&objects).await;
        let waited = until_healthy(read, &objects, Duration::from_secs(limit), &listen).await;
        waited.map_err(|error| format!("{}: {error}", error.reason()))
    }
}

fn named_object(name: String) -> ObjectRef {
    ObjectRef {
        gvk: Gvk::new("example.org/v1", "Db"),
        namespace: Some("shop".to_owned()),
        name,
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_healthy_is_looked_at_once() {
    let world = World::of(&[("a", &[Ready]), ("b", &[Ready])]);
    assert_eq!(world.wait(10).await, Ok(()));
    assert_eq!(*world.asked.lock(), [2]);
    assert!(world.told.lock().is_empty());
    assert_eq!(World::default().wait(0).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn what_gets_healthy_is_waited_for_and_told_when_it_changes() {
    let world = World::of(&[("a", &[Missing, Unready, Unready, Ready]), ("b", &[Unready, Ready])]);
    assert_eq!(world.wait(10).await, Ok(()));
    assert_eq!(
        *world.asked.lock(),
        [2, 2, 1, 1, 2],
        "those that are not healthy, and all of them at the end"
    );
    assert_eq!(*world.told.lock(), ["a it does not exist 2", "a R: why 1"]);
}

#[tokio::test(start_paused = true)]
async fn all_have_to_be_healthy_at_once() {
    let world = World::of(&[("a", &[Ready, Unready, Ready]), ("b", &[Unready, Ready])]);
    assert_eq!(world.wait(10).await, Ok(()));
    assert_eq!(*world.asked.lock(), [2, 1, 2, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_get_healthy_is_named_when_the_time_is_over() {
    let all: Vec<_> = (0..8).map(|at| format!("n{at}")).collect();
    let objects: Vec<_> = all.iter().map(|name| (name.as_str(), [Unready].as_slice())).collect();
    let world = World::of(&objects);
    let begun = Instant::now();
    let error = world.wait(30).await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::from_secs(30));
    assert!(
        error.starts_with("TimedOut: timed out: 8 of 8 objects are not healthy after 30s: db.example.org/n0 in namespace shop (R: why), "),
        "{error}"
    );
    assert!(
        error.ends_with("db.example.org/n4 in namespace shop (R: why), and 3 more"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_has_failed_ends_the_wait_soon_but_not_at_first_sight() {
    let world = World::of(&[("a", &[Stalled]), ("b", &[Unready])]);
    let begun = Instant::now();
    assert_eq!(
        world.wait(60).await,
        Err("Unhealthy: 1 of 2 objects failed: db.example.org/a in namespace shop (R: why)".to_owned())
    );
    assert!(begun.elapsed() < Duration::from_secs(5));
    let recovers = World::of(&[("a", &[Stalled, Stalled, Unready, Stalled, Stalled, Ready])]);
    assert_eq!(recovers.wait(60).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_for_a_while_costs_only_time() {
    let world = World::of(&[("a", &[Broken, Broken, Broken, Ready])]);
    assert_eq!(world.wait(10).await, Ok(()));
    let gone = World::of(&[("a", &[Unready, Broken])]);
    let error = gone.wait(10).await.unwrap_err();
    assert!(
        error.starts_with("TimedOut: timed out: after 10s the objects cannot be read: cannot read dbs: "),
        "{error}"
    );
    let hanging = World::of(&[("a", &[Hanging])]);
    let error = hanging.wait(10).await.unwrap_err();
    assert!(error.ends_with("the API server does not answer"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_at_all_is_not_waited_for() {
    let begun = Instant::now();
    let error = World::of(&[("a", &[Forbidden])]).wait(60).await.unwrap_err();
    assert!(error.starts_with("NotInstalled: "), "{error}");
    assert!(begun.elapsed().is_zero());
}

#[tokio::test(start_paused = true)]
async fn without_time_it_is_looked_once() {
    let world = World::of(&[("a", &[Unready])]);
    let error = world.wait(0).await.unwrap_err();
    assert!(error.starts_with("TimedOut: "), "{error}");
    assert_eq!(*world.asked.lock(), [1]);
}

#[tokio::test(start_paused = true)]
async fn one_object_after_the_other_may_fail_for_a_moment() {
    let world = World::of(&[
        ("a", &[Stalled, Stalled, Unready, Unready, Ready]),
        ("b", &[Unready, Unready, Stalled, Stalled, Ready]),
    ]);
    assert_eq!(world.wait(20).await, Ok(()));
}
