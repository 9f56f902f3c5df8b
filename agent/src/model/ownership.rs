//! Transfers ownership of the fields of a copy that others wrote to the konnector, so that a field that is removed from the source
//! goes from the copy too, whoever wrote it there.

use bindery_api::annotations;
use bindery_runtime::managed_fields::{applied, is_whole, merge, split};
use serde_json::{Map, Value, json};

use crate::model::{FIELD_MANAGER, object::Object, projection::carried};

/// Returns the managed fields after the konnector took over every field that the source has, from any manager; `None`
/// if nothing changes. Fields that others added, or that belong to the provider's cluster, stay with their managers, so
/// the konnector's next write does not remove them.
pub(crate) fn transferred(entries: &[Value], api_version: &str, source: &Object) -> Option<Vec<Value>> {
    let said = said(source);
    let (mut ours, mut others) = (Map::new(), Vec::new());
    let mut has_moved = false;
    for entry in entries {
        if !is_whole(entry) {
            others.push(entry.clone());
            continue;
        }
        let fields = entry["fieldsV1"].as_object().cloned().unwrap_or_default();
        if entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply" {
            merge(&mut ours, fields);
            continue;
        }
        let (moved, left) = split(fields, &said);
        has_moved |= !moved.is_empty();
        merge(&mut ours, moved);
        if !left.is_empty() {
            let mut entry = entry.clone();
            entry["fieldsV1"] = Value::Object(left);
            others.push(entry);
        }
    }
    has_moved.then(|| {
        others.push(applied(FIELD_MANAGER, api_version, ours));
        others
    })
}

/// All that is copied of a source, and the annotation that asks for adoption: once ours, the next write removes it.
fn said(source: &Object) -> Value {
    let mut all: Map<String, Value> = source
        .body
        .iter()
        .filter_map(|(key, text)| Some((key.to_string(), serde_json::from_str(text.get()).ok()?)))
        .collect();
    let mut notes: Map<_, _> = pairs(carried(&source.meta.annotations));
    notes.insert(annotations::AUTOADOPT.to_owned(), Value::Null);
    all.insert(
        "metadata".to_owned(),
        json!({"labels": pairs(carried(&source.meta.labels)), "annotations": notes}),
    );
    Value::Object(all)
}

fn pairs<'a>(all: impl Iterator<Item = (&'a str, &'a str)>) -> Map<String, Value> {
    all.map(|(key, value)| (key.to_owned(), value.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn source(spec: &Value) -> Object {
        let object = json!({
            "metadata": {"resourceVersion": "1", "labels": {"app": "x"}, "annotations": {"note": "y", "kubernetes.io/z": "z"}},
            "spec": spec,
        });
        serde_json::from_str(&object.to_string()).unwrap()
    }

    #[track_caller]
    fn check(spec: &Value, entries: &[Value], expect: Option<&[Value]>) {
        let source = source(spec);
        let got = transferred(entries, "v1", &source);
        assert_eq!(got.as_deref(), expect);
        if let Some(got) = got {
            assert_eq!(transferred(&got, "v1", &source), None, "once is enough");
        }
    }

    #[test]
    fn the_content_becomes_ours_and_the_rest_stays() {
        let kubectl = entry(
            "kubectl",
            "Update",
            &json!({
                "f:metadata": {
                    "f:annotations": {
                        ".": {}, "f:kube-bind.io/autoadopt": {}, "f:note": {}, "f:kubernetes.io/z": {},
                    },
                    "f:labels": {".": {}, "f:app": {}},
                    "f:finalizers": {".": {}, "v:\"theirs\"": {}},
                },
                "f:spec": {".": {}, "f:intent": {}},
            }),
        );
        let operator = entry(
            "operator",
            "Apply",
            &json!({"f:spec": {"f:size": {}}, "f:status": {"f:phase": {}}}),
        );
        let mut status = entry("operator", "Update", &json!({"f:status": {"f:result": {}}}));
        status["subresource"] = json!("status");
        let expect = [
            entry(
                "kubectl",
                "Update",
                &json!({"f:metadata": {
                    "f:annotations": {"f:kubernetes.io/z": {}}, "f:finalizers": {".": {}, "v:\"theirs\"": {}},
                }}),
            ),
            entry("operator", "Apply", &json!({"f:status": {"f:phase": {}}})),
            status.clone(),
            entry(
                FIELD_MANAGER,
                "Apply",
                &json!({
                    "f:metadata": {
                        "f:annotations": {"f:kube-bind.io/autoadopt": {}, "f:note": {}}, "f:labels": {"f:app": {}},
                    },
                    "f:spec": {"f:intent": {}, "f:size": {}},
                }),
            ),
        ];
        check(
            &json!({"intent": "a", "size": 1}),
            &[kubectl, operator, status],
            Some(&expect),
        );
    }

    /// An operator adds fields while an object is being adopted. Those that the consumer's object lacks stay its own.
    #[test]
    fn what_came_after_the_adoption_stays_its_writers() {
        let operator = entry(
            "operator",
            "Update",
            &json!({
                "f:metadata": {"f:labels": {"f:app": {}, "f:late": {}}},
                "f:spec": {
                    "f:address": {},
                    "f:ports": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:node": {}}, "k:{\"name\":\"b\"}": {".": {}, "f:name": {}}},
                    "f:tags": {"v:\"old\"": {}, "v:\"new\"": {}},
                    "f:whole": {},
                },
            }),
        );
        let spec = json!({"ports": [{"name": "a", "port": 1}], "tags": ["old"], "whole": {"x": 1}});
        let expect = [
            entry(
                "operator",
                "Update",
                &json!({
                    "f:metadata": {"f:labels": {"f:late": {}}},
                    "f:spec": {
                        "f:address": {},
                        "f:ports": {"k:{\"name\":\"a\"}": {"f:node": {}}, "k:{\"name\":\"b\"}": {".": {}, "f:name": {}}},
                        "f:tags": {"v:\"new\"": {}},
                    },
                }),
            ),
            entry(
                FIELD_MANAGER,
                "Apply",
                &json!({
                    "f:metadata": {"f:labels": {"f:app": {}}},
                    "f:spec": {
                        "f:ports": {"k:{\"name\":\"a\"}": {"f:name": {}}},
                        "f:tags": {"v:\"old\"": {}},
                        "f:whole": {},
                    },
                }),
            ),
        ];
        check(&spec, &[operator], Some(&expect));
    }

    #[test]
    fn what_is_ours_alone_is_left() {
        let spec = json!({"intent": "a", "size": 1});
        let ours = entry(FIELD_MANAGER, "Apply", &json!({"f:spec": {"f:intent": {}}}));
        let theirs = entry(
            "operator",
            "Update",
            &json!({"f:metadata": {"f:ownerReferences": {"k:{}": {}}}}),
        );
        check(&spec, &[], None);
        check(&spec, &[ours.clone(), theirs.clone()], None);
        let written = entry(FIELD_MANAGER, "Update", &json!({"f:spec": {"f:size": {}}}));
        let both = entry(
            FIELD_MANAGER,
            "Apply",
            &json!({"f:spec": {"f:intent": {}, "f:size": {}}}),
        );
        check(&spec, &[ours, theirs.clone(), written], Some(&[theirs, both]));
    }
}
