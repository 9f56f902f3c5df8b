use bindery_proto::v1alpha2::{
    BindableResourcesRequest, BindableResourcesRequestSpec, ClusterIdentity as Cluster, Compatibility,
    CreateBindableResourcesRequestRequest, NameRef, ObjectMeta,
};
use tonic::Status;
use tonic_types::StatusExt as _;

use super::*;

#[track_caller]
fn check<T: TryFrom<M, Error = Failure>, M>(message: M, expect: &[&str]) {
    let fields: Vec<_> = match T::try_from(message) {
        Ok(_) => Vec::new(),
        Err(failure) => {
            let details = Status::from(failure).get_error_details();
            let violations = details.bad_request().expect("a BadRequest").field_violations.clone();
            assert!(violations.iter().all(|violation| !violation.description.is_empty()));
            violations.into_iter().map(|violation| violation.field).collect()
        }
    };
    assert_eq!(fields, expect);
}

fn create() -> CreateBindableResourcesRequestRequest {
    CreateBindableResourcesRequestRequest {
        bindable_resources_request: Some(BindableResourcesRequest {
            metadata: Some(ObjectMeta {
                name: "cowboys".to_owned(),
                ..ObjectMeta::default()
            }),
            spec: Some(BindableResourcesRequestSpec {
                template_ref: Some(NameRef {
                    name: "cowboys.wildwest.dev".to_owned(),
                }),
                cluster_identity: Some(Cluster {
                    identity: "6b1f1c0e-0000-4000-8000-000000000001".to_owned(),
                    pretty_name: "Ranch".to_owned(),
                }),
                ..BindableResourcesRequestSpec::default()
            }),
            status: None,
        }),
        wait: None,
        validate_only: false,
    }
}

fn changed(change: impl FnOnce(&mut BindableResourcesRequest)) -> CreateBindableResourcesRequestRequest {
    let mut request = create();
    change(request.bindable_resources_request.as_mut().expect("a request"));
    request
}

fn seconds(seconds: i64) -> ProtoDuration {
    ProtoDuration { seconds, nanos: 0 }
}

#[test]
fn a_create_is_checked_field_by_field() {
    check::<CreateRequest, _>(create(), &[]);
    check::<CreateRequest, _>(
        CreateBindableResourcesRequestRequest::default(),
        &["bindable_resources_request"],
    );
    let at = |field: &str| format!("bindable_resources_request.{field}");
    let name = at("metadata.name");
    for wrong in ["", "Cowboys", "-a", "a.b", &"x".repeat(64)] {
        let request = changed(|request| request.metadata.as_mut().expect("metadata").name = wrong.to_owned());
        check::<CreateRequest, _>(request, &[&name]);
    }
    let everything = changed(|request| {
        request.metadata = None;
        request.spec = Some(BindableResourcesRequestSpec {
            ttl_after_finished: Some(seconds(0)),
            compatibility: 99,
            ..BindableResourcesRequestSpec::default()
        });
    });
    let fields = [
        at("metadata.name"),
        at("spec.template_ref.name"),
        at("spec.cluster_identity.identity"),
        at("spec.ttl_after_finished"),
        at("spec.compatibility"),
    ];
    check::<CreateRequest, _>(everything, &fields.each_ref().map(String::as_str));
    check::<CreateRequest, _>(changed(|request| request.spec = None), &[&at("spec")]);
}

#[test]
fn durations_are_more_than_nothing_and_less_than_for_ever() {
    let ttl = |value| changed(|request| request.spec.as_mut().expect("a spec").ttl_after_finished = Some(value));
    let field = &["bindable_resources_request.spec.ttl_after_finished"][..];
    check::<CreateRequest, _>(ttl(seconds(1)), &[]);
    check::<CreateRequest, _>(ttl(seconds(-1)), field);
    check::<CreateRequest, _>(ttl(seconds(i64::MAX)), field);
    check::<CreateRequest, _>(ttl(seconds(11 * 366 * 86_400)), field);
    check::<CreateRequest, _>(ttl(ProtoDuration { seconds: 0, nanos: -1 }), field);
    // The longest lifetime is the longest that a stored request may have.
    let longest = i64::try_from(DURATION_MAX.as_secs()).expect("ten years");
    check::<CreateRequest, _>(ttl(seconds(longest)), &[]);
    check::<CreateRequest, _>(ttl(seconds(longest + 1)), field);
    let wait = |wait| CreateBindableResourcesRequestRequest {
        wait: Some(wait),
        ..create()
    };
    check::<CreateRequest, _>(wait(seconds(0)), &[]);
    check::<CreateRequest, _>(wait(seconds(-1)), &["wait"]);
}

#[test]
fn an_identity_has_no_form_but_bounds() {
    let identity = |text: &str| {
        changed(|request| {
            let spec = request.spec.as_mut().expect("a spec");
            spec.cluster_identity.as_mut().expect("an identity").identity = text.to_owned();
        })
    };
    let field = &["bindable_resources_request.spec.cluster_identity.identity"][..];
    check::<CreateRequest, _>(identity("https://issuer/Some User"), &[]);
    check::<CreateRequest, _>(identity(&"x".repeat(253)), &[]);
    check::<CreateRequest, _>(identity(&"x".repeat(254)), field);
    check::<CreateRequest, _>(identity("a\nb"), field);
    check::<CreateRequest, _>(identity(" a"), field);
}

#[test]
fn every_required_field_is_missed() {
    check::<GetRequest, _>(
        proto::GetBindableResourcesRequestRequest::default(),
        &["name", "cluster_identity"],
    );
    check::<DeleteRequest, _>(
        proto::DeleteBindableResourcesRequestRequest::default(),
        &["name", "cluster_identity"],
    );
    check::<GetExport, _>(proto::GetExportRequest::default(), &["name"]);
    check::<GetBoundSchema, _>(proto::GetBoundSchemaRequest::default(), &["name"]);
    check::<DeleteExport, _>(proto::DeleteExportRequest::default(), &["name", "uid"]);
    check::<RevokeCredentials, _>(proto::RevokeCredentialsRequest::default(), &["contract"]);
    check::<GetTemplate, _>(proto::GetTemplateRequest::default(), &["name"]);
    check::<GetCollection, _>(proto::GetCollectionRequest::default(), &["name"]);
    check::<GetContract, _>(proto::GetContractRequest::default(), &["contract"]);
    check::<ShareContract, _>(proto::ShareContractRequest::default(), &["contract"]);
    check::<RevokeContract, _>(proto::RevokeContractRequest::default(), &["contract"]);
    check::<UnbindContract, _>(proto::UnbindContractRequest::default(), &["contract"]);
    // These require nothing.
    check::<ListContracts, _>(proto::ListContractsRequest::default(), &[]);
    check::<WatchContracts, _>(proto::WatchContractsRequest::default(), &[]);
    check::<ListTemplates, _>(proto::ListTemplatesRequest::default(), &[]);
    check::<ListCollections, _>(proto::ListCollectionsRequest::default(), &[]);
    check::<ListRequests, _>(proto::ListBindableResourcesRequestsRequest::default(), &[]);
    check::<WatchRequests, _>(proto::WatchBindableResourcesRequestsRequest::default(), &[]);
    check::<ListExports, _>(proto::ListExportsRequest::default(), &[]);
    check::<WatchExports, _>(proto::WatchExportsRequest::default(), &[]);
    check::<RenewKubeconfig, _>(proto::RenewKubeconfigRequest::default(), &[]);
}

#[test]
fn lists_and_watches_are_bounded() {
    let list = proto::ListTemplatesRequest {
        page_size: -1,
        page_token: "x".repeat(TOKEN_LENGTH_MAX + 1),
        label_selector: "a b".to_owned(),
        collection: "No".to_owned(),
    };
    check::<ListTemplates, _>(list, &["page_size", "page_token", "label_selector", "collection"]);
    let watch = proto::WatchBindableResourcesRequestsRequest {
        names: vec!["a".to_owned(); WATCHED_NAMES_MAX + 1],
        ..proto::WatchBindableResourcesRequestsRequest::default()
    };
    check::<WatchRequests, _>(watch, &["names"]);
    let watch = proto::WatchBindableResourcesRequestsRequest {
        names: vec!["a".to_owned(), "B".to_owned()],
        ..proto::WatchBindableResourcesRequestsRequest::default()
    };
    check::<WatchRequests, _>(watch, &["names[1]"]);
}

#[test]
fn groups_that_are_to_own_a_contract_are_checked_and_any_can_be_removed() {
    let share = |add: &[&str], remove: &[&str]| proto::ShareContractRequest {
        contract: "kube-bind-a".to_owned(),
        add_groups: add.iter().map(|group| (*group).to_owned()).collect(),
        remove_groups: remove.iter().map(|group| (*group).to_owned()).collect(),
        ..proto::ShareContractRequest::default()
    };
    check::<ShareContract, _>(share(&["ranchers"], &["system:authenticated", ""]), &[]);
    check::<ShareContract, _>(
        share(&["ranchers", "system:authenticated", ""], &[]),
        &["add_groups[1]", "add_groups[2]"],
    );
    check::<ShareContract, _>(share(&[], &["a\nb"]), &["remove_groups[0]"]);
    check::<ShareContract, _>(share(&["g"; GROUPS_MAX + 1], &[]), &["add_groups"]);
    let unbind = proto::UnbindContractRequest {
        contract: "kube-bind-a".to_owned(),
        exports: vec!["west".to_owned(), "No".to_owned()],
        ..proto::UnbindContractRequest::default()
    };
    check::<UnbindContract, _>(unbind, &["exports[1]"]);
}

#[test]
fn a_compatibility_that_is_not_served_is_refused_as_such() {
    let served = |compatibility: Compatibility| {
        let message = changed(|request| {
            request.spec.as_mut().expect("a spec").compatibility = compatibility.into();
        });
        let valid = CreateRequest::try_from(message).expect("a valid request");
        valid.request.require_served_compatibility()
    };
    assert!(served(Compatibility::Unspecified).is_ok());
    let failure = served(Compatibility::KubeBind).expect_err("a refusal");
    assert_eq!(failure.reason(), ErrorReason::FeatureOff);
    let unknown = changed(|request| request.spec.as_mut().expect("a spec").compatibility = 99);
    check::<CreateRequest, _>(unknown, &["bindable_resources_request.spec.compatibility"]);
}
