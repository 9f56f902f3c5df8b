use bindery_api::retention::merge;

use super::*;

fn copy(spec: &Value, notes: &Value) -> Object {
    let object = json!({
        "metadata": {"name": "billy", "namespace": "place", "uid": "c1", "resourceVersion": "7", "annotations": notes},
        "spec": spec,
    });
    serde_json::from_str(&object.to_string()).unwrap()
}

fn marks() -> Marks<'static> {
    Marks {
        uid: "c1",
        version: Version(7),
        namespace: "wild-west",
        mark: mark("u1", "kube-bind-x"),
    }
}

/// The annotations of a copy after a patch.
fn noted(patch: &Value) -> Value {
    let mut notes = json!({});
    merge(&mut notes, &patch["metadata"]["annotations"]);
    notes
}

#[test]
fn a_copy_is_marked_and_suspended_by_one_patch_and_resumed_as_it_was() {
    let spec = json!({"replicas": 3, "title": "sheriff"});
    let before = copy(&spec, &json!({}));
    let suspend = json!({"spec": {"replicas": 0, "paused": true}});
    let patch = retain(&marks(), Some(&before), Some(&suspend));
    assert_eq!(patch["spec"], suspend["spec"]);
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    assert_eq!(
        patch["metadata"]["annotations"][annotations::PROJECTION_HASH],
        Value::Null
    );
    let notes = noted(&patch);
    let after = copy(&json!({"replicas": 0, "paused": true, "title": "sheriff"}), &notes);
    let retained = Retained::of(|key| after.meta.annotations.get(key), "kube-bind-x").unwrap();
    assert_eq!(
        (retained.source_uid, retained.until, retained.restoring),
        (Uid::from("u1"), None, false)
    );
    assert_eq!(content(&resumed(&after).unwrap()), json!({"spec": spec}));

    let generation = |source: &str| {
        let patch = relink(&after, Version(9), source);
        patch["metadata"]["annotations"]
            .get(annotations::SOURCE_GENERATION)
            .cloned()
    };
    assert_eq!((generation("u1"), generation("u2")), (None, Some(Value::Null)));
    let patch = relink(&after, Version(9), "u2");
    let mut resumed = content(&after);
    merge(&mut resumed, &json!({"spec": patch["spec"]}));
    assert_eq!(resumed["spec"], spec);
    let mut notes = notes;
    merge(&mut notes, &patch["metadata"]["annotations"]);
    let linked = copy(&spec, &notes);
    assert_eq!(
        Retained::of(|key| linked.meta.annotations.get(key), "kube-bind-x"),
        None
    );
    assert_eq!(linked.meta.annotations.get(annotations::CONSUMER_UID), Some("u2"));
}

#[test]
fn a_restore_waits_for_another_time_of_the_server() {
    let mut notes = noted(&retain(&marks(), None, None));
    notes[annotations::RETAINED_UNTIL] = "2026-01-01T00:00:00Z".into();
    let retained = |notes: &Value| {
        let copy = copy(&json!({}), notes);
        Retained::of(|key| copy.meta.annotations.get(key), "kube-bind-x").unwrap()
    };
    assert!(retained(&notes).until.is_some());
    merge(&mut notes, &restore("c1")["metadata"]["annotations"]);
    let restored = retained(&notes);
    assert_eq!((restored.restoring, restored.until), (true, None));
}

#[test]
fn what_is_suspended_already_is_not_suspended_again() {
    let suspend = json!({"spec": {"replicas": 0}});
    let before = copy(&json!({"replicas": 3}), &json!({}));
    let notes = noted(&retain(&marks(), Some(&before), Some(&suspend)));
    let again = retain(&marks(), Some(&copy(&json!({"replicas": 0}), &notes)), Some(&suspend));
    assert_eq!(again["metadata"]["annotations"].get(annotations::RESUME), None);
    assert_eq!(again.get("spec"), None);
}

#[test]
fn nothing_but_content_is_resumed() {
    let notes = json!({annotations::RESUME: r#"{"metadata":{"labels":{"a":"b"}},"spec":{"replicas":3}}"#});
    let patch = relink(&copy(&json!({"replicas": 0}), &notes), Version(7), "u1");
    assert_eq!(patch["spec"], json!({"replicas": 3}));
    assert_eq!(patch["metadata"]["labels"], json!({labels::RETAINED: null}));
}

#[test]
fn an_order_lasts_while_the_copy_is_retained() {
    let (orders, copy) = (RetentionOrders::default(), Uid::from("a"));
    orders.set(copy.clone(), RetentionAction::Restore);
    assert_eq!(orders.of(Some(&Uid::from("b")), true), None);
    assert_eq!(orders.of(Some(&copy), true), Some(RetentionAction::Restore));
    assert_eq!(orders.of(Some(&copy), false), None);
    assert_eq!(orders.of(Some(&copy), true), None, "it was restored");
}
