//! What holds of every plan.

use proptest::{prelude::*, sample::Index};
use serde_json::{Map, Value, json};

use super::{Decision, decisions};
use crate::{
    input::Manifest,
    plan::{
        saved::Saved,
        testing::{World, kinds, manifest, set, versions},
    },
    wire::owner_reference,
};

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::from),
        (0..3_i32).prop_map(Value::from),
        "[x-z]{0,2}".prop_map(Value::from)
    ]
}

/// An empty value, which a server may leave out.
fn void() -> impl Strategy<Value = Value> {
    prop_oneof![Just(Value::Null), Just(json!({})), Just(json!([]))]
}

fn content() -> impl Strategy<Value = Value> {
    let value = prop_oneof![6 => leaf(), 1 => void()];
    value.prop_recursive(3, 16, 4, |inner| {
        let fields = || proptest::collection::btree_map("[a-c.]{1,2}", inner.clone(), 1..4);
        let object = |fields: std::collections::BTreeMap<String, Value>| Value::Object(fields.into_iter().collect());
        prop_oneof![
            3 => fields().prop_map(object),
            1 => proptest::collection::vec(leaf(), 1..3).prop_map(Value::from),
            1 => proptest::collection::vec(fields().prop_map(object), 1..3).prop_map(Value::from),
            1 => proptest::collection::btree_map("[p-s]", fields(), 1..3).prop_map(|items| {
                let named = items.into_iter().map(|(name, mut fields)| {
                    fields.insert("name".to_owned(), json!(name));
                    Value::Object(fields.into_iter().collect())
                });
                Value::Array(named.collect())
            }),
        ]
    })
}

fn manifests() -> impl Strategy<Value = Vec<Manifest>> {
    let kind = prop_oneof![
        Just(("v1", "ConfigMap", "data")),
        Just(("v1", "Secret", "data")),
        Just(("apps/v1", "Deployment", "spec")),
        Just(("apiextensions.k8s.io/v1", "CustomResourceDefinition", "odd")),
    ];
    let fields = proptest::collection::btree_map("[a-c]", content(), 1..4);
    proptest::collection::vec((kind, fields), 1..6).prop_map(|all| {
        let all = all.into_iter().enumerate().map(|(index, ((api_version, kind, field), content))| {
            let content: Map<_, _> = content.into_iter().collect();
            manifest(&json!({
                "apiVersion": api_version, "kind": kind, "metadata": {"name": format!("o{index}"), "namespace": "shop"},
                field: content, "says": {"something": true},
            }))
        });
        all.collect()
    })
}

/// Removes empty values, as a server may.
fn without_voids(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.values_mut().for_each(without_voids);
        fields.retain(|_, value| !matches!(value, Value::Null) && *value != json!({}) && *value != json!([]));
    }
}

/// Finds the JSON pointers of all scalars that a manifest may change.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(name, _)| *name != "name") {
                places(value, &format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                places(value, &format!("{at}/{index}"), found);
            }
        }
        Value::Null => {}
        _ => found.push(at.to_owned()),
    }
}

/// The names of the fields in a path, without indexes and selectors of list items, in which pointers and changes differ.
fn words(path: &str) -> Vec<String> {
    let is_split = |c: char| !c.is_ascii_alphanumeric();
    let words = path
        .split(is_split)
        .filter(|word| !word.is_empty() && word.parse::<u32>().is_err());
    words.map(str::to_owned).collect()
}

fn body(manifest: &Manifest) -> Value {
    let mut body = manifest.body.clone();
    for field in ["apiVersion", "kind", "metadata"] {
        body.remove(field);
    }
    Value::Object(body)
}

proptest! {
    /// Nothing is pending right after an apply, also if the server left out empty fields and added others.
    #[test]
    fn what_was_just_applied_is_unchanged(manifests in manifests(), drops in any::<bool>(), adds in any::<bool>()) {
        let mut world = World::applied(&manifests);
        for live in world.live.values_mut() {
            let mut content = live.clone();
            if drops {
                without_voids(&mut content);
                content["metadata"] = live["metadata"].clone();
                *live = content;
            }
            if adds {
                live["added"] = json!({"by": "server"});
                live["status"] = json!({"ready": true});
            }
        }
        let plan = world.plan();
        prop_assert!(plan.steps.iter().all(|step| step.decision == Decision::Unchanged), "{:?}", plan.steps);
        prop_assert!(!plan.is_pending() && plan.refusals.is_empty() && plan.prune.is_empty());
    }

    /// If one field is changed or removed, the plan shows this field and no other.
    #[test]
    fn one_change_is_one_change(manifests in manifests(), object in any::<Index>(), place in any::<Index>(), takes_out in any::<bool>()) {
        let mut world = World::applied(&manifests);
        let object = object.index(manifests.len());
        let (mut found, content) = (Vec::new(), body(&manifests[object]));
        places(&content, "", &mut found);
        let pointer = place.get(&found).clone();
        let mut changed = Value::Object(world.manifests[object].body.clone());
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        match changed.pointer_mut(parent).unwrap() {
            Value::Object(fields) if takes_out => drop(fields.remove(field)),
            Value::Array(items) if takes_out => drop(items.remove(field.parse().unwrap())),
            parent => match parent {
                Value::Object(fields) => fields[field] = json!("other"),
                parent => parent[field.parse::<usize>().unwrap()] = json!("other"),
            },
        }
        world.manifests[object].body = changed.as_object().unwrap().clone();
        let name = world.manifests[object].object.clone();
        let plan = world.plan();
        for step in &plan.steps {
            let expect = if step.object == name { Decision::Change } else { Decision::Unchanged };
            prop_assert_eq!(&step.decision, &expect, "{} of {:?}: {:?}", pointer, changed, step.changes);
        }
        let step = plan.steps.iter().find(|step| step.object == name).unwrap();
        prop_assert_eq!(step.changes.len(), 1, "{:?}", step.changes);
        let (named, path) = (words(&step.changes[0].path), words(&pointer));
        // Items are named in brackets by their names, which places do not say.
        let named: Vec<_> = named.into_iter().filter(|word| word != "name" && !["p", "q", "r", "s"].contains(&word.as_str())).collect();
        prop_assert!(path.starts_with(&named), "{:?} in {:?}", named, path);
        prop_assert!(plan.is_pending());
        prop_assert_eq!(step.changes[0].hidden, step.object.gvk.is_secret() && !step.changes[0].path.starts_with("type"));
    }

    /// No object is pruned that is in the set or has another owner, and no CRD.
    #[test]
    fn only_what_left_the_set_is_pruned(
        manifests in manifests(),
        wanted in proptest::collection::vec(any::<bool>(), 6),
        owners in proptest::collection::vec(0..4_u8, 6),
    ) {
        let mut world = World::applied(&manifests);
        let objects: Vec<_> = manifests.iter().map(|manifest| manifest.object.clone()).collect();
        world.versions = versions(&[(1, &objects), (2, &objects[1..])]);
        for (index, owner) in owners.iter().enumerate().take(manifests.len()) {
            let reference = |name: &str| owner_reference(&name.parse().unwrap(), "x");
            world.live(index)["metadata"]["ownerReferences"] = match owner {
                0 => json!([]),
                1 => json!([reference("other.v1")]),
                2 => json!([reference("web.v1"), reference("other.v1")]),
                _ => json!([reference("web.v2")]),
            };
        }
        let keeps: Vec<_> = manifests.iter().zip(&wanted).filter(|(_, wanted)| **wanted).map(|(manifest, _)| manifest.clone()).collect();
        world.manifests = keeps;
        let plan = world.plan();
        let mut expect: Vec<_> = (0..manifests.len())
            .filter(|index| !wanted[*index] && owners[*index] == 3 && !objects[*index].gvk.is_crd())
            .map(|index| (objects[index].clone(), format!("uid-{index}")))
            .collect();
        let mut pruned: Vec<_> = plan.prune.iter().map(|prune| (prune.object.clone(), prune.uid.clone())).collect();
        expect.sort();
        pruned.sort();
        prop_assert_eq!(pruned, expect);
    }

    /// A saved plan holds while every decision stays the same, and no longer.
    #[test]
    fn a_saved_plan_holds_until_a_decision_changes(manifests in manifests(), live in any::<bool>(), place in any::<Index>()) {
        let mut world = World::applied(&manifests);
        if !live {
            world.live.clear();
        }
        let mut plan = world.plan();
        let (name, known) = (set(), kinds());
        let saved = Saved::of(&plan, &world.input(&name, &known), "c");
        let saved = Saved::parse(&saved.text()).unwrap();
        prop_assert_eq!(saved.differences(&plan, "c"), Vec::<String>::new());
        prop_assert_eq!(saved.manifests(), world.manifests);
        let index = place.index(plan.steps.len());
        let was = decisions(&plan)[index];
        plan.steps[index].decision = if was == "create" { Decision::Change } else { Decision::Create };
        prop_assert_eq!(saved.differences(&plan, "c").len(), 1);
    }
}
