#![expect(
    clippy::needless_pass_by_value,
    reason = "cases of tables are read more easily as owned values"
)]

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{apply, built_in_schema, track_update};
use crate::{kind::KindInfo, status::StatusError};

fn secret() -> KindInfo {
    built_in("", "Secret", false)
}

fn built_in(group: &str, kind: &str, status: bool) -> KindInfo {
    KindInfo {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        status,
        schema: built_in_schema(group, "v1", kind).map(Arc::new),
    }
}

/// A custom kind with a set, a list by key, an atomic list and an atomic map.
fn custom() -> KindInfo {
    let strings = |kind: &str| json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": kind});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "tags": strings("set"),
            "args": strings("atomic"),
            "ports": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}},
            },
            "place": {
                "type": "object", "x-kubernetes-map-type": "atomic",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
            },
            "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    }});
    KindInfo {
        group: "wildwest.dev".to_owned(),
        version: "v1".to_owned(),
        kind: "Cowboy".to_owned(),
        status: true,
        schema: Some(Arc::new(schema)),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// One object and what is done to it. A write takes place at the second of its number, from 1 on.
struct Story {
    kind: KindInfo,
    live: Option<Value>,
    second: i64,
}

impl Story {
    fn new(kind: KindInfo) -> Self {
        Self {
            kind,
            live: None,
            second: 0,
        }
    }

    fn full(&self, mut object: Value) -> Value {
        object["apiVersion"] = json!(self.kind.api_version());
        object["kind"] = json!(self.kind.kind);
        object["metadata"]["name"] = json!("a");
        object
    }

    fn stored(&mut self, mut object: Value) {
        object["metadata"]["uid"] = json!("u");
        self.live = Some(object);
    }

    fn try_apply(&mut self, manager: &str, force: bool, object: Value) -> Result<(), StatusError> {
        self.try_apply_to("", manager, force, object)
    }

    fn try_apply_to(&mut self, sub: &str, manager: &str, force: bool, object: Value) -> Result<(), StatusError> {
        self.second += 1;
        let object = self.full(object);
        let now = at(self.second);
        let after = apply(self.live.as_ref(), &object, manager, force, sub, &self.kind, now)?;
        self.stored(after);
        Ok(())
    }

    #[track_caller]
    fn apply(&mut self, manager: &str, object: Value) -> &mut Self {
        self.try_apply(manager, false, object).unwrap();
        self
    }

    #[track_caller]
    fn update(&mut self, manager: &str, change: impl FnOnce(&mut Value)) -> &mut Self {
        self.update_of("", manager, change)
    }

    #[track_caller]
    fn update_of(&mut self, sub: &str, manager: &str, change: impl FnOnce(&mut Value)) -> &mut Self {
        self.second += 1;
        let mut new = self.live.clone().unwrap_or_else(|| self.full(json!({"metadata": {}})));
        change(&mut new);
        track_update(self.live.as_ref(), &mut new, manager, sub, &self.kind, at(self.second));
        self.stored(new);
        self
    }

    /// The managers in short: name, operation, second, fields and subresource.
    fn managers(&self) -> Vec<(String, Value)> {
        let entries = self.live.as_ref().unwrap()["metadata"]["managedFields"]
            .as_array()
            .cloned();
        let entries = entries.unwrap_or_default().into_iter().map(|entry| {
            let text = |key: &str| entry[key].as_str().unwrap_or("-").to_owned();
            let time = entry["time"]
                .as_str()
                .map_or(-1, |time| time.parse::<Timestamp>().unwrap().as_second());
            let sub = entry["subresource"]
                .as_str()
                .map(|sub| format!("/{sub}"))
                .unwrap_or_default();
            (
                format!("{} {}{sub} {time}", text("manager"), text("operation")),
                entry["fieldsV1"].clone(),
            )
        });
        entries.collect()
    }

    #[track_caller]
    fn check(&self, expect: &[(&str, Value)]) {
        let expect: Vec<_> = expect
            .iter()
            .map(|(name, fields)| ((*name).to_owned(), fields.clone()))
            .collect();
        assert_eq!(self.managers(), expect);
    }

    #[track_caller]
    fn check_field(&self, pointer: &str, expect: Option<Value>) {
        assert_eq!(self.live.as_ref().unwrap().pointer(pointer), expect.as_ref());
    }
}

#[test]
fn a_create_owns_all_that_it_sets() {
    let mut story = Story::new(secret());
    story.update("kubectl", |it| {
        it["data"] = json!({"k": "dg=="});
        it["metadata"]["labels"] = json!({"l": "1"});
        it["metadata"]["finalizers"] = json!(["x/y"]);
        it["metadata"]["ownerReferences"] = json!([{"uid": "1", "name": "o", "kind": "Pod", "apiVersion": "v1"}]);
        it["type"] = json!("Opaque");
    });
    story.check(&[(
        "kubectl Update 1",
        json!({
            "f:data": {".": {}, "f:k": {}},
            "f:metadata": {
                "f:labels": {".": {}, "f:l": {}},
                "f:finalizers": {".": {}, "v:\"x/y\"": {}},
                "f:ownerReferences": {".": {}, "k:{\"uid\":\"1\"}": {}},
            },
            "f:type": {},
        }),
    )]);
}

#[test]
fn structs_of_built_in_kinds_are_there_always() {
    let mut story = Story::new(built_in("coordination.k8s.io", "Lease", false));
    story.update("agent", |it| it["spec"] = json!({"holderIdentity": "a"}));
    story.check(&[("agent Update 1", json!({"f:spec": {"f:holderIdentity": {}}}))]);
    let mut story = Story::new(custom());
    story.update("agent", |it| it["spec"] = json!({"replicas": 1}));
    story.check(&[("agent Update 1", json!({"f:spec": {".": {}, "f:replicas": {}}}))]);
    let mut story = Story::new(built_in("apiextensions.k8s.io", "CustomResourceDefinition", true));
    story.update("agent", |it| {
        it["spec"] = json!({"names": {"kind": "A"}, "conversion": {"strategy": "None"}, "versions": [{"name": "v1"}]});
    });
    let spec = json!({"f:conversion": {".": {}, "f:strategy": {}}, "f:names": {"f:kind": {}}, "f:versions": {}});
    story.check(&[("agent Update 1", json!({ "f:spec": spec }))]);
}

#[test]
fn updates_take_over_what_they_change() {
    let mut story = Story::new(secret());
    story.update("a", |it| it["data"] = json!({"x": "1", "y": "1", "z": "1"}));
    story.update("b", |it| {
        it["data"]["x"] = json!("2");
        it["data"].as_object_mut().unwrap().remove("z");
    });
    story.check(&[
        ("a Update 1", json!({"f:data": {".": {}, "f:y": {}}})),
        ("b Update 2", json!({"f:data": {"f:x": {}}})),
    ]);
    // A write that changes nothing changes no time.
    let before = story.live.clone();
    story.update("c", |_| {});
    assert_eq!(story.live, before);
}

#[test]
fn an_apply_owns_what_it_says_and_nothing_more() {
    let mut story = Story::new(custom());
    story.apply(
        "agent",
        json!({"spec": {"replicas": 1, "place": {"x": 1}, "args": ["a"], "tags": ["t"], "ports": [
        {"name": "http", "port": 80},
    ]}, "status": {"phase": "ignored"}, "metadata": {"labels": {"l": "1"}}}),
    );
    story.check(&[(
        "agent Apply 1",
        json!({
            "f:metadata": {"f:labels": {"f:l": {}}},
            "f:spec": {
                "f:replicas": {}, "f:place": {}, "f:args": {}, "f:tags": {"v:\"t\"": {}},
                "f:ports": {"k:{\"name\":\"http\"}": {".": {}, "f:name": {}, "f:port": {}}},
            },
        }),
    )]);
}

#[test]
fn a_repeated_apply_writes_nothing() {
    let mut story = Story::new(custom());
    let config = json!({"spec": {"replicas": 1, "tags": ["t"]}});
    story.apply("agent", config.clone());
    let before = story.live.clone();
    story.apply("agent", config.clone());
    assert_eq!(story.live, before);
    // Another applier shares what it finds. Kubernetes notes no time then.
    story.apply("other", config);
    let fields = json!({"f:spec": {"f:replicas": {}, "f:tags": {"v:\"t\"": {}}}});
    story.check(&[("other Apply -1", fields.clone()), ("agent Apply 1", fields)]);
}

#[test]
fn what_is_applied_no_more_goes_unless_it_is_shared() {
    let mut story = Story::new(custom());
    story.apply("a", json!({"spec": {"replicas": 1, "tags": ["x", "y"], "extra": {"k": {"v": 1}}}, "metadata": {"labels": {"l": "1"}}}));
    story.apply("b", json!({"spec": {"tags": ["y", "z"]}}));
    story.apply("a", json!({"spec": {}}));
    story.check_field("/spec", Some(json!({"tags": ["y", "z"]})));
    story.check_field("/metadata/labels", None);
    story.check_field("/metadata/uid", Some(json!("u")));
    story.apply("b", json!({"spec": {"replicas": 2}}));
    story.check_field("/spec", Some(json!({"replicas": 2})));
    story.check(&[
        ("a Apply 3", json!({"f:spec": {}})),
        ("b Apply 4", json!({"f:spec": {"f:replicas": {}}})),
    ]);
}

#[test]
fn an_item_goes_with_its_owner() {
    let mut story = Story::new(custom());
    story.apply(
        "a",
        json!({"spec": {"ports": [{"name": "x", "port": 1}, {"name": "y", "port": 1}]}}),
    );
    story.apply("b", json!({"spec": {"ports": [{"name": "z", "port": 1}]}}));
    story.update("c", |it| it["spec"]["ports"][0]["port"] = json!(2));
    // The field that another manager changed does not keep the item; nobody else owns that.
    story.apply("a", json!({"spec": {"replicas": 1}}));
    story.check_field(
        "/spec",
        Some(json!({"replicas": 1, "ports": [{"name": "z", "port": 1}]})),
    );
}

#[test]
fn a_field_that_an_update_changed_stays() {
    let mut story = Story::new(custom());
    story.apply("a", json!({"spec": {"replicas": 1}}));
    story.update("c", |it| it["spec"]["replicas"] = json!(2));
    story.check(&[("c Update 2", json!({"f:spec": {"f:replicas": {}}}))]);
    story.apply("a", json!({"spec": {}}));
    story.check_field("/spec", Some(json!({"replicas": 2})));
}

#[test]
fn conflicts_name_the_managers_and_their_fields() {
    let mut story = Story::new(secret());
    story.update("kubectl-edit", |it| it["data"] = json!({"x": "1", "y": "1"}));
    let refusal = story
        .try_apply("agent", false, json!({"data": {"x": "2"}}))
        .unwrap_err();
    assert_eq!(
        refusal.body(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 409, "reason": "Conflict",
            "message": "Apply failed with 1 conflict: conflict with \"kubectl-edit\" using v1: .data.x",
            "details": {"causes": [{
                "reason": "FieldManagerConflict",
                "message": "conflict with \"kubectl-edit\" using v1",
                "field": ".data.x",
            }]},
        })
    );
    story.apply("other", json!({"data": {"y": "1"}}));
    let refusal = story
        .try_apply("agent", false, json!({"data": {"x": "2", "y": "2"}}))
        .unwrap_err();
    let message = "Apply failed with 3 conflicts: conflicts with \"kubectl-edit\" using v1:\n- .data.x\n- .data.y\n\
        conflicts with \"other\":\n- .data.y";
    assert_eq!(refusal.message, message);
    story
        .try_apply("agent", true, json!({"data": {"x": "2", "y": "2"}}))
        .unwrap();
    story.check_field("/data", Some(json!({"x": "2", "y": "2"})));
    story.check(&[
        ("agent Apply 5", json!({"f:data": {"f:x": {}, "f:y": {}}})),
        ("kubectl-edit Update 1", json!({"f:data": {}})),
    ]);
}

#[test]
fn the_status_has_managers_of_its_own() {
    let mut story = Story::new(custom());
    story.apply("a", json!({"spec": {"replicas": 1}}));
    story.update_of("status", "a", |it| it["status"] = json!({"phase": "Ready"}));
    story
        .try_apply_to("status", "s", true, json!({"status": {"phase": "Down"}}))
        .unwrap();
    story.check(&[
        ("a Apply 1", json!({"f:spec": {"f:replicas": {}}})),
        ("s Apply/status 3", json!({"f:status": {"f:phase": {}}})),
        ("a Update/status 2", json!({"f:status": {}})),
    ]);
    let refusal = story
        .try_apply_to("status", "t", false, json!({"status": {"phase": "Up"}}))
        .unwrap_err();
    let message = "Apply failed with 1 conflict: conflict with \"s\" with subresource \"status\": .status.phase";
    assert_eq!(refusal.message, message);
    // What the main resource ignores, nobody owns by it.
    story.update("b", |it| it["status"] = json!({"phase": "Odd"}));
    assert_eq!(story.managers().len(), 3);
}

#[test]
fn managers_are_reset_by_an_empty_list() {
    for reset in [json!([]), json!([{}])] {
        let mut story = Story::new(secret());
        story.update("a", |it| it["data"] = json!({"x": "1"}));
        story.update("a", |it| it["metadata"]["managedFields"] = reset);
        story.check(&[]);
        // Nobody is tracked until the next apply, which finds an owner of all that is there.
        story.update("b", |it| it["data"] = json!({"x": "2"}));
        story.check(&[]);
        story.apply("c", json!({"data": {"y": "1"}}));
        story.check(&[
            ("c Apply 4", json!({"f:data": {"f:y": {}}})),
            ("before-first-apply Update 4", json!({"f:data": {".": {}, "f:x": {}}})),
        ]);
    }
}

#[test]
fn managers_can_be_written_by_the_client() {
    let mut story = Story::new(secret());
    story.update("a", |it| it["data"] = json!({"x": "1"}));
    story.update("a", |it| {
        it["metadata"]["managedFields"][0]["manager"] = json!("renamed");
    });
    story.check(&[("renamed Update 1", json!({"f:data": {".": {}, "f:x": {}}}))]);
    story.update("a", |it| {
        it["metadata"].as_object_mut().unwrap().remove("managedFields");
    });
    story.check(&[("renamed Update 1", json!({"f:data": {".": {}, "f:x": {}}}))]);
}

#[test]
fn the_oldest_updaters_become_one() {
    let mut story = Story::new(secret());
    story.update("m0", |it| it["data"] = json!({"x0": "1"}));
    for number in 1..12 {
        story.update(&format!("m{number}"), |it| {
            it["data"][format!("x{number}")] = json!("1");
        });
    }
    let managers = story.managers();
    assert_eq!(managers.len(), 10);
    assert_eq!(
        managers[0],
        (
            "ancient-changes Update 3".to_owned(),
            json!({"f:data": {".": {}, "f:x0": {}, "f:x1": {}, "f:x2": {}}})
        )
    );
}

#[track_caller]
fn check_refused(config: Value, code: u16, message: &str) {
    let mut story = Story::new(custom());
    let refusal = story.try_apply("a", false, config).unwrap_err();
    assert_eq!((refusal.code, refusal.message.as_str()), (code, message));
}

#[test]
fn what_is_not_of_the_kind_is_refused() {
    let failed = "failed to create typed patch object (/a; wildwest.dev/v1, Kind=Cowboy): ";
    check_refused(
        json!({"spec": {"x": 1}}),
        500,
        &format!("{failed}.spec.x: field not declared in schema"),
    );
    check_refused(
        json!({"spec": {"replicas": "1"}}),
        500,
        &format!("{failed}.spec.replicas: expected numeric (int or float), got string"),
    );
    check_refused(
        json!({"spec": {"tags": ["a", "a"]}}),
        500,
        &format!("{failed}.spec.tags: duplicate entries for key [=\"a\"]"),
    );
    check_refused(
        json!({"metadata": {"managedFields": []}}),
        400,
        "metadata.managedFields must be nil",
    );
}

#[test]
fn lists_follow_the_order_of_the_applier() {
    let mut story = Story::new(custom());
    story.apply("a", json!({"spec": {"tags": ["a", "b", "c"]}}));
    story.apply("b", json!({"spec": {"tags": ["c", "x", "a"]}}));
    story.check_field("/spec/tags", Some(json!(["b", "c", "x", "a"])));
}
