//! Conversion of contracts, which are made of a Namespace, a ClusterBinding and exports.

use std::sync::Arc;

use bindery_api::{Conditions as _, annotations, conditions::READY, revocation::revocation, v1alpha2 as api};
use bindery_proto::v1alpha2 as proto;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;

use crate::{
    contract::{self, sharing},
    front::wire::convert::{condition::conditions, meta},
    limits::{LimitName, Limits},
    principal::Principal,
};

/// The message of a contract. It holds no credential, for none of these objects does.
pub(crate) fn contract(
    namespace: &Namespace,
    binding: Option<&api::ClusterBinding>,
    exports: &[Arc<api::APIServiceExport>],
    limits: Vec<proto::TenantLimit>,
) -> proto::Contract {
    let pretty_name = namespace.annotations().get(annotations::CLUSTER_PRETTY_NAME);
    let mut exports: Vec<_> = exports.iter().map(|export| bound(export)).collect();
    exports.sort_by(|one, other| one.name.cmp(&other.name));
    proto::Contract {
        name: namespace.name_any(),
        uid: namespace.uid().unwrap_or_default(),
        creation_time: namespace.metadata.creation_timestamp.as_ref().map(meta::time),
        deletion_time: namespace.metadata.deletion_timestamp.as_ref().map(meta::time),
        cluster_identity: contract::identity(namespace).unwrap_or_default().to_owned(),
        cluster_pretty_name: pretty_name.cloned().unwrap_or_default(),
        owners: contract::owners(namespace).into_iter().map(owner).collect(),
        owner_groups: sharing::owner_groups(namespace).into_iter().collect(),
        granted_templates: contract::grants::granted_templates(namespace),
        exports,
        konnector: binding.and_then(|binding| konnector(binding.status.as_ref()?)),
        conditions: binding.map_or_else(Vec::new, |binding| conditions(binding.conditions())),
        revocation: binding
            .and_then(revocation)
            .map(|revocation| proto::ContractRevocation {
                time: Some(meta::timestamp(revocation.time)),
                reason: revocation.reason.unwrap_or_default(),
            }),
        limits,
    }
}

/// The limits of these names, each with how much of it is used, if that is known.
pub(crate) fn limits(
    limits: &Limits,
    names: &[LimitName],
    used: impl Fn(LimitName) -> Option<usize>,
) -> Vec<proto::TenantLimit> {
    let names = names.iter().copied();
    names
        .map(|name| proto::TenantLimit {
            name: name.as_str().to_owned(),
            limit: i64::from(limits.get(name)),
            used: used(name).map(|used| i64::try_from(used).unwrap_or(i64::MAX)),
        })
        .collect()
}

fn owner(owner: Principal) -> proto::ContractOwner {
    proto::ContractOwner {
        username: owner.username,
        uid: owner.uid.unwrap_or_default(),
        issuer: owner.issuer.unwrap_or_default(),
        subject: owner.subject.unwrap_or_default(),
    }
}

fn bound(export: &api::APIServiceExport) -> proto::ContractExport {
    let ready = export.condition(READY).map(std::slice::from_ref);
    let template = export.annotations().get(annotations::TEMPLATE);
    proto::ContractExport {
        name: export.name_any(),
        uid: export.uid().unwrap_or_default(),
        template: template.cloned().unwrap_or_default(),
        resources: meta::resources(&export.spec.resources),
        ready: ready.and_then(|ready| conditions(ready).pop()),
        creation_time: export.metadata.creation_timestamp.as_ref().map(meta::time),
        deleting: export.metadata.deletion_timestamp.is_some(),
    }
}

/// What the konnector says of itself; none before its first heartbeat.
fn konnector(status: &api::ClusterBindingStatus) -> Option<proto::ContractKonnector> {
    let last = status.last_heartbeat_time.as_ref()?;
    let interval = status.heartbeat_interval.as_ref();
    Some(proto::ContractKonnector {
        version: status.konnector_version.clone().unwrap_or_default(),
        last_heartbeat_time: Some(meta::time(last)),
        heartbeat_interval: interval.and_then(|interval| interval.parse().ok()).map(meta::duration),
        credential_expire_time: status.credential_expiration_time.as_ref().map(meta::time),
        sync: status.sync.as_ref().map(sync),
    })
}

fn sync(sync: &api::ClusterBindingSync) -> proto::ContractSync {
    let lag = sync.lag.as_ref().and_then(|lag| lag.parse().ok()).unwrap_or_default();
    // The consumer writes the status, so that a number may be anything.
    let count = |count: Option<i64>| count.unwrap_or_default().max(0);
    proto::ContractSync {
        objects: count(sync.objects),
        pending: count(sync.pending),
        failing: count(sync.failing),
        lag: Some(meta::duration(lag)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read<K: serde::de::DeserializeOwned>(value: serde_json::Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    fn namespace() -> Namespace {
        read(json!({ "metadata": {
            "name": "kube-bind-a", "uid": "1", "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": { "kube-bind.io/contract": "kube-bind-a" },
            "annotations": {
                annotations::IDENTITY: "cluster-a",
                annotations::OWNERS: r#"[
                    {"username": "jane", "uid": "7"},
                    {"username": "joe", "issuer": "https://login.example.com", "subject": "8"}
                ]"#,
                annotations::OWNER_GROUPS: r#"["sheriffs", "ranchers", "system:masters"]"#,
                annotations::GRANTED_TEMPLATES: r#"["cowboys"]"#,
            },
        } }))
    }

    #[test]
    fn a_contract_that_nothing_uses_yet_is_shown() {
        let shown = contract(&namespace(), None, &[], Vec::new());
        assert_eq!((&*shown.name, &*shown.cluster_identity), ("kube-bind-a", "cluster-a"));
        assert_eq!(shown.owner_groups, ["ranchers", "sheriffs"]);
        let owner = |owner: &proto::ContractOwner| {
            let owner = owner.clone();
            [owner.username, owner.uid, owner.issuer, owner.subject]
        };
        assert_eq!(owner(&shown.owners[0]), ["jane", "7", "", ""]);
        assert_eq!(owner(&shown.owners[1]), ["joe", "", "https://login.example.com", "8"]);
        assert!(shown.konnector.is_none() && shown.revocation.is_none() && shown.exports.is_empty());
    }

    #[test]
    fn heartbeat_exports_and_revocation_are_shown() {
        let binding = read(json!({
            "metadata": { "name": "cluster", "annotations": {
                annotations::REVOCATION: r#"{"id": "0a", "time": "2026-01-02T03:04:05Z", "reason": "lost laptop"}"#,
            } },
            "spec": { "kubeconfigSecretRef": { "name": "kubeconfig", "key": "kubeconfig" }, "providerPrettyName": "P" },
            "status": {
                "lastHeartbeatTime": "2026-01-02T03:04:05Z", "heartbeatInterval": "5m0s", "konnectorVersion": "v0.1.0",
                "credentialExpirationTime": "2026-01-02T04:04:05Z",
                "sync": { "objects": 3, "pending": -1, "failing": 1, "lag": "soon" },
            },
        }));
        let export = |name: &str| -> Arc<api::APIServiceExport> {
            read(json!({
                "metadata": { "name": name, "annotations": { annotations::TEMPLATE: "cowboys" } },
                "spec": {
                    "resources": [{ "group": "wildwest.dev", "resource": "cowboys" }],
                    "informerScope": "Cluster", "isolation": "Prefixed",
                },
            }))
        };
        let shown = contract(
            &namespace(),
            Some(&binding),
            &[export("west"), export("east")],
            Vec::new(),
        );
        let names: Vec<_> = shown.exports.iter().map(|export| &*export.name).collect();
        assert_eq!(names, ["east", "west"]);
        assert_eq!(
            (&*shown.exports[0].template, shown.exports[0].resources.len()),
            ("cowboys", 1)
        );
        let konnector = shown.konnector.unwrap();
        assert_eq!(konnector.heartbeat_interval.unwrap().seconds, 300);
        assert!(konnector.credential_expire_time.is_some());
        let sync = konnector.sync.unwrap();
        assert_eq!((sync.objects, sync.pending, sync.failing), (3, 0, 1));
        assert_eq!(sync.lag.unwrap().seconds, 0);
        assert_eq!(shown.revocation.unwrap().reason, "lost laptop");
    }
}
