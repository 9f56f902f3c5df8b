//! CustomResourceDefinitions that come, change and go with their objects.

use serde_json::{Value, json};

use crate::generate::{
    draft::Draft,
    kind::DEFINITION,
    step::{Call, Step},
};

pub(super) fn act(draft: &mut Draft) {
    // One group for each definition: what the API server knows of a group changes late.
    let group = format!("{}-{}.bindery.test", draft.id, draft.steps.len());
    let name = format!("things.{group}");
    let path = DEFINITION.path("", &name);
    draft.state.insert(path.clone());
    if draft.random.chance(40) {
        let call = invalid(draft, &group);
        draft.call(call);
    }
    draft.call(Call::post(
        DEFINITION.list(""),
        definition(&group, &json!({"size": {"type": "integer"}})),
    ));
    draft.settle();
    let root = format!("/apis/{group}/v1/namespaces/{}/things", draft.namespace);
    draft.call(Call::get(&root).patient());
    let thing = |name: &str, spec: Value, finalizers: Value| {
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "Thing",
            "metadata": {"name": name, "finalizers": finalizers}, "spec": spec,
        })
    };
    draft.call(Call::post(
        &root,
        thing("a", json!({"size": 1, "color": "red"}), Value::Null),
    ));
    let keeps = draft.random.chance(40);
    let finalizers = if keeps {
        json!(["simulated.bindery.test/kept"])
    } else {
        Value::Null
    };
    let second = draft.call(Call::post(&root, thing("b", json!({"size": 2}), finalizers)));
    draft.call(Call::post(&root, thing("c", json!({"size": "big"}), Value::Null)));
    draft.call(Call::get(&root).query("labelSelector", "!none"));
    let changes = draft.random.chance(50);
    if changes {
        change(draft, &path, &root, second);
    }
    // What becomes of its objects does not depend on the propagation.
    let delete = Call::delete(&path);
    let propagation = draft.random.pick(&["", "", "Background", "Foreground", "Orphan"]);
    let delete = match propagation {
        "" => delete,
        propagation => delete.query("propagationPolicy", propagation),
    };
    draft.call(delete);
    if keeps {
        // A worker of the API server's finalizer waits for each object that is kept, and there are few workers.
        draft.steps.push(Step::Work);
        draft.call(Call::get(format!("{root}/b")).patient());
        draft.call(Call::post(&root, thing("d", json!({"size": 1}), Value::Null)).query("dryRun", "All"));
        if !changes && draft.random.chance(70) {
            anew(draft, &group, &path, &root);
            return;
        }
        draft.call(Call::merge(
            format!("{root}/b"),
            json!({"metadata": {"finalizers": null}}),
        ));
    }
    draft.settle();
    draft.call(Call::get(&path));
    draft.call(Call::get(&root).patient());
}

/// Takes the cleanup finalizer from a definition that waits for an object, and creates the definition anew: the object is there again.
fn anew(draft: &mut Draft, group: &str, path: &str, root: &str) {
    draft.call(Call::merge(path, json!({"metadata": {"finalizers": null}})));
    draft.settle();
    draft.call(Call::post(
        DEFINITION.list(""),
        definition(group, &json!({"size": {"type": "integer"}})),
    ));
    draft.settle();
    draft.call(Call::get(format!("{root}/b")).patient());
    draft.call(Call::merge(
        format!("{root}/b"),
        json!({"metadata": {"finalizers": null}}),
    ));
    draft.call(Call::get(root).patient());
}

/// Adds a field with a default. The API server takes a moment to serve the new schema.
fn change(draft: &mut Draft, path: &str, root: &str, second: usize) {
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color";
    let value = json!({"type": "string", "default": "none"});
    draft.call(Call::json_patch(
        path,
        json!([{"op": "add", "path": field, "value": value}]),
    ));
    draft.settle();
    draft.call(Call::get(format!("{root}/a")).patient());
    draft.call(Call::edit(
        format!("{root}/b"),
        second,
        json!({"spec": {"color": "blue"}}),
    ));
    draft.call(Call::merge(path, json!({"spec": {"scope": "Cluster"}})));
    draft.call(Call::merge(path, json!({"spec": {"group": "another.test"}})));
    draft.call(Call::merge(path, json!({"metadata": {"labels": {"a": "b"}}})));
}

fn definition(group: &str, properties: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": properties},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
            }],
        },
    })
}

fn invalid(draft: &mut Draft, group: &str) -> Call {
    let mut object = definition(group, &json!({}));
    let versions = &mut object["spec"]["versions"];
    // What else is wrong with versions is told with all of them in the words of Go.
    match draft.random.below(5) {
        0 => object["metadata"]["name"] = "things.another.test".into(),
        1 => versions[0]["schema"] = Value::Null,
        2 => object["spec"]["scope"] = "Everywhere".into(),
        3 => object["spec"]["names"]["kind"] = Value::Null,
        _ => versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["type"] = Value::Null,
    }
    Call::post(DEFINITION.list(""), object)
}
