use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceSubresourceScale, CustomResourceSubresourceStatus,
};
use serde_json::{Value, json};

use super::*;
use crate::v1alpha2::Scope;

mod properties;

#[allow(clippy::needless_pass_by_value, reason = "they are given as literals")]
fn bound(schema: Value) -> BoundSchemaSpec {
    let mut spec = BoundSchemaSpec {
        group: "wildwest.dev".to_owned(),
        versions: vec![BoundSchemaVersion {
            name: "v1".to_owned(),
            served: true,
            storage: true,
            schema: json!({ "openAPIV3Schema": schema }).into(),
            ..BoundSchemaVersion::default()
        }],
        ..BoundSchemaSpec::default()
    };
    spec.names.plural = "cowboys".to_owned();
    spec.names.kind = "Cowboy".to_owned();
    spec
}

fn said(verdict: Result<(), Incompatible>) -> String {
    verdict.err().map(|error| error.to_string()).unwrap_or_default()
}

/// One field of two schemas, and what is said of the change; nothing if it is compatible.
#[track_caller]
fn check_field(old: Value, new: Value, expect: &str) {
    let object = |field: Value| {
        let spec = json!({ "type": "object", "properties": { "it": field } });
        bound(json!({ "type": "object", "properties": { "spec": spec } }))
    };
    let expect = match expect {
        "" => String::new(),
        change => format!("v1: spec.it{change}"),
    };
    assert_eq!(said(check(&object(old), &object(new))), expect);
}

/// Adding one is what the text says, and removing one is fine.
#[track_caller]
fn check_added(base: Value, key: &str, value: Value, expect: &str) {
    let mut with = base.clone();
    with[key] = value;
    check_field(base.clone(), with.clone(), expect);
    check_field(with.clone(), base, "");
    check_field(with.clone(), with, "");
}

fn text() -> Value {
    json!({ "type": "string" })
}

#[allow(clippy::needless_pass_by_value, reason = "they are given as literals")]
fn object(properties: Value) -> Value {
    json!({ "type": "object", "properties": properties })
}

#[test]
fn types() {
    let (text, number) = (text(), json!({ "type": "integer" }));
    let either = json!({ "x-kubernetes-int-or-string": true });
    let any = json!({ "x-kubernetes-preserve-unknown-fields": true });
    check_field(text.clone(), number.clone(), ": type changed from string to integer");
    check_field(
        number.clone(),
        json!({ "type": "number" }),
        ": type changed from integer to number",
    );
    check_field(
        number,
        either.clone(),
        ": type changed from integer to integer or string",
    );
    check_field(either, text.clone(), ": type changed from integer or string to string");
    check_field(any, text.clone(), ": type changed from any to string");
    let null = json!({ "type": "string", "nullable": true });
    check_field(null.clone(), text.clone(), ": null is no longer allowed");
    check_field(text.clone(), null, "");
    check_field(text.clone(), json!("nonsense"), ": schema changed to or from none");
    check_field(
        text,
        json!({ "type": "string", "x-kubernetes-brand-new": 1 }),
        ": x-kubernetes-brand-new changed",
    );
}

#[test]
fn fields_come_and_do_not_go() {
    let (one, two) = (
        object(json!({ "a": text() })),
        object(json!({ "a": text(), "b": text() })),
    );
    check_field(one.clone(), two.clone(), "");
    check_field(two.clone(), one.clone(), ".b: field removed");
    let mut needed = two.clone();
    needed["required"] = json!(["b"]);
    check_field(one.clone(), needed.clone(), ".b: is now required, without a default");
    check_field(two.clone(), needed.clone(), ".b: is now required, without a default");
    check_field(needed.clone(), two.clone(), "");
    let mut filled = needed.clone();
    filled["properties"]["b"]["default"] = json!("b");
    check_field(one, filled.clone(), "");
    check_field(two, filled.clone(), "");
    check_field(filled, needed, ".b: is now required, without a default");
    let none = object(json!({}));
    check_field(
        object(json!({ "a": text(), "b": text(), "c": text() })),
        none,
        ".a: field removed, and 2 more changes",
    );
}

#[test]
fn what_no_object_shows_is_free() {
    let mut other = object(json!({ "a": text() }));
    other["description"] = json!("a cowboy");
    other["default"] = json!({});
    other["properties"]["a"]["title"] = json!("A");
    other["properties"]["a"]["default"] = json!("x");
    other["properties"]["a"]["example"] = json!("y");
    check_field(object(json!({ "a": text() })), other.clone(), "");
    check_field(other, object(json!({ "a": text() })), "");
}

#[test]
fn unknown_fields() {
    let strict = object(json!({ "a": text() }));
    let mut loose = strict.clone();
    loose["x-kubernetes-preserve-unknown-fields"] = json!(true);
    check_field(strict.clone(), loose.clone(), "");
    check_field(loose.clone(), strict, ": unknown fields are no longer kept");
    let mut less = loose.clone();
    less["properties"] = json!({});
    check_field(loose.clone(), less.clone(), "");
    check_field(less.clone(), loose, ".a: is now declared where anything was allowed");
    let mut anything = less.clone();
    anything["properties"] = json!({ "a": { "x-kubernetes-preserve-unknown-fields": true } });
    check_field(less, anything, "");
}

#[test]
fn maps() {
    let map = |of: Value| json!({ "type": "object", "additionalProperties": of });
    let number = json!({ "type": "integer" });
    check_field(map(text()), map(text()), "");
    check_field(
        map(text()),
        map(number.clone()),
        ".*: type changed from string to integer",
    );
    check_field(
        map(json!(true)),
        map(text()),
        ".*: is now declared where anything was allowed",
    );
    check_field(map(text()), map(json!(true)), "");
    let named = object(json!({ "a": text() }));
    check_field(named.clone(), map(text()), "");
    check_field(named.clone(), map(number), ".a: type changed from string to integer");
    check_field(map(text()), named, ": fields of any name are no longer kept");
}

#[test]
fn lists() {
    let list = |of: Value| json!({ "type": "array", "items": of });
    let horse = object(json!({ "name": text() }));
    check_field(list(horse.clone()), list(object(json!({}))), "[].name: field removed");
    check_field(list(object(json!({}))), list(horse.clone()), "");
    check_field(
        list(horse.clone()),
        json!({ "type": "array" }),
        "[]: is no longer declared",
    );
    let mut keyed = list(horse.clone());
    keyed["x-kubernetes-list-type"] = json!("map");
    keyed["x-kubernetes-list-map-keys"] = json!(["name", "age"]);
    let mut turned = keyed.clone();
    turned["x-kubernetes-list-map-keys"] = json!(["age", "name"]);
    check_field(keyed.clone(), turned.clone(), "");
    turned["x-kubernetes-list-map-keys"] = json!(["name"]);
    check_field(
        keyed.clone(),
        turned,
        r#": x-kubernetes-list-map-keys changed from {"age", "name"} to {"name"}"#,
    );
    let mut atomic = list(horse.clone());
    atomic["x-kubernetes-list-type"] = json!("atomic");
    check_field(list(horse), atomic.clone(), "");
    check_field(
        atomic,
        keyed,
        ": x-kubernetes-list-type changed from atomic to map, and one more change",
    );
    let mut atomic = object(json!({}));
    atomic["x-kubernetes-map-type"] = json!("atomic");
    check_field(
        object(json!({})),
        atomic,
        ": x-kubernetes-map-type changed from granular to atomic",
    );
}

#[track_caller]
fn between(key: &str, loose: Value, tight: Value, of: impl Fn(&str, Value) -> Value) {
    check_field(of(key, loose.clone()), of(key, loose.clone()), "");
    check_field(of(key, tight.clone()), of(key, loose.clone()), "");
    let says = format!(": {key} changed from {loose} to {tight}");
    check_field(of(key, loose), of(key, tight), &says);
}

#[test]
fn limits() {
    let number = || json!({ "type": "integer" });
    check_added(text(), "maxLength", json!(5), ": maxLength 5 added");
    check_added(text(), "minLength", json!(1), ": minLength 1 added");
    check_added(text(), "minLength", json!(0), "");
    check_added(number(), "maximum", json!(5), ": maximum 5 added");
    check_added(number(), "minimum", json!(0), ": minimum 0 added");
    check_added(number(), "multipleOf", json!(2), ": multipleOf 2 added");
    check_added(
        json!({ "type": "array", "items": text() }),
        "uniqueItems",
        json!(true),
        ": items must now be unique",
    );
    let limited = |key: &str, limit: Value| json!({ "type": "number", key: limit });
    between("maximum", json!(10), json!(5), limited);
    between("minimum", json!(5), json!(10), limited);
    between("maximum", json!(i64::MAX), json!(i64::MAX - 1), limited);
    between("minimum", json!(-1.5), json!(-1), limited);
    between("maxItems", json!(10), json!(5), limited);
    between("minProperties", json!(5), json!(10), limited);
    check_field(limited("maximum", json!(10)), limited("maximum", json!(10.0)), "");
    check_field(limited("multipleOf", json!(4)), limited("multipleOf", json!(2)), "");
    check_field(
        limited("multipleOf", json!(2)),
        limited("multipleOf", json!(4)),
        ": multipleOf changed from 2 to 4",
    );
    check_added(
        limited("maximum", json!(5)),
        "exclusiveMaximum",
        json!(true),
        ": maximum 5 is now exclusive",
    );
}

#[test]
fn choices_and_forms() {
    let one_of = |values: Value| json!({ "type": "string", "enum": values });
    check_added(text(), "enum", json!(["a"]), ": enum added");
    check_field(one_of(json!(["a"])), one_of(json!(["b", "a"])), "");
    check_field(
        one_of(json!(["b", "a"])),
        one_of(json!(["a"])),
        r#": "b" removed from enum"#,
    );
    check_added(text(), "pattern", json!("^a"), ": pattern ^a added");
    check_added(text(), "format", json!("uuid"), ": format uuid added");
    let like = |key: &str, value: &str| json!({ "type": "string", key: value });
    check_field(
        like("pattern", "^a"),
        like("pattern", "^b"),
        ": pattern changed from ^a to ^b",
    );
    check_field(like("format", "int32"), like("format", "int64"), "");
    check_field(
        like("format", "int64"),
        like("format", "int32"),
        ": format changed from int64 to int32",
    );
    let long = "a".repeat(500);
    check_added(
        text(),
        "pattern",
        json!(long),
        &format!(": pattern {}... added", "a".repeat(80)),
    );
}

#[test]
fn alternatives() {
    let (a, b) = (json!({ "required": ["a"] }), json!({ "required": ["b"] }));
    let with = |key: &str, of: &[&Value]| {
        let mut schema = object(json!({ "a": text(), "b": text() }));
        schema[key] = json!(of);
        schema
    };
    for key in ["allOf", "anyOf", "oneOf"] {
        let plain = object(json!({ "a": text(), "b": text() }));
        check_added(plain, key, json!([a]), &format!(": {key} changed"));
    }
    check_field(with("allOf", &[&a, &b]), with("allOf", &[&b]), "");
    check_field(with("allOf", &[&a]), with("allOf", &[&a, &b]), ": allOf changed");
    check_field(with("anyOf", &[&a]), with("anyOf", &[&b, &a]), "");
    check_field(with("anyOf", &[&a, &b]), with("anyOf", &[&a]), ": anyOf changed");
    check_field(with("oneOf", &[&a]), with("oneOf", &[&a, &b]), ": oneOf changed");
    check_added(text(), "not", json!({ "enum": ["a"] }), ": not changed");
}

#[test]
fn rules() {
    let ruled = |rules: Value| json!({ "type": "string", "x-kubernetes-validations": rules });
    let short = json!({ "rule": "self.size() < 5" });
    check_added(
        text(),
        "x-kubernetes-validations",
        json!([short]),
        ": validation rule added: self.size() < 5",
    );
    let told = json!({ "rule": "self.size() < 5", "message": "too long" });
    check_field(ruled(json!([short])), ruled(json!([told])), "");
    let tight = json!({ "rule": "self.size() < 4" });
    check_field(
        ruled(json!([short])),
        ruled(json!([tight])),
        ": validation rule added: self.size() < 4",
    );
    let fixed = |optional: bool| ruled(json!([{ "rule": "self == oldSelf", "optionalOldSelf": optional }]));
    check_field(fixed(true), fixed(true), "");
    check_field(fixed(false), fixed(true), ": validation rule added: self == oldSelf");
}

#[test]
fn embedded_objects_have_what_every_object_has() {
    let embedded = |properties: Value| {
        let mut schema = object(properties);
        schema["x-kubernetes-embedded-resource"] = json!(true);
        schema
    };
    let named = |limit: Value| json!({ "metadata": object(json!({ "name": limit })) });
    check_field(
        embedded(named(json!({ "type": "string", "maxLength": 9 }))),
        embedded(json!({})),
        "",
    );
    check_field(
        embedded(json!({})),
        embedded(named(json!({ "type": "string", "maxLength": 9 }))),
        ".metadata.name: maxLength 9 added",
    );
    check_field(object(json!({})), embedded(json!({})), ": must now be a whole object");
    check_field(
        embedded(json!({})),
        object(json!({})),
        ": is no embedded object any more",
    );
}

#[test]
fn the_fields_of_every_object_are_always_there() {
    let bare = object(json!({ "spec": text() }));
    let mut whole = object(json!({
        "apiVersion": text(), "kind": text(), "metadata": { "type": "object" }, "spec": text(),
    }));
    whole["required"] = json!(["metadata"]);
    assert_eq!(check(&bound(bare.clone()), &bound(whole.clone())), Ok(()));
    assert_eq!(check(&bound(whole), &bound(bare)), Ok(()));
}

/// Versions in words: `v1` is served, `-v1` is not; `/status` and `/scale` are its subresources.
fn versions(words: &str) -> BoundSchemaSpec {
    let mut spec = bound(object(json!({})));
    let template = spec.versions.remove(0);
    for word in words.split_whitespace() {
        let mut parts = word.split('/');
        let name = parts.next().unwrap();
        let mut version = template.clone();
        version.name = name.trim_start_matches('-').to_owned();
        version.served = !name.starts_with('-');
        for part in parts {
            let subresources = version.subresources.get_or_insert_default();
            match part {
                "status" => subresources.status = Some(CustomResourceSubresourceStatus(json!({}))),
                path => {
                    subresources.scale = Some(CustomResourceSubresourceScale {
                        spec_replicas_path: path.to_owned(),
                        ..CustomResourceSubresourceScale::default()
                    });
                }
            }
        }
        spec.versions.push(version);
    }
    spec
}

#[track_caller]
fn check_versions(old: &str, new: &str, expect: &str) {
    assert_eq!(said(check(&versions(old), &versions(new))), expect);
}

#[test]
fn versions_come_and_do_not_go() {
    check_versions("v1", "v1 v2", "");
    check_versions("v1", "v2 v1", "");
    check_versions("v1 -v2", "v1", "");
    check_versions("v1 v2", "v1", "v2: version is no longer offered");
    check_versions("v1 v2", "v1 -v2", "v2: version is no longer offered");
    check_versions("v1/status", "v1", "v1: subresource status removed");
    check_versions("v1", "v1/status", "v1: subresource status added");
    check_versions("v1", "v1/scale", "");
    check_versions("v1/scale", "v1", "v1: subresource scale removed");
    check_versions("v1/scale", "v1/other", "v1: subresource scale changed");
}

#[test]
fn an_api_stays_what_it_is() {
    #[track_caller]
    fn changed(change: impl FnOnce(&mut BoundSchemaSpec), expect: &str) {
        let old = versions("v1");
        let mut new = old.clone();
        change(&mut new);
        assert_eq!(said(check(&old, &new)), expect);
    }
    changed(
        |new| new.group = "x.y".to_owned(),
        "group changed from wildwest.dev to x.y",
    );
    changed(
        |new| new.names.plural = "cows".to_owned(),
        "plural changed from cowboys to cows",
    );
    changed(
        |new| new.names.kind = "Cow".to_owned(),
        "kind changed from Cowboy to Cow",
    );
    changed(
        |new| new.scope = Scope::Cluster,
        "scope changed from Namespaced to Cluster",
    );
    changed(|new| new.names.short_names = Some(vec!["cb".to_owned()]), "");
    changed(|new| new.versions[0].storage = false, "");
    changed(|new| new.versions[0].deprecated = Some(true), "");
}

#[test]
fn both_encodings_are_read() {
    let wrapped = bound(object(json!({ "spec": text() })));
    let mut bare = wrapped.clone();
    bare.versions[0].schema = wrapped.versions[0].json_schema_props().clone().into();
    assert_eq!(check(&wrapped, &bare), Ok(()));
    assert_eq!(check(&bare, &wrapped), Ok(()));
}

#[test]
fn definitions_are_compared_alike() {
    let of = |spec: &BoundSchemaSpec| super::super::custom_resource_definition(spec, None).unwrap();
    let (old, new) = (
        of(&bound(object(json!({ "spec": object(json!({ "intent": text() })) })))),
        of(&bound(object(
            json!({ "spec": object(json!({ "intent": { "type": "integer" } })) }),
        ))),
    );
    assert_eq!(check_definitions(&old, &old), Ok(()));
    let error = check_definitions(&old, &new).unwrap_err();
    assert_eq!(
        (error.version(), error.path(), error.change(), error.reason()),
        (
            Some("v1"),
            "spec.intent",
            "type changed from string to integer",
            "IncompatibleSchema"
        )
    );
    let mut unserved = old.clone();
    unserved.spec.versions[0].served = false;
    assert_eq!(
        said(check_definitions(&old, &unserved)),
        "v1: version is no longer offered"
    );
    assert_eq!(check_definitions(&unserved, &old), Ok(()));
}
