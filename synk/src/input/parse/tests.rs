use serde_json::{Map, Value, json};

use super::*;

mod generated;
mod hostile;

fn bodies(text: &str) -> Vec<Value> {
    let manifests = parse("x.yaml", text).unwrap();
    manifests.into_iter().map(|manifest| manifest.body.into()).collect()
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

#[track_caller]
fn check_names(text: &str, expect: &[&str]) {
    let bodies = bodies(text);
    let names: Vec<_> = bodies
        .iter()
        .map(|body| body["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, expect);
}

/// Each error as `document:line: problem`.
#[track_caller]
fn check_errors(text: &str, expect: &[&str]) {
    let InputErrors(errors) = parse("x.yaml", text).unwrap_err();
    let errors: Vec<_> = errors
        .iter()
        .map(|error| format!("{}:{}: {}", error.origin.document, error.origin.line, error.problem))
        .collect();
    assert_eq!(errors, expect);
}

/// What a value of a mapping becomes.
#[track_caller]
fn check_value(yaml: &str, expect: impl Into<Value>) {
    let text = format!("apiVersion: v1\nkind: K\nmetadata: {{name: a}}\nvalue: {yaml}\n");
    assert_eq!(bodies(&text)[0]["value"], expect.into(), "{yaml}");
}

const A: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";
const B: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n";

#[test]
fn streams_hold_many_documents() {
    check_names("", &[]);
    check_names("# nothing\n---\n\n---\n# nothing\n...\n", &[]);
    check_names(&format!("{A}---\n{B}"), &["a", "b"]);
    check_names(
        &format!("---\n# Source: chart/templates/a.yaml\n{A}\n--- # more\n{B}...\n"),
        &["a", "b"],
    );
    check_names(
        &format!("%YAML 1.2\n---\n{A}...\n# c\n%YAML 1.1\n---\n{B}"),
        &["a", "b"],
    );
    check_names(&format!("\u{feff}{A}---\n{B}").replace('\n', "\r\n"), &["a", "b"]);
    check_names(&format!("{A}\u{feff}---\n{B}"), &["a", "b"]);
    check_names(&format!("null\n---\n~\n---\n{B}"), &["b"]);
    check_names(
        "--- {apiVersion: v1, kind: K, metadata: {name: a}}\n--- {apiVersion: v1, kind: K, metadata: {name: b}}",
        &["a", "b"],
    );
}

#[test]
fn json_documents_may_follow_each_other() {
    let (a, b) = (config_map("a"), config_map("b"));
    check_names(&a.to_string(), &["a"]);
    check_names(&format!("{a}\n{b}\n"), &["a", "b"]);
    check_names(&format!("{a}{b}\n---\n# c\n{a:#}\n---\n{B}"), &["a", "b", "a", "b"]);
    check_names(&format!("{a:#}\n\n{b:#}").replace("  ", "\t"), &["a", "b"]);
    check_names(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a,},} # YAML that looks like JSON",
        &["a"],
    );
    let long =
        json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "a"}, "data": {"k".repeat(2000): "\u{1f600}\\/"}});
    assert_eq!(bodies(&long.to_string()), [long]);
}

#[test]
fn origins_tell_document_and_line() {
    let text = format!(
        "# c\n---\n# c\n\n{A}---\n---\n{{\"kind\": \"List\", \"items\": []}}\n\n{}",
        config_map("c")
    );
    let manifests = parse("dir/x.yaml", &text).unwrap();
    let origins: Vec<_> = manifests.iter().map(|manifest| manifest.origin.to_string()).collect();
    assert_eq!(
        origins,
        ["dir/x.yaml, document 1, line 5", "dir/x.yaml, document 4, line 13"]
    );
}

#[test]
fn lists_are_taken_apart() {
    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [
        config_map("a"),
        {"apiVersion": "v1", "kind": "ConfigMapList", "items": [
            {"metadata": {"name": "b"}},
            {"kind": "List", "apiVersion": "v1", "items": [config_map("c")]},
        ]},
        {"apiVersion": "v1", "kind": "SecretList", "items": null},
        {"apiVersion": "v1", "kind": "List"},
    ]});
    assert_eq!(
        bodies(&list.to_string()),
        [config_map("a"), config_map("b"), config_map("c")]
    );
    let lines =
        "kind: List\napiVersion: v1\nitems:\n- apiVersion: v1\n  kind: K\n  metadata: {name: a}\n-\n  kind: K\n";
    check_errors(
        lines,
        &[
            "1:8: items[1]: apiVersion is missing",
            "1:8: items[1]: metadata.name is missing",
        ],
    );
    check_errors("kind: List\nitems: {a: b}\n", &["1:2: items is a mapping, not a list"]);
    check_errors(
        "kind: List\nitems: [[], null]\n",
        &[
            "1:2: items[0]: an object is a mapping with apiVersion, kind and metadata, not a list",
            "1:2: items[1]: an object is a mapping with apiVersion, kind and metadata, not null",
        ],
    );
    check_names(
        "{apiVersion: v1, kind: WaitList, metadata: {name: a}, items: {b: c}}",
        &["a"],
    );
}

#[test]
fn tests_of_a_chart_are_left_out() {
    let hook = |hook: &str| format!("{A}  annotations: {{helm.sh/hook: {hook}}}\n");
    check_names(&hook("test-success"), &[]);
    check_names(&hook("pre-install"), &["a"]);
    check_names(&hook("[test-success]"), &["a"]);
}

#[test]
fn objects_need_a_version_a_kind_and_a_name() {
    check_errors(
        "- a\n",
        &["1:1: an object is a mapping with apiVersion, kind and metadata, not a list"],
    );
    check_errors(
        "---\nhello\n",
        &["1:2: an object is a mapping with apiVersion, kind and metadata, not text"],
    );
    check_errors(
        "{}",
        &[
            "1:1: apiVersion is missing",
            "1:1: kind is missing",
            "1:1: metadata.name is missing",
        ],
    );
    check_errors(
        "apiVersion: ''\nkind: 1\nmetadata: []",
        &[
            "1:1: apiVersion is missing",
            "1:2: kind is a number, not text: put it in quotes",
            "1:3: metadata is a list, not a mapping",
        ],
    );
    let with = |metadata: &str| format!("---\n---\napiVersion: a/b\nkind: K\nmetadata:\n{metadata}");
    check_errors(&with("  labels: {}"), &["2:5: metadata.name is missing"]);
    check_errors(
        &with("  name: 2024"),
        &["2:6: metadata.name is a number, not text: put it in quotes"],
    );
    check_errors(
        &with("  name: on"),
        &["2:6: metadata.name is a boolean, not text: put it in quotes"],
    );
    check_errors(
        &with("  name: a\n  namespace: 1"),
        &["2:7: metadata.namespace is a number, not text: put it in quotes"],
    );
    check_errors(
        &with("  generateName: a-"),
        &["2:5: metadata.generateName makes a new object each time: objects of a set need metadata.name"],
    );
    for version in ["a/b/c", "/v1", "a/", "a b"] {
        let text = A.replace("v1", version);
        check_errors(&text, &["1:1: apiVersion has to be VERSION or GROUP/VERSION"]);
    }
}

#[test]
fn all_errors_are_told_with_their_places() {
    let text = format!("{A}data:\n  x: [1\n---\n{B}---\nkind: K\n---\na: b: c\n---\na:\n\t- x\n");
    check_errors(
        &text,
        &[
            "1:6: unclosed bracket '['",
            "3:13: apiVersion is missing",
            "3:13: metadata.name is missing",
            "4:15: mapping values are not allowed in this context",
            "5:18: tabs disallowed within this context (block indentation)",
        ],
    );
    check_errors(
        "a: \"b\n---\n---\na: [\n",
        &[
            "1:1: invalid indentation in multiline quoted scalar",
            "3:4: unclosed bracket '['",
        ],
    );
    let json = format!("{}\n{{\"a\": [1,\n2\n}}\n", config_map("a"));
    check_errors(&json, &["2:4: expected `,` or `]`"]);
}

#[test]
fn a_key_may_be_given_once() {
    let text = format!("{A}data:\n  x: 1\n  y: 2\n  x: 3\nkind: K\n");
    check_errors(
        &text,
        &[
            "1:8: key \"x\" is given twice, first on line 6",
            "1:9: key \"kind\" is given twice, first on line 2",
        ],
    );
    let json = r#"{"apiVersion": "v1", "kind": "K",
        "metadata": {"name": "a", "name": "b"}}"#;
    check_errors(json, &["1:1: key \"name\" is given twice"]);
}

#[test]
fn plain_scalars_mean_what_they_mean_to_kubectl() {
    for yes in [
        "y",
        "Y",
        "yes",
        "Yes",
        "YES",
        "on",
        "On",
        "ON",
        "true",
        "True",
        "TRUE",
        "!!bool on",
    ] {
        check_value(yes, true);
    }
    for no in [
        "n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE",
    ] {
        check_value(no, false);
    }
    for null in ["", "~", "null", "Null", "NULL", "!!null ''"] {
        check_value(null, Value::Null);
    }
    for text in [
        "yEs",
        "oN",
        "'yes'",
        "\"on\"",
        "!!str yes",
        "! yes",
        "|-\n  yes",
        "nULL",
        "2024-01-02",
        "1:30",
        "_1",
        "0x",
        "1e",
        "1e999",
        "1.2.3",
        "0b12",
        "=",
        "08_x",
        "--1",
        "+",
        ".",
    ] {
        let expect = match text {
            "'yes'" | "\"on\"" | "!!str yes" | "! yes" | "|-\n  yes" => {
                if text.contains("on") {
                    "on"
                } else {
                    "yes"
                }
            }
            text => text,
        };
        check_value(text, expect);
    }
    check_value("!!binary aGVsbG8=", "hello");
}

#[test]
fn numbers_survive() {
    for (text, number) in [
        ("0644", 420),
        ("0o644", 420),
        ("0x1F", 31),
        ("-0x1f", -31),
        ("0b101", 5),
        ("1_000", 1000),
        ("+5", 5),
        ("-0", 0),
        ("00", 0),
        ("08", 8),
        ("9223372036854775807", i64::MAX),
        ("-9223372036854775808", i64::MIN),
        ("1.0", 1),
        ("1e3", 1000),
        (".5e1", 5),
        ("!!int '80'", 80),
        ("!!float 3", 3),
    ] {
        check_value(text, number);
    }
    check_value("18446744073709551615", u64::MAX);
    check_value("'80'", "80");
    check_value("-0777", -0o777);
    for (text, number) in [
        ("0.1", 0.1),
        ("1.5e-7", 1.5e-7),
        ("-2.5", -2.5),
        ("18446744073709551616", 18_446_744_073_709_551_616.0),
    ] {
        check_value(text, number);
    }
    let json = r#"{"apiVersion": "v1", "kind": "K", "metadata": {"name": "a"}, "n": [18446744073709551615, -9223372036854775808, 2.0, 0.25, "1"]}"#;
    assert_eq!(bodies(json)[0]["n"], json!([u64::MAX, i64::MIN, 2, 0.25, "1"]));
}

#[test]
fn what_json_cannot_hold_is_told() {
    for (value, problem) in [
        (
            ".inf",
            "infinite and undefined numbers cannot be sent: if it is text, put it in quotes",
        ),
        (
            "0x123456789abcdef01",
            "a number that is too large: if it is text, put it in quotes",
        ),
        (
            "!secret x",
            "a tag that means nothing here: text that begins with `!` has to be in quotes",
        ),
        (
            "!secret [x]",
            "a tag that means nothing here: text that begins with `!` has to be in quotes",
        ),
        ("!!int x", "a value that is not what its tag says"),
        ("!!binary x", "a value tagged !!binary that is not text in base64"),
    ] {
        check_errors(&format!("{A}value: {value}\n"), &[&format!("1:5: {problem}")]);
    }
}

#[test]
fn keys_are_text() {
    let text = format!("{A}data:\n  80: a\n  yes: b\n  'no': c\n  ? d\n  : e\n  0x10: f\n");
    assert_eq!(
        bodies(&text)[0]["data"],
        json!({"80": "a", "true": "b", "no": "c", "d": "e", "16": "f"})
    );
    check_errors(
        &format!("{A}data:\n  1.10: a\n  ~: b\n"),
        &[
            "1:6: a key that is not text: put it in quotes",
            "1:7: a key that is not text: put it in quotes",
        ],
    );
    check_errors(
        &format!("{A}data:\n  [a]: b\n"),
        &["1:6: a key that is a list or a mapping: keys are text"],
    );
}

#[test]
fn aliases_and_merges_are_written_out() {
    let text = format!(
        "{A}a: &a {{x: 1, l: &l [2]}}\nb: *a\nc:\n  x: 3\n  <<: *a\nd:\n  <<: [{{z: 4}}, *a, {{z: 5}}]\ne: *l\n&k f: g\nh: *k\n"
    );
    let body = &bodies(&text)[0];
    assert_eq!(body["b"], json!({"x": 1, "l": [2]}));
    assert_eq!(body["c"], json!({"x": 3, "l": [2]}));
    assert_eq!(body["d"], json!({"x": 1, "l": [2], "z": 4}));
    assert_eq!((&body["e"], &body["h"]), (&json!([2]), &json!("f")));
    check_errors(
        &format!("{A}a: *b\n"),
        &["1:5: while parsing node, found unknown anchor"],
    );
    check_errors(
        &format!("{A}a: &a [*a]\n"),
        &["1:5: an alias inside of what it stands for"],
    );
    check_errors(
        &format!("{A}a:\n  <<: 1\n"),
        &["1:6: what `<<` merges in has to be a mapping"],
    );
}
