use bindery_api::v1alpha2::{APIServiceBindingSpec, BoundSchemaSpec, BoundSchemaVersion};

use super::*;

const NAME: &str = "cowboys.wildwest.dev";

fn binding(uid: &str) -> APIServiceBinding {
    let mut binding = APIServiceBinding::new("cowboys", APIServiceBindingSpec::default());
    binding.metadata.uid = Some(uid.to_owned());
    binding
}

fn schema_of(group: &str, properties: &[&str]) -> BoundSchema {
    let properties: serde_json::Map<_, _> = properties
        .iter()
        .map(|name| ((*name).to_owned(), json!({"type": "string"})))
        .collect();
    let mut spec = BoundSchemaSpec {
        group: group.to_owned(),
        versions: vec![BoundSchemaVersion {
            name: "v1".to_owned(),
            served: true,
            storage: true,
            schema: json!({"openAPIV3Schema": {"type": "object", "properties": properties}}),
            subresources: serde_json::from_value(json!({"status": {}})).unwrap(),
            ..BoundSchemaVersion::default()
        }],
        ..BoundSchemaSpec::default()
    };
    spec.names.plural = "cowboys".to_owned();
    spec.names.kind = "Cowboy".to_owned();
    BoundSchema::new(&format!("cowboys.{group}"), spec)
}

fn present(schema: BoundSchema) -> Schema {
    Schema::Present(Arc::new(schema))
}

fn schema() -> Schema {
    present(schema_of("wildwest.dev", &["spec"]))
}

fn created(schema: &Schema) -> CustomResourceDefinition {
    match plan(NAME, schema, None, &binding("1")).op {
        Some(CrdOp::Create(crd)) => *crd,
        other => panic!("{other:?}"),
    }
}

fn established(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.status = serde_json::from_value(json!({
        "conditions": [{"type": "Established", "status": "True"}], "storedVersions": ["v1"],
    }))
    .unwrap();
    crd
}

fn reason(decision: &Decision) -> &str {
    match &decision.state {
        State::Refused { reason, .. } | State::Pending { reason, .. } => reason,
        State::Usable(_) => "usable",
    }
}

#[test]
fn a_crd_is_made_and_then_left_alone() {
    let decision = plan(NAME, &schema(), None, &binding("1"));
    assert_eq!(reason(&decision), "CustomResourceDefinitionMissing");
    let crd = created(&schema());
    assert!(is_owned(&crd, &binding("1")));
    assert_eq!(crd.spec.conversion.as_ref().unwrap().strategy, "None");
    let waiting = plan(NAME, &schema(), Some(&crd), &binding("1"));
    assert_eq!(
        (waiting.op.as_ref(), reason(&waiting)),
        (None, "CustomResourceDefinitionNotEstablished")
    );
    let decision = plan(NAME, &schema(), Some(&established(crd)), &binding("1"));
    assert_eq!(decision.op, None);
    let State::Usable(resource) = decision.state else {
        panic!("not usable");
    };
    assert_eq!(
        (&*resource.version, &*resource.kind, resource.status_subresource),
        ("v1", "Cowboy", true)
    );
}

#[test]
fn every_change_of_a_schema_is_written_also_a_removal() {
    let wide = present(schema_of("wildwest.dev", &["spec", "extra"]));
    let crd = established(created(&wide));
    for changed in [schema(), present(schema_of("wildwest.dev", &["spec", "extra", "more"]))] {
        let decision = plan(NAME, &changed, Some(&crd), &binding("1"));
        assert!(matches!(decision.op, Some(CrdOp::Patch(_))), "{decision:?}");
        assert_eq!(reason(&decision), "usable");
    }
    let mut drifted = crd;
    drifted.spec.versions[0].served = false;
    assert!(plan(NAME, &wide, Some(&drifted), &binding("1")).op.is_some());
}

#[test]
fn a_version_of_others_stays() {
    let mut crd = established(created(&schema()));
    let mut older = crd.spec.versions[0].clone();
    older.name = "v1alpha1".to_owned();
    older.storage = false;
    crd.spec.versions.insert(0, older);
    crd.annotations_mut().clear();
    let Some(CrdOp::Patch(patch)) = plan(NAME, &schema(), Some(&crd), &binding("1")).op else {
        panic!("no patch");
    };
    let names: Vec<_> = patch["spec"]["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| &version["name"])
        .collect();
    assert_eq!(names, ["v1", "v1alpha1"]);
}

#[test]
fn foreign_crds_are_never_touched() {
    let ours = established(created(&schema()));
    let mut unowned = ours.clone();
    unowned.metadata.owner_references = None;
    let mut namesake = ours.clone();
    namesake.metadata.owner_references.as_mut().unwrap()[0].uid = "2".to_owned();
    let mut uncontrolled = ours;
    uncontrolled.metadata.owner_references.as_mut().unwrap()[0].controller = None;
    for crd in [unowned, namesake, uncontrolled] {
        let decision = plan(NAME, &schema(), Some(&crd), &binding("1"));
        assert_eq!(
            (decision.op.as_ref(), reason(&decision)),
            (None, "ForeignCustomResourceDefinition")
        );
    }
}

#[track_caller]
fn check(name: &str, schema: &Schema, expect: &str) {
    let decision = plan(name, schema, None, &binding("1"));
    assert_eq!((decision.op.as_ref(), reason(&decision)), (None, expect));
}

#[test]
fn what_may_not_or_cannot_be_installed_is_refused() {
    check(NAME, &Schema::Unknown, "SchemaUnknown");
    check(NAME, &Schema::Missing, "BoundSchemaFetchFailed");
    check("sheriffs.wildwest.dev", &schema(), "BoundSchemaInvalid");
    let mut broken = schema_of("wildwest.dev", &[]);
    broken.spec.versions[0].schema = json!({"openAPIV3Schema": {"type": 5}});
    check(NAME, &present(broken), "BoundSchemaInvalid");
    let mut dead = schema_of("wildwest.dev", &[]);
    dead.spec.versions[0].served = false;
    check(NAME, &present(dead), "BoundSchemaInvalid");
    for group in [
        "rbac.authorization.k8s.io",
        "k8s.io",
        "kubernetes.io",
        "x.kubernetes.io",
        "kube-bind.io",
        "apps",
        "",
    ] {
        check(
            &format!("cowboys.{group}"),
            &present(schema_of(group, &[])),
            "ProtectedGroup",
        );
    }
    for group in ["wildwest.dev", "notk8s.io", "k8s.io.example.com", "my-kube-bind.io"] {
        assert!(!is_protected(group), "{group}");
    }
}

#[test]
fn cluster_scoped_apis_are_installed_and_said_not_to_be_synced() {
    let mut schema = schema_of("wildwest.dev", &[]);
    schema.spec.scope = Scope::Cluster;
    let schema = present(schema);
    let decision = plan(NAME, &schema, Some(&established(created(&schema))), &binding("1"));
    assert_eq!(reason(&decision), "ScopeNotSupported");
}

#[test]
fn a_crd_that_goes_is_used_to_its_end_and_not_changed() {
    let mut crd = established(created(&schema()));
    crd.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let wider = present(schema_of("wildwest.dev", &["spec", "extra"]));
    let decision = plan(NAME, &wider, Some(&crd), &binding("1"));
    assert_eq!((decision.op.as_ref(), reason(&decision)), (None, "usable"));
}
