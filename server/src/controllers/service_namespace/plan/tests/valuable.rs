//! The end of provider namespaces with valuable objects in them, or with objects that the server may not see.

use super::*;
use crate::controllers::service_namespace::valuable::{Unseen, ValuableObject};

fn valuables(names: &[&str], unseen: &[Unseen]) -> NamespaceLeftovers {
    let object = |name: &&str| ValuableObject {
        resource: GroupResource::new("", "persistentvolumeclaims"),
        name: (*name).to_owned(),
    };
    NamespaceLeftovers {
        valuables: Some(Valuables {
            objects: names.iter().map(object).collect(),
            unseen: unseen.to_vec(),
        }),
        ..left(0, 0)
    }
}

fn annotation(world: &World, key: &str) -> Option<String> {
    world.namespace.as_ref().unwrap().annotations().get(key).cloned()
}

/// Carries out the writes of a namespace that is left or kept.
fn carry_out(world: &mut World) {
    match world.step() {
        NamespaceStep::Leave(writes) | NamespaceStep::Blind(writes) => world.take(writes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_valuable_object_keeps_its_namespace_and_is_named() {
    let mut world = World::deleting();
    world.left = Some(valuables(&["data"], &[]));
    world.check(&["keep", "mark released", "unbind", "delete role", "let go"]);
    carry_out(&mut world);
    world.object = None;
    world.check(&["keep"]);
    assert_eq!(
        annotation(&world, annotations::KEPT_FOR).as_deref(),
        Some("1 object keeps it: persistentvolumeclaims data")
    );
    assert!(annotation(&world, annotations::RELEASED).is_some());
    // Another object keeps it now.
    world.left = Some(valuables(&["backup"], &[]));
    world.check(&["keep", "record"]);
    carry_out(&mut world);
    world.check(&["keep"]);
    world.left = Some(left(0, 0));
    let delete = format!("delete {PROVIDER}");
    world.check(&[&delete]);
}

#[test]
fn copies_drain_before_anybody_looks_for_valuable_objects() {
    let mut world = World::deleting();
    let namespace = world.namespace.clone().unwrap();
    let needs = end::needs_look;
    assert!(!needs(&left(1, 0), &namespace));
    assert!(needs(&left(0, 0), &namespace) && needs(&left(0, 1), &namespace));
    let mut named = namespace;
    named.annotations_mut().insert(
        annotations::KEPT_FOR.to_owned(),
        "1 object keeps it: secrets a".to_owned(),
    );
    assert!(needs(&left(0, 0), &named), "it may be empty by now");
    assert!(!needs(&left(0, 1), &named), "it stays, and says why");
    world.left = Some(NamespaceLeftovers {
        valuables: valuables(&["data"], &[]).valuables,
        ..left(1, 0)
    });
    world.check(&["drain", "Draining"]);
}

#[test]
fn what_the_server_may_not_see_keeps_the_namespace_and_is_told() {
    let mut world = World::deleting();
    let unseen = Unseen::Named(GroupResource::new("bank.dev", "safes"));
    world.left = Some(valuables(&[], std::slice::from_ref(&unseen)));
    world.check(&["blind", "ServerLacksRights"]);
    carry_out(&mut world);
    world.check(&["blind"]);
    let ready = world.object.as_ref().unwrap().condition(READY).unwrap();
    assert!(ready.message.contains("resources: [safes]"), "{ready:?}");
    // A right that was given a moment ago may not be in effect yet.
    world.object.as_mut().unwrap().status = None;
    world.view_binding.as_mut().unwrap().metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    world.check(&["blind"]);
    world.view_binding.as_mut().unwrap().metadata.creation_timestamp = None;
    // The APIServiceNamespace is gone.
    world.object = None;
    world.check(&["blind", "record"]);
    carry_out(&mut world);
    world.check(&["blind"]);
    // What is known to be valuable is named first.
    world.left = Some(valuables(&["data"], &[unseen]));
    world.check(&["keep", "mark released", "unbind", "delete role"]);
}

#[test]
fn a_namespace_that_was_kept_is_in_use_again() {
    let mut world = World::settled();
    for key in [annotations::RELEASED, annotations::KEPT_FOR] {
        let marks = world.namespace.as_mut().unwrap().annotations_mut();
        marks.insert(key.to_owned(), "then".to_owned());
    }
    world.take_over();
    world.check(&[]);
    assert_eq!(annotation(&world, annotations::RELEASED), None);
    assert_eq!(annotation(&world, annotations::KEPT_FOR), None);
}
