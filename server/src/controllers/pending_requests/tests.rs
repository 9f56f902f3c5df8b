use bindery_api::{
    annotations, labels,
    v1alpha2::{BindableResourcesRequestSpec, BindableResourcesRequestStatus, NameRef},
};
use bindery_runtime::queue::Priority;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;

use super::*;
use crate::contract::served::tests::remember;

const SERVER_NAMESPACE: &str = "kube-bind";

fn request(identity: &str, template: &str, phase: Phase, reason: &str) -> Arc<BindableResourcesRequest> {
    let mut spec = BindableResourcesRequestSpec {
        template_ref: Some(NameRef::new(template)),
        ..BindableResourcesRequestSpec::default()
    };
    identity.clone_into(&mut spec.cluster_identity.identity);
    let mut request = BindableResourcesRequest::new("riders", spec);
    request.metadata.namespace = Some("tenants".to_owned());
    request.metadata.uid = Some("r1".to_owned());
    let ready = Condition {
        type_: "Ready".to_owned(),
        status: "False".to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
    };
    request.status = Some(BindableResourcesRequestStatus {
        phase,
        conditions: vec![ready],
        ..BindableResourcesRequestStatus::default()
    });
    Arc::new(request)
}

fn contract(identity: &str) -> Namespace {
    let mut namespace = Namespace::default();
    let entry = (annotations::IDENTITY.to_owned(), identity.to_owned());
    namespace.annotations_mut().extend([entry]);
    namespace
}

fn change<'a, K>(key: &'a ObjectKey, old: Option<&'a Arc<K>>, new: Option<&'a Arc<K>>) -> Change<'a, K> {
    Change {
        key,
        old,
        new,
        priority: Priority::Live,
    }
}

fn note(pending: &PendingRequests, new: &Arc<BindableResourcesRequest>) {
    pending.note(&change(&ObjectKey::of(&**new), None, Some(new)), SERVER_NAMESPACE);
}

#[track_caller]
fn check_exports(old: Option<(&str, Phase)>, new: Option<(&str, Phase)>, expect: [&[&str]; 2], ends: bool) {
    let pending = PendingRequests::default();
    let key = ObjectKey::new("tenants", "riders");
    let [old, new] = [old, new].map(|of| of.map(|(identity, phase)| request(identity, "cowboys", phase, "")));
    pending.note(&change(&key, None, old.as_ref()), SERVER_NAMESPACE);
    let change = change(&key, old.as_ref(), new.as_ref());
    pending.note(&change, SERVER_NAMESPACE);
    assert_eq!(
        [pending.exports(&contract("a")), pending.exports(&contract("b"))],
        expect
    );
    assert_eq!(ended(&change).is_some(), ends);
}

#[test]
fn a_request_creates_an_export_until_it_is_decided_or_gone() {
    let pending = |identity| Some((identity, Phase::Pending));
    check_exports(None, pending("a"), [&["riders"], &[]], false);
    check_exports(pending("a"), pending("a"), [&["riders"], &[]], false);
    check_exports(pending("a"), pending("b"), [&[], &["riders"]], false);
    check_exports(pending("a"), Some(("a", Phase::Succeeded)), [&[], &[]], true);
    check_exports(pending("a"), Some(("a", Phase::Failed)), [&[], &[]], true);
    check_exports(pending("a"), None, [&[], &[]], true);
    check_exports(Some(("a", Phase::Failed)), None, [&[], &[]], false);
}

#[test]
fn a_request_whose_author_nobody_checked_creates_no_export() {
    let pending = PendingRequests::default();
    note(&pending, &request("a", "cowboys", Phase::Pending, "PolicyMissing"));
    assert!(pending.exports(&contract("a")).is_empty());
    note(&pending, &request("a", "cowboys", Phase::Pending, "ForeignSecret"));
    assert_eq!(pending.exports(&contract("a")), ["riders"]);
}

#[test]
fn a_fulfilled_request_creates_no_export() {
    let pending = PendingRequests::default();
    note(&pending, &request("a", "cowboys", Phase::Pending, ""));
    let before = contract("a");
    assert_eq!(pending.exports(&before), ["riders"]);
    let mut after = before.clone();
    remember(&mut after, &["r1"]);
    assert_eq!(pending.exports(&after), [""; 0]);
    let is_told = |old: &Namespace, new: &Namespace| {
        let [old, new] = [old, new].map(|namespace| {
            let mut namespace = namespace.clone();
            namespace.metadata.name = Some("kube-bind-a".to_owned());
            let label = (labels::CONTRACT.to_owned(), "kube-bind-a".to_owned());
            namespace.labels_mut().extend([label]);
            Arc::new(namespace)
        });
        fulfilled(&change(&ObjectKey::new("", "kube-bind-a"), Some(&old), Some(&new))).is_some()
    };
    assert!(is_told(&before, &after));
    assert!(!is_told(&after, &after));
}

#[track_caller]
fn check_woken(after: &Arc<BindableResourcesRequest>, expect: [bool; 4]) {
    let pending = PendingRequests::default();
    note(&pending, &request("before", "before", Phase::Pending, ""));
    note(&pending, after);
    let found = [
        pending.of_cluster("a"),
        pending.of_template("cowboys"),
        pending.of_cluster("before"),
        pending.of_template("before"),
    ];
    assert_eq!(found.map(|keys| !keys.is_empty()), expect);
}

#[test]
fn a_change_wakes_what_it_concerns_and_nothing_else() {
    let pending = |reason| request("a", "cowboys", Phase::Pending, reason);
    check_woken(&pending("TemplateNotFound"), [true, true, false, false]);
    check_woken(
        &request("b", "cowboys", Phase::Pending, ""),
        [false, true, false, false],
    );
    check_woken(&request("a", "other", Phase::Pending, ""), [true, false, false, false]);
    // Such a request is looked at again by time, and no change of other objects wakes it.
    for reason in [
        "PolicyMissing",
        "PolicyUnproved",
        "MadeBeforePolicy",
        "ForeignSecret",
        "SecretCreationFailed",
    ] {
        check_woken(&pending(reason), [false; 4]);
    }
    for phase in [Phase::Succeeded, Phase::Failed] {
        check_woken(&request("a", "cowboys", phase, ""), [false; 4]);
    }
}

#[test]
fn calls_are_told_from_requests_made_as_resources() {
    let pending = PendingRequests::default();
    note(&pending, &request("a", "cowboys", Phase::Pending, ""));
    let mut call = (*request("a", "cowboys", Phase::Pending, "ForeignSecret")).clone();
    call.metadata.name = Some("bind-0".to_owned());
    call.metadata.namespace = Some(SERVER_NAMESPACE.to_owned());
    let via = (labels::VIA.to_owned(), labels::VIA_GRPC.to_owned());
    call.labels_mut().extend([via]);
    note(&pending, &Arc::new(call));
    let mut all = pending.all();
    all.sort();
    let expect = [("kube-bind", "bind-0", true), ("tenants", "riders", false)];
    assert_eq!(
        all,
        expect.map(|(namespace, name, is_call)| (ObjectKey::new(namespace, name), is_call))
    );
}
