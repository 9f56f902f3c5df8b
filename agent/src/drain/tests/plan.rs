use bindery_api::{
    annotations::{PAUSED, TRUE},
    finalizers::SYNCER,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use crate::drain::{
    DrainMode,
    plan::{DrainOp, is_held_by_pause, plan},
};

fn object(deleting: bool, finalizers: &[&str]) -> ObjectMeta {
    let timestamp = deleting.then_some("2026-01-01T00:00:00Z");
    serde_json::from_value(json!({
        "uid": "u", "resourceVersion": "7", "deletionTimestamp": timestamp, "finalizers": finalizers,
    }))
    .unwrap()
}

#[track_caller]
fn check(deleting: bool, finalizers: &[&str], mode: DrainMode, expect: Option<&DrainOp>) {
    assert_eq!(plan(&object(deleting, finalizers), mode).as_ref(), expect);
}

#[test]
fn only_objects_that_are_deleted_or_let_go_lose_a_finalizer_and_only_ours() {
    use DrainMode::{All, Copies, Deleted, LetGo};
    let delete = DrainOp::Delete { uid: "u".to_owned() };
    let remove = |others: &[&str]| {
        let patch = json!({"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": others}});
        DrainOp::RemoveFinalizer(patch)
    };
    check(false, &[SYNCER], Deleted, None);
    for mode in [All, Copies] {
        check(false, &[SYNCER], mode, Some(&delete));
        check(false, &[], mode, Some(&delete));
    }
    for mode in [Deleted, All, LetGo] {
        check(true, &[SYNCER], mode, Some(&remove(&[])));
        check(true, &["other", SYNCER], mode, Some(&remove(&["other"])));
        check(true, &["other"], mode, None);
    }
    check(true, &[SYNCER], Copies, None);
    check(false, &["other", SYNCER], LetGo, Some(&remove(&["other"])));
    check(false, &["other"], LetGo, None);
}

#[test]
fn nothing_is_written_to_a_paused_object() {
    use DrainMode::{All, Copies, Deleted, LetGo};
    for mode in [Deleted, All, LetGo, Copies] {
        for deleting in [false, true] {
            let mut paused = object(deleting, &[SYNCER]);
            assert!(!is_held_by_pause(&paused, mode));
            paused.annotations = Some([(PAUSED.to_owned(), TRUE.to_owned())].into());
            assert_eq!(plan(&paused, mode), None);
            assert_eq!(is_held_by_pause(&paused, mode), deleting || mode != Deleted);
        }
    }
    let mut paused = object(false, &["other"]);
    paused.annotations = Some([(PAUSED.to_owned(), TRUE.to_owned())].into());
    assert!(!is_held_by_pause(&paused, LetGo), "it was let go before");
}
