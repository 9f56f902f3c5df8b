use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

#[test]
fn what_remains_is_named_with_its_place() {
    let object = |namespace: &str, name: &str, released| SyncedObject {
        resource: GroupResource::new("wildwest.dev", "sheriffs"),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        released,
        uid: None,
        version: None,
        waits_for: Vec::new(),
    };
    let mut leftovers = Leftovers {
        objects: vec![object("", "wyatt", false), object("kube-bind-a", "bat", true)],
    };
    assert_eq!(leftovers.to_string(), "1 object remains: sheriffs.wildwest.dev wyatt");
    leftovers.objects[1].released = false;
    assert_eq!(
        leftovers.to_string(),
        "2 objects remain: sheriffs.wildwest.dev wyatt, sheriffs.wildwest.dev kube-bind-a/bat"
    );
    leftovers.objects[1].waits_for = vec!["joe.example.dev/stays".to_owned()];
    let held = "sheriffs.wildwest.dev kube-bind-a/bat is being deleted and waits for finalizers: joe.example.dev/stays; if no program \
                removes them any more, an admin of the provider can: kubectl patch sheriffs.wildwest.dev bat -n kube-bind-a \
                --type=merge -p '{\"metadata\":{\"finalizers\":null}}'";
    assert!(leftovers.to_string().ends_with(&format!("; {held}")), "{leftovers}");
    assert_eq!(leftovers.explain_held().as_deref(), Some(held));
    leftovers.objects[0].waits_for = vec!["a/b".to_owned(), "c/d".to_owned()];
    let held = leftovers.explain_held().unwrap();
    assert!(
        held.contains("wyatt is being deleted and waits for finalizers: a/b, c/d, and 1 more object waits;"),
        "{held}"
    );
    assert!(
        held.contains("kubectl patch sheriffs.wildwest.dev wyatt --type"),
        "{held}"
    );
}

#[test]
fn only_an_object_that_is_being_deleted_waits_and_not_for_the_garbage_collector() {
    let waits_for = |deleting: bool| {
        let finalizers = ["foregroundDeletion", "joe.example.dev/stays", "orphan"].map(str::to_owned);
        let metadata = ObjectMeta {
            finalizers: Some(finalizers.into()),
            deletion_timestamp: deleting.then_some(Time(jiff::Timestamp::UNIX_EPOCH)),
            ..ObjectMeta::default()
        };
        SyncedObject::of(
            GroupResource::new("wildwest.dev", "sheriffs"),
            "",
            &metadata,
            "kube-bind-a",
        )
        .waits_for
    };
    assert!(waits_for(false).is_empty());
    assert_eq!(waits_for(true), ["joe.example.dev/stays"]);
}
