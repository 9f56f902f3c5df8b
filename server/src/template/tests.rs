use std::sync::Arc;

use bindery_api::v1alpha2::{APIServiceExportTemplateSpec, Isolation};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::settings::tests::settings;

mod placed;

/// A provider's CRDs, exported all.
#[derive(Default)]
pub(crate) struct Offered(pub(crate) BTreeMap<String, Arc<CustomResourceDefinition>>);

impl Definitions for Offered {
    fn definition(&self, name: &str) -> Option<Arc<CustomResourceDefinition>> {
        self.0.get(name).cloned()
    }
}

impl ClaimableScopes for Offered {
    fn claimable(&self, resource: &GroupResource) -> Option<Scope> {
        let name = names::custom_resource_definition(&resource.resource, &resource.group);
        Scope::from_name(&self.0.get(&name)?.spec.scope)
    }
}

impl Offered {
    pub(crate) fn with(mut self, definition: CustomResourceDefinition) -> Self {
        self.0.insert(definition.name_any(), Arc::new(definition));
        self
    }
}

pub(crate) fn definition(group: &str, plural: &str, scope: &str) -> CustomResourceDefinition {
    let version = |name: &str, storage: bool| {
        let schema = json!({ "openAPIV3Schema": { "type": "object" } });
        json!({ "name": name, "served": true, "storage": storage, "schema": schema })
    };
    serde_json::from_value(json!({
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
            "names": { "plural": plural, "kind": plural },
            "scope": scope,
            "versions": [version("v1alpha1", false), version("v1", true)],
        },
        "status": { "conditions": [
            { "type": "Established", "status": "True", "reason": "x", "message": "", "lastTransitionTime": null },
        ] },
    }))
    .unwrap()
}

pub(crate) fn resource(group: &str, plural: &str) -> ExportResource {
    ExportResource {
        group_resource: GroupResource::new(group, plural),
        versions: Vec::new(),
    }
}

pub(crate) fn cowboys() -> APIServiceExportTemplate {
    let spec = APIServiceExportTemplateSpec {
        scope: Scope::Namespaced,
        resources: vec![resource("wildwest.dev", "cowboys")],
        ..APIServiceExportTemplateSpec::default()
    };
    APIServiceExportTemplate::new("cowboys", spec)
}

pub(crate) fn offered() -> Offered {
    Offered::default()
        .with(definition("wildwest.dev", "cowboys", "Namespaced"))
        .with(definition("wildwest.dev", "horses", "Namespaced"))
        .with(definition("wildwest.dev", "sheriffs", "Cluster"))
        .with(definition("metrics.k8s.io", "gauges", "Namespaced"))
}

#[track_caller]
fn check(edit: impl FnOnce(&mut APIServiceExportTemplateSpec), expect: Result<(), &str>) {
    let mut template = cowboys();
    edit(&mut template.spec);
    let verdict = assess(&template, &offered(), &settings());
    assert_eq!(
        verdict.as_ref().map(|_| ()).map_err(Refusal::reason),
        expect,
        "{verdict:?}"
    );
    if let Err(refusal) = verdict {
        assert_ne!(refusal.to_string(), "");
    }
}

#[test]
fn what_is_offered_must_exist_and_be_the_providers_own() {
    check(|_| {}, Ok(()));
    check(|spec| spec.resources.push(resource("wildwest.dev", "horses")), Ok(()));
    check(
        |spec| spec.resources.push(resource("wildwest.dev", "cowboys")),
        Err("DuplicateResource"),
    );
    check(
        |spec| spec.resources.push(resource("wildwest.dev", "cows")),
        Err("SchemaNotFound"),
    );
    check(
        |spec| spec.resources.push(resource("metrics.k8s.io", "gauges")),
        Err("ProtectedGroup"),
    );
    check(|spec| spec.resources.push(resource("", "pods")), Err("ProtectedGroup"));
    check(|spec| spec.resources[0].versions.push("v1".to_owned()), Ok(()));
    check(
        |spec| spec.resources[0].versions.push("v2".to_owned()),
        Err("VersionNotServed"),
    );
}

#[test]
fn resources_have_one_scope_and_it_is_the_templates() {
    check(
        |spec| spec.resources.push(resource("wildwest.dev", "sheriffs")),
        Err("DifferentScopes"),
    );
    check(|spec| spec.scope = Scope::Cluster, Err("ScopeMismatch"));
    let sheriffs =
        |spec: &mut APIServiceExportTemplateSpec| spec.resources = vec![resource("wildwest.dev", "sheriffs")];
    check(sheriffs, Err("ScopeMismatch"));
    check(
        |spec| {
            sheriffs(spec);
            spec.scope = Scope::Cluster;
        },
        Ok(()),
    );
}

#[test]
fn a_definition_that_is_not_served_is_not_offered() {
    let mut definition = definition("wildwest.dev", "cowboys", "Namespaced");
    definition.status = None;
    let verdict = assess(&cowboys(), &Offered::default().with(definition), &settings());
    assert_eq!(verdict.unwrap_err().reason(), "SchemaNotEstablished");
}

#[test]
fn preseeded_namespaces_have_valid_names() {
    check(|spec| spec.namespaces = vec![NameRef::new("wild-west")], Ok(()));
    for wrong in ["", "Wild", "a.b", "-a", "a-", &"a".repeat(64)] {
        check(
            |spec| spec.namespaces = vec![NameRef::new(wrong)],
            Err("InvalidNamespace"),
        );
    }
}

#[test]
fn the_plan_carries_labels_of_the_provider_and_none_of_ours() {
    let mut template = cowboys();
    template.labels_mut().insert("tier".to_owned(), "gold".to_owned());
    template
        .labels_mut()
        .insert("kube-bind.io/contract".to_owned(), "x".to_owned());
    let plan = assess(&template, &offered(), &settings()).unwrap();
    assert_eq!(plan.labels, BTreeMap::from([("tier".to_owned(), "gold".to_owned())]));
    assert_eq!(plan.schemas.len(), 1);
    assert_eq!(plan.export.isolation, Isolation::Prefixed);
}

#[test]
fn the_scope_of_a_bound_schema_is_fixed() {
    let plan = assess(&cowboys(), &offered(), &settings()).unwrap();
    let mut bound = BoundSchema::new("cowboys.wildwest.dev", plan.schemas[0].clone());
    assert_eq!(plan.fits([&bound]), Ok(()));
    bound.spec.scope = Scope::Cluster;
    assert_eq!(plan.fits([&bound]).unwrap_err().reason(), "ScopeMismatch");
    bound.spec.names.plural = "horses".to_owned();
    assert_eq!(plan.fits([&bound]), Ok(()));
}

#[test]
fn an_export_differs_by_what_the_template_decides() {
    let plan = assess(&cowboys(), &offered(), &settings()).unwrap();
    let mut export = APIServiceExport::new("cowboys", plan.export.clone());
    assert!(plan.is_met_by(&export));
    export.spec.isolation = Isolation::None;
    assert!(
        plan.is_met_by(&export),
        "a default of the server is no change of the template"
    );
    export.spec.resources.push(resource("wildwest.dev", "horses"));
    assert_eq!(plan.difference(&export), Some("resources"));
}

proptest! {
    #[test]
    fn no_name_beside_dns_labels_is_a_namespaces(name in "\\PC{0,70}") {
        let label = name.len() <= 63
            && !name.is_empty()
            && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-'))
            && !name.starts_with('-')
            && !name.ends_with('-');
        prop_assert_eq!(names::is_label(&name), label);
    }

    #[test]
    fn groups_of_kubernetes_are_protected_and_look_alikes_are_not(prefix in "[a-z]{1,8}") {
        for reserved in ["k8s.io", "kubernetes.io", "kube-bind.io"] {
            let (below, beside) = (format!("{prefix}.{reserved}"), format!("{prefix}-{reserved}"));
            prop_assert!(names::owner_of_group(&below).is_some());
            prop_assert!(names::owner_of_group(&beside).is_none());
        }
        prop_assert!(names::owner_of_group(&prefix).is_some());
    }
}
