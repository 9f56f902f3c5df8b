use bindery_api::{
    Severity,
    conditions::{READY, false_condition, true_condition},
    v1alpha2::{
        APIServiceExportRequestStatus, BindableResourcesRequestSpec, BindableResourcesRequestStatus, ClusterIdentity,
        Isolation, LocalSecretKeyRef, NameRef, SchemaUpdatePolicy, Scope,
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PropagationPolicy;

use super::*;
use crate::{
    settings::tests::settings,
    template::{
        self,
        tests::{cowboys, offered, resource},
    },
    writes::WriteAction,
};

const IDENTITY: &str = "cluster-a";

/// What is there; each step of a bind adds to it.
#[derive(Clone)]
struct World {
    request: Arc<BindableResourcesRequest>,
    offer: Option<Result<ExportPlan, template::Refusal>>,
    namespaces: Vec<Arc<Namespace>>,
    complete: bool,
    revocation: Option<Revocation>,
    export_request: Option<APIServiceExportRequest>,
    export: Option<APIServiceExport>,
    caller: &'static str,
    secret: Option<LocalSecretKeyRef>,
    fulfilled: bool,
    reached: Option<LimitReached>,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn offer() -> ExportPlan {
    template::assess(&cowboys(), &offered(), &settings()).unwrap()
}

impl World {
    fn new() -> Self {
        let spec = BindableResourcesRequestSpec {
            template_ref: Some(NameRef::new("cowboys")),
            cluster_identity: ClusterIdentity {
                identity: IDENTITY.to_owned(),
                pretty_name: None,
            },
            ..BindableResourcesRequestSpec::default()
        };
        let mut request = BindableResourcesRequest::new("riders", spec);
        request.metadata.uid = Some("r1".to_owned());
        request.metadata.creation_timestamp = Some(Time(at(100)));
        Self {
            request: Arc::new(request),
            offer: Some(Ok(offer())),
            namespaces: Vec::new(),
            complete: false,
            revocation: None,
            export_request: None,
            export: None,
            caller: "jane",
            secret: None,
            fulfilled: false,
            reached: None,
        }
    }

    fn with_contract() -> Self {
        let mut world = Self::new();
        world.namespaces = vec![Arc::new(world.created())];
        world.complete = true;
        world
    }

    fn with_export() -> Self {
        let mut world = Self::with_contract();
        world.export_request = Some(world.created());
        let mut export = APIServiceExport::new("riders", offer().export);
        export.metadata.uid = Some("e1".to_owned());
        export
            .annotations_mut()
            .insert(annotations::TEMPLATE.to_owned(), "cowboys".to_owned());
        world.export = Some(export);
        world
    }

    fn plan(&self) -> RequestStep {
        plan(&self.observed())
    }

    fn writes(&self) -> Vec<Write> {
        match self.plan() {
            RequestStep::Write(writes) => writes,
            step => panic!("{step:?}"),
        }
    }

    /// The object that is planned to be created.
    #[track_caller]
    fn created<K: crate::writes::Object>(&self) -> K {
        self.writes()[0].created().expect("another write")
    }

    fn observed(&self) -> Observed<'_> {
        Observed {
            request: &self.request,
            principal: Principal::named(self.caller),
            groups: Vec::new(),
            caller_groups: Vec::new(),
            reached: self.reached.clone(),
            secret: self.secret.clone(),
            offer: self.offer.clone(),
            located: contract::locate(&self.namespaces, "kube-bind-", IDENTITY),
            complete: self.complete,
            revocation: self.revocation.clone(),
            export_request: self.export_request.clone().map(Arc::new),
            export: self.export.clone().map(Arc::new),
            schemas: Vec::new(),
            fulfilled: self.fulfilled,
            now: at(200),
        }
    }

    fn set(&mut self, phase: Phase, failure: Option<(&str, &str)>) {
        let ready = match failure {
            None => true_condition(READY),
            Some((reason, message)) => false_condition(READY, Severity::Error, reason, message),
        };
        let failed = failure.filter(|_| phase == Phase::Failed);
        self.export_request.as_mut().unwrap().status = Some(APIServiceExportRequestStatus {
            phase,
            terminal_message: failed.map(|(_, message)| message.to_owned()),
            conditions: vec![ready],
        });
    }

    #[track_caller]
    fn check(&self, expect: &[&str]) {
        let step = self.plan();
        let said = match &step {
            RequestStep::Write(writes) => writes.iter().map(word).collect(),
            RequestStep::Reinstate { revocation, .. } => vec![format!("reinstate {revocation}")],
            RequestStep::Fulfil { .. } => vec!["fulfil".to_owned()],
            RequestStep::Respond { contract } => vec![format!("respond {contract}")],
            RequestStep::Report(RequestOutcome::Unanswered(refused)) => vec![format!("unanswered {}", refused.reason)],
            RequestStep::Report(RequestOutcome::Pending(refused)) => vec![format!("pending {}", refused.reason)],
            RequestStep::Report(RequestOutcome::Failed(refused)) => vec![format!("failed {}", refused.reason)],
            RequestStep::Report(RequestOutcome::Succeeded { .. }) => vec!["succeeded".to_owned()],
        };
        assert_eq!(said, expect, "{step:#?}");
    }
}

/// A write in a word.
fn word(write: &Write) -> String {
    let words = [
        (write.created::<Namespace>().is_some(), "create contract"),
        (write.patch_of::<Namespace>().is_some(), "grant"),
        (write.created::<APIServiceExportRequest>().is_some(), "ask for export"),
        (write.deletes::<APIServiceExportRequest>(), "delete request"),
        (write.patch_of::<APIServiceExport>().is_some(), "mark"),
    ];
    if let WriteAction::Delete {
        preconditions: Some(preconditions),
        ..
    } = &write.action
        && write.is_of::<APIServiceExport>()
    {
        return format!("delete export {}", preconditions.uid.as_deref().unwrap_or_default());
    }
    let word = words.into_iter().find(|(is_it, _)| *is_it);
    word.map_or_else(|| write.to_string(), |(_, word)| word.to_owned())
}

#[test]
fn a_bind_goes_step_by_step_and_waits_for_others() {
    World::new().check(&["create contract"]);
    let mut world = World::with_contract();
    world.complete = false;
    world.check(&[]);
    world.secret = Some(secret());
    world.check(&["pending ContractNotReady"]);
    world.secret = None;
    world.complete = true;
    world.check(&["ask for export"]);
    let mut world = World::with_export();
    world.check(&[]);
    world.set(Phase::Succeeded, None);
    world.check(&["succeeded"]);
}

#[test]
fn what_a_request_makes_is_marked_with_it() {
    let world = World::with_export();
    let request = world.export_request.unwrap();
    assert_eq!(request.name_any(), "riders");
    assert_eq!(request.annotations()[annotations::TEMPLATE], "cowboys");
    assert_eq!(request.annotations()[annotations::REQUEST_UID], "r1");
    assert_eq!(request.spec, offer().request_spec());
    let contract = &world.namespaces[0];
    assert!(contract::is_contract(contract));
    assert_eq!(contract::identity(contract), Some(IDENTITY));
    assert_eq!(contract.annotations()[annotations::CLUSTER_PRETTY_NAME], "riders");
}

#[test]
fn nothing_is_made_for_who_may_not() {
    let mut world = World::with_contract();
    world.caller = "john";
    world.check(&["failed ClusterIdentityTaken"]);
    let mut world = World::new();
    let mut request = (*world.request).clone();
    request.spec.cluster_identity.identity = String::new();
    world.request = Arc::new(request);
    world.check(&["failed InvalidClusterIdentity"]);
}

#[test]
fn what_the_admin_can_mend_is_waited_for() {
    let mut world = World::new();
    world.offer = None;
    world.check(&["pending TemplateNotFound"]);
    world.offer = Some(Err(template::Refusal::ServerLacksRights {
        manifest: "role".to_owned(),
    }));
    world.check(&["pending ServerLacksRights"]);
    let mut world = World::with_export();
    world.set(Phase::Pending, Some(("SchemaNotFound", "no such CRD")));
    world.check(&["pending SchemaNotFound"]);
}

#[test]
fn what_is_said_is_said_once() {
    let mut world = World::new();
    world.offer = None;
    let RequestStep::Report(outcome) = world.plan() else {
        panic!("reports nothing");
    };
    let mut request = (*world.request).clone();
    let written = status::status(&request, &outcome, at(200));
    request.status = Some(serde_json::from_value::<BindableResourcesRequestStatus>(written).unwrap());
    world.request = Arc::new(request);
    world.check(&[]);
}

#[test]
fn a_second_template_is_granted_before_it_is_asked_for() {
    let mut world = World::with_contract();
    let mut other = offer();
    other.template = "bandits".to_owned();
    world.offer = Some(Ok(other));
    world.check(&["grant"]);
}

#[test]
fn a_later_bind_ends_a_revocation_and_an_earlier_one_does_not() {
    let mut world = World::with_contract();
    world.complete = false;
    // Whatever the clocks say: both were made at the same second.
    let mut revocation = Revocation {
        id: "v1".to_owned(),
        time: at(100),
        ..Revocation::default()
    };
    world.revocation = Some(revocation.clone());
    world.check(&["reinstate v1"]);
    revocation.requests.push("r1".to_owned());
    world.revocation = Some(revocation);
    world.check(&["pending CredentialsRevoked"]);
}

#[test]
fn a_failure_is_the_requests_own() {
    let mut world = World::with_export();
    world.export = None;
    world.set(Phase::Failed, Some(("TemplateNotGranted", "no such template")));
    world.check(&["failed TemplateNotGranted"]);
    let marks = world.export_request.as_mut().unwrap().annotations_mut();
    marks.insert(annotations::REQUEST_UID.to_owned(), "r0".to_owned());
    world.check(&["delete request"]);
}

#[test]
fn an_export_that_has_gone_is_made_again() {
    let mut world = World::with_export();
    world.set(Phase::Succeeded, None);
    world.export = None;
    world.check(&["delete request"]);
    world.export_request = None;
    world.check(&["ask for export"]);
}

#[test]
fn an_export_of_another_template_keeps_its_name() {
    let mut world = World::with_export();
    let marks = world.export.as_mut().unwrap().annotations_mut();
    marks.insert(annotations::TEMPLATE.to_owned(), "bandits".to_owned());
    world.check(&["failed ExportNameTaken"]);
}

#[test]
fn an_export_whose_objects_would_move_is_not_replaced() {
    let mut world = World::with_export();
    let mut changed = offer();
    changed.schemas[0].scope = Scope::Cluster;
    changed.export.isolation = Isolation::None;
    world.offer = Some(Ok(changed.clone()));
    world.set(Phase::Succeeded, None);
    world.check(&["succeeded"]);
    changed.export.resources.push(resource("wildwest.dev", "horses"));
    world.offer = Some(Ok(changed));
    world.check(&["failed PlacementFixed"]);
}

#[test]
fn a_request_that_updates_schemas_in_another_way_is_made_anew() {
    let mut world = World::with_export();
    world.set(Phase::Succeeded, None);
    world.check(&["succeeded"]);
    let mut changed = offer();
    changed.schema_update_policy = SchemaUpdatePolicy::Always;
    world.offer = Some(Ok(changed));
    world.check(&["delete request"]);
    world.export_request = None;
    let request: APIServiceExportRequest = world.created();
    assert_eq!(request.spec.schema_update_policy, SchemaUpdatePolicy::Always);
}

/// Killed after any of these writes, the next plan goes on where the last one stopped.
#[test]
fn an_export_that_differs_is_replaced() {
    let mut world = World::with_export();
    world.set(Phase::Succeeded, None);
    let mut changed = offer();
    changed.export.resources.push(resource("wildwest.dev", "horses"));
    world.offer = Some(Ok(changed));
    // Not deleted before it is seen marked, and then only as it was seen.
    world.check(&["mark"]);
    let export = world.export.as_mut().unwrap();
    export.metadata.resource_version = Some("7".to_owned());
    let marks = export.annotations_mut();
    marks.insert(annotations::REPLACE.to_owned(), "true".to_owned());
    world.check(&["delete request", "delete export e1"]);
    let writes = world.writes();
    let WriteAction::Delete {
        preconditions: Some(preconditions),
        propagation,
    } = &writes[1].action
    else {
        panic!("{writes:?}");
    };
    assert_eq!(preconditions.resource_version.as_deref(), Some("7"));
    assert_eq!(*propagation, PropagationPolicy::Orphan);
    // Taken back in time, the template has nothing deleted.
    let changed = world.offer.replace(Ok(offer()));
    world.check(&["succeeded"]);
    world.offer = changed;
    world.export_request = None;
    world.check(&["delete export e1"]);
    world.export.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(at(1)));
    world.check(&[]);
    world.export = None;
    world.check(&["ask for export"]);
}

fn secret() -> LocalSecretKeyRef {
    LocalSecretKeyRef {
        name: "response".to_owned(),
        key: "kubeconfig".to_owned(),
    }
}

#[test]
fn one_made_as_a_resource_is_answered_before_it_succeeds() {
    let mut world = World::with_export();
    world.secret = Some(secret());
    world.check(&[]);
    world.set(Phase::Succeeded, None);
    world.check(&["fulfil"]);
    world.fulfilled = true;
    let contract = world.namespaces[0].name_any();
    world.check(&[&format!("respond {contract}")]);
}

/// A request as it is once it has succeeded.
fn succeeded(request: &BindableResourcesRequest) -> Arc<BindableResourcesRequest> {
    let mut request = request.clone();
    request.status = Some(BindableResourcesRequestStatus {
        phase: Phase::Succeeded,
        ..BindableResourcesRequestStatus::default()
    });
    Arc::new(request)
}

#[test]
fn what_was_bound_for_a_request_is_not_bound_again_for_it() {
    #[track_caller]
    fn check(change: impl FnOnce(&mut World), expect: &str) {
        let mut world = World::with_export();
        world.secret = Some(secret());
        world.set(Phase::Succeeded, None);
        // It says that it is pending: it waits for its Secret, or somebody has set it back.
        world.fulfilled = true;
        change(&mut world);
        world.check(&[expect]);
    }
    let contract = World::with_export().namespaces[0].name_any();
    check(|_| {}, &format!("respond {contract}"));
    check(
        |world| {
            world.export = None;
            world.export_request = None;
        },
        "pending ExportNotFound",
    );
    check(
        |world| {
            let revocation = Revocation {
                id: "v1".to_owned(),
                ..Revocation::default()
            };
            world.revocation = Some(revocation);
        },
        "pending CredentialsRevoked",
    );
    // Nor is the export replaced when its template changes.
    check(
        |world| {
            let mut changed = offer();
            changed.export.resources.push(resource("wildwest.dev", "horses"));
            world.offer = Some(Ok(changed));
        },
        &format!("respond {contract}"),
    );
}

#[test]
fn a_response_says_what_is_bound_and_not_what_a_consumer_writes() {
    let mut world = World::with_export();
    world.set(Phase::Succeeded, None);
    let forged = world.export_request.as_mut().unwrap();
    forged.spec.resources.push(resource("wildwest.dev", "horses"));
    forged.spec.namespaces.push(NameRef::new("kube-system"));
    assert_eq!(requested(&world.observed()), Some(offer().request_spec()));
    world.offer = None;
    let told = requested(&world.observed()).unwrap();
    assert_eq!(told.resources, offer().export.resources);
    assert_eq!(told.namespaces, []);
    world.export = None;
    assert_eq!(requested(&world.observed()), None);
}

#[test]
fn a_final_refusal_names_a_mend_after_which_it_goes_on() {
    let mut world = World::with_contract();
    world.caller = "john";
    let message = |world: &World| match world.plan() {
        RequestStep::Report(RequestOutcome::Failed(refused)) => refused.message,
        step => panic!("{step:?}"),
    };
    // A caller simply makes the call again, so nothing has to be deleted first.
    assert!(!message(&world).contains("create it again"));
    world.secret = Some(secret());
    assert!(message(&world).ends_with("delete this request and create it again"));
}

#[test]
fn a_lost_response_is_written_again_for_the_owner_of_what_is_bound() {
    #[track_caller]
    fn check(change: impl FnOnce(&mut World), expect: &str) {
        let mut world = World::with_export();
        world.secret = Some(secret());
        world.set(Phase::Succeeded, None);
        // A template that has changed, or gone, is for the next request.
        world.offer = None;
        world.request = succeeded(&world.request);
        change(&mut world);
        world.check(&[expect]);
    }
    let contract = World::with_export().namespaces[0].name_any();
    check(|_| {}, &format!("respond {contract}"));
    check(|world| world.caller = "john", "unanswered ClusterIdentityTaken");
    check(|world| world.export = None, "unanswered ExportNotFound");
    // What the consumer has deleted, or written, says nothing.
    check(|world| world.export_request = None, &format!("respond {contract}"));
    check(
        |world| {
            let marks = world.export.as_mut().unwrap().annotations_mut();
            marks.insert(annotations::TEMPLATE.to_owned(), "bandits".to_owned());
        },
        "unanswered ExportNotFound",
    );
    check(
        |world| world.export.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(at(1))),
        "unanswered ExportNotFound",
    );
    // Nothing is made again, whatever the status says.
    check(
        |world| {
            world.namespaces.clear();
            world.export = None;
            world.export_request = None;
        },
        "unanswered ExportNotFound",
    );
}

#[test]
fn a_limit_refuses_a_call_and_has_a_resource_wait() {
    let mut world = World::new();
    let limits = crate::limits::Limits::default();
    world.reached = Some(limits.reached(crate::limits::LimitName::Contracts, None));
    world.check(&["failed LimitReached"]);
    world.secret = Some(LocalSecretKeyRef {
        name: "riders".to_owned(),
        key: "kubeconfig".to_owned(),
    });
    world.check(&["pending LimitReached"]);
    world.reached = None;
    assert!(!world.writes().is_empty());
}
