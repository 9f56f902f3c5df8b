//! Cases that are made of the descriptors and of the golden files: each method with each field, and all manifests.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor};
use serde_json::{Map, Value, json};

use crate::case::{Case, Expect, SeenExpect, Token};
use crate::proto_json;
use crate::script::{ServerScript, Step};

/// One case per method: all fields of its request and response are set, and arrive.
pub fn cases() -> Result<Vec<Case>> {
    proto_json::methods()?
        .map(|method| {
            if method.is_server_streaming() {
                watch(&method)
            } else {
                call(&method)
            }
        })
        .collect()
}

/// One case per golden file of manifests.
pub fn manifests(folder: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let golden: Value =
            serde_json::from_slice(&fs::read(&path)?).with_context(|| format!("cannot read {}", path.display()))?;
        let expect = match golden.get("refusal") {
            Some(refusal) => Expect {
                error: Some(json!({ "kind": "refusal", "reason": refusal["reason"] })),
                ..Expect::default()
            },
            None => Expect {
                ok: Some(golden["canonical"].clone()),
                ..Expect::default()
            },
        };
        cases.push(Case {
            name: format!("manifests-{}", golden["name"].as_str().unwrap_or_default()),
            shows: golden["shows"].as_str().unwrap_or_default().to_owned(),
            server: ServerScript::default(),
            client: Value::Null,
            token: Token::Default,
            action: json!({ "manifests": golden["input"] }),
            cancel_after_ms: None,
            expect,
        });
    }
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(cases)
}

fn call(method: &MethodDescriptor) -> Result<Case> {
    let (request, response) = (sample(&method.input())?, sample(&method.output())?);
    Ok(Case {
        name: format!("method-{}", method.name()),
        shows: "every field of request and response arrives".to_owned(),
        server: ServerScript {
            answers: vec![vec![Step::Message(response.clone())]],
            ..ServerScript::default()
        },
        client: Value::Null,
        token: Token::Default,
        action: json!({ "call": method.name(), "request": request }),
        cancel_after_ms: None,
        expect: Expect {
            ok: Some(response),
            calls: Some((1, 1)),
            seen: vec![SeenExpect {
                method: Some(method.name().to_owned()),
                request: Some(request),
                ..SeenExpect::default()
            }],
            ..Expect::default()
        },
    })
}

fn watch(method: &MethodDescriptor) -> Result<Case> {
    let mut request = sample(&method.input())?;
    // With a token there would be no snapshot.
    request["resumeToken"] = "".into();
    let object = |name: &str| -> Result<Value> {
        let field = method.output().get_field_by_name(name);
        let field = field.with_context(|| format!("{} has no {name}", method.output().full_name()))?;
        value(&field.kind())
    };
    let (applied, removed) = (object("applied")?, object("removed")?);
    Ok(Case {
        name: format!("method-{}", method.name()),
        shows: "a snapshot and a change, with every field".to_owned(),
        server: ServerScript {
            answers: vec![vec![
                Step::Message(json!({ "snapshotBegin": {} })),
                Step::Message(json!({ "applied": applied })),
                Step::Message(json!({ "heartbeat": {} })),
                Step::Message(json!({ "snapshotComplete": { "objectCount": 1 }, "resumeToken": "r1" })),
                Step::Message(json!({ "removed": removed, "resumeToken": "r2" })),
                Step::Stall,
            ]],
            ..ServerScript::default()
        },
        client: Value::Null,
        token: Token::Default,
        action: json!({ "watch": method.name(), "request": request, "events": 5 }),
        cancel_after_ms: None,
        expect: Expect {
            calls: Some((1, 1)),
            events: Some(vec![
                json!({ "connected": { "resumed": false } }),
                json!({ "snapshotBegin": { "refused": null } }),
                json!({ "applied": applied }),
                json!({ "snapshotComplete": {} }),
                json!({ "removed": removed }),
            ]),
            // The last event counts as processed only when the next one is asked for.
            resume_token: Some("r1".to_owned()),
            seen: vec![SeenExpect {
                method: Some(method.name().to_owned()),
                request: Some(request),
                reset: vec!["CANCEL".to_owned(), "closed".to_owned()],
                ..SeenExpect::default()
            }],
            ..Expect::default()
        },
    })
}

/// Makes a message with all fields set, but only the first of each oneof.
fn sample(message: &MessageDescriptor) -> Result<Value> {
    match message.full_name() {
        "google.protobuf.Duration" => return Ok("1.500s".into()),
        "google.protobuf.Timestamp" => return Ok("2026-01-02T03:04:05.006Z".into()),
        _ => {}
    }
    let mut fields = Map::new();
    for field in message.fields() {
        let first = field.containing_oneof().and_then(|oneof| oneof.fields().next());
        if first.is_none_or(|first| first == field) {
            fields.insert(field.json_name().to_owned(), field_sample(&field)?);
        }
    }
    Ok(Value::Object(fields))
}

fn field_sample(field: &FieldDescriptor) -> Result<Value> {
    if field.is_map() {
        return Ok(json!({ "app": format!("{}-1", field.name()), "": "" }));
    }
    // The wait of a request makes its deadline longer, and one of days would be refused.
    let own = match field.kind() {
        Kind::String => json!(format!("{} \u{1f920}", field.name())),
        kind => value(&kind)?,
    };
    Ok(match field.cardinality() {
        Cardinality::Repeated => json!([own, own]),
        Cardinality::Optional | Cardinality::Required => own,
    })
}

fn value(kind: &Kind) -> Result<Value> {
    Ok(match kind {
        Kind::Message(message) => sample(message)?,
        Kind::Enum(values) => json!(values.values().nth(1).context("an enum of one value")?.name()),
        Kind::Bool => json!(true),
        Kind::Bytes => json!("AAEC/w=="),
        Kind::String => json!("text"),
        Kind::Int64 | Kind::Uint64 | Kind::Sint64 | Kind::Fixed64 | Kind::Sfixed64 => json!("9007199254740993"),
        _ => json!(7),
    })
}
