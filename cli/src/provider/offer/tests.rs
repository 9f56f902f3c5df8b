use bindery_proto::v1alpha2::{BindingResourceResponse, ExportRequest, PermissionClaim, Resource};

use super::*;

/// An answer for a binding `west` that exports `cowboys` and claims `secrets`.
pub(crate) fn answer() -> BindingResourceResponse {
    BindingResourceResponse {
        provider_namespace: "kube-bind-x".to_owned(),
        binding_name: "west".to_owned(),
        requests: vec![ExportRequest {
            name: "west".to_owned(),
            resources: vec![Resource {
                group: "wildwest.dev".to_owned(),
                resource: "cowboys".to_owned(),
                versions: Vec::new(),
            }],
            permission_claims: vec![PermissionClaim {
                group: String::new(),
                resource: "secrets".to_owned(),
                selector: None,
            }],
            ..ExportRequest::default()
        }],
        ..BindingResourceResponse::default()
    }
}

#[test]
fn claims_do_not_change_behind_the_back_of_whoever_accepts_them() {
    let shown = judge(&answer(), "west").unwrap();
    assert_eq!(same_claims(&shown, &shown), Ok(()));
    let mut wider = shown.clone();
    wider.claims[0].selector.label_selector =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector::default());
    let refusal = same_claims(&shown, &wider).expect_err("a refusal");
    assert!(refusal.to_string().contains("EVERY Secret"), "{refusal}");
}
