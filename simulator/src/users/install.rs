//! What administrators install before a history begins: offers on providers, rights and namespaces on consumers.

use bindery_api::labels;
use serde_json::{Value, json};

use super::{
    action::namespace_name,
    bind::{OWNERS, owner},
    hands::{DEFINITIONS, Hands, NAMESPACES, REQUESTS, Resource, TEMPLATES, core, rbac},
};
use crate::{
    invariants::convergence::CLAIMED,
    topology::{
        Claim, Cluster, Isolation, Offer, PLURAL, Scope, Selection, Topology, definition_name, group, offer_name,
    },
    users::object_name,
    world::World,
};

/// Installs everything that the topology says, except bindings.
pub(crate) fn install(world: &mut World, topology: &Topology) {
    for provider in topology.provider_numbers() {
        if let Some(offer) = topology.offer(provider)
            && let Some(mut hands) = Hands::on(world, Cluster::Provider(provider))
        {
            offer_api(&mut hands, provider, offer);
            if offer.isolation == Isolation::None && !offer.claims.is_empty() {
                for number in 1..=2 {
                    hands.create(NAMESPACES, "", &shared_namespace(&namespace_name(number)));
                }
            }
            hands.create(NAMESPACES, "", &namespace(OWNERS));
            for consumer in topology.consumer_numbers() {
                let account = json!({
                    "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": owner(consumer), "namespace": OWNERS},
                });
                hands.create(core("serviceaccounts"), OWNERS, &account);
            }
            for (resource, object) in binders(topology) {
                hands.create(resource, "", &object);
            }
        }
    }
    for consumer in topology.consumer_numbers() {
        if let Some(mut hands) = Hands::on(world, Cluster::Consumer(consumer)) {
            for number in 1..=2 {
                hands.create(NAMESPACES, "", &namespace(&namespace_name(number)));
            }
            let groups: Vec<_> = topology.provider_numbers().map(group).collect();
            bundle_rights(&mut hands, &groups);
        }
    }
}

/// A namespace without labels.
pub(super) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// A namespace of a provider that consumers may share.
fn shared_namespace(name: &str) -> Value {
    let mut shared = namespace(name);
    shared["metadata"]["labels"] = json!({(labels::SHARED): "true"});
    shared
}

/// The CRD of a provider.
fn definition(provider: u8, offer: &Offer) -> Value {
    let scope = if offer.is_namespaced_on_provider() {
        "Namespaced"
    } else {
        "Cluster"
    };
    let spec = json!({
        "serial": {"type": "integer", "format": "int64"},
        "note": {"type": "string"},
        "extra": {"type": "string"},
        "references": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": definition_name(provider), "labels": {(labels::EXPORTED): "true"}},
        "spec": {
            "group": group(provider),
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": PLURAL, "singular": "widget"},
            "scope": scope,
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                    "spec": {"type": "object", "properties": spec},
                    "status": {"type": "object", "properties": {
                        "serial": {"type": "integer", "format": "int64"}, "phase": {"type": "string"},
                    }},
                }}},
            }],
        },
    })
}

fn offer_api(hands: &mut Hands<'_>, provider: u8, offer: &Offer) {
    hands.create(DEFINITIONS, "", &definition(provider, offer));
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": format!("bindery-server-export-{}", offer_name(provider)),
            "labels": {(labels::AGGREGATE_TO_SERVER): "true"},
        },
        "rules": [{
            "apiGroups": [group(provider)], "resources": [PLURAL],
            "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
        }],
    });
    hands.create(rbac("clusterroles"), "", &role);
}

fn offer_template(hands: &mut Hands<'_>, provider: u8, offer: &Offer) {
    let isolation = match offer.isolation {
        Isolation::Prefixed => "Prefixed",
        Isolation::Namespaced => "Namespaced",
        Isolation::None => "None",
    };
    let scope = match offer.scope {
        Scope::Namespaced => "Namespaced",
        Scope::Cluster => "Cluster",
    };
    let mut template = json!({
        "apiVersion": "kube-bind.io/v1alpha2",
        "kind": "APIServiceExportTemplate",
        "metadata": {"name": offer_name(provider)},
        "spec": {
            "scope": scope,
            "isolation": isolation,
            "schemaUpdatePolicy": "Always",
            "resources": [{"group": group(provider), "resource": PLURAL, "versions": ["v1"]}],
            "permissionClaims": claims(provider, offer),
            "namespaces": if offer.scope == Scope::Namespaced { json!([{"name": namespace_name(1)}]) } else { json!([]) },
        },
    });
    if let Some(retention) = offer.retention {
        template["spec"]["retention"] = json!({
            "for": retention.duration(), "suspend": {"spec": {"note": "suspended"}},
        });
    }
    hands.create(TEMPLATES, "", &template);
}

/// Whether the servers have installed the definitions that templates and requests need.
pub(super) fn is_ready(world: &mut World, topology: &Topology) -> bool {
    topology.provider_numbers().all(|provider| {
        Hands::on(world, Cluster::Provider(provider)).is_some_and(|hands| {
            [TEMPLATES, REQUESTS].iter().all(|resource| {
                let name = format!("{}.{}", resource.plural, resource.group);
                hands.get(DEFINITIONS, "", &name).is_some_and(|definition| {
                    let conditions = definition["status"]["conditions"].as_array();
                    let is_so = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
                    conditions.is_some_and(|all| all.iter().any(is_so))
                })
            })
        })
    })
}

/// Offers the APIs of all providers.
pub(super) fn offer_all(world: &mut World, topology: &Topology) {
    for provider in topology.provider_numbers() {
        if let Some(offer) = topology.offer(provider)
            && let Some(mut hands) = Hands::on(world, Cluster::Provider(provider))
        {
            offer_template(&mut hands, provider, offer);
        }
    }
}

/// The permission claims of an offer, as the API has them.
fn claims(provider: u8, offer: &Offer) -> Vec<Value> {
    offer
        .claims
        .iter()
        .map(|claim| permission_claim(provider, *claim))
        .collect()
}

fn permission_claim(provider: u8, claim: Claim) -> Value {
    let selector = match claim.selection {
        Selection::Named => json!({"namedResources": [{"name": object_name(0)}]}),
        Selection::Labelled => json!({"labelSelector": {"matchLabels": {(CLAIMED): "true"}}}),
        Selection::Referenced => json!({"references": [{
            "group": group(provider), "resource": PLURAL, "jsonPath": {"name": "spec.references.#.name"},
        }]}),
    };
    json!({"group": "", "resource": claim.resource.plural(), "selector": selector})
}

/// What lets the users of all consumers bind.
fn binders(topology: &Topology) -> [(Resource<'static>, Value); 2] {
    let subjects: Vec<_> = topology
        .consumer_numbers()
        .map(|consumer| json!({"kind": "ServiceAccount", "name": owner(consumer), "namespace": OWNERS}))
        .collect();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "binders"},
        "rules": [{"apiGroups": ["kube-bind.io"], "resources": ["apiserviceexporttemplates"], "verbs": ["bind"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "binders"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "binders"},
        "subjects": subjects,
    });
    [(rbac("clusterroles"), role), (rbac("clusterrolebindings"), binding)]
}

/// Gives the konnector the rights that bundles need, once for all APIs.
fn bundle_rights(hands: &mut Hands<'_>, groups: &[String]) {
    let all = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "kube-bind-konnector-bundles"},
        "rules": [
            {"apiGroups": groups, "resources": [PLURAL], "verbs": all},
            {"apiGroups": groups, "resources": [format!("{PLURAL}/status")], "verbs": ["get", "patch", "update"]},
            {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": all},
        ],
    });
    hands.apply(rbac("clusterroles"), "", "kube-bind-konnector-bundles", &role);
}

/// Adds optional fields to the spec in a provider's CRD, or a printer column if there are none.
pub(crate) fn change_definition(world: &mut World, provider: u8, fields: &[&str]) {
    let name = definition_name(provider);
    let Some(mut hands) = Hands::on(world, Cluster::Provider(provider)) else {
        return;
    };
    let Some(mut changed) = hands.get(DEFINITIONS, "", &name) else {
        return;
    };
    let version = &mut changed["spec"]["versions"][0];
    for field in fields {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][*field] = json!({"type": "string"});
    }
    if fields.is_empty() {
        version["additionalPrinterColumns"] =
            json!([{"name": "Serial", "type": "integer", "jsonPath": ".spec.serial"}]);
    }
    let patch = json!({"spec": {"versions": changed["spec"]["versions"]}});
    hands.merge(DEFINITIONS, "", &name, &patch);
}
