//! What the server reads from a BindableResourcesRequest: whether a call or a user made it, who that was, and what its condition
//! says.

use bindery_api::{annotations, conditions::READY, v1alpha2::BindableResourcesRequest};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use crate::principal::Principal;

mod reason;

pub(crate) use reason::{OutsideReason, is_unverified};

/// The name that the author gave a request, which becomes the export's. It differs from the object's name for a request of a
/// call, which is named by a hash.
pub fn request_name(request: &BindableResourcesRequest) -> &str {
    let named = request.annotations().get(annotations::REQUEST_NAME);
    let named = named.filter(|_| request.is_marked_grpc()).map(String::as_str);
    named.or(request.metadata.name.as_deref()).unwrap_or_default()
}

/// The template a request is for.
pub fn template_name(request: &BindableResourcesRequest) -> Option<&str> {
    request
        .spec
        .template_ref
        .as_ref()
        .map(|template| template.name.as_str())
}

/// Who made a request: the caller that was authenticated, or the author of a resource, which the admission policy verifies.
pub fn principal(request: &BindableResourcesRequest, server_namespace: &str) -> Principal {
    let verified = request.annotations().get(annotations::PRINCIPAL);
    verified
        .filter(|_| request.is_grpc(server_namespace))
        .and_then(|json| Principal::from_json(json))
        .unwrap_or_else(|| Principal::named(&request.spec.author))
}

/// The owner groups by which the principal of a request may use the contract, as the server recorded them when it verified the
/// caller; none for a request made as a resource, whose author's groups nobody verified.
pub fn principal_groups(request: &BindableResourcesRequest, server_namespace: &str) -> Vec<String> {
    let recorded = request.annotations().get(annotations::PRINCIPAL_GROUPS);
    recorded
        .filter(|_| request.is_grpc(server_namespace))
        .and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default()
}

/// All groups of the caller that made a request, as the server recorded them when it verified the caller; none for a request made as a
/// resource.
pub fn caller_groups(request: &BindableResourcesRequest, server_namespace: &str) -> Vec<String> {
    let recorded = request.annotations().get(annotations::CALLER_GROUPS);
    recorded
        .filter(|_| request.is_grpc(server_namespace))
        .and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default()
}

/// The condition `Ready` of a request, which has no other condition.
pub fn ready(request: &BindableResourcesRequest) -> Option<&Condition> {
    let mut conditions = request.status.iter().flat_map(|status| &status.conditions);
    conditions.find(|condition| condition.type_ == READY)
}

#[cfg(test)]
mod tests {
    use bindery_api::{labels, v1alpha2::BindableResourcesRequestSpec};

    use super::*;

    #[track_caller]
    fn check(namespace: &str, marked: bool, expect: (&str, &str)) {
        let spec = BindableResourcesRequestSpec {
            author: "mallory".to_owned(),
            ..BindableResourcesRequestSpec::default()
        };
        let mut request = BindableResourcesRequest::new("bind-0", spec);
        request.metadata.namespace = Some(namespace.to_owned());
        let marks = request.annotations_mut();
        marks.insert(annotations::PRINCIPAL.to_owned(), Principal::named("jane").to_json());
        marks.insert(annotations::REQUEST_NAME.to_owned(), "riders".to_owned());
        marks.insert(annotations::PRINCIPAL_GROUPS.to_owned(), r#"["ranchers"]"#.to_owned());
        if marked {
            let labels = request.labels_mut();
            labels.insert(labels::VIA.to_owned(), labels::VIA_GRPC.to_owned());
        }
        let principal = principal(&request, "kube-bind").username;
        assert_eq!((request_name(&request), &*principal), expect);
        assert_eq!(request.is_grpc("kube-bind"), principal == "jane");
        assert_eq!(principal_groups(&request, "kube-bind").is_empty(), principal != "jane");
    }

    #[test]
    fn only_the_servers_own_record_says_who_was_verified() {
        check("kube-bind", true, ("riders", "jane"));
        check("kube-bind", false, ("bind-0", "mallory"));
        check("tenants", true, ("riders", "mallory"));
        check("tenants", false, ("bind-0", "mallory"));
    }
}
