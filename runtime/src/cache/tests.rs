use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;

use super::*;
use crate::guard::Guard;

fn map(name: &str, version: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.metadata.namespace = Some("ns".to_owned());
    map.metadata.resource_version = Some(version.to_owned());
    map
}

fn shown(object: ConfigMap) -> Shown<ConfigMap> {
    Shown { object, held: None }
}

#[test]
fn what_is_held_of_a_server_that_is_not_trusted_is_counted() {
    let guard = Guard::unlimited();
    let shared = Arc::new(Shared::default());
    let mut handle = event_handler(Arc::clone(&shared));
    let held = |name: &str, bytes| Shown {
        object: map(name, "1"),
        held: Some(Box::new(guard.hold(1, bytes))),
    };
    handle(Event::Reset);
    handle(Event::Listed(held("a", 10)));
    handle(Event::Listed(held("b", 20)));
    assert_eq!(guard.held(), (2, 30));
    handle(Event::Failed(kube::Error::LinesCodecMaxLineLengthExceeded));
    assert_eq!(guard.held(), (0, 0), "a list that broke off is given up");
    handle(Event::Reset);
    handle(Event::Listed(held("a", 10)));
    handle(Event::Listed(held("b", 20)));
    handle(Event::Complete("1".to_owned()));
    handle(Event::Applied(held("b", 5)));
    assert_eq!(guard.held(), (2, 15));
    handle(Event::Deleted(held("a", 10)));
    assert_eq!(guard.held(), (1, 5));
    drop((handle, shared));
    assert_eq!(guard.held(), (0, 0));
}

#[test]
fn a_second_list_reports_only_what_differs() {
    let shared = Arc::new(Shared::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let handler: Handler<ConfigMap> = Arc::new(move |change: &Change<'_, ConfigMap>| {
        log.lock().push((change.key.name.to_string(), change.new.is_some()));
    });
    shared.handlers.write().push((0, handler));
    let mut handle = event_handler(Arc::clone(&shared));
    let mut list = |objects: Vec<ConfigMap>| {
        handle(Event::Reset);
        for object in objects {
            handle(Event::Listed(shown(object)));
        }
        handle(Event::Complete("9".to_owned()));
        let mut changes = std::mem::take(&mut *seen.lock());
        changes.sort();
        changes
    };
    let change = |name: &str, there: bool| (name.to_owned(), there);
    assert_eq!(
        list(vec![map("a", "1"), map("b", "1")]),
        [change("a", true), change("b", true)]
    );
    assert_eq!(
        list(vec![map("a", "1"), map("c", "2")]),
        [change("b", false), change("c", true)]
    );
    assert_eq!(list(vec![map("a", "1"), map("c", "3")]), [change("c", true)]);
    assert!(shared.health.borrow().is_synced());
}

#[test]
fn a_watch_is_interrupted_from_its_end_until_it_is_followed_again() {
    let shared = Arc::new(Shared::<ConfigMap>::default());
    let mut handle = event_handler(Arc::clone(&shared));
    let mut is_interrupted_after = |event| {
        handle(event);
        shared.is_interrupted.load(Ordering::Relaxed)
    };
    assert!(!is_interrupted_after(Event::Following));
    assert!(is_interrupted_after(Event::Ended));
    assert!(is_interrupted_after(Event::Reset));
    assert!(
        is_interrupted_after(Event::Complete("5".to_owned())),
        "what comes after the list is not watched yet"
    );
    assert!(!is_interrupted_after(Event::Following));
}

#[tokio::test]
async fn a_handler_may_read_the_cache_though_somebody_waits_to_write() {
    let cache = Cache {
        shared: Arc::new(Shared::default()),
        watch: Arc::new(AbortOnDropHandle::new(tokio::spawn(std::future::pending()))),
    };
    let first = Arc::new(map("a", "1"));
    cache
        .shared
        .set(&ObjectKey::of(&*first), Some((&first, None)), Priority::Live);
    let (sender, found) = std::sync::mpsc::channel();
    let task = std::thread::spawn(move || {
        let (inner, writer) = (cache.clone(), Arc::clone(&cache.shared));
        let _subscription = cache.subscribe(move |_| {
            let writer = Arc::clone(&writer);
            let shared = Arc::clone(&writer);
            std::thread::spawn(move || {
                let second = Arc::new(map("b", "1"));
                writer.objects.write().insert(&ObjectKey::of(&*second), second, None);
            });
            // No other reader gets the lock once a writer waits for it.
            while shared.objects.try_read().is_some() {
                std::thread::yield_now();
            }
            let one = inner.get("ns", "a").is_some();
            let _ = sender.send((one, inner.list(|_| true).len(), inner.list_in("ns").len()));
        });
    });
    let found = tokio::task::spawn_blocking(move || found.recv_timeout(std::time::Duration::from_secs(30)));
    assert_eq!(found.await.unwrap().expect("it hangs"), (true, 1, 1));
    task.join().unwrap();
}

#[test]
fn an_object_that_cannot_be_read_stays_as_it_was() {
    let shared = Arc::new(Shared::default());
    let mut handle = event_handler(Arc::clone(&shared));
    for event in [
        Event::Reset,
        Event::Listed(shown(map("a", "1"))),
        Event::Complete("1".to_owned()),
        Event::Reset,
        Event::Unreadable(ObjectName {
            namespace: "ns".into(),
            name: "a".into(),
        }),
        Event::Unreadable(ObjectName {
            namespace: "ns".into(),
            name: "never-read".into(),
        }),
        Event::Complete("2".to_owned()),
    ] {
        handle(event);
    }
    let known: Vec<_> = shared.objects.read().iter().map(|(key, _)| key.to_string()).collect();
    assert_eq!(known, ["ns/a"]);
}
