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
}
