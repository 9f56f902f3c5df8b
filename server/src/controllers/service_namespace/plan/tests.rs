use bindery_api::v1alpha2::{
    APIServiceExportSpec, APIServiceNamespaceSpec, APIServiceNamespaceStatus, ExportResource, GroupResource,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::remaining::Object;

const CONTRACT: &str = "kube-bind-hd73d";
const PROVIDER: &str = "kube-bind-hd73d-team1";

struct World {
    name: &'static str,
    object: Option<APIServiceNamespace>,
    namespace: Option<Namespace>,
    contract_stays: bool,
    exports: Vec<Arc<APIServiceExport>>,
    awaited: Vec<String>,
    roles: Vec<Arc<Role>>,
    bindings: Vec<Arc<RoleBinding>>,
    remaining: Option<Remaining>,
}

fn export(name: &str, deleting: bool) -> Arc<APIServiceExport> {
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

fn remaining(held: usize, released: usize) -> Remaining {
    let object = |index: usize| Object {
        resource: GroupResource::new("wildwest.dev", "cowboys"),
        namespace: PROVIDER.to_owned(),
        name: format!("cowboy-{index}"),
        released: index >= held,
    };
    Remaining {
        objects: (0..held + released).map(object).collect(),
    }
}

impl World {
    /// Just made by a konnector.
    fn new() -> Self {
        let mut object = APIServiceNamespace::new("team1", APIServiceNamespaceSpec {});
        object.metadata.uid = Some("n1".to_owned());
        Self {
            name: "team1",
            object: Some(object),
            namespace: None,
            contract_stays: true,
            exports: vec![export("riders", false)],
            awaited: Vec::new(),
            roles: Vec::new(),
            bindings: Vec::new(),
            remaining: None,
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
        world
    }

    fn step(&self) -> Step {
        plan(&Observed {
            contract: CONTRACT,
            name: self.name,
            object: self.object.as_ref(),
            namespace: self.namespace.as_ref(),
            contract_stays: self.contract_stays,
            exports: &self.exports,
            awaited: &self.awaited,
            roles: &self.roles,
            bindings: &self.bindings,
            remaining: self.remaining.as_ref(),
            now: Timestamp::UNIX_EPOCH,
        })
    }

    /// Makes true what is planned, as the API server would.
    fn take_over(&mut self) {
        let Step::Apply(ops) = self.step() else {
            panic!("{:?}", self.step());
        };
        for op in ops {
            let object = self.object.as_mut().unwrap();
            match op {
                Op::Patch(patch) => {
                    let metadata = &patch["metadata"];
                    if let Some(finalizers) = metadata.get("finalizers") {
                        object.metadata.finalizers = serde_json::from_value(finalizers.clone()).unwrap();
                    }
                    if let Some(owners) = metadata.get("ownerReferences") {
                        object.metadata.owner_references = serde_json::from_value(owners.clone()).unwrap();
                    }
                }
                Op::Say(patch) => {
                    object.status =
                        serde_json::from_value::<Option<APIServiceNamespaceStatus>>(patch["status"].clone()).unwrap();
                }
                Op::CreateNamespace(namespace) => self.namespace = Some(*namespace),
                Op::CreateRole(role) => self.roles.push(Arc::new(*role)),
                Op::CreateBinding(binding) => self.bindings.push(Arc::new(*binding)),
                Op::DeleteRole { name, .. } => self.roles.retain(|role| role.name_any() != name),
                Op::DeleteBinding { name, .. } => self.bindings.retain(|binding| binding.name_any() != name),
                other => panic!("{other:?}"),
            }
        }
    }

    #[track_caller]
    fn check(&self, expect: &[&str]) {
        let step = self.step();
        let said: Vec<String> = match &step {
            Step::Apply(ops) => ops.iter().map(name).collect(),
            Step::Drain(ops) => std::iter::once("drain".to_owned())
                .chain(ops.iter().map(name))
                .collect(),
            Step::Count => vec!["count".to_owned()],
        };
        assert_eq!(said, expect, "{step:#?}");
    }
}

fn name(op: &Op) -> String {
    match op {
        Op::Patch(patch) => match patch["metadata"]["finalizers"].as_array() {
            Some(finalizers) if finalizers.is_empty() => "let go".to_owned(),
            _ => "mark".to_owned(),
        },
        Op::Say(patch) => {
            let ready = &patch["status"]["conditions"][0];
            match ready["reason"].as_str() {
                Some(reason) => reason.to_owned(),
                None => format!("assign {}", patch["status"]["namespace"].as_str().unwrap_or_default()),
            }
        }
        Op::CreateNamespace(namespace) => format!("create {}", namespace.name_any()),
        Op::PatchNamespace { patch, .. } => {
            let marks = patch["metadata"]["annotations"].as_object().unwrap();
            let released = marks.contains_key(annotations::RELEASED);
            if released { "mark released" } else { "record" }.to_owned()
        }
        Op::DeleteNamespace { name, .. } => format!("delete {name}"),
        Op::CreateRole(_) => "role".to_owned(),
        Op::PatchRole { .. } => "patch role".to_owned(),
        Op::CreateBinding(_) => "bind".to_owned(),
        Op::DeleteRole { .. } => "delete role".to_owned(),
        Op::DeleteBinding { .. } => "unbind".to_owned(),
    }
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
    world.remaining = Some(remaining(0, 0));
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
    world.awaited = vec!["riders".to_owned()];
    world.check(&[]);
    world.awaited = vec!["bandits".to_owned()];
    world.check(&["unbind", "delete role"]);
    world.exports = vec![successor];
    world.check(&[]);
}

/// Objects that stay are found by it, when neither an export nor a template tells of them.
#[test]
fn what_is_granted_is_recorded_for_good_and_before_it_is() {
    let mut world = World::settled();
    let recorded = |world: &World| remaining::granted_record(&remaining::granted(world.namespace.as_ref().unwrap()));
    assert_eq!(recorded(&world), "cowboys.wildwest.dev");
    let mut other = (*export("bandits", false)).clone();
    other.spec.resources[0].group_resource = GroupResource::new("wildwest.dev", "bandits");
    world.exports = vec![Arc::new(other)];
    let Step::Apply(ops) = world.step() else {
        panic!("not kept");
    };
    let at = |wanted: &str| ops.iter().position(|op| name(op) == wanted).unwrap();
    assert!(at("record") < at("role"), "{ops:#?}");
    let Op::PatchNamespace { patch, .. } = &ops[at("record")] else {
        panic!("{ops:#?}");
    };
    assert_eq!(
        patch["metadata"]["annotations"][annotations::GRANTED_RESOURCES],
        "bandits.wildwest.dev,cowboys.wildwest.dev"
    );
}

#[test]
fn a_lack_of_rights_is_said_with_the_namespace_that_others_may_use() {
    let mut world = World::new();
    let lacking = |world: &World| {
        let seen = Observed {
            contract: CONTRACT,
            name: world.name,
            object: world.object.as_ref(),
            namespace: None,
            contract_stays: true,
            exports: &world.exports,
            awaited: &[],
            roles: &[],
            bindings: &[],
            remaining: None,
            now: Timestamp::UNIX_EPOCH,
        };
        super::lacking(&seen, "apply this".to_owned())
    };
    let Some(Op::Say(patch)) = lacking(&world) else {
        panic!("says nothing");
    };
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
    world.remaining = Some(remaining(2, 0));
    world.check(&["drain", "Draining"]);
    world.remaining = Some(remaining(0, 0));
    let delete = format!("delete {PROVIDER}");
    world.check(&[&delete]);
    world.namespace.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    world.check(&[]);
    world.namespace = None;
    world.check(&["let go"]);
}

#[test]
fn objects_that_were_let_go_keep_their_namespace() {
    let mut world = World::deleting();
    world.remaining = Some(remaining(0, 1));
    world.check(&["mark released", "unbind", "delete role", "let go"]);
    world.remaining = Some(remaining(1, 1));
    world.check(&["drain", "Draining"]);
}

#[test]
fn a_namespace_whose_object_vanished_ends_the_same_way() {
    let mut world = World::settled();
    world.object = None;
    world.check(&["count"]);
    world.remaining = Some(remaining(1, 0));
    world.check(&["drain"]);
    world.remaining = Some(remaining(0, 0));
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
