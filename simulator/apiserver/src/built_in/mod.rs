//! The kinds that Kubernetes brings, as far as the simulated programs use them.

use std::sync::Arc;

use crate::{
    endpoint::{Endpoint, Traits},
    fields,
    kind::KindInfo,
};

pub(crate) mod decode;
pub(crate) mod events;
pub(crate) mod prepare;
pub(crate) mod roles;
pub(crate) mod validate;

/// A row of the table of kinds.
struct Row {
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    kind: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
    status: bool,
    traits: Traits,
}

const PLAIN: Traits = Traits {
    generation: false,
    unconditional_update: true,
    create_on_update: false,
    returns_deleted: false,
    no_garbage_collection: false,
    path_names: false,
};
const RETURNS: Traits = Traits {
    returns_deleted: true,
    ..PLAIN
};
const RBAC: Traits = Traits {
    create_on_update: true,
    path_names: true,
    ..PLAIN
};
const COUNTED: Traits = Traits {
    generation: true,
    ..PLAIN
};
const STRICT: Traits = Traits {
    generation: true,
    unconditional_update: false,
    ..PLAIN
};
const LEASE: Traits = Traits {
    create_on_update: true,
    unconditional_update: false,
    ..PLAIN
};
const EVENT: Traits = Traits {
    create_on_update: true,
    no_garbage_collection: true,
    ..PLAIN
};

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";

/// Makes a row: group, version, resource, kind, short names, if it is namespaced, if it has a status, traits.
const fn row(
    (group, version): (&'static str, &'static str),
    (resource, kind): (&'static str, &'static str),
    short: &'static [&'static str],
    (namespaced, status): (bool, bool),
    traits: Traits,
) -> Row {
    Row {
        group,
        version,
        resource,
        kind,
        short,
        namespaced,
        status,
        traits,
    }
}

const CORE: (&str, &str) = ("", "v1");
const APPS: (&str, &str) = ("apps", "v1");
const ROLES: (&str, &str) = (RBAC_GROUP, "v1");
const ADMISSION: (&str, &str) = (ADMISSION_GROUP, "v1");

const ROWS: &[Row] = &[
    row(CORE, ("namespaces", "Namespace"), &["ns"], (false, true), RETURNS),
    row(CORE, ("secrets", "Secret"), &[], (true, false), PLAIN),
    row(CORE, ("configmaps", "ConfigMap"), &["cm"], (true, false), PLAIN),
    row(
        CORE,
        ("serviceaccounts", "ServiceAccount"),
        &["sa"],
        (true, false),
        RETURNS,
    ),
    row(CORE, ("events", "Event"), &["ev"], (true, false), EVENT),
    row(
        ("events.k8s.io", "v1"),
        ("events", "Event"),
        &["ev"],
        (true, false),
        EVENT,
    ),
    row(CORE, ("pods", "Pod"), &["po"], (true, true), RETURNS),
    row(
        CORE,
        ("services", "Service"),
        &["svc"],
        (true, true),
        Traits {
            create_on_update: true,
            ..RETURNS
        },
    ),
    row(
        CORE,
        ("endpoints", "Endpoints"),
        &["ep"],
        (true, false),
        Traits {
            create_on_update: true,
            ..PLAIN
        },
    ),
    row(
        CORE,
        ("persistentvolumeclaims", "PersistentVolumeClaim"),
        &["pvc"],
        (true, true),
        RETURNS,
    ),
    row(CORE, ("nodes", "Node"), &["no"], (false, true), PLAIN),
    row(APPS, ("deployments", "Deployment"), &["deploy"], (true, true), COUNTED),
    row(APPS, ("statefulsets", "StatefulSet"), &["sts"], (true, true), COUNTED),
    row(APPS, ("daemonsets", "DaemonSet"), &["ds"], (true, true), COUNTED),
    row(APPS, ("replicasets", "ReplicaSet"), &["rs"], (true, true), COUNTED),
    row(("batch", "v1"), ("jobs", "Job"), &[], (true, true), COUNTED),
    row(
        ("coordination.k8s.io", "v1"),
        ("leases", "Lease"),
        &[],
        (true, false),
        LEASE,
    ),
    row(ROLES, ("roles", "Role"), &[], (true, false), RBAC),
    row(ROLES, ("rolebindings", "RoleBinding"), &[], (true, false), RBAC),
    row(ROLES, ("clusterroles", "ClusterRole"), &[], (false, false), RBAC),
    row(
        ROLES,
        ("clusterrolebindings", "ClusterRoleBinding"),
        &[],
        (false, false),
        RBAC,
    ),
    row(
        ("apiextensions.k8s.io", "v1"),
        ("customresourcedefinitions", "CustomResourceDefinition"),
        &["crd", "crds"],
        (false, true),
        STRICT,
    ),
    row(
        ADMISSION,
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
        &[],
        (false, true),
        STRICT,
    ),
    row(
        ADMISSION,
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
        &[],
        (false, false),
        STRICT,
    ),
    row(
        ADMISSION,
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
        &[],
        (false, false),
        STRICT,
    ),
    row(
        ADMISSION,
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
        &[],
        (false, false),
        STRICT,
    ),
];

/// The endpoints of all built-in kinds.
pub(crate) fn endpoints() -> impl Iterator<Item = Endpoint> {
    ROWS.iter().map(|row| Endpoint {
        info: KindInfo {
            group: row.group.to_owned(),
            version: row.version.to_owned(),
            kind: row.kind.to_owned(),
            status: row.status,
            schema: fields::built_in_schema(row.group, row.version, row.kind).map(Arc::new),
        },
        resource: row.resource.to_owned(),
        singular: row.kind.to_lowercase(),
        list_kind: format!("{}List", row.kind),
        short_names: row.short.iter().map(|name| (*name).to_owned()).collect(),
        categories: Vec::new(),
        namespaced: row.namespaced,
        traits: row.traits,
        storage_group: if row.resource == "events" { "" } else { row.group }.to_owned(),
        custom: None,
    })
}
