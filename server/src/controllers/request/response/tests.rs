use bindery_api::{
    consumer_rules::OBJECT_VERBS,
    v1alpha2::{APIServiceExportRequest, ExportResource, GroupResource, PermissionClaim},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{client::Body, core::Status};
use serde_json::Value;

use super::*;

fn request() -> BindableResourcesRequest {
    let mut request = BindableResourcesRequest::default();
    request.metadata.name = Some("riders".to_owned());
    request.metadata.namespace = Some("tenants".to_owned());
    request.metadata.uid = Some("r1".to_owned());
    request.spec.author = "jane".to_owned();
    request
}

fn place() -> LocalSecretKeyRef {
    LocalSecretKeyRef {
        name: "response".to_owned(),
        key: "config".to_owned(),
    }
}

/// An export of `cowboys` that claims `secrets`.
fn export_request() -> APIServiceExportRequestSpec {
    APIServiceExportRequestSpec {
        resources: vec![ExportResource {
            group_resource: GroupResource::new("wildwest.dev", "cowboys"),
            ..ExportResource::default()
        }],
        permission_claims: vec![PermissionClaim {
            group_resource: GroupResource::new("", "secrets"),
            ..PermissionClaim::default()
        }],
        ..APIServiceExportRequestSpec::default()
    }
}

fn written() -> Secret {
    Response {
        request: &request(),
        secret: &place(),
        contract: "kube-bind-a",
        requested: &export_request(),
        kubeconfig: &"apiVersion: v1".to_owned().into(),
    }
    .render()
}

fn name(standing: &ResponseSecret) -> &str {
    match standing {
        ResponseSecret::Missing => "missing",
        ResponseSecret::Open(_) => "open",
        ResponseSecret::Written => "written",
        ResponseSecret::Foreign(_) => "foreign",
        ResponseSecret::Stuck(_) => "stuck",
    }
}

#[track_caller]
fn check(change: impl FnOnce(&mut Secret), expect: &str) {
    let mut secret = written();
    change(&mut secret);
    let standing = standing(Some(secret), &request(), &place());
    assert_eq!(name(&standing), expect, "{standing:?}");
    if let ResponseSecret::Foreign(message) = standing {
        assert!(message.contains("tenants/response"), "{message}");
    }
}

fn mark(secret: &mut Secret, key: &str, value: Option<&str>) {
    let marks = secret.annotations_mut();
    match value {
        Some(value) => marks.insert(key.to_owned(), value.to_owned()),
        None => marks.remove(key),
    };
}

#[test]
fn a_secret_is_written_only_if_it_was_made_for_the_request_or_names_it() {
    assert_eq!(standing(None, &request(), &place()), ResponseSecret::Missing);
    check(|_| {}, "written");
    // A user's own, empty and annotated.
    check(|secret| secret.data = None, "open");
    check(
        |secret| {
            mark(secret, annotations::REQUEST, Some("riders"));
            mark(secret, annotations::AUTHOR, None);
            secret.labels_mut().clear();
        },
        "open",
    );
    check(|secret| mark(secret, annotations::REQUEST, None), "foreign");
    check(|secret| mark(secret, annotations::REQUEST, Some("others")), "foreign");
    check(
        |secret| mark(secret, annotations::REQUEST, Some("others/riders")),
        "foreign",
    );
    // Another author who makes a request of the same name must not get the response of the first.
    check(|secret| mark(secret, annotations::AUTHOR, Some("john")), "foreign");
    check(|secret| secret.type_ = Some("kubernetes.io/tls".to_owned()), "foreign");
    check(|secret| secret.type_ = None, "written");
}

#[test]
fn a_response_of_an_earlier_request_or_a_broken_one_is_written_anew() {
    let uid = |secret: &mut Secret| {
        secret
            .labels_mut()
            .insert(labels::REQUEST_UID.to_owned(), "r0".to_owned());
    };
    check(uid, "open");
    for key in ["config", "binding-response"] {
        check(
            |secret| {
                secret.data.as_mut().unwrap().remove(key);
            },
            "open",
        );
        check(
            |secret| {
                secret
                    .data
                    .as_mut()
                    .unwrap()
                    .insert(key.to_owned(), ByteString::default());
            },
            "open",
        );
    }
}

#[test]
fn nothing_is_issued_for_a_secret_that_cannot_be_written() {
    let fixed = |secret: &mut Secret| secret.immutable = Some(true);
    check(fixed, "written");
    check(
        |secret| {
            fixed(secret);
            secret.data = None;
        },
        "stuck",
    );
    check(
        |secret| secret.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)),
        "stuck",
    );
}

#[test]
fn a_response_holds_what_a_client_installs_from() {
    let secret = written();
    assert_eq!(secret.metadata.owner_references, None);
    let data = secret.data.unwrap();
    assert_eq!(data["config"].0, b"apiVersion: v1");
    let response: Value = serde_json::from_slice(&data["binding-response"].0).unwrap();
    assert_eq!(response["kind"], "BindingResourceResponse");
    assert_eq!(response["kubeconfig"], STANDARD.encode("apiVersion: v1"));
    assert_eq!(response["providerNamespace"], "kube-bind-a");
    assert_eq!(response["bindingName"], "riders");
    let requested: APIServiceExportRequest = serde_json::from_value(response["requests"][0].clone()).unwrap();
    assert_eq!(requested.name_any(), "riders");
    let rules = response["consumerRules"].as_array().unwrap();
    let resources: Vec<_> = rules.iter().map(|rule| &rule["resources"][0]).collect();
    assert_eq!(resources, ["cowboys", "cowboys/status", "secrets"]);
    assert_eq!(rules[2]["verbs"], serde_json::json!(OBJECT_VERBS));
}

/// A client of an API server that answers each question for the server's own rights by `allowed`.
fn client(allowed: bool) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| async move {
        assert!(
            request.uri().path().ends_with("/selfsubjectaccessreviews"),
            "{}",
            request.uri()
        );
        let answer = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {},
            "status": { "allowed": allowed },
        });
        Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(answer.to_string().into_bytes())))
    });
    Client::new(service, "default")
}

async fn check_refused(code: u16, message: &str, allowed: bool, expect: Option<&str>) {
    let mut status = Status::failure(message, "Reason");
    status.code = code;
    let error = kube::Error::Api(status.boxed());
    let refused = refused(&client(allowed), error.into(), "get", "tenants", &Subject::default()).await;
    assert_eq!(
        refused.ok().map(|refused| refused.reason).as_deref(),
        expect,
        "{message}"
    );
}

/// Whatever the API server's message says, its answer about the server's rights decides.
#[tokio::test]
async fn a_lacking_right_is_told_from_other_refusals() {
    let rbac = r#"secrets "a" is forbidden: User "s" cannot get resource "secrets" in API group "" in the namespace "tenants""#;
    check_refused(403, rbac, false, Some("ServerLacksRights")).await;
    check_refused(
        403,
        "an authorizer with words of its own says no",
        false,
        Some("ServerLacksRights"),
    )
    .await;
    let policy =
        "secrets \"a\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: such Secrets cannot be made here";
    check_refused(403, policy, true, Some("SecretCreationFailed")).await;
    check_refused(403, "exceeded quota: secrets", true, Some("SecretCreationFailed")).await;
    let immutable = "field is immutable when `immutable` is set";
    check_refused(422, immutable, false, Some("SecretCreationFailed")).await;
    check_refused(503, "later", true, None).await;
}

#[test]
fn the_missing_binding_can_be_pasted() {
    let server = Subject {
        kind: "ServiceAccount".to_owned(),
        name: "bindery-server".to_owned(),
        namespace: Some("kube-bind".to_owned()),
        api_group: None,
    };
    let binding: RoleBinding = serde_saphyr::from_str(&manifest("tenants", &server)).unwrap();
    assert_eq!(binding.metadata.namespace.as_deref(), Some("tenants"));
    assert_eq!(binding.role_ref.name, ROLE);
    assert_eq!(binding.subjects, Some(vec![server]));
    let shipped = include_str!("../../../../../deploy/server/responses-role.yaml");
    assert!(shipped.contains(&format!("name: {ROLE}\n")));
}
