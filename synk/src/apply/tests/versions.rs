//! What an apply makes of the versions that it finds.

use super::*;

const NAMESPACE: &str = "/api/v1/namespaces/shop";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/synk-web";

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn version(number: u64) -> String {
    format!("{RESOURCE_SETS}/web.v{number}")
}

/// Changes a ResourceSet.
fn change(memory: &Memory, number: u64, how: impl FnOnce(&mut Value)) {
    let mut set = memory.get(&version(number)).unwrap();
    how(&mut set);
    memory.put(&version(number), set);
}

fn owner(number: u64, uid: &str) -> Value {
    json!([{
        "apiVersion": "apps.cloudrobotics.com/v1alpha1", "kind": "ResourceSet", "name": format!("web.v{number}"), "uid": uid,
    }])
}

/// The objects of the set still exist, and the garbage collector is about to delete them.
#[tokio::test(start_paused = true)]
async fn a_set_that_is_being_deleted_is_waited_for() {
    let memory = Memory::default();
    let objects = [config_map("a", "1")];
    apply(&memory, &objects).await.unwrap();
    change(&memory, 1, |set| {
        set["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    });
    memory.writes();
    let outcome = apply(&memory, &objects).await;
    let Err(failure @ Failure::Going(_)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(
        failure.is_transient() && failure.to_string().contains("web.v1"),
        "{failure}"
    );
    let synk = Synk::new(memory.clients());
    let plan = synk.plan(&target(), &manifests(&objects), &options()).await;
    assert!(matches!(plan, Err(Failure::Going(_))), "{plan:?}");
    assert_eq!(memory.writes(), Vec::<String>::new());
    let status = synk.status(&target()).await.unwrap();
    assert!(status.versions[0].deleting && !status.is_healthy());

    // Once it is gone, all begins anew.
    let on = |event: Event<'_>| {
        if let Event::Retry { number: 2, .. } = event {
            memory.remove(&path("a"));
            memory.remove(&version(1));
        }
    };
    let options = Options {
        retries: 5,
        ..options()
    };
    synk.apply(&target(), &manifests(&objects), &options, &on)
        .await
        .unwrap();
    check_settled(&memory, 1, &["a"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_built_on_a_version_that_cannot_be_read_whole() {
    let memory = Memory::default();
    apply(&memory, &[config_map("a", "1"), config_map("b", "1")])
        .await
        .unwrap();
    change(&memory, 1, |set| {
        set["spec"]["resources"][0]["items"][1]["name"] = json!(null);
    });
    memory.writes();
    let outcome = apply(&memory, &[config_map("a", "2")]).await;
    let Err(failure @ Failure::Unreadable { .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(
        !failure.is_transient() && failure.to_string().contains("web.v1"),
        "{failure}"
    );
    assert_eq!(memory.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_version_that_no_list_shows_is_named_and_not_tried_again() {
    let memory = Memory::default();
    apply(&memory, &[config_map("a", "1")]).await.unwrap();
    let mut other = memory.get(&version(1)).unwrap();
    other["metadata"]["labels"] = json!({});
    memory.put(&version(2), other);
    let options = Options {
        retries: 5,
        ..options()
    };
    let on = |event: Event<'_>| assert!(!matches!(event, Event::Retry { .. }));
    let synk = Synk::new(memory.clients());
    let outcome = synk
        .apply(&target(), &manifests(&[config_map("a", "2")]), &options, &on)
        .await;
    let Err(failure @ Failure::Unreadable { .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(
        failure
            .to_string()
            .contains("web.v2 cannot be read: it lacks the label name=web"),
        "{failure}"
    );
}

/// If the namespace kept its owner, the garbage collector would delete it with the former version, and all objects in it.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_left_the_set_and_is_used_is_let_go() {
    let memory = Memory::default();
    let all = [
        namespace("shop"),
        namespace("other"),
        config_map("a", "1"),
        config_map("b", "1"),
    ];
    apply(&memory, &all).await.unwrap();
    assert_eq!(
        memory.get(NAMESPACE).unwrap()["metadata"]["ownerReferences"][0]["name"],
        "web.v1"
    );
    // Somebody writes it meanwhile.
    let synk = Synk::new(memory.clients());
    let on = |event: Event<'_>| {
        let Event::Planned(plan) = event else { return };
        let names = |all: &[crate::plan::Prune]| all.iter().map(|left| left.object.name.clone()).collect::<Vec<_>>();
        assert_eq!(
            (names(&plan.released), names(&plan.prune)),
            (vec!["shop".to_owned()], vec!["other".to_owned()])
        );
        let mut shop = memory.get(NAMESPACE).unwrap();
        shop["metadata"]["labels"] = json!({"theirs": "1"});
        memory.put(NAMESPACE, shop);
    };
    let report = synk
        .apply(&target(), &manifests(&all[2..]), &options(), &on)
        .await
        .unwrap();
    let pruned: Vec<_> = report.pruned.iter().map(|object| object.name.as_str()).collect();
    assert_eq!(pruned, ["other"]);
    let shop = memory.get(NAMESPACE).unwrap();
    assert_eq!(shop["metadata"]["ownerReferences"], json!([]), "{shop}");
    assert_eq!(shop["metadata"]["labels"]["theirs"], "1");
    check_settled(&memory, 2, &["a", "b"]);
    assert!(!apply(&memory, &all[2..]).await.unwrap().changed);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_cannot_be_let_go_keeps_the_version_that_owns_it() {
    let memory = Memory::default();
    let all = [namespace("shop"), config_map("a", "1"), config_map("b", "1")];
    apply(&memory, &all).await.unwrap();
    let written = parking_lot::Mutex::new(0);
    let on = |event: Event<'_>| {
        let Event::Object(_) = event else { return };
        *written.lock() += 1;
        // All but the namespace is done.
        if *written.lock() == 2 {
            memory.fault(http::Method::PATCH, NAMESPACE, 403);
        }
    };
    let synk = Synk::new(memory.clients());
    let outcome = synk.apply(&target(), &manifests(&all[1..]), &options(), &on).await;
    let Err(Failure::Incomplete(report)) = outcome else {
        panic!("{outcome:?}");
    };
    let failed = report.objects.iter().filter(|outcome| outcome.error.is_some());
    let failed: Vec<_> = failed.map(|outcome| outcome.object.to_string()).collect();
    assert_eq!(failed, ["namespace/shop"]);
    let shop = memory.get(NAMESPACE).unwrap();
    assert_eq!(shop["metadata"]["ownerReferences"][0]["name"], "web.v1");
    assert!(memory.get(&version(1)).is_some());
}

/// The objects of the failed version cannot be read, so they may still exist.
#[tokio::test(start_paused = true)]
async fn a_failed_version_of_objects_that_cannot_be_read_is_kept() {
    let memory = Memory::default();
    memory.refuse(&path("a"), true);
    apply(&memory, &[config_map("a", "1")]).await.unwrap_err();
    let thing = json!({"group": "example.com", "version": "v1", "kind": "Thing", "items": [{"name": "x"}]});
    change(&memory, 1, |set| {
        set["spec"]["resources"].as_array_mut().unwrap().push(thing);
    });
    apply(&memory, &[config_map("a", "1")]).await.unwrap_err();
    apply(&memory, &[config_map("a", "1")]).await.unwrap_err();
    assert!(memory.get(&version(1)).is_some(), "{:?}", memory.paths());
    assert!(memory.get(&version(2)).is_none(), "{:?}", memory.paths());
}

/// Runs the second of two applies that begin at the same time on an empty cluster. The first creates the namespace and the
/// Lease after the second has made its plan.
async fn second_of_two(memory: &Memory, namespace_owner: &Value) -> Result<Report, Failure> {
    memory.without_namespace("shop");
    let first = json!({
        "apiVersion": "apps.cloudrobotics.com/v1alpha1", "kind": "ResourceSet",
        "metadata": {"name": "web.v1", "labels": {"name": "web"}}, "status": {"phase": "Pending"},
    });
    memory.put(&version(1), first);
    let lease = |transitions: u32| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "synk-web"},
            "spec": {
                "holderIdentity": "ada@elsewhere", "leaseDurationSeconds": 15, "leaseTransitions": transitions,
                "acquireTime": "2040-01-02T03:04:05.000000Z", "renewTime": "2040-01-02T03:04:05.000000Z",
            },
        })
    };
    let on = |event: Event<'_>| match event {
        Event::Planned(_) => {
            let mut shop = namespace("shop");
            shop["metadata"]["ownerReferences"] = namespace_owner.clone();
            memory.put(NAMESPACE, shop);
            memory.put(LEASE, lease(0));
        }
        Event::Held { .. } => memory.put(LEASE, lease(1)),
        _ => {}
    };
    let synk = Synk::new(memory.clients());
    let objects = manifests(&[namespace("shop"), config_map("a", "1")]);
    synk.apply(&target(), &objects, &options(), &on).await
}

#[tokio::test(start_paused = true)]
async fn the_second_of_two_that_begin_leaves_nothing_that_could_be_deleted_with_it() {
    let memory = Memory::default();
    let outcome = second_of_two(&memory, &owner(1, "uid-1")).await;
    assert!(matches!(outcome, Err(Failure::Held { .. })), "{outcome:?}");
    assert_eq!(memory.get(&version(1)).unwrap()["metadata"]["uid"], "uid-1");
    assert!(memory.get(&version(2)).is_none(), "it owns nothing");
    assert_eq!(
        memory.get(NAMESPACE).unwrap()["metadata"]["ownerReferences"],
        owner(1, "uid-1")
    );
}

#[tokio::test(start_paused = true)]
async fn the_second_of_two_says_so_in_the_version_that_owns_something() {
    let memory = Memory::default();
    let outcome = second_of_two(&memory, &json!([])).await;
    assert!(matches!(outcome, Err(Failure::Held { .. })), "{outcome:?}");
    let set = memory.get(&version(2)).unwrap();
    assert_eq!(set["status"]["phase"], "Failed", "{set}");
    let error = set["status"]["failed"][0]["items"][0]["error"].as_str().unwrap();
    assert!(error.contains("ada@elsewhere"), "{error}");
}

/// After a part of a plan is done, what remains is another plan than the saved one.
#[tokio::test(start_paused = true)]
async fn a_saved_plan_is_not_tried_again_once_it_was_begun() {
    let memory = Memory::default();
    let synk = Synk::new(memory.clients());
    let objects = manifests(&[config_map("a", "1")]);
    let (_, saved) = synk.plan_saved(&target(), &objects, &options()).await.unwrap();
    let options = Options {
        retries: 5,
        ..options()
    };
    let retries = parking_lot::Mutex::new(0);
    let on = |event: Event<'_>| match event {
        Event::Retry { .. } => *retries.lock() += 1,
        // The ResourceSet is requested, and the API server answers with an error.
        Event::Planned(_) => memory.fault(http::Method::POST, RESOURCE_SETS, 503),
        _ => {}
    };
    let outcome = synk.apply_saved(&saved, &options, &on).await;
    assert!(matches!(outcome, Err(Failure::Api { .. })), "{outcome:?}");
    assert_eq!(*retries.lock(), 0);

    // Before that, it may wait as any other.
    memory.mend();
    memory.silence(true);
    let on = |event: Event<'_>| {
        if let Event::Retry { .. } = event {
            memory.silence(false);
        }
    };
    synk.apply_saved(&saved, &options, &on).await.unwrap();
    check_settled(&memory, 1, &["a"]);
}
