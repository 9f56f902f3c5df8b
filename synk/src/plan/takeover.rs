//! Transfers field ownership from other managers to synk before the first apply. A field that a former `apply` set, and
//! that the manifest lacks, is removed only if synk owns it.

use bindery_runtime::managed_fields::{applied, is_whole, merge, split};
use serde_json::{Map, Value, json};

use super::{
    desired::{last_applied, said},
    ownership::{Ownership, entries, is_of, is_ours, owners},
};
use crate::{
    input::Manifest,
    object::{ObjectRef, owner_references},
    wire::{FIELD_MANAGER, LAST_APPLIED, SetName, Version, is_resource_set, owner_reference},
};

/// The change of an object's managed fields before it is applied.
#[derive(Debug, PartialEq)]
pub(super) struct TakeOver {
    /// The new managed-fields entries.
    pub entries: Vec<Value>,
    /// Names of the managers that lose fields.
    pub from: Vec<String>,
}

/// Returns the JSON patch to send before the apply of an object if synk does not own all its fields yet. The API server
/// refuses the patch if the object was written meanwhile.
pub fn takeover(live: &Value, manifest: &Manifest, fields_of: &[String]) -> Option<Value> {
    let due = due(live, manifest, fields_of)?;
    let mut patch = guarded(live);
    patch.push(json!({"op": "replace", "path": "/metadata/managedFields", "value": due.entries}));
    Some(Value::Array(patch))
}

/// Returns the JSON patch that makes a version the owner of an object that is otherwise left alone. `None` if it is the
/// owner already.
pub fn move_owner(live: &Value, version: &Version, uid: &str) -> Option<Value> {
    let wanted = owner_reference(version, uid);
    let (sets, mut kept): (Vec<_>, Vec<_>) = owner_references(live).iter().cloned().partition(is_resource_set);
    if ObjectRef::of(live).is_none_or(|object| object.gvk.is_crd()) || sets == [wanted.clone()] {
        return None;
    }
    kept.push(wanted);
    let mut patch = guarded(live);
    patch.push(json!({"op": "add", "path": "/metadata/ownerReferences", "value": kept}));
    Some(Value::Array(patch))
}

/// Returns the JSON patch that removes the owners of this set from an object that stays. `None` if it has none.
pub fn release(live: &Value, set: &SetName) -> Option<Value> {
    let is_ours = |reference: &&Value| is_resource_set(reference) && is_of(reference, set);
    let (ours, kept): (Vec<_>, Vec<_>) = owner_references(live).iter().partition(is_ours);
    if ours.is_empty() {
        return None;
    }
    let mut patch = guarded(live);
    patch.push(json!({"op": "replace", "path": "/metadata/ownerReferences", "value": kept}));
    Some(Value::Array(patch))
}

/// Returns the transfer of field ownership that an object needs: fields of another kind of `apply`, owners that synk
/// may not drop, fields of a synk that used updates, and all fields of the managers `fields_of`. Owner references are
/// transferred rather than removed: the apply that follows replaces them, and until then the object keeps an owner.
pub(super) fn due(live: &Value, manifest: &Manifest, fields_of: &[String]) -> Option<TakeOver> {
    let api_version = manifest.object.gvk.api_version();
    let entries = entries(live);
    let ownership = Ownership::of(entries, &api_version);
    let sets = owners(live).into_iter();
    let strange = sets.map(element).filter(|element| !is_ours_alone(entries, element));
    let strange: Vec<String> = strange.collect();
    let noted = live["metadata"]["annotations"].get(LAST_APPLIED).is_some();
    let noted_by_others = noted && !ownership.has_last_applied();
    let was_synk =
        |entry: &Value| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Update" && is_whole(entry);
    // Fields that synk owns in another API version cannot be merged with these.
    let is_given = |entry: &Value| {
        let mut managers = fields_of.iter().map(String::as_str);
        let manager = entry["manager"].as_str();
        is_whole(entry) && !is_ours(entry) && !ownership.is_foreign && managers.any(|given| manager == Some(given))
    };
    let is_concerned = |entry: &Value| was_synk(entry) || is_given(entry);
    if entries.is_empty() || !(!strange.is_empty() || noted_by_others || entries.iter().any(is_concerned)) {
        return None;
    }

    let mut sources = vec![said(manifest)];
    if noted_by_others {
        sources.extend(last_applied(live));
        sources.push(json!({"metadata": {"annotations": {LAST_APPLIED: ""}}}));
    }
    let (mut ours, mut others, mut from) = (Map::new(), Vec::new(), Vec::new());
    for entry in entries {
        let fields = entry["fieldsV1"].as_object().cloned().unwrap_or_default();
        if is_ours(entry) && entry["apiVersion"] == *api_version {
            merge(&mut ours, fields);
            continue;
        }
        let is_given = is_given(entry);
        let is_said = is_whole(entry) && entry["operation"] == "Update" && (noted_by_others || was_synk(entry));
        if !is_given && !is_said {
            others.push(entry.clone());
            continue;
        }
        let is_same_version = entry["apiVersion"] == *api_version;
        // A synk that used updates wrote all data, also objects too large for the annotation.
        let whole =
            (was_synk(entry) && !noted).then(|| json!({"data": live["data"], "binaryData": live["binaryData"]}));
        let sources = sources.iter().chain(&whole).map(|source| {
            if is_same_version {
                source.clone()
            } else {
                metadata(source)
            }
        });
        let (moved, left) = if is_given {
            all(fields, is_same_version)
        } else {
            taken(fields, sources)
        };
        if moved.is_empty() {
            others.push(entry.clone());
            continue;
        }
        from.extend(entry["manager"].as_str().map(str::to_owned));
        merge(&mut ours, moved);
        if !left.is_empty() {
            let mut entry = entry.clone();
            entry["fieldsV1"] = Value::Object(left);
            others.push(entry);
        }
    }
    if from.is_empty() && strange.is_empty() {
        return None;
    }
    own(&strange, &mut ours, &mut others);
    if !ours.is_empty() {
        others.push(applied(FIELD_MANAGER, &api_version, ours));
    }
    from.sort();
    from.dedup();
    Some(TakeOver { entries: others, from })
}

/// Returns the name of an owner reference in managed fields.
fn element(reference: &Value) -> String {
    format!("k:{{\"uid\":{}}}", reference["uid"])
}

fn owns(entry: &Value, element: &str) -> bool {
    entry["fieldsV1"]["f:metadata"]["f:ownerReferences"]
        .get(element)
        .is_some()
}

/// Whether an owner reference is removed when synk's next apply lacks it.
fn is_ours_alone(entries: &[Value], element: &str) -> bool {
    let mut owning = entries.iter().filter(|entry| owns(entry, element)).peekable();
    owning.peek().is_some() && owning.all(is_ours)
}

/// Makes synk the only manager of these owner references.
fn own(elements: &[String], ours: &mut Map<String, Value>, others: &mut [Value]) {
    for element in elements {
        for entry in others
            .iter_mut()
            .filter(|entry| !is_ours(entry) && owns(entry, element))
        {
            let owners = entry["fieldsV1"]["f:metadata"]["f:ownerReferences"].as_object_mut();
            owners.map(|owners| owners.remove(element));
        }
        let fields = json!({"f:metadata": {"f:ownerReferences": {element: {}}}});
        let fields = fields.as_object().cloned().unwrap_or_default();
        // synk has a single entry for all API versions, because owner references are the same in all.
        match others.iter_mut().find(|entry| is_ours(entry)) {
            Some(Value::Object(entry)) => {
                if let Some(Value::Object(known)) = entry.get_mut("fieldsV1") {
                    merge(known, fields);
                }
            }
            _ => merge(ours, fields),
        }
    }
}

/// Selects all fields except those that no manifest sets. In another API version, only the fields that have the same
/// meaning in all versions.
fn all(mut fields: Map<String, Value>, is_same_version: bool) -> (Map<String, Value>, Map<String, Value>) {
    let names = ["f:status", "f:metadata"];
    let (status, metadata) = (fields.remove(names[0]), fields.remove(names[1]));
    let status = status.map(|status| (names[0].to_owned(), status));
    let metadata = metadata.map(|metadata| (names[1].to_owned(), metadata));
    if is_same_version {
        fields.extend(metadata);
        (fields, status.into_iter().collect())
    } else {
        fields.extend(status);
        (metadata.into_iter().collect(), fields)
    }
}

/// Splits fields into those that one of the sources sets, and the rest.
fn taken(fields: Map<String, Value>, sources: impl Iterator<Item = Value>) -> (Map<String, Value>, Map<String, Value>) {
    let original = fields.clone();
    let (mut moved, mut left) = (Map::new(), fields);
    for source in sources {
        let (more, less) = split(left, &source);
        merge(&mut moved, more);
        left = less;
    }
    keep_parents(&mut moved, &original);
    (moved, left)
}

/// Transfers the existence of an item together with its fields, because only then a list item is removed as a whole.
fn keep_parents(moved: &mut Map<String, Value>, original: &Map<String, Value>) {
    for (key, below) in moved.iter_mut() {
        let (Some(below), Some(original)) = (below.as_object_mut(), original.get(key).and_then(Value::as_object))
        else {
            continue;
        };
        keep_parents(below, original);
        if original.contains_key(".") && !below.is_empty() {
            below.insert(".".to_owned(), json!({}));
        }
    }
}

/// Returns the part of a source that has the same meaning in all API versions.
fn metadata(source: &Value) -> Value {
    json!({"metadata": source["metadata"]})
}

/// Returns the start of a JSON patch that tests for the object's UID and resource version.
fn guarded(live: &Value) -> Vec<Value> {
    let metadata = &live["metadata"];
    vec![
        json!({"op": "test", "path": "/metadata/uid", "value": metadata["uid"]}),
        json!({"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::{config_map, manifest};

    const NOTED: &str = "f:kubectl.kubernetes.io/last-applied-configuration";

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn live(data: &Value, last: Option<&Value>, references: &[Value], entries: &[Value]) -> Value {
        let mut live = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {
                "name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "ownerReferences": references, "managedFields": entries,
            },
        });
        if let Some(last) = last {
            live["metadata"]["annotations"] = json!({LAST_APPLIED: last.to_string()});
        }
        live
    }

    #[track_caller]
    fn check(live: &Value, expect: Option<&[Value]>) {
        check_given(live, &[], expect);
    }

    /// Takes over, and is content with the outcome.
    #[track_caller]
    fn check_given(live: &Value, managers: &[&str], expect: Option<&[Value]>) {
        let manifest = config_map("a", "1");
        let managers: Vec<_> = managers.iter().map(|manager| (*manager).to_owned()).collect();
        let got = due(live, &manifest, &managers);
        assert_eq!(got.as_ref().map(|due| due.entries.as_slice()), expect);
        let Some(got) = got else { return };
        let mut after = live.clone();
        after["metadata"]["managedFields"] = json!(got.entries);
        assert_eq!(due(&after, &manifest, &managers), None, "once is enough");
    }

    #[test]
    fn what_an_apply_noted_becomes_ours_and_the_rest_stays() {
        let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"key": "1", "old": "2"}});
        let data = json!({"key": "1", "old": "2", "theirs": "3"});
        let kubectl = entry(
            "kubectl-client-side-apply",
            "Update",
            &json!({"f:data": {".": {}, "f:key": {}, "f:old": {}}, "f:metadata": {"f:annotations": {".": {}, NOTED: {}}}}),
        );
        let other = entry("controller", "Update", &json!({"f:data": {"f:theirs": {}}}));
        let mut status = entry("controller", "Update", &json!({"f:data": {"f:key": {}}}));
        status["subresource"] = json!("status");
        let ours = entry(
            "synk",
            "Apply",
            &json!({"f:data": {".": {}, "f:key": {}, "f:old": {}}, "f:metadata": {"f:annotations": {".": {}, NOTED: {}}}}),
        );
        let entries = [kubectl, other.clone(), status.clone()];
        check(&live(&data, Some(&last), &[], &entries), Some(&[other, status, ours]));
    }

    #[test]
    fn what_an_updating_synk_wrote_becomes_ours_with_its_owner() {
        let reference = owner_reference(&"web.v1".parse().unwrap(), "x");
        let user = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "y"});
        let element = |uid: &str| format!(r#"k:{{"uid":"{uid}"}}"#);
        let updating = entry(
            "synk",
            "Update",
            &json!({
                "f:data": {".": {}, "f:key": {}, "f:old": {}},
                "f:metadata": {"f:ownerReferences": {".": {}, element("x"): {}}},
            }),
        );
        let left = entry(
            "synk",
            "Update",
            &json!({"f:metadata": {"f:ownerReferences": {".": {}}}}),
        );
        let owner = json!({"f:ownerReferences": {element("x"): {}}});
        let data = json!({".": {}, "f:key": {}, "f:old": {}});
        let ours = entry("synk", "Apply", &json!({"f:data": data, "f:metadata": owner}));
        let object = live(
            &json!({"key": "1", "old": "2"}),
            None,
            &[reference.clone(), user],
            &[updating],
        );
        check(&object, Some(&[left, ours]));
        let patch = takeover(&object, &config_map("a", "1"), &[]).unwrap();
        let paths: Vec<_> = patch
            .as_array()
            .unwrap()
            .iter()
            .map(|operation| &operation["path"])
            .collect();
        assert!(
            !paths.iter().any(|path| *path == "/metadata/ownerReferences"),
            "until the apply it has the owner that it had: {paths:?}"
        );

        // Nobody wrote it, another wrote it as well, and ours is of another version of the API.
        let ours = entry(
            "synk",
            "Apply",
            &json!({"f:metadata": {"f:ownerReferences": {element("x"): {}}}}),
        );
        let other = entry("helm", "Update", &json!({"f:data": {"f:key": {}}}));
        let of = |entries: &[Value]| live(&json!({"key": "1"}), None, std::slice::from_ref(&reference), entries);
        check(&of(std::slice::from_ref(&other)), Some(&[other.clone(), ours.clone()]));
        let shared = entry(
            "x",
            "Apply",
            &json!({"f:metadata": {"f:ownerReferences": {element("x"): {}}}}),
        );
        let emptied = entry("x", "Apply", &json!({"f:metadata": {"f:ownerReferences": {}}}));
        check(&of(&[shared, ours.clone()]), Some(&[emptied, ours.clone()]));
        let mut old = entry("synk", "Apply", &json!({"f:data": {"f:key": {}}}));
        old["apiVersion"] = json!("v0");
        let mut owning = old.clone();
        owning["fieldsV1"]["f:metadata"] = ours["fieldsV1"]["f:metadata"].clone();
        check(&of(&[old]), Some(&[owning]));
    }

    #[test]
    fn what_is_ours_is_left() {
        let reference = owner_reference(&"web.v1".parse().unwrap(), "x");
        let ours = entry(
            "synk",
            "Apply",
            &json!({
                "f:data": {"f:key": {}},
                "f:metadata": {"f:annotations": {NOTED: {}}, "f:ownerReferences": {r#"k:{"uid":"x"}"#: {}}},
            }),
        );
        let data = json!({"key": "1"});
        let last = json!({"data": {"key": "1"}});
        check(
            &live(&data, Some(&last), std::slice::from_ref(&reference), &[ours]),
            None,
        );
        let helm = entry("helm", "Update", &json!({"f:data": {"f:key": {}}}));
        check(&live(&data, None, &[], &[helm]), None);
        check(&live(&data, None, &[], &[]), None);
    }

    /// Whatever they wrote it with, and whether or not anything says it.
    #[test]
    fn all_fields_of_the_managers_that_are_given_become_ours() {
        let data = json!({"key": "1", "old": "2"});
        let metadata = json!({"f:labels": {".": {}, "f:team": {}}});
        let fields = json!({"f:data": {".": {}, "f:key": {}, "f:old": {}}, "f:metadata": metadata});
        let other = entry("controller", "Apply", &json!({"f:data": {"f:key": {}}}));
        let mut scale = entry("kubectl", "Update", &json!({"f:spec": {"f:replicas": {}}}));
        scale["subresource"] = json!("scale");
        for operation in ["Apply", "Update"] {
            let kubectl = entry("kubectl", operation, &fields);
            let live = live(&data, None, &[], &[kubectl, other.clone(), scale.clone()]);
            check_given(&live, &["helm"], None);
            let ours = entry("synk", "Apply", &fields);
            check_given(&live, &["helm", "kubectl"], Some(&[other.clone(), scale.clone(), ours]));
        }

        // The fields are added to those that synk owns already, except the status, which no manifest sets.
        let ours = entry("synk", "Apply", &json!({"f:data": {"f:key": {}, "f:mine": {}}}));
        let with_status = entry(
            "kubectl",
            "Update",
            &json!({"f:data": {"f:old": {}}, "f:status": {"f:x": {}}}),
        );
        let status = entry("kubectl", "Update", &json!({"f:status": {"f:x": {}}}));
        let both = entry(
            "synk",
            "Apply",
            &json!({"f:data": {"f:key": {}, "f:mine": {}, "f:old": {}}}),
        );
        check_given(
            &live(&data, None, &[], &[ours, with_status]),
            &["kubectl"],
            Some(&[status, both]),
        );

        // In another API version the same path may mean another field, so fields of two versions are never put into one entry.
        let mut older = entry("kubectl", "Apply", &fields);
        older["apiVersion"] = json!("v0");
        let mut left = entry(
            "kubectl",
            "Apply",
            &json!({"f:data": {".": {}, "f:key": {}, "f:old": {}}}),
        );
        left["apiVersion"] = json!("v0");
        let moved = entry("synk", "Apply", &json!({"f:metadata": metadata}));
        check_given(
            &live(&data, None, &[], std::slice::from_ref(&older)),
            &["kubectl"],
            Some(&[left, moved]),
        );
        let mut ours = entry("synk", "Apply", &fields);
        ours["apiVersion"] = json!("v0");
        let kubectl = entry("kubectl", "Apply", &fields);
        check_given(&live(&data, None, &[], &[ours, kubectl]), &["kubectl"], None);
    }

    /// An item of a list is owned as such, or nothing would take it away as a whole.
    #[test]
    fn an_item_that_left_the_manifest_goes_as_a_whole() {
        let ports = json!([{"port": 1, "protocol": "TCP"}, {"port": 2, "protocol": "TCP"}]);
        let item = |port: u32| format!(r#"k:{{"port":{port},"protocol":"TCP"}}"#);
        let fields = json!({
            "f:metadata": {"f:annotations": {NOTED: {}}},
            "f:spec": {"f:ports": {".": {}, item(1): {".": {}, "f:port": {}}, item(2): {".": {}, "f:port": {}}}},
        });
        let last = json!({"spec": {"ports": [{"port": 1}, {"port": 2}]}});
        let service = manifest(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}]},
        }));
        let mut live = live(&Value::Null, Some(&last), &[], &[entry("kubectl", "Update", &fields)]);
        live["spec"] = json!({"ports": ports});
        let due = due(&live, &service, &[]).unwrap();
        assert_eq!(due.entries, [entry("synk", "Apply", &fields)]);
        assert_eq!(due.from, ["kubectl"]);
    }

    #[test]
    fn patches_are_of_the_object_as_it_was_seen() {
        let version = "web.v2".parse().unwrap();
        let reference = owner_reference(&"web.v1".parse().unwrap(), "x");
        let object = live(&json!({}), None, &[reference], &[]);
        let patch = move_owner(&object, &version, "y").unwrap();
        assert_eq!(
            patch,
            json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
                {"op": "add", "path": "/metadata/ownerReferences", "value": [owner_reference(&version, "y")]},
            ])
        );
        let moved = live(&json!({}), None, &[owner_reference(&version, "y")], &[]);
        assert_eq!(move_owner(&moved, &version, "y"), None);
    }
}
