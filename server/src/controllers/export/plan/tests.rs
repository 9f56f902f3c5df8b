use std::sync::Arc;

use bindery_api::{
    hash, meta,
    v1alpha2::{APIServiceExportRequest, BoundSchema, BoundSchemaSpec, SchemaUpdatePolicy, Scope},
};
use bindery_runtime::policy::Standing;
use k8s_openapi::{
    api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use serde_json::Value;

use super::{super::observed::ClaimsSeen, *};
use crate::{
    contract::{self, NewContract},
    principal::Principal,
    settings::tests::settings,
    template::{
        self, ExportPlan, Refusal,
        tests::{cowboys, offered},
    },
};

mod claimed;
mod rights;

struct World {
    export: APIServiceExport,
    schemas: Vec<Option<Arc<BoundSchema>>>,
    sources: Vec<Result<BoundSchemaSpec, Refusal>>,
    cluster_role: Option<Arc<ClusterRole>>,
    cluster_role_binding: Option<Arc<ClusterRoleBinding>>,
    request: Option<Arc<APIServiceExportRequest>>,
    role: Option<Arc<Role>>,
    role_binding: Option<Arc<RoleBinding>>,
    claims: ClaimsSeen,
    policy: Option<Result<(), Refusal>>,
    standing: Standing,
    template: Option<Result<ExportPlan, Refusal>>,
    has_rights: bool,
    lacking: Option<Refusal>,
}

/// The only write of a plan.
#[track_caller]
fn only(writes: &[Write]) -> &Write {
    let [write] = writes else { panic!("{writes:?}") };
    write
}

/// The conditions that a write reports.
fn conditions(write: &Write) -> Option<Vec<Condition>> {
    let patch = write.patch_of::<APIServiceExport>().filter(|_| write.is_status())?;
    Some(serde_json::from_value(patch["status"]["conditions"].clone()).unwrap())
}

/// The patch of an export's metadata.
fn patch(write: &Write) -> Option<&Value> {
    write.patch_of::<APIServiceExport>().filter(|_| !write.is_status())
}

impl World {
    /// Just made, with nothing around it.
    fn new() -> Self {
        let offer = template::assess(&cowboys(), &offered(), &settings()).unwrap();
        let mut export = APIServiceExport::new("riders", offer.export.clone());
        export.metadata.namespace = Some("kube-bind-a".to_owned());
        export.metadata.uid = Some("e1".to_owned());
        export.metadata.finalizers = Some(vec![finalizers::EXPORT.to_owned()]);
        let marks = export.annotations_mut();
        marks.insert(annotations::TEMPLATE.to_owned(), "cowboys".to_owned());
        marks.insert(
            annotations::SOURCE_SPEC_HASH.to_owned(),
            hash::export_hash(&offer.schemas),
        );
        Self {
            export,
            schemas: vec![None],
            sources: offer.schemas.iter().cloned().map(Ok).collect(),
            cluster_role: None,
            cluster_role_binding: None,
            request: None,
            role: None,
            role_binding: None,
            claims: ClaimsSeen::default(),
            policy: None,
            standing: Standing::Unknown,
            template: Some(Ok(offer)),
            has_rights: true,
            lacking: None,
        }
    }

    fn with_schema() -> Self {
        let mut world = Self::new();
        let schema = only(&world.plan()).created::<BoundSchema>().expect("a schema");
        world.schemas = vec![Some(Arc::new(schema))];
        world
    }

    #[track_caller]
    fn plan(&self) -> Vec<Write> {
        match self.step() {
            ExportStep::Apply(writes) => writes,
            ExportStep::Prove => panic!("the policy is to be proved"),
        }
    }

    fn step(&self) -> ExportStep {
        let contract = contract::namespace(&NewContract {
            name: "kube-bind-a",
            identity: "cluster-a",
            pretty_name: "Ranch",
            owner: &Principal::named("jane"),
            owner_groups: &[],
            template: "cowboys",
        });
        plan(&Observed {
            export: &self.export,
            contract: Some(Arc::new(contract)),
            schemas: &self.schemas,
            sources: &self.sources,
            keepers: &vec![None; self.schemas.len()],
            request: self.request.clone(),
            cluster_role: self.cluster_role.clone(),
            cluster_role_binding: self.cluster_role_binding.clone(),
            role: self.role.clone(),
            role_binding: self.role_binding.clone(),
            claims: self.claims.clone(),
            policy: self.policy.as_ref(),
            standing: self.standing,
            has_rights: self.has_rights,
            lacking: self.lacking.clone(),
            template: self.template.clone(),
            now: Timestamp::UNIX_EPOCH,
        })
    }

    /// Takes over the conditions that are planned, and expects no more.
    #[track_caller]
    fn settle(&mut self, provider: &str, template: &str) {
        let conditions = conditions(only(&self.plan())).expect("conditions");
        let reason = |type_: &str| conditions.condition(type_).unwrap().reason.clone();
        assert_eq!(
            (reason(PROVIDER_IN_SYNC).as_str(), reason(TEMPLATE_IN_SYNC).as_str()),
            (provider, template)
        );
        *self.export.conditions_mut() = conditions;
        assert_eq!(self.plan(), [], "says it twice");
    }
}

#[test]
fn a_new_export_gets_its_schemas_and_then_says_so() {
    let mut world = World::with_schema();
    let schema = world.schemas[0].clone().unwrap();
    assert_eq!(schema.name_any(), "cowboys.wildwest.dev");
    assert_eq!(schema.owner_references()[0].uid, "e1");
    assert_eq!(schema.owner_references()[0].controller, None);
    world.settle("", "");
}

#[test]
fn the_status_waits_for_rights_in_mapped_namespaces() {
    let mut world = World::with_schema();
    world.has_rights = false;
    assert_eq!(world.plan(), []);
    world.has_rights = true;
    world.settle("", "");
}

#[test]
fn a_schema_without_a_source_is_said_and_one_that_is_there_stays() {
    let gone = || {
        Err(Refusal::SchemaNotFound {
            definition: "cowboys.wildwest.dev".to_owned(),
        })
    };
    let mut world = World::new();
    world.sources = vec![gone()];
    world.settle("BoundSchemaMissing", "");
    let mut world = World::with_schema();
    world.sources = vec![gone()];
    world.settle("", "");
}

#[test]
fn a_shared_schema_is_joined_and_an_orphaned_one_taken_anew() {
    let mut world = World::with_schema();
    let mut schema = (**world.schemas[0].as_ref().unwrap()).clone();
    schema.spec.versions.pop();
    let other = OwnerReference {
        uid: "e0".to_owned(),
        name: "other".to_owned(),
        controller: Some(true),
        ..meta::owner_reference(&world.export)
    };
    schema.metadata.owner_references = Some(vec![other]);
    world.schemas = vec![Some(Arc::new(schema.clone()))];
    let writes = world.plan();
    let patch = writes[0].patch_of::<BoundSchema>().unwrap();
    assert_eq!(patch["metadata"]["ownerReferences"].as_array().unwrap().len(), 2);
    assert!(patch["metadata"]["ownerReferences"][0]["controller"].is_null());
    assert!(patch.get("spec").is_none(), "others use it as it is");

    schema.metadata.owner_references = None;
    world.schemas = vec![Some(Arc::new(schema))];
    let writes = world.plan();
    let patch = writes[0].patch_of::<BoundSchema>().unwrap();
    assert_eq!(patch["spec"]["versions"].as_array().unwrap().len(), 2);
}

#[test]
fn the_hash_follows_the_schemas() {
    let mut world = World::with_schema();
    let mut schema = (**world.schemas[0].as_ref().unwrap()).clone();
    schema.spec.names.categories = Some(vec!["riders".to_owned()]);
    world.schemas = vec![Some(Arc::new(schema))];
    assert!(patch(only(&world.plan())).is_some());
}

#[test]
fn cluster_wide_watches_come_with_the_right_to_read() {
    let mut world = World::with_schema();
    world.export.spec.informer_scope = bindery_api::v1alpha2::InformerScope::Cluster;
    let writes = world.plan();
    let role = writes[0].created::<ClusterRole>().unwrap();
    let binding = writes[1].created::<ClusterRoleBinding>().unwrap();
    assert_eq!(writes.len(), 2);
    let mut bent = role.clone();
    let mut misled = binding.clone();
    misled.subjects = None;
    world.cluster_role_binding = Some(Arc::new(binding));
    world.cluster_role = Some(Arc::new(bent.clone()));
    world.settle("", "");
    bent.rules = None;
    world.cluster_role = Some(Arc::new(bent));
    assert!(only(&world.plan()).patch_of::<ClusterRole>().is_some());
    world.cluster_role = Some(Arc::new(role));
    world.cluster_role_binding = Some(Arc::new(misled));
    let writes = world.plan();
    assert!(writes[0].deletes::<ClusterRoleBinding>(), "{writes:?}");
    assert!(writes[1].created::<ClusterRoleBinding>().is_some(), "{writes:?}");
}

#[test]
fn a_right_that_the_server_lacks_is_said_until_it_is_there() {
    let mut world = World::with_schema();
    world.has_rights = false;
    let manifest = "kind: ClusterRole".to_owned();
    world.lacking = Some(Refusal::ServerLacksRights { manifest });
    let conditions = conditions(only(&world.plan())).expect("conditions");
    let said = conditions.condition(PROVIDER_IN_SYNC).unwrap();
    assert!(
        !said.is_true() && said.message.contains("kind: ClusterRole"),
        "{said:?}"
    );
    *world.export.conditions_mut() = conditions;
    assert_eq!(world.plan(), [], "says it twice");
    world.has_rights = true;
    world.lacking = None;
    world.settle("", "");
}

#[test]
fn an_export_that_is_as_its_template_makes_it_is_not_marked_for_replacement() {
    let mut world = World::with_schema();
    let marks = world.export.annotations_mut();
    marks.insert(annotations::REPLACE.to_owned(), annotations::TRUE.to_owned());
    let writes = world.plan();
    let annotated = &patch(only(&writes)).unwrap()["metadata"]["annotations"];
    assert!(annotated[annotations::REPLACE].is_null() && annotated.get(annotations::REPLACE).is_some());
    world.template = None;
    assert!(!world.plan().iter().any(|write| patch(write).is_some()));
}

#[test]
fn the_template_may_change_and_go_and_the_export_says_so() {
    let mut world = World::with_schema();
    world.settle("", "");
    let offer = world.template.clone().unwrap().unwrap();
    let mut changed = offer.clone();
    changed.export.resources.clear();
    world.template = Some(Ok(changed));
    world.settle("", "TemplateChanged");
    let mut follows = offer.clone();
    follows.schema_update_policy = SchemaUpdatePolicy::Always;
    let request = APIServiceExportRequest::new("riders", follows.request_spec());
    world.request = Some(Arc::new(request));
    world.template = Some(Ok(follows));
    world.settle("", "");
    world.template = Some(Ok(offer.clone()));
    world.settle("", "TemplateChanged");
    world.request = None;
    world.template = None;
    world.settle("", "TemplateNotFound");
    world.template = Some(Ok(offer));
    world.settle("", "");
}

#[test]
fn a_lost_finalizer_is_put_back_first() {
    let mut world = World::new();
    world.export.metadata.finalizers = None;
    let writes = world.plan();
    let patch = patch(only(&writes)).unwrap();
    assert_eq!(patch["metadata"]["finalizers"], json!([finalizers::EXPORT]));
}
