use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

const CONTRACT: &str = "kube-bind-a";

fn object(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        uid: Some(format!("uid of {name}")),
        ..ObjectMeta::default()
    }
}

fn annotated(name: &str, pairs: &[(&str, &str)]) -> ObjectMeta {
    let pairs = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ObjectMeta {
        annotations: Some(pairs.collect()),
        ..object(name)
    }
}

fn owned(name: &str, owners: &[(&str, &str)]) -> ObjectMeta {
    let owner = |(api_version, kind): &(&str, &str)| OwnerReference {
        api_version: (*api_version).to_owned(),
        kind: (*kind).to_owned(),
        ..OwnerReference::default()
    };
    ObjectMeta {
        owner_references: Some(owners.iter().map(owner).collect()),
        ..object(name)
    }
}

fn listed((group, plural, kind): (&str, &str, &str), objects: Vec<ObjectMeta>) -> Listed {
    Listed {
        resource: GroupResource::new(group, plural),
        kind: kind.to_owned(),
        objects,
    }
}

const CLAIMS: (&str, &str, &str) = ("", "persistentvolumeclaims", "PersistentVolumeClaim");

#[track_caller]
fn check(object: ObjectMeta, expect: bool) {
    let said = format!("{object:?}");
    let found = among(&[listed(CLAIMS, vec![object])], Some(CONTRACT));
    assert_eq!(!found.is_empty(), expect, "{said}");
}

#[test]
fn what_the_operator_made_is_valuable() {
    check(object("data"), true);
    check(annotated("data", &[("note", "keep")]), true);
    check(
        ObjectMeta {
            uid: None,
            ..object("computed")
        },
        false,
    );
    check(
        ObjectMeta {
            deletion_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
            ..object("going")
        },
        false,
    );
    for label in [labels::CONTRACT, labels::COMPONENT] {
        check(
            ObjectMeta {
                labels: Some([(label.to_owned(), "x".to_owned())].into()),
                ..object("bindery-server-view")
            },
            false,
        );
    }
}

#[test]
fn copies_end_with_their_sources_until_they_are_released() {
    let copy = (annotations::CLUSTER_NAMESPACE, CONTRACT);
    check(annotated("copy", &[copy]), false);
    check(
        annotated(
            "kept",
            &[copy, (annotations::RELEASED, "2026-01-01T00:00:00Z/kube-bind-a")],
        ),
        true,
    );
    check(annotated("bound-again", &[copy, (annotations::RELEASED, "")]), false);
    check(
        annotated("foreign", &[(annotations::CLUSTER_NAMESPACE, "kube-bind-b")]),
        true,
    );
    // In a shared namespace copies of any contract count.
    let shared = among(&[listed(CLAIMS, vec![annotated("copy", &[copy])])], None);
    assert_eq!(shared.len(), 1);
}

#[test]
fn what_kubernetes_puts_into_every_namespace_is_not_valuable() {
    let config_maps = ("", "configmaps", "ConfigMap");
    let accounts = ("", "serviceaccounts", "ServiceAccount");
    let secrets = ("", "secrets", "Secret");
    let account = |key: &str| annotated("token", &[(key, "default")]);
    let placed = [
        listed(config_maps, vec![object("kube-root-ca.crt")]),
        listed(accounts, vec![object("default")]),
        listed(
            secrets,
            vec![
                account("kubernetes.io/service-account.name"),
                account("openshift.io/internal-registry-auth-token.service-account"),
            ],
        ),
    ];
    assert!(among(&placed, Some(CONTRACT)).is_empty());
    let own = [
        listed(config_maps, vec![object("menu")]),
        listed(accounts, vec![object("cook")]),
        listed(
            secrets,
            vec![
                annotated("token", &[("kubernetes.io/service-account.name", "cook")]),
                object("recipe"),
            ],
        ),
    ];
    assert_eq!(among(&own, Some(CONTRACT)).len(), 4);
}

#[test]
fn an_object_is_judged_by_owners_that_are_seen() {
    let deployments = ("apps", "deployments", "Deployment");
    let sets = ("apps", "replicasets", "ReplicaSet");
    let (of_deployment, of_set) = (("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet"));
    let pods = |owners: &[(&str, &str)]| listed(("", "pods", "Pod"), vec![owned("db-0", owners)]);
    let names = |all: &[Listed]| {
        let found = among(all, Some(CONTRACT));
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let whole = [
        listed(deployments, vec![object("db")]),
        listed(sets, vec![owned("db-6f", &[of_deployment])]),
        pods(&[of_set]),
    ];
    assert_eq!(names(&whole), ["deployments.apps db"]);
    // The garbage collector is about to delete these.
    let ending = [
        listed(deployments, Vec::new()),
        listed(sets, Vec::new()),
        pods(&[of_set]),
    ];
    assert_eq!(names(&ending), [""; 0]);
    // An owner that the server does not look at may have reasons to keep it.
    assert_eq!(names(&[pods(&[("bank.dev/v1", "Safe")])]), ["pods db-0"]);
    let both = [listed(sets, Vec::new()), pods(&[of_set, ("bank.dev/v1", "Safe")])];
    assert_eq!(names(&both), ["pods db-0"]);
}

#[test]
fn what_keeps_a_namespace_is_named() {
    let said = |names: &[&str]| {
        let objects = names.iter().map(|name| object(name)).collect();
        let objects = among(&[listed(CLAIMS, objects)], Some(CONTRACT));
        explain(&objects.into_iter().collect())
    };
    assert_eq!(said(&[]), None);
    assert_eq!(
        said(&["data"]).as_deref(),
        Some("1 object keeps it: persistentvolumeclaims data")
    );
    assert_eq!(
        said(&["d", "c", "b", "a"]).as_deref(),
        Some("4 objects keep it: persistentvolumeclaims a, persistentvolumeclaims b, persistentvolumeclaims c, ...")
    );
}
