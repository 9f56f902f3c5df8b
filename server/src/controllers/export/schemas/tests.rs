use std::sync::Arc;

use bindery_api::v1alpha2::{APIServiceExportSpec, BoundSchemaVersion};

use super::*;

/// An export of one resource, its schema, and the CRD's state of today.
struct World {
    export: APIServiceExport,
    schema: BoundSchema,
    source: Result<BoundSchemaSpec, Refusal>,
    keeper: Option<String>,
}

fn version(name: &str, schema: &Value) -> BoundSchemaVersion {
    BoundSchemaVersion {
        name: name.to_owned(),
        served: true,
        storage: name == "v1",
        schema: json!({ "openAPIV3Schema": schema }).into(),
        ..BoundSchemaVersion::default()
    }
}

/// A CRD with one field of that type.
fn source(versions: &[(&str, &str)]) -> BoundSchemaSpec {
    let mut spec = BoundSchemaSpec {
        group: "wildwest.dev".to_owned(),
        versions: versions
            .iter()
            .map(|(name, kind)| {
                let fields = json!({ "intent": { "type": kind } });
                version(name, &json!({ "type": "object", "properties": fields }))
            })
            .collect(),
        ..BoundSchemaSpec::default()
    };
    spec.names.plural = "cowboys".to_owned();
    spec.names.kind = "Cowboy".to_owned();
    spec.names.short_names = Some(vec!["cb".to_owned()]);
    spec
}

fn text() -> BoundSchemaSpec {
    source(&[("v1", "string")])
}

/// As [`text`], with an optional field more.
fn richer() -> BoundSchemaSpec {
    let mut spec = text();
    spec.versions[0].schema["openAPIV3Schema"]["properties"]["horse"] = json!({ "type": "string" });
    spec
}

impl World {
    fn new(bound: &BoundSchemaSpec, today: BoundSchemaSpec) -> Self {
        let resource = GroupResource::new("wildwest.dev", "cowboys");
        let mut export = APIServiceExport::new(
            "riders",
            APIServiceExportSpec {
                resources: vec![ExportResource {
                    group_resource: resource,
                    ..ExportResource::default()
                }],
                ..APIServiceExportSpec::default()
            },
        );
        export.metadata.uid = Some("e1".to_owned());
        export.metadata.namespace = Some("kube-bind-a".to_owned());
        let schema = bound_schema(&export, bound);
        Self {
            export,
            schema,
            source: Ok(today),
            keeper: None,
        }
    }

    fn seeing<T>(&self, look: impl FnOnce(SchemaView<'_>) -> T) -> T {
        look(SchemaView {
            export: &self.export,
            schemas: &[Some(Arc::new(self.schema.clone()))],
            sources: std::slice::from_ref(&self.source),
            keepers: std::slice::from_ref(&self.keeper),
        })
    }

    fn schema_patch(&self) -> Option<Value> {
        let mut writes = Vec::new();
        self.seeing(|seen| super::plan(seen, &mut writes));
        assert!(writes.len() <= 1, "{writes:?}");
        let write = writes.pop()?;
        assert_eq!(write.to_string(), "patch BoundSchema kube-bind-a/cowboys.wildwest.dev");
        write.patch_of::<BoundSchema>().cloned()
    }

    /// As an API server would.
    fn patched(&mut self, patch: &Value) {
        let mut object = json!(self.schema);
        json_merge(&mut object, patch);
        self.schema = serde_json::from_value(object).unwrap();
    }

    /// The reason, and parts of the message, of a schema that stays as it is.
    #[track_caller]
    fn stays(&self, severity: Severity, reason: &str, says: &[&str]) {
        assert_eq!(self.schema_patch(), None);
        let condition = self.seeing(in_sync);
        assert_eq!((condition.severity, condition.reason.as_str()), (severity, reason));
        for part in says {
            assert!(condition.message.contains(part), "{}: no {part}", condition.message);
        }
    }

    #[track_caller]
    fn is_in_sync(&self) {
        assert_eq!(self.schema_patch(), None);
        assert_eq!(self.seeing(in_sync), true_condition(SCHEMA_IN_SYNC));
    }
}

fn json_merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    target.remove(key);
                } else {
                    json_merge(target.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

#[test]
fn a_compatible_change_is_carried_along_in_one_write() {
    let mut world = World::new(&text(), richer());
    let patch = world.schema_patch().unwrap();
    assert_eq!(
        patch["metadata"]["annotations"][annotations::SOURCE_SPEC_HASH],
        hash::schema_hash(&richer())
    );
    world.patched(&patch);
    assert_eq!(world.schema.spec, richer());
    world.is_in_sync();
    // The export's own hash follows.
    let own_hash = |world: &World| {
        let mut writes = Vec::new();
        world.seeing(|seen| super::hash(seen, &mut writes));
        writes.pop()
    };
    let write = own_hash(&world).expect("a hash");
    let patch = write.patch_of::<APIServiceExport>().unwrap();
    let hash = patch["metadata"]["annotations"][annotations::SOURCE_SPEC_HASH].as_str();
    let marks = world.export.annotations_mut();
    marks.insert(annotations::SOURCE_SPEC_HASH.to_owned(), hash.unwrap().to_owned());
    assert_eq!(own_hash(&world), None);
}

#[test]
fn what_the_crd_has_no_more_goes_too() {
    let mut plain = richer();
    plain.names.short_names = None;
    let mut world = World::new(&text(), plain.clone());
    let patch = world.schema_patch().unwrap();
    assert!(patch["spec"]["names"]["shortNames"].is_null());
    world.patched(&patch);
    assert_eq!(world.schema.spec, plain);
}

#[test]
fn nothing_is_written_where_nothing_differs() {
    World::new(&text(), text()).is_in_sync();
    // An API server writes numbers its own way, and another implementation hashes its own way.
    let limited = |limit: Value| {
        let mut spec = text();
        spec.versions[0].schema["openAPIV3Schema"]["properties"]["intent"]["maxLength"] = limit;
        spec
    };
    let mut world = World::new(&limited(json!(10)), limited(json!(10.0)));
    world.is_in_sync();
    world.schema.metadata.annotations = None;
    world.is_in_sync();
}

#[test]
fn an_incompatible_change_is_refused_and_names_the_field() {
    World::new(&text(), source(&[("v1", "integer")])).stays(
        Severity::Warning,
        "IncompatibleSchema",
        &[
            "cowboys.wildwest.dev: v1: intent: type changed from string to integer",
            "bind again",
        ],
    );
    World::new(&source(&[("v1", "string"), ("v2", "string")]), text()).stays(
        Severity::Warning,
        "IncompatibleSchema",
        &["v2: version is no longer offered"],
    );
}

#[test]
fn a_kept_schema_says_who_keeps_it() {
    let mut world = World::new(&text(), richer());
    world.keeper = Some("ranch".to_owned());
    world.stays(
        Severity::Info,
        "SchemaChanged",
        &["Never of export ranch", "bind again"],
    );
    world.source = Ok(source(&[("v1", "integer")]));
    world.stays(
        Severity::Info,
        "SchemaChanged",
        &["intent: type changed", "Never of export ranch"],
    );
    world.source = Ok(text());
    world.is_in_sync();
}

#[test]
fn a_crd_that_cannot_be_offered_any_more_is_said_whatever_the_policy() {
    let mut world = World::new(&text(), text());
    for keeper in [None, Some("riders".to_owned())] {
        world.keeper = keeper;
        world.source = Err(Refusal::SchemaNotFound {
            definition: "cowboys.wildwest.dev".to_owned(),
        });
        world.stays(
            Severity::Warning,
            "SchemaNotFound",
            &["cowboys.wildwest.dev", "stays as it was bound"],
        );
    }
}

#[test]
fn versions_of_others_are_for_those_to_see_to() {
    let both = source(&[("v1", "string"), ("v2", "string")]);
    let mut world = World::new(&both, text());
    world.export.spec.resources[0].versions = vec!["v1".to_owned()];
    world.is_in_sync();
    world.source = Ok(richer());
    let patch = world.schema_patch().unwrap();
    world.patched(&patch);
    let spec = &world.schema.spec;
    let names: Vec<_> = spec.versions.iter().map(|version| version.name.as_str()).collect();
    assert_eq!(names, ["v1", "v2"]);
    assert_eq!(spec.versions[1], both.versions[1]);
    assert_eq!(spec.versions[0], richer().versions[0]);
    world.is_in_sync();
    // The other one asks for both, of which one is as it is now.
    world.export.spec.resources[0].versions.clear();
    let mut all = richer();
    all.versions.push(both.versions[1].clone());
    world.source = Ok(all);
    world.is_in_sync();
}

#[test]
fn what_stores_is_agreed_on_by_those_who_share() {
    // One stores v1; who asks for v2 alone is offered that as stored.
    let mut second = source(&[("v2", "string")]);
    second.versions[0].storage = true;
    let mut world = World::new(&text(), second);
    world.export.spec.resources[0].versions = vec!["v2".to_owned()];
    let patch = world.schema_patch().unwrap();
    world.patched(&patch);
    let storage = |world: &World| -> Vec<(String, bool)> {
        let versions = world.schema.spec.versions.iter();
        versions
            .map(|version| (version.name.clone(), version.storage))
            .collect()
    };
    let agreed = [("v1".to_owned(), true), ("v2".to_owned(), false)];
    assert_eq!(storage(&world), agreed);
    world.is_in_sync();
    world.export.spec.resources[0].versions = vec!["v1".to_owned()];
    world.source = Ok(text());
    world.is_in_sync();
}

#[test]
fn the_worst_of_several_is_said() {
    let World { mut export, schema, .. } = World::new(&text(), richer());
    export.spec.resources = vec![export.spec.resources[0].clone(), export.spec.resources[0].clone()];
    let schema = Some(Arc::new(schema));
    let said = in_sync(SchemaView {
        export: &export,
        schemas: &[schema.clone(), schema],
        sources: &[Ok(richer()), Ok(source(&[("v1", "integer")]))],
        keepers: &[Some("riders".to_owned()), None],
    });
    assert_eq!(said.reason, "IncompatibleSchema");
}
