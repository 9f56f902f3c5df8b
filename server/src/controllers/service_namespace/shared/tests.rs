use std::sync::Arc;

use bindery_api::v1alpha2::{APIServiceExport, APIServiceNamespace, GroupResource, Isolation, PermissionClaim, Scope};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Subject};
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    controllers::service_namespace::{
        plan::{
            foreign_shared,
            tests::{CONTRACT, World, export, name, scopes},
        },
        sharing,
    },
    rbac::view,
    settings::tests::settings,
};

const RIGHT: &str = "kube-binder-claims-kube-bind-hd73d-riders:secrets";

/// A contract whose export of cluster-scoped objects without isolation claims Secrets, and an admin's namespace.
fn claiming() -> World {
    let mut world = with(Isolation::None, Scope::Cluster, &["secrets"]);
    world.shared = Some(admins("team1"));
    world
}

/// The same with what a server of an earlier version made: the namespace, which this contract and another one use, and rights in it.
fn made_before() -> World {
    let mut world = claiming();
    world.take_over();
    let namespace = world.shared.as_mut().unwrap();
    let label = (labels::COMPONENT.to_owned(), COMPONENT.to_owned());
    namespace.labels_mut().extend([label]);
    let users = [CONTRACT, "kube-bind-other"].map(|user| (user_annotation(user), annotations::TRUE.to_owned()));
    namespace.annotations_mut().extend(users);
    let claims = (annotations::GRANTED_CLAIMS.to_owned(), "secrets".to_owned());
    namespace.annotations_mut().extend([claims]);
    world
}

fn with(isolation: Isolation, scope: Scope, claims: &[&str]) -> World {
    let mut world = World::new();
    let mut riders = (*export("riders", false)).clone();
    riders.spec.isolation = isolation;
    riders.spec.permission_claims = claims
        .iter()
        .map(|resource| PermissionClaim {
            group_resource: GroupResource::new("", *resource),
            ..PermissionClaim::default()
        })
        .collect();
    world.exports = vec![Arc::new(riders)];
    world.scopes = scopes(&[("cowboys", scope)]);
    world
}

fn admins(name: &str) -> Namespace {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    let label = (labels::SHARED.to_owned(), annotations::TRUE.to_owned());
    namespace.labels_mut().extend([label]);
    namespace
}

fn deleted(export: &Arc<APIServiceExport>) -> Arc<APIServiceExport> {
    let mut deleted = (**export).clone();
    deleted.metadata.deletion_timestamp = self::export("riders", true).metadata.deletion_timestamp.clone();
    Arc::new(deleted)
}

fn ready(world: &World) -> &Condition {
    let status = world.object.as_ref().unwrap().status.as_ref().unwrap();
    bindery_api::conditions::get(&status.conditions, READY).unwrap()
}

fn published(world: &World) -> Option<&str> {
    world.object.as_ref()?.status.as_ref()?.shared_namespace.as_deref()
}

#[test]
fn nothing_is_shared_that_no_admin_labelled_and_the_condition_names_the_mend() {
    let mut world = claiming();
    world.shared = None;
    world.check(&["mark", "create kube-bind-hd73d-team1", "SharedNamespaceNotLabelled"]);
    world.take_over();
    world.check(&[]);
    let mend = "kubectl label namespace team1 kube-bind.io/shared=true";
    assert!(ready(&world).message.contains(mend), "{:?}", ready(&world));
    assert_eq!(published(&world), None);
    assert!(world.shared.is_none() && world.shared_bindings.is_empty() && world.bindings.is_empty());
    world.shared = Some(admins("team1"));
    world.check(&["bind", "assign kube-bind-hd73d-team1"]);
    world.take_over();
    assert_eq!(published(&world), Some("team1"));
    assert_eq!(world.shared_bindings[0].name_any(), RIGHT);
    // An admin who takes the label off takes the rights off.
    world.shared = None;
    world.check(&["unbind", "SharedNamespaceNotLabelled"]);
    world.take_over();
    assert_eq!(published(&world), None);
    // Also for an export that is being deleted, whose copies nobody can withdraw then.
    for deleting in [false, true] {
        let mut world = claiming();
        world.take_over();
        world.shared = None;
        world.exports = vec![deleted(&world.exports[0])];
        if deleting {
            world.object.as_mut().unwrap().metadata.deletion_timestamp =
                world.exports[0].metadata.deletion_timestamp.clone();
            world.check(&["drain", "unbind"]);
        } else {
            world.check(&["unbind", "assign kube-bind-hd73d-team1"]);
        }
        world.take_over();
        assert!(world.shared_bindings.is_empty());
    }
}

/// It may have been made before its admin thought of that name, so that what is given in it now was never meant for consumers.
#[test]
fn what_an_earlier_version_made_is_left_until_its_admin_takes_it_over() {
    let mut world = made_before();
    assert_eq!((published(&world), world.shared_bindings.len()), (Some("team1"), 1));
    world.check(&["unbind", "record", "SharedNamespaceNotLabelled"]);
    world.take_over();
    world.check(&[]);
    let mend = "kubectl label namespace team1 kube-bind.io/component-";
    assert!(ready(&world).message.contains(mend), "{:?}", ready(&world));
    assert_eq!(published(&world), None);
    let shared = world.shared.as_mut().unwrap();
    assert_eq!(
        users(shared).collect::<Vec<_>>(),
        ["kube-bind-other"],
        "the other leaves by itself"
    );
    shared.labels_mut().remove(labels::COMPONENT);
    world.check(&["bind", "assign kube-bind-hd73d-team1"]);
    // An end that its objects put off does not put off this.
    let mut ending = made_before();
    ending.object.as_mut().unwrap().metadata.deletion_timestamp =
        export("riders", true).metadata.deletion_timestamp.clone();
    ending.check(&["drain", "unbind", "record"]);
    ending.take_over();
    ending.check(&["bind", "bind"]);
}

#[test]
fn only_claims_of_cluster_scoped_exports_without_isolation_are_shared() {
    let assign = "assign kube-bind-hd73d-team1";
    let create = "create kube-bind-hd73d-team1";
    with(Isolation::None, Scope::Cluster, &[]).check(&["mark", create, assign]);
    let refused = "SharedNamespaceNotLabelled";
    with(Isolation::None, Scope::Cluster, &["secrets"]).check(&["mark", create, refused]);
    with(Isolation::Prefixed, Scope::Cluster, &["secrets"]).check(&["mark", create, "bind", "bind", assign]);
    with(Isolation::None, Scope::Namespaced, &["secrets"])
        .check(&["mark", create, "bind", "role", "bind", "bind", assign]);
}

#[test]
fn an_admins_namespace_is_shared_and_never_changed() {
    let mut world = claiming();
    world.check(&[
        "mark",
        "create kube-bind-hd73d-team1",
        "bind",
        "assign kube-bind-hd73d-team1",
    ]);
    world.take_over();
    assert_eq!(
        (published(&world), world.shared.as_ref()),
        (Some("team1"), Some(&admins("team1")))
    );
    world.exports.clear();
    world.check(&["unbind", "assign kube-bind-hd73d-team1"]);
    world.take_over();
    assert_eq!(
        (published(&world), world.shared.as_ref()),
        (None, Some(&admins("team1")))
    );
}

#[test]
fn rights_of_other_contracts_stay_untouched() {
    let mut world = claiming();
    world.take_over();
    let mut theirs = (*world.shared_bindings[0]).clone();
    theirs
        .labels_mut()
        .insert(labels::CONTRACT.to_owned(), "kube-bind-other".to_owned());
    world.shared_bindings.push(Arc::new(theirs.clone()));
    world.exports.clear();
    world.check(&["unbind", "assign kube-bind-hd73d-team1"]);
    world.shared_bindings = vec![Arc::new(theirs)];
    world.check(&["assign kube-bind-hd73d-team1"]);
}

#[test]
fn an_export_that_drains_or_is_made_anew_keeps_the_namespace() {
    let mut world = claiming();
    world.take_over();
    world.exports = vec![deleted(&world.exports[0])];
    world.check(&[]);
    world.exports.clear();
    world.pending_exports = vec!["riders".to_owned()];
    world.check(&[]);
    let mut unknown = claiming();
    unknown.take_over();
    unknown.scopes = scopes(&[]);
    unknown.check(&[]);
}

#[test]
fn without_a_proof_of_the_policy_nothing_is_given_in_a_shared_namespace() {
    let assign = "assign kube-bind-hd73d-team1";
    let mut world = claiming();
    world.proved.clear();
    world.check(&["mark", "create kube-bind-hd73d-team1", assign]);
    world.take_over();
    world.check(&[]);
    assert_eq!(published(&world), None);
    // The proof brings what waited for it.
    world.proved = vec!["riders".to_owned()];
    world.check(&["bind", assign]);
    world.take_over();
    world.check(&[]);
    assert_eq!(published(&world), Some("team1"));
    // And with it goes what was given.
    world.proved.clear();
    world.check(&["unbind"]);
    world.take_over();
    world.check(&[]);
    assert!(world.shared_bindings.is_empty() && world.shared.is_some());
}

#[test]
fn while_the_policy_is_missing_nothing_new_is_given_in_a_shared_namespace() {
    let mut world = claiming();
    world.withheld = true;
    world.check(&["mark", "create kube-bind-hd73d-team1", "AdmissionPolicyMissing"]);
    world.take_over();
    world.check(&[]);
    assert!(world.shared_bindings.is_empty());
    assert_eq!(published(&world), None);
    world.withheld = false;
    world.check(&["bind", "assign kube-bind-hd73d-team1"]);
    world.take_over();
    // What was given stays.
    world.withheld = true;
    world.check(&[]);
    assert_eq!(published(&world), Some("team1"));
    // Until the export's cluster-wide rights are taken back.
    world.proved.clear();
    world.check(&["unbind"]);
}

#[test]
fn an_export_that_is_proved_gets_nothing_for_one_that_is_not() {
    let mut world = claiming();
    let mut bandits = (*with(Isolation::None, Scope::Cluster, &["configmaps"]).exports[0]).clone();
    bandits.metadata.name = Some("bandits".to_owned());
    world.exports.push(Arc::new(bandits));
    world.take_over();
    let names: Vec<_> = world.shared_bindings.iter().map(|binding| binding.name_any()).collect();
    assert_eq!(names, [RIGHT]);
    world.proved.push("bandits".to_owned());
    world.check(&["bind"]);
}

#[test]
fn what_an_export_writes_in_the_cluster_proves_the_policy() {
    let contract = |name: &str| Some([(labels::CONTRACT.to_owned(), name.to_owned())].into());
    let role = |of: &str, verbs: &[&str]| {
        let mut role = ClusterRole {
            rules: Some(crate::rbac::rules(
                &[GroupResource::new("wildwest.dev", "sheriffs")],
                verbs,
            )),
            ..ClusterRole::default()
        };
        role.metadata.labels = contract(of);
        role
    };
    let binding = |of: &str| {
        let mut binding = ClusterRoleBinding::default();
        binding.metadata.labels = contract(of);
        binding
    };
    let is_proved =
        |role: Option<&ClusterRole>, binding: Option<&ClusterRoleBinding>| rights::is_proved(role, binding, CONTRACT);
    let (writes, bound) = (role(CONTRACT, &crate::rbac::WRITE_VERBS), binding(CONTRACT));
    assert!(is_proved(Some(&writes), Some(&bound)));
    assert!(!is_proved(Some(&writes), None));
    assert!(!is_proved(None, Some(&bound)));
    // To read in the whole cluster, no proof is needed.
    let reads = role(CONTRACT, &crate::rbac::READ_VERBS);
    assert!(!is_proved(Some(&reads), Some(&bound)));
    let other = "kube-bind-other";
    assert!(!is_proved(Some(&role(other, &["create"])), Some(&bound)));
    assert!(!is_proved(Some(&writes), Some(&binding(other))));
}

#[test]
fn an_object_of_somebody_else_is_shown_and_the_mapping_works() {
    let mut world = claiming();
    world.take_over();
    let writes = world.seen(|seen| foreign_shared(seen, RIGHT));
    assert_eq!(
        writes.iter().map(name).collect::<Vec<_>>(),
        ["unbind", "ForeignSharedNamespace"]
    );
    let status = &writes[1].patch_of::<APIServiceNamespace>().unwrap()["status"];
    assert_eq!(status["namespace"], "kube-bind-hd73d-team1");
    assert!(status["sharedNamespace"].is_null());
    let message = status["conditions"][0]["message"].as_str().unwrap();
    assert!(message.contains(RIGHT), "{message}");
}

#[test]
fn a_reserved_name_is_refused_and_the_mapping_works() {
    let mut world = claiming();
    world.reserved = Some("it is Kubernetes' own".to_owned());
    world.check(&["mark", "create kube-bind-hd73d-team1", "SharedNamespaceReserved"]);
    world.take_over();
    world.check(&[]);
    let status = world.object.as_ref().unwrap().status.as_ref().unwrap();
    assert_eq!(status.namespace.as_deref(), Some("kube-bind-hd73d-team1"));
    assert_eq!(published(&world), None);
}

#[test]
fn names_that_are_not_shared() {
    let settings = settings();
    let is_contract = |name: &str| name == "old-contract";
    for name in [
        "kube-system",
        "kube-public",
        "kube-node-lease",
        "default",
        "kube-bind",
        "kube-bind-x",
        "kube-bind-a-team1",
    ] {
        assert!(reserved(name, &settings, is_contract).is_some(), "{name}");
    }
    // Of a contract from when the prefix was another one.
    for name in ["old-contract", "old-contract-team1", "old-contract-a-b"] {
        assert!(reserved(name, &settings, is_contract).is_some(), "{name}");
    }
    for name in ["wild-west", "old-contracts", "kube-binding", "team1", "kube-systems"] {
        assert_eq!(reserved(name, &settings, is_contract), None, "{name}");
    }
}

#[test]
fn a_mapped_namespace_that_ends_leaves_the_shared_one() {
    let mut world = claiming();
    world.take_over();
    world.object.as_mut().unwrap().metadata.deletion_timestamp =
        export("riders", true).metadata.deletion_timestamp.clone();
    world.check(&["bind", "bind"]);
    world.take_over();
    world.check(&["count"]);
    world.namespace = None;
    world.check(&["unbind", "let go"]);
    world.object = None;
    world.check(&["unbind"]);
}

#[test]
fn what_an_earlier_version_made_goes_after_the_last_and_when_it_is_empty() {
    let made = made_before().shared.unwrap();
    let server = Subject {
        kind: "User".to_owned(),
        name: "server".to_owned(),
        ..Subject::default()
    };
    let (claims, view) = (
        crate::rbac::claims::server("team1", server.clone()),
        view::server("team1", server),
    );
    let (claims, bound) = (Some(&claims), (Some(&claims), Some(&view)));
    sharing::tests::check(&made, bound, None, "stay");
    let mut left = made;
    left.annotations_mut().clear();
    sharing::tests::check(&left, (None, None), None, "bind");
    sharing::tests::check(&left, (claims, None), None, "bind");
    sharing::tests::check(&left, bound, None, "look");
    sharing::tests::check(&left, bound, Some(true), "wait");
    sharing::tests::check(&left, bound, Some(false), "delete");
    sharing::tests::check(&admins("team1"), (None, None), Some(false), "stay");
}

proptest! {
    /// Wherever claims are served: rights are the contract's own, in the two namespaces and nowhere else, never in the
    /// contract's; and nothing is left to do after it was done.
    #[test]
    fn rights_are_the_contracts_own_and_never_in_its_own_namespace(
        isolation in prop_oneof![Just(Isolation::None), Just(Isolation::Prefixed), Just(Isolation::Namespaced)],
        cluster: bool,
        claims in vec(prop_oneof![Just("secrets"), Just("configmaps"), Just("serviceaccounts")], 0..4),
        labelled: bool,
    ) {
        let scope = if cluster { Scope::Cluster } else { Scope::Namespaced };
        let mut world = with(isolation, scope, &claims);
        world.shared = labelled.then(|| admins("team1"));
        world.take_over();
        world.check(&[]);
        let roles = world.roles.iter().chain(&world.shared_roles);
        let namespaces = roles.map(|role| role.namespace());
        let bindings = || world.bindings.iter().chain(&world.shared_bindings);
        for namespace in namespaces.chain(bindings().map(|binding| binding.namespace())) {
            prop_assert_ne!(namespace.as_deref(), Some(CONTRACT));
        }
        for binding in bindings() {
            let subjects = binding.subjects.as_deref().unwrap_or_default();
            prop_assert_eq!(subjects.len(), 1);
            prop_assert_eq!(subjects[0].namespace.as_deref(), Some(CONTRACT));
        }
        let is_shared = cluster && isolation == Isolation::None && !claims.is_empty();
        prop_assert_eq!(published(&world), (is_shared && labelled).then_some("team1"));
        prop_assert_eq!(!world.shared_bindings.is_empty(), is_shared && labelled);
        // And all of it goes with the export.
        world.exports.clear();
        world.take_over();
        world.check(&[]);
        prop_assert!(world.bindings.is_empty() && world.roles.is_empty());
        prop_assert!(world.shared_bindings.is_empty() && world.shared_roles.is_empty());
    }
}
