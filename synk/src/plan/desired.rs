//! Builds the body of a server-side apply, and the form in which objects are compared.

use serde_json::{Value, json};

use super::merged::is_void;
use crate::{
    input::Manifest,
    wire::{LAST_APPLIED, LAST_APPLIED_LIMIT, SERVER_WRITTEN, Version, is_resource_set, owner_reference},
};

/// Returns the body of the server-side apply of an object. `owner` is a version of the set with the UID of its
/// ResourceSet; `None` in a dry run before the set has a version. A CRD gets no owner: if its owner were deleted, all
/// objects of its kind would be deleted.
pub fn desired(manifest: &Manifest, owner: Option<(&Version, &str)>) -> Value {
    let mut body = said(manifest);
    if let Some((version, uid)) = owner.filter(|_| !manifest.object.gvk.is_crd()) {
        let references = &mut body["metadata"]["ownerReferences"];
        match references {
            Value::Array(references) => references.push(owner_reference(version, uid)),
            references => *references = json!([owner_reference(version, uid)]),
        }
    }
    note(&mut body);
    body
}

/// Adds kubectl's last-applied annotation, unless the object's annotations would exceed the API server's limit on their
/// total size.
fn note(body: &mut Value) {
    let text = body.to_string() + "\n";
    let annotations = body["metadata"]["annotations"].as_object().into_iter().flatten();
    let others: usize = annotations
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if text.len() > LAST_APPLIED_LIMIT || others + LAST_APPLIED.len() + text.len() > LAST_APPLIED_LIMIT {
        return;
    }
    let annotations = &mut body["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[LAST_APPLIED] = Value::String(text);
}

/// Returns the content of a manifest without what only synk adds.
pub(super) fn said(manifest: &Manifest) -> Value {
    let mut said = Value::Object(manifest.body.clone());
    strip(&mut said);
    said
}

/// Returns the object as it was last applied, from its last-applied annotation.
pub(super) fn last_applied(live: &Value) -> Option<Value> {
    let text = live["metadata"]["annotations"][LAST_APPLIED].as_str()?;
    let mut last: Value = serde_json::from_str(text).ok().filter(Value::is_object)?;
    strip(&mut last);
    Some(last)
}

/// Removes what the API server or synk writes, so that only content of the manifest remains.
pub(super) fn strip(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    fields.remove("status");
    let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    for field in SERVER_WRITTEN {
        metadata.remove(field);
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    if let Some(references) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
        references.retain(|reference| !is_resource_set(reference));
    }
    // Removes null, empty lists, and maps without content. Empty strings stay.
    metadata.retain(|_, value| !is_void(value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::manifest;

    fn config_map(data: &str) -> Manifest {
        manifest(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "shop", "labels": {"app": "x"}}, "data": {"key": data},
        }))
    }

    #[test]
    fn an_object_carries_its_owner_and_what_it_was_applied_as() {
        let version = "web.v3".parse().unwrap();
        let body = desired(&config_map("1"), Some((&version, "u")));
        assert_eq!(
            body["metadata"]["ownerReferences"],
            json!([owner_reference(&version, "u")])
        );
        let text = body["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap();
        let last: Value = serde_json::from_str(text).unwrap();
        assert_eq!(last["metadata"]["ownerReferences"], body["metadata"]["ownerReferences"]);
        assert!(text.ends_with("}\n") && last["metadata"].get("annotations").is_none());
        assert_eq!(last_applied(&body).unwrap(), said(&config_map("1")));
    }

    #[test]
    fn other_owners_stay_and_definitions_get_none() {
        let version = "web.v3".parse().unwrap();
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "x"});
        let mut owned = config_map("1");
        owned.body["metadata"]["ownerReferences"] = json!([other]);
        let body = desired(&owned, Some((&version, "u")));
        assert_eq!(
            body["metadata"]["ownerReferences"],
            json!([other, owner_reference(&version, "u")])
        );
        let definition = manifest(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"},
        }));
        assert!(
            desired(&definition, Some((&version, "u")))["metadata"]
                .get("ownerReferences")
                .is_none()
        );
    }

    #[test]
    fn a_large_object_carries_no_copy_of_itself() {
        let bytes = |manifest: &Manifest| said(manifest).to_string().len();
        let annotated = |manifest: &Manifest| {
            desired(manifest, None)["metadata"]["annotations"]
                .get(LAST_APPLIED)
                .is_some()
        };
        let empty = bytes(&config_map(""));
        let of_size = |bytes: usize| config_map(&"x".repeat(bytes - empty));
        // The key and the line's end count too.
        let most = LAST_APPLIED_LIMIT - LAST_APPLIED.len() - 1;
        assert!(annotated(&of_size(most)));
        assert!(!annotated(&of_size(most + 1)));
        assert!(!annotated(&of_size(LAST_APPLIED_LIMIT)));
        let noted = |bytes: usize| {
            let mut manifest = config_map("1");
            manifest.body["metadata"]["annotations"] = json!({"copy": "x".repeat(bytes)});
            manifest
        };
        assert!(annotated(&noted(120 << 10)));
        assert!(!annotated(&noted(140 << 10)), "the copy repeats it");
    }

    #[test]
    fn what_servers_write_is_not_said() {
        let mut live = config_map("1").body;
        live["metadata"]["uid"] = json!("u");
        live["metadata"]["annotations"] = json!({LAST_APPLIED: "{}"});
        live["metadata"]["ownerReferences"] = json!([owner_reference(&"web.v3".parse().unwrap(), "u")]);
        live.insert("status".to_owned(), json!({}));
        let mut live = Value::Object(live);
        strip(&mut live);
        assert_eq!(live, said(&config_map("1")));
    }
}
