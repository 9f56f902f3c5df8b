//! Garbage collection in its three propagations.

use serde_json::{Value, json};

use crate::cluster::{Cluster, MERGE, config_map};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// An owner and two dependents, of which the first blocks.
fn family() -> Cluster {
    let mut cluster = Cluster::start();
    let owner = cluster.create(MAPS, &config_map("owner"));
    for (name, blocks) in [("one", true), ("two", false)] {
        let mut dependent = config_map(name);
        dependent["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }]);
        cluster.create(MAPS, &dependent);
    }
    assert!(cluster.chores().is_empty());
    cluster
}

fn delete(cluster: &mut Cluster, policy: &str) -> (u16, Value) {
    cluster.ask(
        "DELETE",
        &format!("{MAPS}/owner"),
        &[],
        &json!({"propagationPolicy": policy}),
    )
}

fn left(cluster: &mut Cluster) -> Vec<String> {
    let list = cluster.get(MAPS);
    let names = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap());
    names
        .filter(|name| *name != "kube-root-ca.crt")
        .map(ToOwned::to_owned)
        .collect()
}

#[test]
fn background_deletes_dependents_after_the_owner() {
    let mut cluster = family();
    assert_eq!(delete(&mut cluster, "Background").1["status"], "Success");
    assert_eq!(left(&mut cluster), ["one", "two"]);
    assert_eq!(
        cluster.chores(),
        [
            "collect garbage configmaps/default/one",
            "collect garbage configmaps/default/two"
        ]
    );
    cluster.settle();
    assert!(left(&mut cluster).is_empty());
}

#[test]
fn orphan_unlinks_dependents_first() {
    let mut cluster = family();
    let (_, owner) = delete(&mut cluster, "Orphan");
    assert_eq!(owner["metadata"]["finalizers"], json!(["orphan"]));
    cluster.settle();
    assert_eq!(left(&mut cluster), ["one", "two"]);
    assert_eq!(
        cluster.get(&format!("{MAPS}/one"))["metadata"].get("ownerReferences"),
        None
    );
}

#[test]
fn foreground_waits_for_dependents_that_block() {
    let mut cluster = family();
    let hold = json!({"metadata": {"finalizers": ["example.com/one"]}});
    for name in ["one", "two"] {
        cluster.patched(&format!("{MAPS}/{name}"), MERGE, &hold);
    }
    let (_, owner) = delete(&mut cluster, "Foreground");
    assert_eq!(owner["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    cluster.settle();
    assert_eq!(left(&mut cluster), ["one", "owner", "two"]);
    cluster.patched(
        &format!("{MAPS}/one"),
        MERGE,
        &json!({"metadata": {"finalizers": null}}),
    );
    cluster.settle();
    assert_eq!(
        left(&mut cluster),
        ["two"],
        "the one that does not block is not waited for"
    );
}

#[test]
fn an_object_with_another_owner_stays() {
    let mut cluster = family();
    let second = cluster.create(MAPS, &config_map("second"));
    let mut owners = cluster.get(&format!("{MAPS}/one"))["metadata"]["ownerReferences"].clone();
    owners.as_array_mut().unwrap().push(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "second", "uid": second["metadata"]["uid"],
    }));
    cluster.patched(
        &format!("{MAPS}/one"),
        MERGE,
        &json!({"metadata": {"ownerReferences": owners}}),
    );
    delete(&mut cluster, "Background");
    cluster.settle();
    assert_eq!(left(&mut cluster), ["one", "second"]);
    let one = cluster.get(&format!("{MAPS}/one"));
    assert_eq!(one["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
}

#[test]
fn a_reference_to_another_uid_or_kind() {
    let mut cluster = family();
    let refer = |name: &str, kind: &str, uid: &str| {
        let mut object = config_map(name);
        let version = if kind == "ConfigMap" { "v1" } else { "example.com/v1" };
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": version, "kind": kind, "name": "owner", "uid": uid}]);
        object
    };
    cluster.create(MAPS, &refer("wrong", "ConfigMap", "other"));
    cluster.create(MAPS, &refer("unknown", "Thing", "other"));
    cluster.settle();
    assert_eq!(left(&mut cluster), ["one", "owner", "two", "unknown"]);
}
