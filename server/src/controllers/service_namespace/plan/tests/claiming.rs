//! Claims in mapped namespaces, and what is left of them when those end.

use bindery_api::v1alpha2::PermissionClaim;

use super::*;

fn claiming(resources: &[(&str, &str)]) -> World {
    let mut world = World::new();
    let mut riders = (*export("riders", false)).clone();
    riders.spec.permission_claims = resources
        .iter()
        .map(|(group, resource)| PermissionClaim {
            group_resource: GroupResource::new(*group, *resource),
            ..PermissionClaim::default()
        })
        .collect();
    world.exports = vec![Arc::new(riders)];
    world
}

#[test]
fn claims_are_put_on_record_and_served_in_the_mapped_namespace() {
    let assign = format!("assign {PROVIDER}");
    let create = format!("create {PROVIDER}");
    let mut world = claiming(&[("", "secrets"), ("bank.dev", "safes")]);
    // The server's own binding comes first; then the resources, Secrets by a shipped role, and safes by a Role.
    world.check(&["mark", &create, "bind", "role", "bind", "bind", "role", "bind", &assign]);
    world.take_over();
    world.check(&[]);
    let marks = world.namespace.as_ref().unwrap().annotations();
    assert_eq!(marks[annotations::GRANTED_CLAIMS], "secrets,safes.bank.dev");
    let mut names: Vec<_> = world.bindings.iter().map(|binding| binding.name_any()).collect();
    names.sort();
    let expect = [
        "kube-binder-claims-riders",
        "kube-binder-claims-riders:secrets",
        "kube-binder-resources-riders",
    ];
    assert_eq!(names, expect);
    assert_eq!(world.server_binding.as_ref().unwrap().name_any(), claims::SERVER_ROLE);
    // Without core claims the server need not see.
    let safes = claiming(&[("bank.dev", "safes")]);
    safes.check(&["mark", &create, "role", "bind", "role", "bind", &assign]);
}

#[test]
fn claims_that_an_export_made_anew_has_not_go_and_their_record_stays() {
    let mut world = claiming(&[("", "secrets"), ("", "configmaps")]);
    world.take_over();
    world.exports = claiming(&[("", "configmaps")]).exports;
    world.check(&["unbind"]);
    world.take_over();
    let names: Vec<_> = world.bindings.iter().map(|binding| binding.name_any()).collect();
    assert!(
        !names.contains(&"kube-binder-claims-riders:secrets".to_owned()),
        "{names:?}"
    );
    let marks = world.namespace.as_ref().unwrap().annotations();
    assert_eq!(marks[annotations::GRANTED_CLAIMS], "configmaps,secrets");
    // While it is not certain where things belong, nothing goes.
    world.exports = claiming(&[]).exports;
    world.scopes = Scopes::default();
    world.check(&[]);
}

#[test]
fn a_namespace_is_kept_for_a_source_and_goes_with_it() {
    let mut world = claiming(&[("", "secrets")]);
    world.take_over();
    world.object.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    world.server_binding = None;
    world.check(&["bind", "bind"]);
    world.take_over();
    world.check(&["count"]);
    let source = NamespaceLeftovers {
        has_sources: true,
        ..left(0, 0)
    };
    world.left = Some(source);
    world.check(&["keep", "mark released", "unbind", "unbind", "delete role", "let go"]);
    // Nobody maps it any more.
    world.object = None;
    (world.roles, world.bindings) = (Vec::new(), Vec::new());
    let marks = world.namespace.as_mut().unwrap().annotations_mut();
    marks.insert(annotations::RELEASED.to_owned(), "then".to_owned());
    world.check(&["keep"]);
    world.left = Some(left(0, 0));
    let delete = format!("delete {PROVIDER}");
    world.check(&[&delete]);
}

#[test]
fn a_namespace_that_was_released_is_in_use_again() {
    let mut world = World::settled();
    let marks = world.namespace.as_mut().unwrap().annotations_mut();
    marks.insert(annotations::RELEASED.to_owned(), "then".to_owned());
    world.check(&["mark released"]);
    world.take_over();
    world.check(&[]);
    assert!(
        !world
            .namespace
            .unwrap()
            .annotations()
            .contains_key(annotations::RELEASED)
    );
}

#[track_caller]
fn check_held(world: &World, resource: &str, released: bool, expect: (usize, bool)) {
    let mut leftovers = left(1, 0).leftovers;
    leftovers.objects[0].resource = GroupResource::new("wildwest.dev", resource);
    leftovers.objects[0].released = released;
    let left = world.seen(|seen| end::count(seen, leftovers, Vec::new()));
    assert_eq!(
        (left.leftovers.count(), left.leftovers.has_released()),
        expect,
        "{resource}"
    );
}

/// Its successor's rights do not reach to what an export had alone, so that waiting for that would never end.
#[test]
fn objects_hold_a_namespace_up_as_long_as_an_export_offers_them() {
    let mut world = World::settled();
    check_held(&world, "cowboys", false, (1, false));
    check_held(&world, "cowboys", true, (0, true));
    check_held(&world, "bandits", false, (0, true));
    world.exports = vec![export("riders", true)];
    check_held(&world, "cowboys", false, (1, false));
    world.exports.clear();
    check_held(&world, "cowboys", false, (0, true));
    world.pending_exports = vec!["riders".to_owned()];
    check_held(&world, "cowboys", false, (1, false));
    check_held(&world, "bandits", false, (1, false));
}

#[test]
fn copies_hold_a_namespace_up_as_long_as_somebody_withdraws_them() {
    let mut world = claiming(&[("", "secrets")]);
    let claimed = |resource: &str, copy_for: Option<&str>| claimed::ClaimedObject {
        object: SyncedObject {
            resource: GroupResource::new("", resource),
            namespace: PROVIDER.to_owned(),
            name: "permit".to_owned(),
            released: false,
            uid: None,
            version: None,
            waits_for: Vec::new(),
        },
        copy_for: copy_for.map(ToOwned::to_owned),
    };
    let look = |world: &World, objects: Vec<claimed::ClaimedObject>| {
        let left = world.seen(|seen| end::count(seen, Leftovers::default(), objects));
        (left.leftovers.count(), left.leftovers.has_released(), left.has_sources)
    };
    assert_eq!(look(&world, Vec::new()), (0, false, false));
    assert_eq!(
        look(&world, vec![claimed("secrets", Some(CONTRACT))]),
        (1, false, false)
    );
    assert_eq!(look(&world, vec![claimed("secrets", None)]), (0, false, true));
    assert_eq!(
        look(&world, vec![claimed("secrets", Some("kube-bind-other"))]),
        (0, false, true)
    );
    assert_eq!(
        look(&world, vec![claimed("configmaps", Some(CONTRACT))]),
        (0, true, false)
    );
    world.exports.clear();
    assert_eq!(look(&world, vec![claimed("secrets", Some(CONTRACT))]), (0, true, false));
    world.pending_exports = vec!["riders".to_owned()];
    assert_eq!(
        look(&world, vec![claimed("secrets", Some(CONTRACT))]),
        (1, false, false)
    );
}
