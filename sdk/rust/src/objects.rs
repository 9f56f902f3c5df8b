//! Converts messages to the Kubernetes objects that they describe.
//!
//! An empty field of a message is absent in the object. An enum value that this version does not know becomes the default; where
//! that would be unsafe, check the message itself.

use std::collections::BTreeMap;

use bindery_api::{
    Condition,
    conditions::{ConditionStatus, Severity},
    v1alpha2 as api,
};
use bindery_proto::v1alpha2 as proto;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta, Time};

/// Converts a template to the object on the provider.
pub fn template(message: proto::Template) -> api::APIServiceExportTemplate {
    let spec = message.spec.unwrap_or_default();
    let (isolation, conflict_policy) = (spec.isolation(), spec.conflict_policy());
    let (scope, policy) = (spec.scope(), spec.schema_update_policy());
    api::APIServiceExportTemplate {
        metadata: metadata(message.metadata),
        spec: api::APIServiceExportTemplateSpec {
            description: text(spec.description),
            scope: scope.as_crd_str().and_then(api::Scope::from_name).unwrap_or_default(),
            resources: spec.resources.into_iter().map(resource).collect(),
            permission_claims: spec.permission_claims.into_iter().map(claim).collect(),
            namespaces: spec
                .namespaces
                .into_iter()
                .map(|namespace| api::NameRef::new(namespace.name))
                .collect(),
            schema_update_policy: policy
                .as_crd_str()
                .and_then(api::SchemaUpdatePolicy::from_name)
                .unwrap_or_default(),
            isolation: isolation.as_crd_str().and_then(api::Isolation::from_name),
            conflict_policy: conflict_policy.as_crd_str().and_then(api::ConflictPolicy::from_name),
            cluster_scoped_namespace: text(spec.cluster_scoped_namespace),
            retention: spec.retention.map(retention),
        },
        status: message.status.map(|status| api::APIServiceExportTemplateStatus {
            conditions: status.conditions.into_iter().map(condition).collect(),
        }),
    }
}

/// Converts a collection to the object on the provider.
pub fn collection(message: proto::Collection) -> api::Collection {
    let spec = message.spec.unwrap_or_default();
    api::Collection {
        metadata: metadata(message.metadata),
        spec: api::CollectionSpec {
            description: text(spec.description),
            templates: spec
                .templates
                .into_iter()
                .map(|template| api::NameRef::new(template.name))
                .collect(),
        },
        status: message.status.map(|status| api::CollectionStatus {
            conditions: status.conditions.into_iter().map(condition).collect(),
        }),
    }
}

/// Converts metadata, as far as messages carry it.
pub fn metadata(message: Option<proto::ObjectMeta>) -> ObjectMeta {
    let message = message.unwrap_or_default();
    ObjectMeta {
        name: Some(message.name),
        namespace: text(message.namespace),
        uid: text(message.uid),
        generation: (message.generation != 0).then_some(message.generation),
        resource_version: text(message.resource_version),
        creation_timestamp: message.creation_timestamp.and_then(time).map(Time),
        deletion_timestamp: message.deletion_timestamp.and_then(time).map(Time),
        labels: (!message.labels.is_empty()).then(|| message.labels.into_iter().collect::<BTreeMap<_, _>>()),
        ..ObjectMeta::default()
    }
}

/// Converts a resource of an export or template.
pub fn resource(message: proto::Resource) -> api::ExportResource {
    api::ExportResource {
        group_resource: api::GroupResource::new(message.group, message.resource),
        versions: message.versions,
    }
}

/// Converts a retention. A patch that is no JSON is absent.
pub fn retention(message: proto::Retention) -> api::Retention {
    api::Retention {
        duration: message.duration.into(),
        suspend: serde_json::from_slice(&message.suspend).ok(),
    }
}

/// Converts a permission claim.
pub fn claim(message: proto::PermissionClaim) -> api::PermissionClaim {
    api::PermissionClaim {
        group_resource: api::GroupResource::new(message.group, message.resource),
        selector: selector(message.selector.unwrap_or_default()),
    }
}

fn selector(message: proto::Selector) -> api::Selector {
    let named = |named: proto::NamedResource| api::NamedResource {
        name: named.name,
        namespace: text(named.namespace),
    };
    api::Selector {
        label_selector: message.label_selector.map(labels),
        named_resources: message.named_resources.into_iter().map(named).collect(),
        references: message.references.into_iter().map(reference).collect(),
    }
}

fn reference(message: proto::SelectorReference) -> api::SelectorReference {
    let path = message.json_path.unwrap_or_default();
    api::SelectorReference {
        group_resource: api::GroupResource::new(message.group, message.resource),
        versions: message.versions,
        json_path: api::ReferencePath {
            name: path.name,
            namespace: text(path.namespace),
        },
    }
}

fn labels(message: proto::LabelSelector) -> LabelSelector {
    let requirement = |message: proto::LabelSelectorRequirement| LabelSelectorRequirement {
        key: message.key,
        operator: message.operator,
        values: (!message.values.is_empty()).then_some(message.values),
    };
    let expressions: Vec<_> = message.match_expressions.into_iter().map(requirement).collect();
    LabelSelector {
        match_labels: (!message.match_labels.is_empty()).then(|| message.match_labels.into_iter().collect()),
        match_expressions: (!expressions.is_empty()).then_some(expressions),
    }
}

/// Converts a condition.
pub fn condition(message: proto::Condition) -> Condition {
    Condition {
        type_: message.r#type,
        status: ConditionStatus::from(message.status),
        severity: Severity::from(message.severity),
        last_probe_time: None,
        last_transition_time: Time(message.last_transition_time.and_then(time).unwrap_or_default()),
        reason: message.reason,
        message: message.message,
    }
}

fn time(message: prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::new(message.seconds, message.nanos).ok()
}

fn text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_template_reads_like_the_object_it_is() {
        let message = proto::Template {
            metadata: Some(proto::ObjectMeta {
                name: "cowboys".to_owned(),
                creation_timestamp: Some(prost_types::Timestamp { seconds: 1, nanos: 0 }),
                ..proto::ObjectMeta::default()
            }),
            spec: Some(proto::TemplateSpec {
                scope: proto::Scope::Namespaced.into(),
                resources: vec![proto::Resource {
                    group: "wildwest.dev".to_owned(),
                    resource: "cowboys".to_owned(),
                    versions: vec!["v1alpha1".to_owned()],
                }],
                permission_claims: vec![proto::PermissionClaim {
                    resource: "secrets".to_owned(),
                    selector: Some(proto::Selector {
                        named_resources: vec![proto::NamedResource {
                            name: "star".to_owned(),
                            ..Default::default()
                        }],
                        ..Default::default()
                    }),
                    ..Default::default()
                }],
                isolation: proto::Isolation::Prefixed.into(),
                ..proto::TemplateSpec::default()
            }),
            status: None,
            ..proto::Template::default()
        };
        assert_eq!(
            serde_json::to_value(template(message)).unwrap(),
            json!({
                "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExportTemplate",
                "metadata": { "name": "cowboys", "creationTimestamp": "1970-01-01T00:00:01Z" },
                "spec": {
                    "scope": "Namespaced",
                    "resources": [{ "group": "wildwest.dev", "resource": "cowboys", "versions": ["v1alpha1"] }],
                    "permissionClaims": [{ "resource": "secrets", "selector": { "namedResources": [{ "name": "star" }] } }],
                    "schemaUpdatePolicy": "Never",
                    "isolation": "Prefixed",
                },
            })
        );
    }

    #[test]
    fn an_empty_message_is_an_empty_object() {
        assert_eq!(template(proto::Template::default()).spec.resources, []);
        assert_eq!(collection(proto::Collection::default()).spec.templates, []);
    }
}
