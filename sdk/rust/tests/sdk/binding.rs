//! Binding: what is asked for, how long it is waited for, and what comes of it.

use std::time::Duration;

use bindery_proto::v1alpha2::{
    BindableResourcesRequest, BindableResourcesRequestStatus, BindingResourceResponse, Condition,
    CreateBindableResourcesRequestRequest, CreateBindableResourcesRequestResponse, ExportRequest, Kubeconfig,
    ObjectMeta, Phase, Resource,
};
use bindery_sdk::BindRequest;
use bindery_sdk::manifests::ManifestOptions;
use prost::Message as _;

use crate::server::{Answer, Script, message};

fn create(phase: Phase, response: Option<BindingResourceResponse>) -> Answer {
    let condition = Condition {
        r#type: "Ready".to_owned(),
        status: "False".to_owned(),
        reason: "SchemaUnsupported".to_owned(),
        message: "CRD cowboys.wildwest.dev has no schema".to_owned(),
        ..Condition::default()
    };
    let status = BindableResourcesRequestStatus {
        phase: phase.into(),
        conditions: vec![condition],
        ..BindableResourcesRequestStatus::default()
    };
    let metadata = ObjectMeta {
        name: "cowboys".to_owned(),
        ..ObjectMeta::default()
    };
    let request = BindableResourcesRequest {
        metadata: Some(metadata),
        status: Some(status),
        spec: None,
    };
    vec![message(&CreateBindableResourcesRequestResponse {
        bindable_resources_request: Some(request),
        response,
    })]
}

/// The response for the binding of this name, with a kubeconfig.
pub(crate) fn done(name: &str) -> BindingResourceResponse {
    let resource = Resource {
        group: "wildwest.dev".to_owned(),
        resource: "cowboys".to_owned(),
        versions: vec!["v1alpha1".to_owned()],
    };
    BindingResourceResponse {
        provider_namespace: "kube-bind-west".to_owned(),
        binding_name: name.to_owned(),
        kubeconfig: Some(Kubeconfig {
            kubeconfig: b"hunter2".to_vec().into(),
            ..Kubeconfig::default()
        }),
        requests: vec![ExportRequest {
            name: name.to_owned(),
            resources: vec![resource],
            ..ExportRequest::default()
        }],
        ..BindingResourceResponse::default()
    }
}

pub(crate) fn succeeded(name: &str) -> Answer {
    create(Phase::Succeeded, Some(done(name)))
}

/// The milliseconds that the server was asked to wait, call by call; none where it was not told.
fn waits(script: &Script) -> Vec<Option<u128>> {
    let request = |body: &[u8]| CreateBindableResourcesRequestRequest::decode(body).expect("a request");
    let waits = script.seen().into_iter().map(|seen| request(&seen.body).wait);
    waits
        .map(|wait| wait.map(|wait| Duration::try_from(wait).expect("not negative").as_millis()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_bind_goes_on_while_it_is_pending() {
    let script = Script::new([create(Phase::Pending, None), succeeded("cowboys")]);
    let mut pending = 0;
    let client = script.client(|builder| builder);
    let bound = client
        .bind(BindRequest::new("cowboys", "uid"), |_| pending += 1)
        .await
        .expect("it succeeds");
    assert_eq!((bound.response.binding_name.as_str(), pending), ("cowboys", 1));
    assert!(bound.response.kubeconfig.is_none(), "the kubeconfig is apart");
    assert_eq!(bound.kubeconfig.as_ref().expect("a kubeconfig").expose(), b"hunter2");
    assert!(!format!("{bound:?}").contains("hunter2"));
    assert_eq!(waits(&script), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn the_server_waits_no_longer_than_the_patience() {
    let script = Script::new([create(Phase::Pending, None)]);
    let client = script.client(|builder| builder);
    let bind = BindRequest::new("cowboys", "uid").patience(Duration::ZERO);
    let error = client.bind(bind, |_| {}).await.expect_err("no patience");
    assert_eq!((error.reason_str(), waits(&script)), ("RequestPending", vec![Some(0)]));

    let script = Script::new(vec![create(Phase::Pending, None); 9]);
    let client = script.client(|builder| builder);
    let bind = BindRequest::new("cowboys", "uid")
        .wait(Duration::from_secs(2))
        .patience(Duration::from_millis(2500));
    let error = client.bind(bind, |_| {}).await.expect_err("it stays pending");
    assert_eq!(error.reason_str(), "RequestPending");
    let waits = waits(&script);
    assert_eq!((waits.len(), waits[0]), (4, Some(2000)), "{waits:?}");
    assert!(
        waits[1] <= Some(1500) && waits[2] <= Some(500) && waits[3] == Some(0),
        "{waits:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_bind_asks_for_all_that_its_request_says() {
    let script = Script::new([succeeded("west"), create(Phase::Pending, Some(done("west")))]);
    let client = script.client(|builder| builder);
    let bind = BindRequest::new("cowboys", "uid")
        .name("west")
        .pretty_name("the west")
        .ttl_after_finished(Duration::from_mins(1));
    let bound = client.bind(bind.clone(), |_| {}).await.expect("it succeeds");
    let canonical = bound
        .manifests(&ManifestOptions::default())
        .expect("manifests")
        .canonical()
        .expect("JSON");
    assert!(
        canonical.contains("\"kube-bind.io/template\":\"cowboys\""),
        "{canonical}"
    );
    let message = bind.validate_only().to_message();
    let preview = client.bind_by_request(message, Duration::ZERO, |_| {}).await;
    assert_eq!(preview.expect("it is told at once").response.binding_name, "west");
    let sent = CreateBindableResourcesRequestRequest::decode(&*script.seen()[1].body).expect("a request");
    assert!(sent.validate_only);
    let spec = sent
        .bindable_resources_request
        .expect("a request")
        .spec
        .expect("a spec");
    assert_eq!(spec.cluster_identity.expect("a cluster").pretty_name, "the west");
    assert_eq!(spec.ttl_after_finished.expect("a time").seconds, 60);
}

#[tokio::test(start_paused = true)]
async fn another_binding_than_asked_for_gives_no_manifests() {
    let script = Script::new([succeeded("east")]);
    let client = script.client(|builder| builder);
    let bound = client.bind_template("west", "uid").await.expect("a response");
    let refusal = bound
        .manifests(&ManifestOptions::default())
        .expect_err("it is for east");
    assert_eq!(refusal.reason(), "OtherBinding");
}

#[tokio::test]
async fn a_failed_request_is_an_error_that_says_why() {
    let script = Script::new([create(Phase::Failed, None)]);
    let request = CreateBindableResourcesRequestRequest::default();
    let error = script
        .client(|builder| builder)
        .create_bindable_resources_request(request)
        .await
        .expect_err("it failed");
    assert_eq!(error.reason_str(), "SchemaUnsupported");
    assert_eq!(
        error.to_string(),
        "request cowboys failed: CRD cowboys.wildwest.dev has no schema (SchemaUnsupported)"
    );
}
