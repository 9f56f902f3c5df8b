//! Conversion of permission claims.

use bindery_api::v1alpha2 as api;
use bindery_proto::v1alpha2 as proto;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The messages of the claims of an export or a template.
pub(crate) fn claims(claims: &[api::PermissionClaim]) -> Vec<proto::PermissionClaim> {
    let claim = |claim: &api::PermissionClaim| proto::PermissionClaim {
        group: claim.group_resource.group.clone(),
        resource: claim.group_resource.resource.clone(),
        selector: Some(selector(&claim.selector)),
    };
    claims.iter().map(claim).collect()
}

fn selector(selector: &api::Selector) -> proto::Selector {
    let named = |named: &api::NamedResource| proto::NamedResource {
        name: named.name.clone(),
        namespace: named.namespace.clone().unwrap_or_default(),
    };
    proto::Selector {
        label_selector: selector.label_selector.as_ref().map(label_selector),
        named_resources: selector.named_resources.iter().map(named).collect(),
        references: selector.references.iter().map(reference).collect(),
    }
}

fn reference(reference: &api::SelectorReference) -> proto::SelectorReference {
    proto::SelectorReference {
        group: reference.group_resource.group.clone(),
        resource: reference.group_resource.resource.clone(),
        versions: reference.versions.clone(),
        json_path: Some(proto::ReferencePath {
            name: reference.json_path.name.clone(),
            namespace: reference.json_path.namespace.clone().unwrap_or_default(),
        }),
    }
}

fn label_selector(selector: &LabelSelector) -> proto::LabelSelector {
    let labels = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    proto::LabelSelector {
        match_labels: labels.map(|(key, value)| (key.clone(), value.clone())).collect(),
        match_expressions: expressions
            .map(|expression| proto::LabelSelectorRequirement {
                key: expression.key.clone(),
                operator: expression.operator.clone(),
                values: expression.values.clone().unwrap_or_default(),
            })
            .collect(),
    }
}
