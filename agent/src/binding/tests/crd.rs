use bindery_api::v1alpha2::{APIServiceBindingSpec, BoundSchemaSpec, BoundSchemaVersion};

use super::*;
use crate::controller::ownership::inherits_crd;

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
            schema: json!({"openAPIV3Schema": {"type": "object", "properties": properties}}).into(),
            subresources: serde_json::from_value(json!({"status": {}})).unwrap(),
            ..BoundSchemaVersion::default()
        }],
        ..BoundSchemaSpec::default()
    };
    spec.names.plural = "cowboys".to_owned();
    spec.names.kind = "Cowboy".to_owned();
    BoundSchema::new(&format!("cowboys.{group}"), spec)
}

fn present(schema: BoundSchema) -> ObservedSchema {
    ObservedSchema::Present(Arc::new(schema))
}

fn schema() -> ObservedSchema {
    present(schema_of("wildwest.dev", &["spec"]))
}

fn created(schema: &ObservedSchema) -> CustomResourceDefinition {
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

fn reason(decision: &CrdDecision) -> &str {
    match &decision.state {
        CrdState::Refused { reason, .. } | CrdState::Pending { reason, .. } => reason,
        CrdState::Usable(_) => "usable",
    }
}

#[test]
fn a_crd_is_made_and_then_left_alone() {
    let decision = plan(NAME, &schema(), None, &binding("1"));
    assert_eq!(reason(&decision), "CustomResourceDefinitionMissing");
    let crd = created(&schema());
    assert!(owns_crd(&binding("1"), &crd));
    assert_eq!(crd.spec.conversion.as_ref().unwrap().strategy, "None");
    let waiting = plan(NAME, &schema(), Some(&crd), &binding("1"));
    assert_eq!(
        (waiting.op.as_ref(), reason(&waiting)),
        (None, "CustomResourceDefinitionNotEstablished")
    );
    let decision = plan(NAME, &schema(), Some(&established(crd)), &binding("1"));
    assert_eq!(decision.op, None);
    let CrdState::Usable(resource) = decision.state else {
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
    let wider = present(schema_of("wildwest.dev", &["spec", "extra", "more"]));
    let decision = plan(NAME, &wider, Some(&crd), &binding("1"));
    assert!(matches!(decision.op, Some(CrdOp::Patch(_))), "{decision:?}");
    assert_eq!((reason(&decision), &decision.refused_change), ("usable", &None));
    let mut drifted = crd.clone();
    drifted.spec.versions[0].served = false;
    assert!(plan(NAME, &wide, Some(&drifted), &binding("1")).op.is_some());
    let retyped = serde_json::to_string(&crd.spec)
        .unwrap()
        .replace(r#""extra":{"type":"string"}"#, r#""extra":{"type":"integer"}"#);
    drifted.spec = serde_json::from_str(&retyped).unwrap();
    assert_ne!(drifted.spec, crd.spec);
    let decision = plan(NAME, &wide, Some(&drifted), &binding("1"));
    assert!(
        decision.op.is_some(),
        "what was changed here is put back, whatever it is"
    );
    let mut unserved = crd;
    unserved.status = None;
    assert!(
        plan(NAME, &schema(), Some(&unserved), &binding("1")).op.is_some(),
        "nothing exists that could break"
    );
}

#[track_caller]
fn check_refused(installed: &ObservedSchema, offered: &ObservedSchema, says: &str) {
    let crd = established(created(installed));
    let decision = plan(NAME, offered, Some(&crd), &binding("1"));
    assert_eq!((decision.op.as_ref(), reason(&decision)), (None, "usable"));
    let change = decision.refused_change.expect("the change is not refused");
    assert_eq!(change.reason, "IncompatibleSchema");
    assert!(
        change.message.contains(says) && change.message.contains(NAME),
        "{}",
        change.message
    );
}

#[test]
fn a_change_that_breaks_objects_is_not_taken_over_and_sync_goes_on() {
    let wide = schema_of("wildwest.dev", &["spec", "extra"]);
    check_refused(&present(wide.clone()), &schema(), "extra");
    let mut narrowed = wide.clone();
    narrowed.spec.versions[0].schema["openAPIV3Schema"]["properties"]["extra"]["type"] = json!("integer");
    check_refused(&present(wide.clone()), &present(narrowed), "v1");
    let mut rescoped = wide.clone();
    rescoped.spec.scope = Scope::Cluster;
    check_refused(&present(wide), &present(rescoped), "scope");
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
fn check(name: &str, schema: &ObservedSchema, expect: &str) {
    let decision = plan(name, schema, None, &binding("1"));
    assert_eq!((decision.op.as_ref(), reason(&decision)), (None, expect));
}

#[test]
fn what_may_not_or_cannot_be_installed_is_refused() {
    check(NAME, &ObservedSchema::Unknown, "SchemaUnknown");
    check(NAME, &ObservedSchema::Missing, "BoundSchemaFetchFailed");
    check("sheriffs.wildwest.dev", &schema(), "BoundSchemaInvalid");
    let mut broken = schema_of("wildwest.dev", &[]);
    broken.spec.versions[0].schema = json!({"openAPIV3Schema": {"type": 5}}).into();
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
        "kubebind.io",
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
        let name = format!("cowboys.{group}");
        let decision = plan(&name, &present(schema_of(group, &[])), None, &binding("1"));
        assert!(decision.op.is_some(), "{group}");
    }
}

#[test]
fn cluster_scoped_apis_are_synced_as_such() {
    let mut schema = schema_of("wildwest.dev", &[]);
    schema.spec.scope = Scope::Cluster;
    let schema = present(schema);
    let crd = established(created(&schema));
    assert_eq!(crd.spec.scope, "Cluster");
    let CrdState::Usable(resource) = plan(NAME, &schema, Some(&crd), &binding("1")).state else {
        panic!("not usable");
    };
    assert_eq!(resource.scope, Scope::Cluster);
}

#[test]
fn no_webhook_of_a_provider_is_called_here() {
    let mut schema = schema_of("wildwest.dev", &["spec"]);
    let mut newer = schema.spec.versions[0].clone();
    newer.name = "v2".to_owned();
    newer.storage = false;
    schema.spec.versions.push(newer);
    schema.spec.conversion = serde_json::from_value(json!({
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://evil.example.com"}},
    }))
    .unwrap();
    let schema = present(schema);
    let crd = created(&schema);
    let conversion = crd.spec.conversion.as_ref().unwrap();
    assert_eq!((conversion.strategy.as_str(), &conversion.webhook), ("None", &None));
    let versions: Vec<_> = crd.spec.versions.iter().map(|version| &version.name).collect();
    assert_eq!(versions, ["v1"], "what cannot be converted is offered in one version");
    let mut hooked = established(crd);
    hooked.spec.conversion.as_mut().unwrap().strategy = "Webhook".to_owned();
    let Some(CrdOp::Patch(patch)) = plan(NAME, &schema, Some(&hooked), &binding("1")).op else {
        panic!("no patch");
    };
    assert_eq!(
        patch["spec"]["conversion"],
        json!({"strategy": "None", "webhook": null})
    );
}

#[test]
fn a_crd_that_goes_is_used_to_its_end_and_not_changed() {
    let mut crd = established(created(&schema()));
    crd.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let wider = present(schema_of("wildwest.dev", &["spec", "extra"]));
    let decision = plan(NAME, &wider, Some(&crd), &binding("1"));
    assert_eq!((decision.op.as_ref(), reason(&decision)), (None, "usable"));
}

#[test]
fn a_crd_that_an_earlier_binding_left_ends_with_the_one_of_its_name() {
    let mut crd = established(created(&schema()));
    let later = binding("2");
    assert!(!inherits_crd(&later, &crd), "the earlier one may be there");
    crd.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let decision = plan(NAME, &schema(), Some(&crd), &later);
    assert_eq!((decision.op.as_ref(), reason(&decision)), (None, "usable"));
    assert!(inherits_crd(&later, &crd) && !inherits_crd(&binding("1"), &crd));
    let mut other = binding("2");
    other.metadata.name = Some("others".to_owned());
    let decision = plan(NAME, &schema(), Some(&crd), &other);
    let CrdState::Refused { reason, message } = decision.state else {
        panic!("{:?}", decision.state);
    };
    assert_eq!(reason, "ForeignCustomResourceDefinition");
    assert!(message.contains("bind this API by that name"), "{message}");
}

#[test]
fn a_crd_that_is_offered_is_taken_over_where_the_schemas_agree() {
    let existing = |properties: &[&str], change: &dyn Fn(&mut CustomResourceDefinition)| {
        let mut crd = established(created(&present(schema_of("wildwest.dev", properties))));
        crd.metadata.owner_references = None;
        crd.metadata.annotations = None;
        crd.annotations_mut()
            .insert(annotations::ADOPT_BY.to_owned(), "cowboys".to_owned());
        change(&mut crd);
        crd
    };
    let provider = present(schema_of("wildwest.dev", &["spec", "status"]));
    let decide = |crd: &CustomResourceDefinition| plan(NAME, &provider, Some(crd), &binding("1"));
    let decision = decide(&existing(&["spec"], &|_| {}));
    let Some(CrdOp::Patch(patch)) = &decision.op else {
        panic!("{decision:?}");
    };
    assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "1");
    assert!(
        patch["spec"]["versions"][0]["schema"].to_string().contains("status"),
        "{patch}"
    );
    for (crd, expect) in [
        (existing(&["spec", "mask"], &|_| {}), "SchemasDisagree"),
        (
            existing(&["spec"], &|crd| crd.spec.versions[0].name = "v2".to_owned()),
            "SchemasDisagree",
        ),
        (
            existing(&["spec"], &|crd| {
                let status = crd.status.as_mut().unwrap();
                status.stored_versions = Some(vec!["v1".to_owned(), "v1alpha1".to_owned()]);
            }),
            "SchemasDisagree",
        ),
        (
            existing(&["spec"], &|crd| {
                let webhook = json!({"strategy": "Webhook"});
                crd.spec.conversion = serde_json::from_value(webhook).unwrap();
            }),
            "SchemasDisagree",
        ),
        (
            existing(&["spec"], &|crd| {
                let offered = crd.annotations_mut().get_mut(annotations::ADOPT_BY).unwrap();
                offered.push('x');
            }),
            "ForeignCustomResourceDefinition",
        ),
        (
            existing(&["spec"], &|crd| {
                crd.metadata.owner_references = Some(vec![controller_reference(&binding("2"))]);
            }),
            "ForeignCustomResourceDefinition",
        ),
        (
            existing(&["spec"], &|crd| {
                crd.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
            }),
            "ForeignCustomResourceDefinition",
        ),
    ] {
        let decision = decide(&crd);
        assert_eq!((decision.op.as_ref(), reason(&decision)), (None, expect));
    }
}
