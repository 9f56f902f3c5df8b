mod versions;

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    Failure, Synk,
    apply::{Options, Proof},
    input::{self, Manifest},
    report::{Event, Report},
    target::Target,
    testing::Memory,
    wire::Action,
};

const RESOURCE_SETS: &str = "/apis/apps.cloudrobotics.com/v1alpha1/resourcesets";

fn target() -> Target {
    Target {
        set: "web".parse().unwrap(),
        namespace: "shop".to_owned(),
    }
}

fn options() -> Options {
    Options {
        retries: 0,
        pause: Duration::from_millis(1),
        ..Options::default()
    }
}

fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
}

fn manifests(objects: &[Value]) -> Vec<Manifest> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    input::parse("set.json", &list.to_string()).unwrap()
}

async fn apply(memory: &Memory, objects: &[Value]) -> Result<Report, Failure> {
    let synk = Synk::new(memory.clients());
    synk.apply(&target(), &manifests(objects), &options(), &|_| {}).await
}

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/shop/configmaps/{name}")
}

/// Checks that an apply is complete: one Settled version owns these objects, and the history is stored.
#[track_caller]
fn check_settled(memory: &Memory, number: u64, names: &[&str]) {
    let paths = memory.paths();
    let version = format!("{RESOURCE_SETS}/web.v{number}");
    let sets: Vec<_> = paths.iter().filter(|path| path.starts_with(RESOURCE_SETS)).collect();
    assert_eq!(sets, [&version]);
    let set = memory.get(&version).unwrap();
    assert_eq!(set["status"]["phase"], "Settled", "{set}");
    let objects: Vec<_> = paths.iter().filter(|path| path.contains("/configmaps/")).collect();
    assert_eq!(
        objects,
        names
            .iter()
            .map(|name| path(name))
            .collect::<Vec<_>>()
            .iter()
            .collect::<Vec<_>>()
    );
    for name in names {
        let object = memory.get(&path(name)).unwrap();
        let owners = &object["metadata"]["ownerReferences"];
        assert_eq!(owners.as_array().map(Vec::len), Some(1), "{object}");
        assert_eq!(owners[0]["uid"], set["metadata"]["uid"]);
    }
    assert!(!paths.iter().any(|path| path.contains("/leases/")), "{paths:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_applied_is_there_and_applied_again_costs_no_write() {
    let memory = Memory::default();
    let objects = [config_map("a", "1"), config_map("b", "1")];
    let report = apply(&memory, &objects).await.unwrap();
    assert!(report.changed);
    assert!(report.objects.iter().all(|outcome| outcome.action == Action::Create));
    check_settled(&memory, 1, &["a", "b"]);

    memory.writes();
    memory.requests();
    let report = apply(&memory, &objects).await.unwrap();
    assert!(!report.changed);
    assert_eq!(report.version.unwrap().number, 1);
    assert_eq!(memory.writes(), Vec::<String>::new());
    assert_eq!(memory.requests(), 4, "discovery in two, ResourceSets, ConfigMaps");

    let report = apply(&memory, &[config_map("a", "2"), config_map("c", "1")])
        .await
        .unwrap();
    assert_eq!(report.pruned.len(), 1);
    check_settled(&memory, 2, &["a", "c"]);
    assert_eq!(memory.get(&path("a")).unwrap()["data"]["key"], "2");
}

#[tokio::test(start_paused = true)]
async fn wherever_it_ends_the_next_apply_finishes_the_job() {
    let first = [config_map("a", "1"), config_map("b", "1"), config_map("c", "1")];
    let second = [config_map("a", "2"), config_map("b", "1"), config_map("d", "1")];
    let mut ends = 0;
    for writes in 0.. {
        let memory = Memory::default();
        apply(&memory, &first).await.unwrap();
        memory.end_after(Some(writes));
        let outcome = apply(&memory, &second).await;
        memory.end_after(None);
        if outcome.is_ok() {
            break;
        }
        ends += 1;
        apply(&memory, &second).await.unwrap();
        let set = memory
            .paths()
            .into_iter()
            .find(|path| path.starts_with(RESOURCE_SETS))
            .unwrap();
        let number = set.rsplit_once(".v").unwrap().1.parse().unwrap();
        check_settled(&memory, number, &["a", "b", "d"]);
        assert_eq!(memory.get(&path("a")).unwrap()["data"]["key"], "2");
        let unchanged = apply(&memory, &second).await.unwrap();
        assert!(!unchanged.changed, "after {writes} writes");
    }
    assert!(ends > 8, "{ends}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_applied_is_told_and_nothing_is_pruned() {
    let memory = Memory::default();
    apply(&memory, &[config_map("a", "1"), config_map("b", "1")])
        .await
        .unwrap();
    memory.refuse(&path("c"), true);
    let wanted = [config_map("a", "2"), config_map("c", "1")];
    let Err(Failure::Incomplete(report)) = apply(&memory, &wanted).await else {
        panic!("it is complete");
    };
    let failed: Vec<_> = report
        .objects
        .iter()
        .filter(|outcome| outcome.error.is_some())
        .collect();
    assert_eq!(failed.len(), 1);
    let set = memory.get(&format!("{RESOURCE_SETS}/web.v2")).unwrap();
    assert_eq!(set["status"]["phase"], "Failed");
    assert_eq!(set["status"]["failed"][0]["items"][0]["name"], "c");
    assert!(memory.get(&path("b")).is_some());
    assert!(
        memory.get(&format!("{RESOURCE_SETS}/web.v1")).is_some(),
        "it owns what would be pruned"
    );

    // Another attempt fails again, and takes the place of the one before.
    apply(&memory, &wanted).await.unwrap_err();
    assert!(memory.get(&format!("{RESOURCE_SETS}/web.v2")).is_none());
    memory.refuse(&path("c"), false);
    apply(&memory, &wanted).await.unwrap();
    check_settled(&memory, 4, &["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn what_changes_under_our_hands_is_looked_at_again() {
    let memory = Memory::default();
    let first = [config_map("a", "1"), config_map("b", "1"), config_map("c", "1")];
    apply(&memory, &first).await.unwrap();
    let synk = Synk::new(memory.clients());
    let wanted = [
        config_map("a", "2"),
        config_map("b", "2"),
        config_map("c", "2"),
        config_map("d", "2"),
    ];
    let interfere = |event: Event<'_>| {
        let Event::Planned(_) = event else { return };
        memory.remove(&path("a"));
        memory.remove(&path("b"));
        memory.put(&path("b"), config_map("b", "another"));
        let mut foreign = config_map("c", "3");
        foreign["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps.cloudrobotics.com/v1alpha1", "kind": "ResourceSet", "name": "other.v1", "uid": "other",
        }]);
        memory.remove(&path("c"));
        memory.put(&path("c"), foreign.clone());
        foreign["metadata"]["name"] = json!("d");
        memory.put(&path("d"), foreign);
    };
    let outcome = synk.apply(&target(), &manifests(&wanted), &options(), &interfere).await;
    let Err(Failure::Incomplete(report)) = outcome else {
        panic!("{outcome:?}");
    };
    let failed: Vec<_> = report
        .objects
        .iter()
        .filter(|outcome| outcome.error.is_some())
        .collect();
    let names: Vec<_> = failed.iter().map(|outcome| outcome.object.name.as_str()).collect();
    assert_eq!(names, ["c", "d"]);
    assert!(
        failed
            .iter()
            .all(|outcome| outcome.error.as_ref().unwrap().message.contains("other.v1"))
    );
    assert_eq!(memory.get(&path("a")).unwrap()["data"]["key"], "2");
    assert_eq!(memory.get(&path("b")).unwrap()["data"]["key"], "2");
    assert_eq!(memory.get(&path("c")).unwrap()["data"]["key"], "3");
    assert_eq!(memory.get(&path("d")).unwrap()["data"]["key"], "3");
}

#[tokio::test(start_paused = true)]
async fn what_others_write_meanwhile_costs_a_look_and_no_failure() {
    let memory = Memory::default();
    apply(&memory, &[config_map("a", "1"), config_map("b", "1")])
        .await
        .unwrap();
    let synk = Synk::new(memory.clients());
    let interfere = |event: Event<'_>| {
        let Event::Planned(_) = event else { return };
        for name in ["a", "b"] {
            let mut object = memory.get(&path(name)).unwrap();
            object["metadata"]["labels"] = json!({"theirs": "1"});
            memory.put(&path(name), object);
        }
    };
    let wanted = manifests(&[config_map("a", "2")]);
    let mut options = options();
    options.allowed.prune = true;
    let report = synk.apply(&target(), &wanted, &options, &interfere).await.unwrap();
    assert_eq!(report.pruned.len(), 1);
    check_settled(&memory, 2, &["a"]);
}

#[tokio::test(start_paused = true)]
async fn who_finds_that_another_went_on_gives_up() {
    let memory = Memory::default();
    memory.refuse(&path("a"), true);
    let synk = Synk::new(memory.clients());
    let on = |event: Event<'_>| {
        if let Event::Retry { .. } = event {
            let mut newer = memory.get(&format!("{RESOURCE_SETS}/web.v1")).unwrap();
            newer["metadata"]["name"] = json!("web.v2");
            memory.put(&format!("{RESOURCE_SETS}/web.v2"), newer);
            memory.silence(false);
        }
        if let Event::Object(_) = event {
            memory.silence(true);
        }
    };
    let options = Options {
        retries: 5,
        ..options()
    };
    let outcome = synk
        .apply(&target(), &manifests(&[config_map("a", "1")]), &options, &on)
        .await;
    assert!(matches!(outcome, Err(Failure::Overtaken(_))), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_comes_back_is_waited_for() {
    let memory = Memory::default();
    let synk = Synk::new(memory.clients());
    memory.silence(true);
    let told = parking_lot::Mutex::new(0);
    let on = |event: Event<'_>| {
        if let Event::Retry { number, .. } = event {
            *told.lock() = number;
            memory.silence(number < 3);
        }
    };
    let options = Options {
        retries: 5,
        ..options()
    };
    let objects = manifests(&[config_map("a", "1")]);
    synk.apply(&target(), &objects, &options, &on).await.unwrap();
    assert_eq!(*told.lock(), 3);
    check_settled(&memory, 1, &["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_set_may_bring_its_namespace() {
    let memory = Memory::default();
    memory.without_namespace("shop");
    let alone = apply(&memory, &[config_map("a", "1")]).await;
    assert!(matches!(alone, Err(Failure::NoNamespace(_))), "{alone:?}");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    apply(&memory, &[namespace, config_map("a", "1")]).await.unwrap();
    check_settled(&memory, 1, &["a"]);
}

#[tokio::test(start_paused = true)]
async fn who_is_told_to_stop_gives_the_lease_back() {
    let memory = Memory::default();
    let synk = Synk::new(memory.clients());
    let options = options();
    let stop = options.stop.clone();
    let on = |event: Event<'_>| {
        if let Event::Object(_) = event {
            stop.cancel();
        }
    };
    let objects = manifests(&[config_map("a", "1"), config_map("b", "1")]);
    let outcome = synk.apply(&target(), &objects, &options, &on).await;
    assert!(matches!(outcome, Err(Failure::Stopped(_))), "{outcome:?}");
    assert!(!memory.paths().iter().any(|path| path.contains("/leases/")));
    apply(&memory, &[config_map("a", "1"), config_map("b", "1")])
        .await
        .unwrap();
    check_settled(&memory, 2, &["a", "b"]);
}

#[tokio::test]
async fn work_on_a_set_may_move_between_threads() {
    fn check<T: Send>(_: &T) {}
    let synk = Synk::new(Memory::default().clients());
    let (target, options) = (target(), options());
    check(&synk.apply(&target, &[], &options, &|_| {}));
    check(&synk.plan(&target, &[], &options));
    check(&synk.delete(&target.set, &crate::delete::Deletion::default(), &|_| {}));
    check(&synk.status(&target));
}

#[tokio::test(start_paused = true)]
async fn policies_are_proved_before_what_they_limit_is_applied() {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "limits"},
    });
    let objects = [config_map("a", "1"), policy];
    let memory = Memory::default();
    let synk = Synk::new(memory.clients());
    let prove = |proved: Result<(), String>| Options {
        proof: Some(Proof::new(move || std::future::ready(proved.clone()))),
        ..options()
    };
    let apply = async |proved| {
        synk.apply(&target(), &manifests(&objects), &prove(proved), &|_| {})
            .await
    };
    let outcome = apply(Err("what it forbids was admitted".to_owned())).await;
    assert!(matches!(outcome, Err(Failure::Unproved(_))), "{outcome:?}");
    let policy = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/limits";
    assert!(
        memory.get(policy).is_some() && memory.get(&path("a")).is_none(),
        "{:?}",
        memory.paths()
    );
    // The policies are there now, and still have to be proved.
    let outcome = apply(Err("what it forbids was admitted".to_owned())).await;
    assert!(matches!(outcome, Err(Failure::Unproved(_))), "{outcome:?}");
    assert!(memory.get(&path("a")).is_none());
    apply(Ok(())).await.unwrap();
    assert!(memory.get(&path("a")).is_some());
    // Where nothing changes, nothing has to be proved.
    apply(Err("not asked".to_owned())).await.unwrap();
}
