//! Cases that are made of the descriptors and of the golden files: each method with each field, and all manifests.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use bindery_proto::v1alpha2::ErrorReason;
use prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor};
use serde_json::{Map, Value, json};

use crate::case::{Case, Expect, SeenExpect};
use crate::proto_json;
use crate::script::{ServerScript, StatusStep, Step};

/// Methods that clients have no method for, since a bind calls them.
const BY_BIND: [&str; 1] = ["CreateBindableResourcesRequest"];

/// The cases of the API: its methods, and the reasons of its errors.
pub fn cases() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for method in proto_json::methods()? {
        if method.is_server_streaming() {
            cases.push(watch(&method)?);
            continue;
        }
        cases.push(call(&method)?);
        if !BY_BIND.contains(&method.name()) {
            cases.push(typed(&method)?);
        }
    }
    cases.extend(ErrorReason::all().map(reason));
    Ok(cases)
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
            shows: golden["shows"].as_str().unwrap_or_default().to_owned(),
            action: json!({ "manifests": golden["input"] }),
            expect,
            ..Case::named(format!("manifests-{}", golden["name"].as_str().unwrap_or_default()))
        });
    }
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(cases)
}

/// All fields of request and response arrive.
fn call(method: &MethodDescriptor) -> Result<Case> {
    let (request, response) = (sample(&method.input())?, sample(&method.output())?);
    Ok(Case {
        shows: "every field of request and response arrives".to_owned(),
        action: json!({ "call": method.name(), "request": request }),
        ..answered(format!("method-{}", method.name()), method, request, response)
    })
}

/// The client's own method sends what it was given, and returns what came.
fn typed(method: &MethodDescriptor) -> Result<Case> {
    let (mut request, mut response) = (sample(&method.input())?, sample(&method.output())?);
    // A list is all pages; how many there are is up to the client. Only a konnector knows the holder of a contract.
    for (message, fields) in [
        (&mut request, &["pageToken", "pageSize", "holder"][..]),
        (&mut response, &["nextPageToken", "unchanged"]),
    ] {
        if let Some(message) = message.as_object_mut() {
            message.retain(|name, _| !fields.contains(&name.as_str()));
        }
    }
    Ok(Case {
        shows: "the client's own method sends what it was given, and returns what came".to_owned(),
        action: json!({ "typed": method.name(), "request": request }),
        ..answered(format!("typed-{}", method.name()), method, request, response)
    })
}

/// A call that the server answers, and sees once. What the client does is left open.
fn answered(name: String, method: &MethodDescriptor, request: Value, response: Value) -> Case {
    let server = ServerScript {
        answers: vec![vec![Step::Message(response.clone())]],
        ..ServerScript::default()
    };
    Case {
        server,
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
        ..Case::named(name)
    }
}

/// The client knows a reason, and gives it as it came.
fn reason(reason: ErrorReason) -> Case {
    let reason = reason.reason_str();
    let status = StatusStep::of_reason("FAILED_PRECONDITION", reason);
    Case {
        shows: "the reason of an error arrives".to_owned(),
        server: ServerScript {
            answers: vec![vec![Step::Status(status)]],
            ..ServerScript::default()
        },
        action: json!({ "call": "GetExport", "request": { "name": "cowboys" } }),
        expect: Expect {
            error: Some(json!({ "kind": "status", "code": "FAILED_PRECONDITION", "reason": reason })),
            calls: Some((1, 1)),
            ..Expect::default()
        },
        ..Case::named(format!("reason-{}", reason.to_lowercase().replace('_', "-")))
    }
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
        action: json!({ "watch": method.name(), "request": request, "events": 5 }),
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
        ..Case::named(format!("method-{}", method.name()))
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
