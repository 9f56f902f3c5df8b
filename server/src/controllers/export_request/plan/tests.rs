use bindery_api::v1alpha2::{
    APIServiceExportRequestSpec, APIServiceExportRequestStatus, APIServiceNamespaceStatus, NameRef, Scope,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::{
    settings::tests::settings,
    template::{
        self,
        tests::{Offered, cowboys, offered, resource},
    },
};

struct World {
    request: APIServiceExportRequest,
    export: Option<APIServiceExport>,
    offers: Vec<Offer>,
    schemas: Vec<Arc<BoundSchema>>,
    mapped: Vec<Arc<APIServiceNamespace>>,
    reached: Option<LimitReached>,
}

fn offer(template: APIServiceExportTemplate, definitions: &Offered) -> Offer {
    Offer {
        verdict: template::assess(&template, definitions, &settings()),
        template: Arc::new(template),
        may_bind: true,
    }
}

fn template(name: &str, resources: &[&str]) -> APIServiceExportTemplate {
    let mut template = cowboys();
    template.metadata.name = Some(name.to_owned());
    template.spec.resources = resources
        .iter()
        .map(|plural| resource("wildwest.dev", plural))
        .collect();
    template
}

/// The only write of a plan.
#[track_caller]
fn only(writes: &[Write]) -> &Write {
    let [write] = writes else { panic!("{writes:?}") };
    write
}

impl World {
    fn new(template: &APIServiceExportTemplate, offers: Vec<Offer>) -> Self {
        let spec = APIServiceExportRequestSpec {
            resources: template.spec.resources.clone(),
            permission_claims: template.spec.permission_claims.clone(),
            namespaces: template.spec.namespaces.clone(),
            ..APIServiceExportRequestSpec::default()
        };
        let mut request = APIServiceExportRequest::new("riders", spec);
        request.metadata.namespace = Some("kube-bind-a".to_owned());
        Self {
            request,
            export: None,
            offers,
            schemas: Vec::new(),
            mapped: Vec::new(),
            reached: None,
        }
    }

    fn plan(&self) -> Vec<Write> {
        plan(&Observed {
            request: &self.request,
            export: self.export.as_ref(),
            offers: &self.offers,
            reached: self.reached.as_ref(),
            schemas: &self.schemas,
            mapped: &self.mapped,
            now: Timestamp::UNIX_EPOCH,
        })
    }

    /// Takes the export that is planned.
    fn with_export(mut self) -> Self {
        self.export = Some(only(&self.plan()).created().expect("an export"));
        self
    }

    #[track_caller]
    fn check_said(&mut self, phase: Phase, reason: &str) {
        let write = only(&self.plan()).clone();
        let patch = write.patch_of::<APIServiceExportRequest>().expect("a status");
        let status: APIServiceExportRequestStatus = serde_json::from_value(patch["status"].clone()).unwrap();
        let ready = bindery_api::conditions::get(&status.conditions, "Ready").unwrap();
        assert_eq!((status.phase, ready.reason.as_str()), (phase, reason));
        assert_eq!(status.terminal_message.is_some(), phase == Phase::Failed);
        self.request.status = Some(status);
        assert_eq!(self.plan(), [], "says it twice");
    }
}

#[test]
fn an_export_is_made_from_the_template() {
    let mut template = cowboys();
    template.labels_mut().insert("tier".to_owned(), "gold".to_owned());
    let world = World::new(&template, vec![offer(template.clone(), &offered())]).with_export();
    let export = world.export.unwrap();
    assert_eq!(export.name_any(), "riders");
    assert_eq!(export.metadata.finalizers, Some(vec![finalizers::EXPORT.to_owned()]));
    assert_eq!(export.annotations()[annotations::TEMPLATE], "cowboys");
    assert_eq!(export.labels()["tier"], "gold");
}

#[test]
fn what_no_granted_template_offers_is_refused_for_good() {
    let granted = || vec![offer(cowboys(), &offered())];
    World::new(&cowboys(), Vec::new()).check_said(Phase::Failed, "TemplateNotGranted");
    let wanted = template("horses", &["horses"]);
    World::new(&wanted, granted()).check_said(Phase::Failed, "TemplateNotGranted");
    // The name in the request grants nothing.
    let mut world = World::new(&wanted, granted());
    let marks = world.request.annotations_mut();
    marks.insert(annotations::TEMPLATE.to_owned(), "cowboys".to_owned());
    world.check_said(Phase::Failed, "TemplateNotGranted");
}

#[test]
fn an_export_is_made_anew_only_while_its_owner_may_bind_the_template() {
    let mut world = World::new(&cowboys(), vec![offer(cowboys(), &offered())]);
    world.offers[0].may_bind = false;
    world.check_said(Phase::Failed, "TemplateBindDenied");
    // Of two templates alike the one that may be bound is taken, whatever the request names.
    let twins = ["a", "b"].map(|name| offer(template(name, &["cowboys"]), &offered()));
    let mut world = World::new(&cowboys(), twins.into_iter().collect());
    world.offers[0].may_bind = false;
    let marks = world.request.annotations_mut();
    marks.insert(annotations::TEMPLATE.to_owned(), "a".to_owned());
    assert_eq!(
        world.with_export().export.unwrap().annotations()[annotations::TEMPLATE],
        "b"
    );
}

#[test]
fn an_export_beyond_the_limit_waits_until_there_is_room() {
    let mut world = World::new(&cowboys(), vec![offer(cowboys(), &offered())]);
    let limits = crate::limits::Limits::default();
    world.reached = Some(limits.reached(crate::limits::LimitName::Exports, Some("kube-bind-a")));
    world.check_said(Phase::Pending, "LimitReached");
    world.reached = None;
    assert!(only(&world.plan()).created::<APIServiceExport>().is_some());
}

#[test]
fn of_two_templates_alike_the_named_one_is_taken() {
    let twins = || {
        ["a", "b"]
            .map(|name| offer(template(name, &["cowboys"]), &offered()))
            .into_iter()
            .collect()
    };
    for name in ["a", "b"] {
        let mut world = World::new(&cowboys(), twins());
        let marks = world.request.annotations_mut();
        marks.insert(annotations::TEMPLATE.to_owned(), name.to_owned());
        assert_eq!(
            world.with_export().export.unwrap().annotations()[annotations::TEMPLATE],
            name
        );
    }
}

#[test]
fn what_the_admin_can_mend_is_waited_for() {
    let mut world = World::new(&cowboys(), vec![offer(cowboys(), &Offered::default())]);
    world.check_said(Phase::Pending, "SchemaNotFound");
    world.offers = vec![offer(cowboys(), &offered())];
    assert!(only(&world.plan()).created::<APIServiceExport>().is_some());
}

#[test]
fn a_scope_that_contradicts_an_earlier_bind_is_refused() {
    let mut world = World::new(&cowboys(), vec![offer(cowboys(), &offered())]);
    let mut spec = world.offers[0].verdict.clone().unwrap().schemas.remove(0);
    spec.scope = Scope::Cluster;
    world.schemas = vec![Arc::new(BoundSchema::new("cowboys.wildwest.dev", spec))];
    world.check_said(Phase::Failed, "ScopeMismatch");
}

#[test]
fn it_succeeds_when_the_export_is_in_sync_and_its_namespaces_are_mapped() {
    let mut template = cowboys();
    template.spec.namespaces = vec![NameRef::new("wild-west")];
    let mut world = World::new(&template, vec![offer(template.clone(), &offered())]).with_export();
    let namespace: APIServiceNamespace = only(&world.plan()).created().expect("a namespace");
    assert_eq!(namespace.labels()[labels::OWNER], "provider");
    assert_eq!(
        namespace.metadata.finalizers,
        Some(vec![finalizers::NAMESPACE.to_owned()])
    );
    let mut mapped = namespace;
    world.mapped = vec![Arc::new(mapped.clone())];
    assert_eq!(world.plan(), [], "waits for the namespace");
    mapped.status = Some(APIServiceNamespaceStatus {
        namespace: Some("kube-bind-a-wild-west".to_owned()),
        ..APIServiceNamespaceStatus::default()
    });
    world.mapped = vec![Arc::new(mapped)];
    assert_eq!(world.plan(), [], "waits for the export");
    let in_sync = |world: &mut World, condition| {
        let export = world.export.as_mut().unwrap();
        export.set_condition(condition, Timestamp::UNIX_EPOCH);
    };
    in_sync(
        &mut world,
        false_condition(PROVIDER_IN_SYNC, Severity::Error, "BoundSchemaMissing", "gone"),
    );
    world.check_said(Phase::Pending, "BoundSchemaMissing");
    in_sync(&mut world, true_condition(PROVIDER_IN_SYNC));
    let is = world.mapped.clone();
    let mut going = (*is[0]).clone();
    going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    world.mapped = vec![Arc::new(going)];
    assert_eq!(world.plan(), [], "waits for one that is going, to make it anew");
    world.mapped = is;
    world.check_said(Phase::Succeeded, "");
}

/// The template may change, or go, between the export and the success: what was made counts.
#[test]
fn an_export_that_is_there_is_finished_without_its_template() {
    let mut world = World::new(&cowboys(), vec![offer(cowboys(), &offered())]).with_export();
    world.offers = Vec::new();
    world
        .export
        .as_mut()
        .unwrap()
        .set_condition(true_condition(PROVIDER_IN_SYNC), Timestamp::UNIX_EPOCH);
    world.check_said(Phase::Succeeded, "");
}

#[test]
fn another_export_of_the_name_is_in_the_way_until_it_has_gone() {
    let mut world = World::new(&cowboys(), vec![offer(cowboys(), &offered())]).with_export();
    let export = world.export.as_mut().unwrap();
    export.spec.resources = vec![resource("wildwest.dev", "horses")];
    export.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        Timestamp::UNIX_EPOCH,
    ));
    assert_eq!(world.plan(), []);
    world.export.as_mut().unwrap().metadata.deletion_timestamp = None;
    world.check_said(Phase::Failed, "ExportNameTaken");
}

#[test]
fn a_namespace_that_the_konnector_mapped_first_becomes_the_providers() {
    let mut template = cowboys();
    template.spec.namespaces = vec![NameRef::new("wild-west")];
    let mut world = World::new(&template, vec![offer(template.clone(), &offered())]).with_export();
    let mut mapped = APIServiceNamespace::new("wild-west", APIServiceNamespaceSpec {});
    mapped.set_condition(
        false_condition(READY, Severity::Error, "TooManyNamespaces", "no more"),
        Timestamp::UNIX_EPOCH,
    );
    world.mapped = vec![Arc::new(mapped.clone())];
    let writes = world.plan();
    let patch = only(&writes).patch_of::<APIServiceNamespace>().unwrap();
    assert_eq!(
        (&*writes[0].name, &patch["metadata"]["labels"][labels::OWNER]),
        ("wild-west", &json!("provider"))
    );
    let owner = (labels::OWNER.to_owned(), "provider".to_owned());
    mapped.labels_mut().extend([owner]);
    world.mapped = vec![Arc::new(mapped)];
    // One that is refused holds up nothing else.
    let export = world.export.as_mut().unwrap();
    export.set_condition(true_condition(PROVIDER_IN_SYNC), Timestamp::UNIX_EPOCH);
    world.check_said(Phase::Succeeded, "");
}
