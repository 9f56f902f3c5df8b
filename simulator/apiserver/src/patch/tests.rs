#![expect(
    clippy::needless_pass_by_value,
    reason = "cases of tables are read more easily as owned values"
)]

use std::sync::Arc;

use serde_json::{Value, json};

use super::{json, merge, strategic};
use crate::{fields::built_in_schema, kind::KindInfo};

#[track_caller]
fn check_json(target: Value, patch: Value, expect: Result<Value, u16>) {
    assert_eq!(json(&target, &patch).map_err(|error| error.code), expect);
}

#[test]
fn json_patches_change_all_or_nothing() {
    let target = || json!({"a": {"b": 1}, "l": [1, 2]});
    check_json(
        target(),
        json!([{"op": "add", "path": "/a/c", "value": 2}, {"op": "remove", "path": "/l/0"}]),
        Ok(json!({"a": {"b": 1, "c": 2}, "l": [2]})),
    );
    check_json(target(), json!([{"op": "test", "path": "/a/b", "value": 2}]), Err(422));
    check_json(
        target(),
        json!([{"op": "test", "path": "/a/c", "value": null}]),
        Ok(target()),
    );
    check_json(
        target(),
        json!([{"op": "test", "path": "/x/c", "value": null}]),
        Err(422),
    );
    check_json(target(), json!([{"op": "remove", "path": "/a/c"}]), Err(422));
    check_json(
        target(),
        json!([{"op": "replace", "path": "/a/c", "value": 1}]),
        Ok(json!({"a": {"b": 1, "c": 1}, "l": [1, 2]})),
    );
    check_json(target(), json!([{"op": "add", "path": "/x/c", "value": 1}]), Err(422));
    check_json(target(), json!({"op": "add"}), Err(400));
}

#[test]
fn the_refusal_of_a_json_patch_says_little() {
    let refusal = json(&json!({}), &json!([{"op": "test", "path": "/a", "value": 1}])).unwrap_err();
    let expect = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422,
        "message": "the server rejected our request due to an error in our request", "details": {},
    });
    assert_eq!(refusal.body(), expect);
}

#[track_caller]
fn check_merge(target: Value, patch: Value, expect: Value) {
    assert_eq!(merge(&target, &patch), Ok(expect));
}

#[test]
fn merge_patches_remove_what_is_null() {
    check_merge(
        json!({"a": 1, "b": {"c": 1, "d": 2}}),
        json!({"a": null, "b": {"c": 3}}),
        json!({"b": {"c": 3, "d": 2}}),
    );
    check_merge(json!({}), json!({"a": {"b": null, "c": 1}}), json!({"a": {"c": 1}}));
    check_merge(json!({"a": [1]}), json!({"a": [{"b": null}]}), json!({"a": [{}]}));
    check_merge(json!({"a": {"b": 1}}), json!({"a": "x"}), json!({"a": "x"}));
    assert_eq!(merge(&json!({}), &json!([])).unwrap_err().code, 400);
}

fn kind(kind: &str) -> KindInfo {
    KindInfo {
        group: String::new(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        status: false,
        schema: built_in_schema("", "v1", kind).map(Arc::new),
    }
}

#[track_caller]
fn check_strategic(target: Value, patch: Value, expect: Value) {
    assert_eq!(strategic(&target, &patch, &kind("ServiceAccount")), Ok(expect));
}

#[test]
fn strategic_patches_merge_lists_by_key() {
    let target = || json!({"secrets": [{"name": "a"}, {"name": "b"}], "imagePullSecrets": [{"name": "x"}]});
    let of = |secrets: Value| json!({"secrets": secrets, "imagePullSecrets": [{"name": "x"}]});
    check_strategic(
        target(),
        json!({"secrets": [{"name": "b", "namespace": "n"}, {"name": "c"}]}),
        of(json!([{"name": "a"}, {"name": "b", "namespace": "n"}, {"name": "c"}])),
    );
    check_strategic(
        target(),
        json!({"secrets": [{"name": "a", "$patch": "delete"}]}),
        of(json!([{"name": "b"}])),
    );
    check_strategic(
        target(),
        json!({"secrets": [{"$patch": "replace"}, {"name": "z"}]}),
        of(json!([{"name": "z"}])),
    );
    check_strategic(
        json!({"metadata": {"finalizers": ["a", "b"], "labels": {"x": "1", "y": "2"}}}),
        json!({"metadata": {"finalizers": ["c", "a"], "$deleteFromPrimitiveList/finalizers": ["b"], "labels": {"x": null}}}),
        json!({"metadata": {"finalizers": ["c", "a"], "labels": {"y": "2"}}}),
    );
}
