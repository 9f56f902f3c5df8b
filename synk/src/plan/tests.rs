//! Plans of whole sets.

mod properties;

use kube::core::Status;
use serde_json::{Value, json};

use super::{
    Decision, FieldChange, Plan, Refusal, asks, presume, settle,
    testing::{World, config_map, kinds, live, manifest, set, versions},
};
use crate::{
    input::Manifest,
    object::{Gvk, ObjectRef},
    versions::Versions,
    wire::{IGNORE, LAST_APPLIED, LAST_APPLIED_LIMIT, Phase, ResourceSet, owner_reference},
};

fn deployment(cpu: &str) -> Manifest {
    manifest(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"template": {"spec": {"containers": [{
            "name": "web", "image": "a", "resources": {"limits": {"cpu": cpu}}, "ports": [{"name": "http", "containerPort": 80}],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}],
        }]}}},
    }))
}

fn decisions(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().map(|step| step.decision.name()).collect()
}

fn paths(changes: &[FieldChange]) -> Vec<&str> {
    changes.iter().map(|change| change.path.as_str()).collect()
}

/// Checks the decision about the only object of an applied set after `happens` has changed the world.
#[track_caller]
fn check(manifest: Manifest, happens: impl FnOnce(&mut World), decision: &str, changed: &[&str]) {
    let mut world = World::applied(&[manifest]);
    happens(&mut world);
    let plan = world.plan();
    assert_eq!(
        (decisions(&plan), paths(&plan.steps[0].changes)),
        (vec![decision], changed.to_vec())
    );
    assert_eq!(plan.is_pending(), !matches!(decision, "unchanged" | "ignored"));
    assert_eq!(plan.refusals, []);
}

fn other_owns(live: &mut Value, fields: &Value) {
    let entry = json!({"manager": "other", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
    live["metadata"]["managedFields"].as_array_mut().unwrap().push(entry);
}

fn container(live: &mut Value) -> &mut Value {
    &mut live["spec"]["template"]["spec"]["containers"][0]
}

#[test]
fn an_object_is_compared_with_what_is_there() {
    check(config_map("a", "1"), |_| {}, "unchanged", &[]);
    check(config_map("a", "1"), |world| world.live.clear(), "create", &["data"]);
    check(
        config_map("a", "1"),
        |world| world.live(0)["data"]["key"] = json!("2"),
        "unsure",
        &["data.key"],
    );
    check(
        config_map("a", "1"),
        |world| world.manifests = vec![config_map("a", "2")],
        "change",
        &["data.key"],
    );
    let gone = |world: &mut World| drop(world.live(0).as_object_mut().unwrap().remove("data"));
    check(config_map("a", "1"), gone, "unsure", &["data"]);
}

#[test]
fn what_others_add_is_theirs_and_what_leaves_the_manifest_goes() {
    let adds = |world: &mut World| {
        world.live(0)["data"]["theirs"] = json!("x");
        other_owns(world.live(0), &json!({"f:data": {"f:theirs": {}}}));
    };
    check(config_map("a", "1"), adds, "unchanged", &[]);
    let drops = |world: &mut World| drop(world.manifests[0].body.remove("data"));
    check(config_map("a", "1"), drops, "change", &["data"]);
    let both = |world: &mut World| {
        other_owns(world.live(0), &json!({"f:data": {"f:key": {}}}));
        world.manifests[0].body.remove("data");
    };
    check(config_map("a", "1"), both, "unchanged", &[]);
}

/// An API server may store an applied value in another form. The applied manifest and the generation show that nobody
/// changed it.
#[test]
fn what_the_server_writes_another_way_is_no_change() {
    let rewritten = |world: &mut World| container(world.live(0))["resources"]["limits"]["cpu"] = json!("1");
    let cpu = "spec.template.spec.containers[name=web].resources.limits.cpu";
    check(deployment("1000m"), rewritten, "unsure", &[cpu]);
    let recorded = |generation: i64| {
        move |world: &mut World| {
            rewritten(world);
            world.versions = recorded_versions(&world.manifests, generation);
        }
    };
    check(deployment("1000m"), recorded(1), "unchanged", &[]);
    check(deployment("1000m"), recorded(2), "unsure", &[cpu]);
    let image = |world: &mut World| {
        recorded(1)(world);
        world.manifests[0] = deployment("2");
    };
    check(deployment("1000m"), image, "change", &[cpu]);
    let label = |world: &mut World| {
        world.versions = recorded_versions(&world.manifests, 1);
        world.live(0)["metadata"]["labels"]["a"] = json!("2");
    };
    let mut labelled = deployment("1");
    labelled.body["metadata"]["labels"] = json!({"a": "1"});
    check(labelled, label, "unsure", &["metadata.labels.a"]);
}

/// A settled version that recorded this generation of the first object.
fn recorded_versions(manifests: &[Manifest], generation: i64) -> Versions {
    let object = &manifests[0].object;
    let mut found = ResourceSet::begin(
        &set().version(1),
        "shop",
        std::slice::from_ref(object),
        jiff::Timestamp::UNIX_EPOCH,
    );
    found.metadata.uid = Some("set-1".to_owned());
    let mut value = serde_json::to_value(&found).unwrap();
    value["status"] = json!({"phase": "Settled", "applied": [{
        "group": object.gvk.group, "version": object.gvk.version, "kind": object.gvk.kind,
        "items": [{"namespace": "shop", "name": object.name, "uid": "uid-0", "generation": generation}],
    }]});
    Versions::of(&set(), [serde_json::from_value(value).unwrap()])
}

#[test]
fn defaults_are_no_change() {
    let defaults = |world: &mut World| {
        let container = container(world.live(0));
        container["imagePullPolicy"] = json!("Always");
        container["ports"][0]["protocol"] = json!("TCP");
        world.live(0)["spec"]["replicas"] = json!(1);
        world.live(0)["status"] = json!({"replicas": 1});
    };
    check(deployment("1"), defaults, "unchanged", &[]);

    let service = manifest(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}},
    }));
    let keyed = |world: &mut World| {
        let fields = &mut world.live(0)["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
        fields["f:selector"] = json!({});
        fields["f:ports"] = json!({".": {}, r#"k:{"port":80,"protocol":"TCP"}"#: {".": {}, "f:port": {}}});
        world.live(0)["spec"]["ports"] = json!([{"port": 80, "protocol": "TCP", "targetPort": 80}]);
    };
    check(service.clone(), keyed, "unchanged", &[]);
    let moved = |world: &mut World| {
        keyed(world);
        world.manifests[0].body["spec"]["ports"] = json!([{"port": 81}]);
    };
    check(
        service.clone(),
        moved,
        "change",
        &["spec.ports[port=80]", "spec.ports[port=81]"],
    );
    let added = |world: &mut World| {
        keyed(world);
        world.live(0)["spec"]["ports"]
            .as_array_mut()
            .unwrap()
            .push(json!({"port": 9, "protocol": "TCP"}));
        other_owns(
            world.live(0),
            &json!({"f:spec": {"f:ports": {r#"k:{"port":9,"protocol":"TCP"}"#: {".": {}, "f:port": {}}}}}),
        );
    };
    check(service, added, "unchanged", &[]);
}

/// A field without owners for its parts is replaced as a whole. A part that the manifest no longer has is removed; a default
/// that the server added stays.
#[test]
fn parts_of_what_is_of_one_piece() {
    let object = |value: &Value| {
        manifest(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}, "whole": value,
        }))
    };
    let whole = |world: &mut World, live: &Value| {
        world.live(0)["metadata"]["managedFields"][0]["fieldsV1"]["f:whole"] = json!({});
        world.live(0)["whole"] = live.clone();
    };
    let first = json!([{"a": 1, "b": 2}, {"a": 2}]);
    check(
        object(&first),
        |world| whole(world, &json!([{"a": 1, "b": 2}, {"a": 2, "default": 1}])),
        "unchanged",
        &[],
    );
    let drops = |world: &mut World| {
        whole(world, &first);
        world.manifests[0] = object(&json!([{"a": 1}, {"a": 2}]));
    };
    check(object(&first), drops, "change", &["whole[0].b"]);
    let shrinks = |world: &mut World| {
        whole(world, &first);
        world.manifests[0] = object(&json!([{"a": 1, "b": 2}]));
    };
    check(object(&first), shrinks, "change", &["whole"]);
    // Without the annotation of the last apply, only the server knows.
    let unknown = |world: &mut World| {
        whole(world, &json!([{"a": 1, "b": 2, "c": 3}, {"a": 2}]));
        world.live(0)["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove(LAST_APPLIED);
    };
    check(object(&first), unknown, "unsure", &[]);
}

#[test]
fn the_order_of_a_list_is_a_change_and_an_empty_field_is_asked_for() {
    let reordered = |world: &mut World| {
        let env = world.manifests[0].body["spec"]["template"]["spec"]["containers"][0]["env"]
            .as_array_mut()
            .unwrap();
        env.reverse();
    };
    check(
        deployment("1"),
        reordered,
        "change",
        &["spec.template.spec.containers[name=web].env"],
    );
    let emptied = |world: &mut World| drop(world.manifests[0].body.insert("empty".to_owned(), json!({})));
    check(config_map("a", "1"), emptied, "unsure", &[]);
    let mut empty = config_map("a", "1");
    empty.body.insert("empty".to_owned(), json!({"nothing": null}));
    let dropped = |world: &mut World| drop(world.live(0).as_object_mut().unwrap().remove("empty"));
    check(empty, dropped, "unchanged", &[]);
}

#[test]
fn a_large_object_is_asked_for_where_it_differs() {
    let large = "x".repeat(LAST_APPLIED_LIMIT);
    check(config_map("a", &large), |_| {}, "unchanged", &[]);
    check(
        config_map("a", &large),
        |world| world.live(0)["data"]["key"] = json!("2"),
        "unsure",
        &["data.key"],
    );
}

#[test]
fn some_objects_are_left_alone_or_cannot_be_applied() {
    let ignored = |world: &mut World| {
        world.live(0)["metadata"]["annotations"][IGNORE] = json!("true");
        world.live(0)["data"]["key"] = json!("2");
    };
    check(config_map("a", "1"), ignored, "ignored", &[]);
    let deleted = |world: &mut World| world.live(0)["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    check(config_map("a", "1"), deleted, "impossible", &[]);
    let strange = manifest(&json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}));
    check(strange, |_| {}, "impossible", &[]);
}

#[test]
fn an_object_without_our_owner_gets_it() {
    let lost = |world: &mut World| world.live(0)["metadata"]["ownerReferences"] = json!([]);
    check(config_map("a", "1"), lost, "change", &["metadata.ownerReferences"]);
    let stale = |world: &mut World| world.live(0)["metadata"]["ownerReferences"][0]["uid"] = json!("gone");
    check(config_map("a", "1"), stale, "change", &["metadata.ownerReferences"]);
}

/// Objects that an updating synk, helm and two kinds of kubectl applied: fields in the annotation of the last apply are
/// transferred to synk, and other fields keep their managers.
#[test]
fn objects_that_others_made_are_continued() {
    let by = |manager: &'static str, noted: bool| {
        move |world: &mut World| {
            let entry = &mut world.live(0)["metadata"]["managedFields"][0];
            entry["manager"] = json!(manager);
            entry["operation"] = json!("Update");
            if !noted {
                entry["fieldsV1"]["f:metadata"]
                    .as_object_mut()
                    .unwrap()
                    .remove("f:annotations");
                world.live(0)["metadata"].as_object_mut().unwrap().remove("annotations");
            }
        }
    };
    let taken = "metadata.managedFields";
    check(config_map("a", "1"), by("synk", true), "change", &[taken]);
    check(config_map("a", "1"), by("synk", false), "change", &[taken]);
    check(
        config_map("a", "1"),
        by("kubectl-client-side-apply", true),
        "change",
        &[taken],
    );
    let without_owner = |world: &mut World| {
        by("helm", false)(world);
        world.live(0)["metadata"]["ownerReferences"] = json!([]);
    };
    check(
        config_map("a", "1"),
        without_owner,
        "change",
        &["metadata.ownerReferences"],
    );
    let removed = |world: &mut World| {
        by("kubectl-client-side-apply", true)(world);
        world.manifests[0].body["data"] = json!({"new": "1"});
    };
    check(
        config_map("a", "1"),
        removed,
        "change",
        &[taken, "data.key", "data.new"],
    );
}

#[test]
fn a_set_is_pending_until_one_settled_version_lists_it() {
    let world = World::applied(&[config_map("a", "1"), config_map("b", "1")]);
    let next = |versions: Versions| {
        World {
            versions,
            ..world.clone()
        }
        .plan()
        .next
    };
    let objects: Vec<_> = world.manifests.iter().map(|manifest| manifest.object.clone()).collect();
    assert_eq!(next(world.versions.clone()), None);
    assert_eq!(next(versions(&[])), Some(1));
    assert_eq!(next(versions(&[(1, &objects), (4, &objects)])), Some(5));
    assert_eq!(next(versions(&[(1, &objects[..1])])), Some(2));
    let with = |change: &dyn Fn(&mut ResourceSet)| {
        let mut found = ResourceSet::begin(&set().version(1), "shop", &objects, jiff::Timestamp::UNIX_EPOCH);
        found.metadata.uid = Some("set-1".to_owned());
        found.status.phase = Phase::Settled;
        change(&mut found);
        Versions::of(&set(), [found])
    };
    assert_eq!(next(with(&|_| {})), None);
    assert_eq!(next(with(&|found| found.status.phase = Phase::Failed)), Some(2));
    assert_eq!(
        next(with(&|found| found.metadata.annotations = None)),
        Some(2),
        "where it was applied is to be known"
    );
}

#[track_caller]
fn refused(mut world: World, owner: &str) {
    let object = world.manifests[0].object.clone();
    assert_eq!(
        world.plan().refusals,
        [Refusal::Owned {
            object,
            owner: owner.to_owned()
        }]
    );
    world.allowed.take_over = true;
    let plan = world.plan();
    assert_eq!(
        (plan.refusals, paths(&plan.steps[0].changes)),
        (vec![], vec!["metadata.ownerReferences"])
    );
}
#[test]
fn what_belongs_to_others_is_refused() {
    let owned_by = |name: &str| {
        let mut world = World::applied(&[config_map("a", "1")]);
        world.live(0)["metadata"]["ownerReferences"] = json!([owner_reference(&name.parse().unwrap(), "x")]);
        world
    };
    refused(owned_by("other.v1"), "other.v1");
    refused(owned_by("web.v2"), "web.v2");
    assert_eq!(owned_by("web.v1").plan().refusals, []);

    let mut world = World::applied(&[config_map("a", "1")]);
    let object = world.manifests[0].object.clone();
    let mut found = ResourceSet::begin(&set().version(1), "yard", &[object], jiff::Timestamp::UNIX_EPOCH);
    found.status.phase = Phase::Settled;
    world.versions = Versions::of(&set(), [found]);
    assert!(matches!(&world.plan().refusals[..], [Refusal::OtherNamespace { recorded, .. }] if recorded == "yard"));
    world.allowed.take_over = true;
    assert_eq!(world.plan().refusals, []);
}

/// A plan that deletes half of the objects is allowed, and one that deletes more is refused.
#[test]
fn a_set_that_loses_most_of_itself_is_refused() {
    let all: Vec<_> = ["a", "b", "c", "d"].map(|name| config_map(name, "1")).to_vec();
    let after = |manifests: &[Manifest]| {
        let mut world = World::applied(&all);
        world.manifests = manifests.to_vec();
        world
    };
    let half = after(&all[..2]).plan();
    assert_eq!((half.refusals.len(), half.prune.len()), (0, 2));
    assert_eq!(half.prune[0].object.name, "d", "the last first");
    let mut most = after(&all[..1]);
    let refusal = Refusal::TooMuch {
        set: set(),
        pruned: 3,
        live: 4,
    };
    assert_eq!(most.plan().refusals, [refusal]);
    most.allowed.prune = true;
    assert_eq!(most.plan().refusals, []);
    let mut none = after(&[]);
    assert_eq!(none.plan().refusals, [Refusal::Empty { set: set(), live: 4 }]);
    none.allowed.prune = true;
    assert_eq!((none.plan().refusals.len(), none.plan().prune.len()), (0, 4));
    assert_eq!(
        World::default().plan().refusals,
        [Refusal::Empty { set: set(), live: 0 }]
    );
}

#[test]
fn what_left_the_set_goes_only_if_it_is_the_sets_alone() {
    let [a, b] = ["a", "b"].map(|name| config_map(name, "1"));
    let left = |change: &dyn Fn(&mut Value)| {
        let mut world = World::applied(&[a.clone(), b.clone()]);
        change(world.live(1));
        world.manifests.pop();
        world.plan().prune.len()
    };
    assert_eq!(left(&|_| {}), 1);
    assert_eq!(left(&|live| live["metadata"]["ownerReferences"] = json!([])), 0);
    assert_eq!(
        left(&|live| live["metadata"]["ownerReferences"][0]["name"] = json!("other.v1")),
        0
    );
    let shared = |live: &mut Value| {
        let other = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "x", "uid": "y"});
        live["metadata"]["ownerReferences"].as_array_mut().unwrap().push(other);
    };
    assert_eq!(left(&shared), 0);
    assert_eq!(
        left(&|live| live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
        0
    );
    assert_eq!(
        left(&|live| live["metadata"]["uid"] = json!("uid-0")),
        0,
        "the same object by another name of its group"
    );
}

#[test]
fn an_object_of_two_groups_is_one_object() {
    let ingress = |api: &str| {
        manifest(&json!({"apiVersion": api, "kind": "Ingress", "metadata": {"name": "a", "namespace": "shop"}}))
    };
    let (old, new) = (ingress("extensions/v1beta1"), ingress("networking.k8s.io/v1"));
    let mut world = World::applied(std::slice::from_ref(&old));
    world
        .live
        .insert(new.object.identity(), live(&new, &set().version(1), "uid-0"));
    world.manifests = vec![new];
    let plan = world.plan();
    assert_eq!(
        (decisions(&plan), plan.prune.len(), plan.next),
        (vec!["unchanged"], 0, Some(2))
    );
}

fn error(code: u16, reason: &str, message: &str) -> kube::Error {
    let status = Status::failure(message, reason).with_code(code);
    kube::Error::Api(status.boxed())
}

#[test]
fn the_server_settles_what_is_unsure() {
    let mut world = World::applied(&[deployment("1000m")]);
    container(world.live(0))["resources"]["limits"]["cpu"] = json!("1");
    let (plan, live, manifest) = (world.plan(), world.live(0).clone(), world.manifests[0].clone());
    let settled = |outcome: Result<&Value, &kube::Error>| {
        let mut step = plan.steps[0].clone();
        settle(&mut step, &manifest, Some(&live), (&[], true), outcome);
        step
    };
    let mut same = live.clone();
    same["metadata"]["generation"] = json!(2);
    same["metadata"]["managedFields"] = json!([]);
    let step = settled(Ok(&same));
    assert_eq!((step.decision, step.changes), (Decision::Unchanged, vec![]));
    let mut other = live.clone();
    other["spec"]["replicas"] = json!(2);
    let step = settled(Ok(&other));
    assert_eq!(
        (step.decision, paths(&step.changes)),
        (Decision::Change, vec!["spec.replicas"])
    );
    let immutable = error(422, "Invalid", "spec.selector: Invalid value: {}: field is immutable");
    assert_eq!(settled(Err(&immutable)).decision, Decision::Recreate);
    let refused = settled(Err(&error(422, "Invalid", "spec.replicas: Invalid value: -1")));
    assert!(matches!(
        refused.decision,
        Decision::Impossible { transient: false, .. }
    ));
    let busy = settled(Err(&error(503, "ServiceUnavailable", "busy")));
    assert!(matches!(busy.decision, Decision::Impossible { transient: true, .. }));
}

/// The manifest no longer sets a field, and the default has the same value: the field's owner still changes.
#[test]
fn what_is_not_said_any_more_is_a_change_also_where_nothing_differs() {
    let mut world = World::applied(&[deployment("1")]);
    let mut replicas = deployment("1");
    replicas.body["spec"]["replicas"] = json!(1);
    world.live = World::applied(&[replicas]).live;
    let mut step = world.plan().steps.remove(0);
    let live = world.live(0).clone();
    settle(&mut step, &world.manifests[0], Some(&live), (&[], true), Ok(&live));
    assert_eq!(
        (step.decision, paths(&step.changes)),
        (Decision::Change, vec!["spec.replicas"])
    );
}

/// A dry run does not see the fields that the apply will transfer to synk, so its answer does not make the object unchanged.
#[test]
fn a_take_over_is_not_settled_by_what_the_server_says() {
    let mut world = World::applied(&[config_map("a", "1")]);
    let entry = &mut world.live(0)["metadata"]["managedFields"][0];
    entry["manager"] = json!("kubectl-client-side-apply");
    entry["operation"] = json!("Update");
    world.manifests[0].body["data"] = json!({"new": "1"});
    let mut step = world.plan().steps.remove(0);
    let live = world.live(0).clone();
    let mut answer = live.clone();
    answer["data"] = json!({"key": "1", "new": "1"});
    settle(&mut step, &world.manifests[0], Some(&live), (&[], true), Ok(&answer));
    assert_eq!(step.decision, Decision::Change);
    assert_eq!(paths(&step.changes), ["metadata.managedFields", "data.key", "data.new"]);
}

/// The object was applied by `kubectl apply --server-side`, which writes no annotation of the last apply.
#[test]
fn what_a_given_manager_set_goes_unless_it_is_said() {
    let mut world = World::applied(&[config_map("a", "1")]);
    let metadata = &mut world.live(0)["metadata"];
    metadata["managedFields"][0]["manager"] = json!("kubectl");
    metadata["annotations"] = json!({});
    world.live(0)["data"]["old"] = json!("2");
    world.live(0)["metadata"]["managedFields"][0]["fieldsV1"]["f:data"]["f:old"] = json!({});
    let old = |plan: &Plan| paths(&plan.steps[0].changes).contains(&"data.old");
    assert!(!old(&world.plan()), "they stay whoever else's they are");
    world.allowed.fields_of = vec!["kubectl".to_owned()];
    let plan = world.plan();
    assert_eq!(plan.steps[0].decision, Decision::Change);
    assert!(old(&plan), "{:?}", plan.steps[0].changes);
    assert_eq!(plan.steps[0].changes[0].path, "metadata.managedFields");
    // A dry run does not see that the field will be transferred to synk and removed.
    let (mut step, live) = (plan.steps[0].clone(), world.live(0).clone());
    let given = world.allowed.fields_of.clone();
    settle(&mut step, &world.manifests[0], Some(&live), (&given, true), Ok(&live));
    assert!(paths(&step.changes).contains(&"data.old"), "{:?}", step.changes);
}

#[test]
fn the_server_is_asked_only_what_it_can_answer() {
    let namespace = manifest(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
    let definition = manifest(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true}],
        },
    }));
    let thing = manifest(&json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}));
    let mut world = World {
        manifests: vec![namespace, definition, thing, config_map("a", "1")],
        ..World::default()
    };
    let asked = |world: &World, exact: bool| {
        let plan = world.plan();
        let asked = asks(&plan, &kinds().with_definitions(&world.manifests), exact);
        let names = asked.into_iter().map(|index| plan.steps[index].object.gvk.kind.clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(decisions(&world.plan()), ["create"; 4]);
    assert_eq!(asked(&world, true), ["CustomResourceDefinition", "Namespace"]);
    let namespace = world.manifests[0].clone();
    world
        .live
        .insert(namespace.object.identity(), live(&namespace, &set().version(1), "x"));
    assert_eq!(
        asked(&world, true),
        ["CustomResourceDefinition", "Namespace", "ConfigMap"]
    );
    assert_eq!(asked(&world, false), Vec::<String>::new());
}

#[test]
fn definitions_are_owned_by_nobody_and_stay() {
    let definition = manifest(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"},
    }));
    let mut world = World::applied(&[definition, config_map("a", "1")]);
    assert_eq!(decisions(&world.plan()), ["unchanged"; 2]);
    let reference = owner_reference(&"web.v1".parse().unwrap(), "set-1");
    world.live(0)["metadata"]["ownerReferences"] = json!([reference]);
    world.manifests.remove(0);
    let plan = world.plan();
    assert_eq!((plan.prune.len(), plan.refusals.len(), plan.next), (0, 0, Some(2)));
}

/// The manifest and the live object have different API versions.
#[test]
fn a_pruned_object_is_named_by_what_it_was_read_as() {
    let scaler = |version: &str, name: &str| {
        manifest(&json!({
            "apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "namespace": "shop"},
        }))
    };
    let mut world = World::applied(&[scaler("v1", "a"), scaler("v1", "b")]);
    let (identity, object) = (
        scaler("v2", "b").object.identity(),
        live(&scaler("v2", "b"), &set().version(1), "uid-1"),
    );
    world.live.insert(identity, object);
    world.manifests.pop();
    let plan = world.plan();
    let expect = ObjectRef {
        gvk: Gvk::new("autoscaling/v2", "HorizontalPodAutoscaler"),
        ..scaler("v1", "b").object
    };
    assert_eq!(plan.prune[0].object, expect);
}

#[track_caller]
fn check_left(world: &World, pruned: &[&str], released: &[&str]) {
    let plan = world.plan();
    let names = |all: &[super::Prune]| all.iter().map(|left| left.object.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&plan.prune), names(&plan.released)),
        (
            pruned.iter().map(ToString::to_string).collect(),
            released.iter().map(ToString::to_string).collect(),
        )
    );
    assert!(plan.is_pending());
}

/// Deleting the namespace would delete the objects in it, including those of others.
#[test]
fn a_namespace_that_is_used_leaves_the_set_and_stays() {
    let namespace =
        |name: &str| manifest(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    let inside = |namespace: &str, name: &str| {
        manifest(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
        }))
    };
    let all = [
        namespace("shop"),
        namespace("b"),
        inside("b", "x"),
        inside("b", "y"),
        inside("shop", "a"),
        inside("shop", "c"),
    ];
    let mut world = World::applied(&all);
    let keep = |names: &[&str]| {
        let kept = all
            .iter()
            .filter(|manifest| names.contains(&manifest.object.name.as_str()));
        kept.cloned().collect::<Vec<_>>()
    };
    // The namespace that the set is applied with is never deleted, even if it is empty.
    world.manifests = keep(&["b", "x", "y"]);
    world.allowed.prune = true;
    check_left(&world, &["c", "a"], &["shop"]);
    // An object stays in the namespace.
    world.manifests = keep(&["shop", "x", "a", "c"]);
    check_left(&world, &["y"], &["b"]);
    // All objects in the namespace leave the set too, so it is deleted with them.
    world.manifests = keep(&["shop", "a", "c"]);
    check_left(&world, &["y", "x", "b"], &[]);
    // One of the objects has another owner besides, so the namespace stays.
    let y = all[3].object.identity();
    let owners = world.live.get_mut(&y).unwrap()["metadata"]["ownerReferences"]
        .as_array_mut()
        .unwrap();
    owners.push(json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "z", "uid": "z"}));
    check_left(&world, &["x"], &["b"]);
    // What cannot be read may be in it.
    let mut world = World::applied(&all);
    let thing = ObjectRef {
        gvk: Gvk::new("example.com/v1", "Thing"),
        namespace: Some("b".to_owned()),
        name: "x".to_owned(),
    };
    let mut listed: Vec<_> = all.iter().map(|manifest| manifest.object.clone()).collect();
    listed.push(thing);
    world.versions = versions(&[(1, &listed)]);
    world.manifests = keep(&["shop", "a", "c"]);
    check_left(&world, &["y", "x"], &["b"]);
}

/// The API server would refuse the dry run of a version that it serves only after the CRD is applied.
#[test]
fn what_is_unsure_is_not_asked_for_before_its_definition_is_applied() {
    let definition = |served: &[&str]| {
        let versions = served.iter().map(|name| json!({"name": name, "served": true}));
        manifest(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.apps"},
            "spec": {
                "group": "apps", "scope": "Namespaced", "names": {"kind": "Deployment", "plural": "widgets"},
                "versions": versions.collect::<Vec<_>>(),
            },
        }))
    };
    // Served, and unsure.
    let mut world = World::applied(&[definition(&["v1"]), deployment("1")]);
    world.live(1)["spec"]["template"]["spec"]["containers"][0]["image"] = json!("b");
    let served = crate::kinds::Kinds::served([
        crate::kinds::Resource {
            gvk: Gvk::new("apps/v1", "Deployment"),
            plural: "widgets".to_owned(),
            namespaced: true,
        },
        kinds().get(&definition(&[]).object.gvk).unwrap().clone(),
    ]);
    let set = set();
    let check = |world: &World, asked: &[usize], decision: &Decision| {
        let mut plan = super::plan(&world.input(&set, &served));
        assert_eq!(plan.steps[1].decision, Decision::Unsure);
        assert_eq!(asks(&plan, &served, false), asked);
        presume(&mut plan, &served);
        assert_eq!(plan.steps[1].decision, *decision);
    };
    check(&world, &[1], &Decision::Unsure);
    world.manifests[0] = definition(&["v1", "v2"]);
    check(&world, &[], &Decision::Change);
}

#[test]
fn a_refusal_of_what_is_unsure_is_left_to_the_write() {
    let mut world = World::applied(&[deployment("1000m")]);
    container(world.live(0))["resources"]["limits"]["cpu"] = json!("1");
    let (plan, live, manifest) = (world.plan(), world.live(0).clone(), world.manifests[0].clone());
    assert_eq!(plan.steps[0].decision, Decision::Unsure);
    let settled = |exact: bool, message: &str| {
        let mut step = plan.steps[0].clone();
        settle(
            &mut step,
            &manifest,
            Some(&live),
            (&[], exact),
            Err(&error(500, "", message)),
        );
        step.decision.name()
    };
    let unknown = "failed to create typed patch object: .spec.tls: field not declared in schema";
    assert_eq!(
        (settled(true, unknown), settled(false, unknown)),
        ("impossible", "change")
    );
    let immutable = "spec.selector: field is immutable";
    assert_eq!(
        (settled(true, immutable), settled(false, immutable)),
        ("recreate", "recreate")
    );
}
