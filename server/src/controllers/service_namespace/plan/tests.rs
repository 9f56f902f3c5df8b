use std::sync::Arc;

use bindery_api::{
    Conditions as _,
    v1alpha2::{
        APIServiceExport, APIServiceExportSpec, APIServiceNamespaceSpec, APIServiceNamespaceStatus, BoundSchema,
        BoundSchemaSpec, ExportResource, Isolation, Scope,
    },
};
use jiff::Timestamp;
use k8s_openapi::{
    api::rbac::v1::{Role, RoleBinding, Subject},
    apimachinery::pkg::apis::meta::v1::Time,
};

use serde_json::Value;

use super::*;
use crate::limits::{LimitName, LimitReached};
use crate::{
    controllers::service_namespace::{
        apply::is_about,
        observed::{NamespaceLeftovers, SharedSeen},
        valuable::Valuables,
    },
    leftovers::{Leftovers, SyncedObject},
    rbac::{Scopes, claims, view},
};

mod claiming;
mod valuable;

pub(in super::super) const CONTRACT: &str = "kube-bind-hd73d";
const PROVIDER: &str = "kube-bind-hd73d-team1";

pub(in super::super) struct World {
    name: &'static str,
    pub(in super::super) object: Option<APIServiceNamespace>,
    pub(in super::super) namespace: Option<Namespace>,
    contract_stays: bool,
    pub(in super::super) exports: Vec<Arc<APIServiceExport>>,
    pub(in super::super) scopes: Scopes,
    pub(in super::super) pending_exports: Vec<String>,
    pub(in super::super) roles: Vec<Arc<Role>>,
    pub(in super::super) bindings: Vec<Arc<RoleBinding>>,
    server_binding: Option<RoleBinding>,
    view_binding: Option<RoleBinding>,
    left: Option<NamespaceLeftovers>,
    pub(in super::super) shared: Option<Namespace>,
    pub(in super::super) shared_roles: Vec<Arc<Role>>,
    pub(in super::super) shared_bindings: Vec<Arc<RoleBinding>>,
    pub(in super::super) proved: Vec<String>,
    pub(in super::super) withheld: bool,
    pub(in super::super) reserved: Option<String>,
    beyond: Option<LimitReached>,
}

pub(in super::super) fn export(name: &str, deleting: bool) -> Arc<APIServiceExport> {
    let spec = APIServiceExportSpec {
        resources: vec![ExportResource {
            group_resource: GroupResource::new("wildwest.dev", "cowboys"),
            versions: Vec::new(),
        }],
        ..APIServiceExportSpec::default()
    };
    let mut export = APIServiceExport::new(name, spec);
    export.metadata.uid = Some(format!("uid of {name}"));
    export.metadata.deletion_timestamp = deleting.then_some(Time(Timestamp::UNIX_EPOCH));
    Arc::new(export)
}

pub(in super::super) fn scopes(resources: &[(&str, Scope)]) -> Scopes {
    let schema = |(plural, scope): &(&str, Scope)| {
        let mut spec = BoundSchemaSpec {
            group: "wildwest.dev".to_owned(),
            scope: *scope,
            ..BoundSchemaSpec::default()
        };
        (*plural).clone_into(&mut spec.names.plural);
        BoundSchema::new(plural, spec)
    };
    let schemas: Vec<_> = resources.iter().map(schema).collect();
    schemas.iter().collect()
}

fn server() -> Subject {
    Subject {
        kind: "User".to_owned(),
        name: "server".to_owned(),
        ..Subject::default()
    }
}

fn left(held: usize, released: usize) -> NamespaceLeftovers {
    let object = |index: usize| SyncedObject {
        resource: GroupResource::new("wildwest.dev", "cowboys"),
        namespace: PROVIDER.to_owned(),
        name: format!("cowboy-{index}"),
        released: index >= held,
        uid: None,
        version: None,
        waits_for: Vec::new(),
    };
    NamespaceLeftovers {
        leftovers: Leftovers {
            objects: (0..held + released).map(object).collect(),
        },
        valuables: Some(Valuables::default()),
        ..NamespaceLeftovers::default()
    }
}

impl World {
    /// Just made by a konnector.
    pub(in super::super) fn new() -> Self {
        let mut object = APIServiceNamespace::new("team1", APIServiceNamespaceSpec {});
        object.metadata.uid = Some("n1".to_owned());
        Self {
            name: "team1",
            object: Some(object),
            namespace: None,
            contract_stays: true,
            exports: vec![export("riders", false)],
            scopes: scopes(&[("cowboys", Scope::Namespaced), ("bandits", Scope::Namespaced)]),
            pending_exports: Vec::new(),
            roles: Vec::new(),
            bindings: Vec::new(),
            server_binding: None,
            view_binding: None,
            left: None,
            shared: None,
            shared_roles: Vec::new(),
            shared_bindings: Vec::new(),
            proved: vec!["riders".to_owned()],
            withheld: false,
            reserved: None,
            beyond: None,
        }
    }

    /// Everything done.
    fn settled() -> Self {
        let mut world = Self::new();
        world.take_over();
        world
    }

    fn deleting() -> Self {
        let mut world = Self::settled();
        world.object.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        world.check(&["bind", "bind"]);
        world.take_over();
        world
    }

    pub(in super::super) fn seen<T>(&self, decide: impl FnOnce(&Observed<'_>) -> T) -> T {
        decide(&Observed {
            contract: CONTRACT,
            name: self.name,
            object: self.object.as_ref(),
            namespace: self.namespace.as_ref(),
            contract_stays: self.contract_stays,
            exports: &self.exports,
            scopes: &self.scopes,
            pending_exports: &self.pending_exports,
            roles: &self.roles,
            bindings: &self.bindings,
            server_binding: self.server_binding.as_ref(),
            view_binding: self.view_binding.as_ref(),
            left: self.left.as_ref(),
            shared: SharedSeen {
                namespace: self.shared.as_ref(),
                roles: &self.shared_roles,
                bindings: &self.shared_bindings,
                proved: &self.proved,
                withheld: self.withheld,
                reserved: self.reserved.clone(),
            },
            beyond: self.beyond.clone(),
            server: &server(),
            now: Timestamp::UNIX_EPOCH,
        })
    }

    fn step(&self) -> NamespaceStep {
        self.seen(plan)
    }

    /// Makes true what is planned, as the API server would.
    pub(in super::super) fn take_over(&mut self) {
        let (NamespaceStep::Apply(writes) | NamespaceStep::Drain(writes)) = self.step() else {
            panic!("{:?}", self.step());
        };
        self.take(writes);
    }

    fn take(&mut self, writes: Vec<Write>) {
        for write in writes {
            let is_shared = is_about(&write, self.name);
            let (namespace, roles, bindings) = if is_shared {
                (&mut self.shared, &mut self.shared_roles, &mut self.shared_bindings)
            } else {
                (&mut self.namespace, &mut self.roles, &mut self.bindings)
            };
            if let Some(made) = write.created::<Namespace>() {
                *namespace = Some(made);
            } else if let Some(patch) = write.patch_of::<Namespace>() {
                annotate(namespace.as_mut().unwrap(), patch);
            } else if let Some(role) = write.created::<Role>() {
                roles.push(Arc::new(role));
            } else if let Some(binding) = write.created::<RoleBinding>() {
                if binding.name_any() == claims::SERVER_ROLE {
                    self.server_binding = Some(binding);
                } else if binding.name_any() == view::VIEW_BINDING {
                    self.view_binding = Some(binding);
                } else {
                    bindings.push(Arc::new(binding));
                }
            } else if write.deletes::<Role>() {
                roles.retain(|role| role.name_any() != write.name);
            } else if write.deletes::<RoleBinding>() {
                bindings.retain(|binding| binding.name_any() != write.name);
            } else if let Some(patch) = write.patch_of::<APIServiceNamespace>() {
                self.patch_object(patch);
            } else {
                panic!("{write:?}");
            }
        }
    }

    fn patch_object(&mut self, patch: &Value) {
        let object = self.object.as_mut().unwrap();
        let metadata = &patch["metadata"];
        if let Some(finalizers) = metadata.get("finalizers") {
            object.metadata.finalizers = serde_json::from_value(finalizers.clone()).unwrap();
        }
        if let Some(owners) = metadata.get("ownerReferences") {
            object.metadata.owner_references = serde_json::from_value(owners.clone()).unwrap();
        }
        if let Some(status) = patch.get("status") {
            object.status = serde_json::from_value::<Option<APIServiceNamespaceStatus>>(status.clone()).unwrap();
        }
    }

    #[track_caller]
    pub(in super::super) fn check(&self, expect: &[&str]) {
        let step = self.step();
        let said: Vec<String> = match &step {
            NamespaceStep::Apply(writes) => writes.iter().map(name).collect(),
            NamespaceStep::Drain(writes) => std::iter::once("drain".to_owned())
                .chain(writes.iter().map(name))
                .collect(),
            NamespaceStep::Leave(writes) => std::iter::once("keep".to_owned())
                .chain(writes.iter().map(name))
                .collect(),
            NamespaceStep::Blind(writes) => std::iter::once("blind".to_owned())
                .chain(writes.iter().map(name))
                .collect(),
            NamespaceStep::Delete(write) => vec![name(write)],
            NamespaceStep::Count => vec!["count".to_owned()],
        };
        assert_eq!(said, expect, "{step:#?}");
    }
}

/// As a merge patch does.
fn annotate(namespace: &mut Namespace, patch: &Value) {
    for (key, value) in patch["metadata"]["annotations"].as_object().unwrap() {
        match value.as_str() {
            Some(value) => namespace.annotations_mut().insert(key.clone(), value.to_owned()),
            None => namespace.annotations_mut().remove(key),
        };
    }
}

/// A write in a word.
pub(in super::super) fn name(write: &Write) -> String {
    if let Some(patch) = write.patch_of::<APIServiceNamespace>() {
        if !write.is_status() {
            let finalizers = patch["metadata"]["finalizers"].as_array();
            let is_given_up = finalizers.is_some_and(Vec::is_empty);
            return if is_given_up { "let go" } else { "mark" }.to_owned();
        }
        let assigned = patch["status"]["namespace"].as_str().unwrap_or_default();
        let reason = patch["status"]["conditions"][0]["reason"].as_str();
        return reason.map_or_else(|| format!("assign {assigned}"), ToOwned::to_owned);
    }
    if let Some(patch) = write.patch_of::<Namespace>() {
        let entries = patch["metadata"]["annotations"].as_object().unwrap();
        let released = entries.contains_key(annotations::RELEASED);
        return if released { "mark released" } else { "record" }.to_owned();
    }
    if write.is_of::<Namespace>() {
        let verb = if write.deletes::<Namespace>() {
            "delete"
        } else {
            "create"
        };
        return format!("{verb} {}", write.name);
    }
    let word = match write.is_of::<Role>() {
        true if write.deletes::<Role>() => "delete role",
        true if write.created::<Role>().is_some() => "role",
        true => "patch role",
        false if write.deletes::<RoleBinding>() => "unbind",
        false => "bind",
    };
    word.to_owned()
}

#[test]
fn a_namespace_is_assigned_when_it_and_its_rights_are_there() {
    let assign = format!("assign {PROVIDER}");
    let create = format!("create {PROVIDER}");
    World::new().check(&["mark", &create, "role", "bind", &assign]);
    World::settled().check(&[]);
}

/// Killed after any write, the rest is done by the next plan, and nothing twice.
#[test]
fn every_half_done_state_converges() {
    for kept in 0..32_u32 {
        let whole = World::settled();
        let mut world = World::new();
        let keep = |bit: u32| kept & (1 << bit) != 0;
        if keep(0) {
            let object = world.object.as_mut().unwrap();
            object.metadata = whole.object.as_ref().unwrap().metadata.clone();
        }
        if keep(1) {
            world.namespace.clone_from(&whole.namespace);
        }
        if keep(2) {
            world.roles.clone_from(&whole.roles);
        }
        if keep(3) {
            world.bindings.clone_from(&whole.bindings);
        }
        if keep(4) {
            world.object.as_mut().unwrap().status = whole.object.as_ref().unwrap().status.clone();
        }
        world.take_over();
        world.check(&[]);
        assert_eq!(world.object, whole.object, "{kept:b}");
        assert_eq!((world.roles, world.bindings), (whole.roles, whole.bindings));
    }
}

#[test]
fn takes_over_nothing_that_is_not_ours() {
    let mut world = World::settled();
    let namespace = world.namespace.as_mut().unwrap();
    namespace
        .labels_mut()
        .insert(labels::CONTRACT.to_owned(), "kube-bind-hd73d2".to_owned());
    world.check(&["NamespaceOfOtherContract"]);
    let namespace = world.namespace.as_mut().unwrap();
    namespace
        .labels_mut()
        .insert(labels::CONTRACT.to_owned(), CONTRACT.to_owned());
    let other = format!("{CONTRACT}/team2");
    namespace
        .annotations_mut()
        .insert(annotations::API_SERVICE_NAMESPACE.to_owned(), other);
    world.check(&["NamespaceOfOtherContract"]);
    // Nor is it deleted.
    let object = world.object.as_mut().unwrap();
    object.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    world.left = Some(left(0, 0));
    world.check(&["let go"]);
}

#[test]
fn a_name_that_no_namespace_can_have_is_refused() {
    let mut world = World::new();
    world.name = "policy.probe";
    world.check(&["InvalidName"]);
}

#[test]
fn rights_follow_the_exports() {
    let mut world = World::settled();
    world.exports.push(export("bandits", false));
    world.check(&["mark", "role", "bind"]);
    world.take_over();
    assert_eq!(world.object.as_ref().unwrap().owner_references().len(), 2);
    // One that drains keeps its rights, one that has gone does not.
    world.exports[1] = export("bandits", true);
    world.check(&[]);
    world.exports.pop();
    world.check(&["unbind", "delete role"]);
    world.take_over();
    let mut bent = (*world.roles[0]).clone();
    bent.rules = None;
    world.roles = vec![Arc::new(bent)];
    world.check(&["patch role"]);
}

#[test]
fn an_export_that_is_made_anew_keeps_its_rights_meanwhile() {
    let mut world = World::settled();
    let successor = world.exports.pop().unwrap();
    world.pending_exports = vec!["riders".to_owned()];
    world.check(&[]);
    world.pending_exports = vec!["bandits".to_owned()];
    world.check(&["unbind", "delete role"]);
    world.exports = vec![successor];
    world.check(&[]);
}

/// Cluster-scoped objects have their place in the contract namespace, in one mapped namespace, or in none.
#[test]
fn an_export_has_rights_only_where_its_objects_stand() {
    let assign = format!("assign {PROVIDER}");
    let create = format!("create {PROVIDER}");
    let with = |isolation, within: Option<&str>| {
        let mut world = World::new();
        world.scopes = scopes(&[("cowboys", Scope::Cluster)]);
        let mut sheriffs = (*export("riders", false)).clone();
        sheriffs.spec.isolation = isolation;
        sheriffs.spec.cluster_scoped_namespace = within.map(ToOwned::to_owned);
        world.exports = vec![Arc::new(sheriffs)];
        world
    };
    with(Isolation::Prefixed, None).check(&["mark", &create, &assign]);
    with(Isolation::None, None).check(&["mark", &create, &assign]);
    with(Isolation::Namespaced, None).check(&["mark", &create, &assign]);
    with(Isolation::Namespaced, Some("team2")).check(&["mark", &create, &assign]);
    with(Isolation::Namespaced, Some("team1")).check(&["mark", &create, "role", "bind", &assign]);
    // What was given for another placement is taken, once that one is certain.
    let mut moved = World::settled();
    moved.scopes = Scopes::default();
    moved.check(&[]);
    moved.scopes = scopes(&[("cowboys", Scope::Cluster)]);
    moved.check(&["unbind", "delete role"]);
}

/// Objects that stay are found by it, when neither an export nor a template tells of them.
#[test]
fn what_is_granted_is_recorded_for_good_and_before_it_is() {
    let mut world = World::settled();
    let record =
        |world: &World| GrantRecord::value(&recorded(world.namespace.as_ref().unwrap(), GrantRecord::Resources));
    assert_eq!(record(&world), "cowboys.wildwest.dev");
    let mut other = (*export("bandits", false)).clone();
    other.spec.resources[0].group_resource = GroupResource::new("wildwest.dev", "bandits");
    world.exports = vec![Arc::new(other)];
    let NamespaceStep::Apply(writes) = world.step() else {
        panic!("not kept");
    };
    let at = |wanted: &str| writes.iter().position(|write| name(write) == wanted).unwrap();
    assert!(at("record") < at("role"), "{writes:#?}");
    let patch = writes[at("record")].patch_of::<Namespace>().unwrap();
    assert_eq!(
        patch["metadata"]["annotations"][annotations::GRANTED_RESOURCES],
        "bandits.wildwest.dev,cowboys.wildwest.dev"
    );
}

#[test]
fn a_lack_of_rights_is_said_with_the_namespace_that_others_may_use() {
    let mut world = World::new();
    let lacking = |world: &World| world.seen(|seen| super::lacking(seen, "apply this".to_owned()));
    let write = lacking(&world).expect("a status");
    let patch = write.patch_of::<APIServiceNamespace>().unwrap();
    assert_eq!(patch["status"]["namespace"], PROVIDER);
    assert_eq!(patch["status"]["conditions"][0]["reason"], "ServerLacksRights");
    let object = world.object.as_mut().unwrap();
    object.status = serde_json::from_value(patch["status"].clone()).unwrap();
    assert_eq!(lacking(&world), None, "says it twice");
}

#[test]
fn nothing_new_is_made_in_a_contract_that_goes() {
    let mut world = World::new();
    world.contract_stays = false;
    world.check(&[]);
}

#[test]
fn a_namespace_goes_when_nothing_of_ours_is_left_in_it() {
    let mut world = World::deleting();
    world.check(&["count"]);
    world.left = Some(left(2, 0));
    world.check(&["drain", "Draining"]);
    world.left = Some(left(0, 0));
    let delete = format!("delete {PROVIDER}");
    world.check(&[&delete]);
    world.namespace.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    world.check(&[]);
    world.namespace = None;
    world.check(&["let go"]);
}

/// Its copies are those of objects that live, so nobody would remove them.
#[test]
fn a_namespace_that_is_still_needed_ends_without_waiting_for_its_copies() {
    let mut world = World::deleting();
    world.left = Some(left(2, 0));
    world.check(&["drain", "Draining"]);
    let still_needed = annotations::STILL_NEEDED.to_owned();
    let object = world.object.as_mut().unwrap();
    object
        .annotations_mut()
        .insert(still_needed, annotations::TRUE.to_owned());
    world.check(&["let go"]);
    world.exports = vec![export("riders", true)];
    world.check(&["drain", "Draining"]);
    world.exports = vec![export("riders", true), export("others", false)];
    world.check(&["drain", "role", "bind", "Draining"]);
}

/// The konnector removes what an earlier export left by the rights of one that there is.
#[test]
fn an_export_that_was_made_since_has_rights_in_a_namespace_that_ends_until_nothing_is_left_in_it() {
    let mut world = World::deleting();
    world.left = Some(left(2, 0));
    world.exports = vec![export("others", false)];
    world.check(&["drain", "role", "bind", "unbind", "delete role", "Draining"]);
    world.take_over();
    world.check(&["drain"]);
    world.contract_stays = false;
    world.exports = vec![export("more", false)];
    world.check(&["drain"]);
    world.left = Some(left(0, 0));
    world.check(&[&format!("delete {PROVIDER}")]);
}

/// Kubernetes says which finalizers hold a namespace, but not on which object.
#[test]
fn what_holds_a_namespace_that_is_being_deleted_is_named_with_its_mend() {
    let mut world = World::deleting();
    let namespace = world.namespace.as_mut().unwrap();
    namespace.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let remaining =
        "Some content in the namespace has finalizers remaining: joe.example.dev/stays in 1 resource instances";
    let status = serde_json::json!({"conditions": [{
        "type": "NamespaceFinalizersRemaining", "status": "False", "message": "All content-preserving finalizers finished",
    }]});
    namespace.status = serde_json::from_value(status).unwrap();
    world.check(&[]);
    let condition = &mut world
        .namespace
        .as_mut()
        .unwrap()
        .status
        .as_mut()
        .unwrap()
        .conditions
        .as_mut()
        .unwrap()[0];
    condition.status = "True".to_owned();
    condition.message = Some(remaining.to_owned());
    world.check(&["count"]);
    let mut held = left(1, 0);
    held.leftovers.objects[0].waits_for = vec!["joe.example.dev/stays".to_owned()];
    for (left, expect) in [
        (
            held,
            "kubectl patch cowboys.wildwest.dev cowboy-0 -n kube-bind-hd73d-team1",
        ),
        (left(0, 0), remaining),
    ] {
        world.left = Some(left);
        world.check(&["drain", "HeldByFinalizers"]);
        world.take_over();
        world.check(&["drain"]);
        let ready = world.object.as_ref().unwrap().condition(READY).unwrap();
        assert!(
            ready.message.contains(expect) && ready.message.contains("joe.example.dev/stays"),
            "{ready:?}"
        );
    }
    let object = world.object.take();
    world.check(&[]);
    // The consumer's own request for it may wait for others, too.
    world.object = object;
    world.namespace = None;
    let finalizers = vec![finalizers::NAMESPACE.to_owned(), "joe.example.dev/stays".to_owned()];
    world.object.as_mut().unwrap().metadata.finalizers = Some(finalizers);
    world.check(&["mark"]);
    world.take_over();
    world.check(&["HeldByFinalizers"]);
    world.take_over();
    let ready = world.object.as_ref().unwrap().condition(READY).unwrap();
    let mend = "kubectl patch apiservicenamespaces.kube-bind.io team1 -n kube-bind-hd73d ";
    assert!(ready.message.contains(mend), "{ready:?}");
    world.check(&[]);
}

#[test]
fn objects_that_were_let_go_keep_their_namespace() {
    let mut world = World::deleting();
    world.left = Some(left(0, 1));
    world.check(&["keep", "mark released", "unbind", "delete role", "let go"]);
    world.left = Some(left(1, 1));
    world.check(&["drain", "Draining"]);
}

#[test]
fn a_namespace_whose_object_vanished_ends_the_same_way() {
    let mut world = World::settled();
    world.object = None;
    world.check(&["bind", "bind"]);
    world.take_over();
    world.check(&["count"]);
    world.left = Some(left(1, 0));
    world.check(&["drain"]);
    world.left = Some(left(0, 0));
    let delete = format!("delete {PROVIDER}");
    world.check(&[&delete]);
    world.namespace = None;
    world.check(&[]);
}

#[test]
fn an_assigned_namespace_is_never_another() {
    let mut object = APIServiceNamespace::new("team1", APIServiceNamespaceSpec {});
    assert_eq!(provider_namespace(CONTRACT, &object), PROVIDER);
    object.status = Some(APIServiceNamespaceStatus {
        namespace: Some("kube-bind-hd73d-old".to_owned()),
        ..APIServiceNamespaceStatus::default()
    });
    assert_eq!(provider_namespace(CONTRACT, &object), "kube-bind-hd73d-old");
}

#[test]
fn beyond_the_limit_nothing_is_made() {
    let mut world = World::new();
    world.beyond = Some(LimitReached {
        name: LimitName::Namespaces,
        limit: 3,
        contract: Some("kube-bind-a".to_owned()),
    });
    world.check(&["TooManyNamespaces"]);
    world.take_over();
    world.check(&[]);
    let ready = world.object.as_ref().unwrap().condition(READY).unwrap();
    assert!(
        ready.message.contains('3') && ready.message.contains("--max-namespaces-per-contract"),
        "{ready:?}"
    );
    world.object.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    world.check(&[]);
}

/// Too long names are shortened with a doubled dash, which no other namespace of the contract has.
#[test]
fn a_shortened_namespace_is_found_and_kept() {
    let mut world = World::new();
    let long: &'static str = "a-team-with-a-name-that-is-as-long-as-names-of-namespaces-can-b";
    world.name = long;
    world.object.as_mut().unwrap().metadata.name = Some(long.to_owned());
    world.take_over();
    world.check(&[]);
    let made = world.namespace.as_ref().unwrap();
    assert!(made.name_any().starts_with("kube-bind-hd73d--") && made.name_any().len() <= 63);
    assert_eq!(
        made.annotations()[annotations::API_SERVICE_NAMESPACE],
        format!("{CONTRACT}/{long}")
    );
}
