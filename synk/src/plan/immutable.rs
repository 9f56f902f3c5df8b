//! Says which objects are deleted and created again because the API server refuses to change them.

use bindery_runtime::errors::explain;
use serde_json::Value;

use crate::object::Gvk;

/// Whether an object of this kind is to be replaced after the API server refused to change it with this error. If the
/// error names several faults, each must be an immutable field: otherwise the new object would be refused too, and none
/// would remain.
pub fn must_recreate(gvk: &Gvk, live: &Value, error: &kube::Error) -> bool {
    let causes = match error {
        kube::Error::Api(status) => status.details.as_ref().map(|details| details.causes.as_slice()),
        _ => None,
    };
    let mut causes = causes.unwrap_or_default().iter();
    is_immutable(gvk, live, &explain(error)) && causes.all(|cause| is_immutable(gvk, live, &cause.message))
}

/// Whether the message says that an immutable field differs. Only the message does: the refusal has the reason and the
/// causes of any invalid or forbidden value. A CRD is never replaced, because deleting it deletes all objects of its
/// kind.
fn is_immutable(gvk: &Gvk, live: &Value, message: &str) -> bool {
    let says = |text: &str| message.contains(text);
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("apps" | "extensions", "DaemonSet" | "Deployment") | ("batch", "Job") => says("field is immutable"),
        ("", "Service") => says("field is immutable") || says("may not change once set") || says("can not be unset"),
        ("", "PersistentVolume") => {
            says("is immutable after creation") && live["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
        }
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            says("must be specified for an update")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{Status, response::StatusCause};
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(api_version: &str, kind: &str, live: &Value, message: &str, expect: bool) {
        assert_eq!(
            is_immutable(&Gvk::new(api_version, kind), live, message),
            expect,
            "{kind}: {message}"
        );
    }

    #[test]
    fn only_what_the_document_names_is_replaced() {
        let none = json!({});
        let immutable = "spec.selector: Invalid value: {}: field is immutable";
        for (api_version, kind) in [
            ("apps/v1", "DaemonSet"),
            ("apps/v1", "Deployment"),
            ("batch/v1", "Job"),
            ("v1", "Service"),
        ] {
            check(api_version, kind, &none, immutable, true);
            check(api_version, kind, &none, "spec.replicas: Invalid value: -1", false);
        }
        check(
            "v1",
            "Service",
            &none,
            "spec.clusterIPs[0]: Invalid value: may not change once set",
            true,
        );
        check(
            "v1",
            "Service",
            &none,
            "spec.healthCheckNodePort: can not be unset",
            true,
        );
        check("apps/v1", "StatefulSet", &none, immutable, false);
        check(
            "v1",
            "Secret",
            &none,
            "data: Forbidden: field is immutable when `immutable` is set",
            false,
        );
        check("example.com/v1", "Job", &none, immutable, false);
        check(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            &none,
            immutable,
            false,
        );
        let volume = |policy: &str| json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
        let source = "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation";
        check("v1", "PersistentVolume", &volume("Retain"), source, true);
        check("v1", "PersistentVolume", &volume("Delete"), source, false);
        let webhook = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
        check(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            &none,
            webhook,
            true,
        );
    }

    /// An object that is deleted because of one fault, and not made anew because of another, is an outage.
    #[test]
    fn nothing_is_replaced_if_the_new_one_would_be_refused_too() {
        #[track_caller]
        fn check(causes: &[&str], expect: bool) {
            let message = format!("Deployment.apps \"web\" is invalid: [{}]", causes.join(", "));
            let mut status = Status::failure(&message, "Invalid").with_code(422);
            let causes: Vec<_> = causes
                .iter()
                .map(|message| StatusCause {
                    reason: "FieldValueInvalid".to_owned(),
                    message: (*message).to_owned(),
                    field: "spec".to_owned(),
                })
                .collect();
            status.details = serde_json::from_value(json!({"causes": causes})).unwrap();
            let error = kube::Error::Api(status.boxed());
            assert_eq!(
                must_recreate(&Gvk::new("apps/v1", "Deployment"), &json!({}), &error),
                expect,
                "{message}"
            );
        }
        let immutable = "Invalid value: {}: field is immutable";
        check(&[immutable], true);
        check(&[immutable, immutable], true);
        check(
            &[immutable, "Invalid value: -1: must be greater than or equal to 0"],
            false,
        );
        let status = Status::failure(immutable, "Invalid").with_code(422);
        let error = kube::Error::Api(status.boxed());
        assert!(must_recreate(&Gvk::new("apps/v1", "Deployment"), &json!({}), &error));
    }
}
