use bindery_api::{annotations, labels};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace},
    rbac::v1::Role,
};
use kube::api::ObjectMeta;

use super::{apply::is_same, *};

impl Write {
    /// The object that the write creates, if that is of this type.
    pub(crate) fn created<K: Object>(&self) -> Option<K> {
        match &self.action {
            WriteAction::Create { object, .. } if self.is_of::<K>() => {
                Some(serde_json::from_value(serde_json::to_value(object).unwrap()).unwrap())
            }
            _ => None,
        }
    }

    /// The patch of the object, or of its status, if the object is of this type.
    pub(crate) fn patch_of<K: Object>(&self) -> Option<&Value> {
        match &self.action {
            WriteAction::Patch(patch) | WriteAction::PatchStatus(patch) if self.is_of::<K>() => Some(patch),
            _ => None,
        }
    }

    /// Whether the write deletes an object of this type.
    pub(crate) fn deletes<K: Object>(&self) -> bool {
        self.is_of::<K>() && matches!(self.action, WriteAction::Delete { .. })
    }
}

fn map() -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some("menu".to_owned()),
            namespace: Some("team1".to_owned()),
            uid: Some("u1".to_owned()),
            resource_version: Some("7".to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

#[test]
fn a_write_is_named_by_request_kind_and_object() {
    let role = Role {
        metadata: map().metadata,
        ..Role::default()
    };
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some("team1".to_owned());
    for (write, expect) in [
        (Write::create("", &role, &[]), "create Role team1/menu"),
        (Write::patch("", &map(), json!({})), "patch ConfigMap team1/menu"),
        (
            Write::status("", &namespace, &json!({})),
            "patch status of Namespace team1",
        ),
        (Write::delete("", &namespace), "delete Namespace team1"),
    ] {
        assert_eq!(write.to_string(), expect);
    }
}

#[test]
fn a_created_object_is_sent_whole() {
    let mut wanted = map();
    wanted.data = Some([("dish".to_owned(), "beans".to_owned())].into());
    let write = Write::create("", &wanted, &[]);
    assert_eq!(write.created::<ConfigMap>(), Some(wanted));
    assert_eq!(write.created::<Namespace>(), None);
    let WriteAction::Create { object, .. } = write.action else {
        panic!("no creation");
    };
    let sent = serde_json::to_value(object).unwrap();
    assert_eq!(
        (&sent["apiVersion"], &sent["kind"]),
        (&json!("v1"), &json!("ConfigMap"))
    );
}

#[test]
fn a_patch_names_the_object_as_it_was_seen() {
    let patch = |write: Write| write.patch_of::<ConfigMap>().unwrap().clone();
    let seen = json!({ "metadata": { "uid": "u1", "resourceVersion": "7" }, "data": null });
    assert_eq!(patch(Write::patch("", &map(), json!({ "data": null }))), seen);
    let annotated = json!({ "metadata": { "uid": "u1", "resourceVersion": "7", "annotations": { "a": "b" } } });
    assert_eq!(patch(Write::annotate("", &map(), &json!({ "a": "b" }))), annotated);
    let status = json!({ "metadata": { "uid": "u1" }, "status": { "phase": "Done" } });
    assert_eq!(
        patch(Write::status("", &map(), &json!({ "phase": "Done" })).of_any_version()),
        status
    );
}

#[test]
fn a_deletion_names_the_object_by_uid_and_perhaps_as_it_was_seen() {
    #[track_caller]
    fn check(write: &Write, expect: Option<(&str, Option<&str>)>, propagates: PropagationPolicy) {
        let expect = expect.map(|(uid, version)| Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: version.map(ToOwned::to_owned),
        });
        let action = WriteAction::Delete {
            preconditions: expect,
            propagation: propagates,
        };
        assert_eq!(write.action, action);
    }
    check(
        &Write::delete("", &map()),
        Some(("u1", None)),
        PropagationPolicy::Background,
    );
    check(
        &Write::delete("", &ConfigMap::default()),
        None,
        PropagationPolicy::Background,
    );
    let seen = Write::delete_seen("", &map()).leaving_dependents();
    check(&seen, Some(("u1", Some("7"))), PropagationPolicy::Orphan);
}

#[test]
fn an_existing_object_is_ours_if_what_identifies_it_is_the_same() {
    let meta = |contract: &str, namespace: Option<&str>| ObjectMeta {
        labels: Some([(labels::CONTRACT.to_owned(), contract.to_owned())].into()),
        annotations: namespace.map(|key| [(annotations::API_SERVICE_NAMESPACE.to_owned(), key.to_owned())].into()),
        ..ObjectMeta::default()
    };
    let both = [labels::CONTRACT, annotations::API_SERVICE_NAMESPACE];
    let wanted = meta("a", Some("a/team1"));
    assert!(is_same(&both, &wanted, &meta("a", Some("a/team1"))));
    assert!(!is_same(&both, &wanted, &meta("b", Some("a/team1"))));
    assert!(!is_same(&both, &wanted, &meta("a", None)));
    assert!(is_same(&both[..1], &wanted, &meta("a", None)));
    assert!(!is_same(&both[..1], &wanted, &ObjectMeta::default()));
    assert!(is_same(&[], &wanted, &ObjectMeta::default()), "any object counts");
}
