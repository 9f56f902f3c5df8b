use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{AdmissionRequest, admit, check_grants};
use crate::{
    UserInfo,
    auth::{
        RBAC,
        tests::{Store, binding, role, user},
    },
    kind::KindInfo,
    status::StatusError,
};

mod policies;

const POLICIES: &str = "admissionregistration.k8s.io";

fn kind(group: &str, kind: &str) -> KindInfo {
    KindInfo {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        status: true,
        schema: None,
    }
}

/// A cluster with the policies of a file of `deploy/`.
fn with_policies(file: &str) -> Store {
    let mut store = Store::default();
    for document in file.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        let resource = match object["kind"].as_str() {
            Some("ValidatingAdmissionPolicy") => "validatingadmissionpolicies",
            _ => "validatingadmissionpolicybindings",
        };
        store.put(POLICIES, resource, object);
    }
    for name in ["kube-bind-a", "kube-bind", "other"] {
        store.put("", "namespaces", json!({"metadata": {"name": name}}));
    }
    store
}

/// A write: user, operation, `group/resource/subresource`, namespace, and the object after and before.
struct Write<'a> {
    user: &'a UserInfo,
    operation: &'static str,
    resource: &'a str,
    namespace: &'a str,
    object: Option<Value>,
    old: Option<Value>,
}

fn judge(store: &Store, write: &Write<'_>) -> Result<Vec<String>, StatusError> {
    judge_by(write, |request| {
        check_grants(store, request)?;
        admit(store, request)
    })
}

/// Judges the request that a write makes.
fn judge_by<T>(write: &Write<'_>, judge: impl FnOnce(&AdmissionRequest<'_>) -> T) -> T {
    let mut parts = write.resource.split('/');
    let group = parts.next().unwrap_or_default();
    let resource = parts.next().unwrap_or_default();
    let object = write.object.as_ref().or(write.old.as_ref());
    let name = object
        .and_then(|object| object["metadata"]["name"].as_str())
        .unwrap_or_default();
    let of_kind = match resource {
        "namespaces" if group.is_empty() => "Namespace",
        _ => "Thing",
    };
    let kind = kind(group, of_kind);
    let request = AdmissionRequest {
        user: write.user,
        operation: write.operation,
        kind: &kind,
        resource,
        subresource: parts.next().unwrap_or_default(),
        namespace: write.namespace,
        name,
        object: write.object.as_ref(),
        old_object: write.old.as_ref(),
        options: &Value::Null,
        dry_run: false,
        now: Timestamp::UNIX_EPOCH,
        policy_delay: SignedDuration::ZERO,
    };
    judge(&request)
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn marked(name: &str, contract: &str) -> Value {
    json!({"metadata": {"name": name, "annotations": {"kube-bind.io/cluster-namespace": contract}}})
}

#[track_caller]
fn check_binder(operation: &'static str, resource: &str, namespace: &str, object: Value, expect: Result<(), &str>) {
    let store = with_policies(include_str!("../../../../deploy/server/policy.yaml"));
    let binder = user("system:serviceaccount:kube-bind-a:kube-binder", &[]);
    let is_delete = operation == "DELETE";
    let write = Write {
        user: &binder,
        operation,
        resource,
        namespace,
        object: (!is_delete).then(|| object.clone()),
        old: (operation != "CREATE").then_some(object),
    };
    let denied = judge(&store, &write).map(drop).map_err(|error| {
        let message = error.details["causes"][0]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let words = "ValidatingAdmissionPolicy 'kube-bind-binder' with binding 'kube-bind-binder' denied request: ";
        assert!(error.message.ends_with(&message), "{error:?}");
        message.strip_prefix(words).unwrap_or(&message).to_owned()
    });
    assert_eq!(denied, expect.map_err(str::to_owned));
}

#[test]
fn the_policy_on_contracts_limits_them_to_their_own() {
    check_binder("CREATE", "a.io/cowboys", "kube-bind-a", named("x"), Ok(()));
    check_binder("CREATE", "a.io/cowboys", "", named("kube-bind-a-x"), Ok(()));
    check_binder("UPDATE", "a.io/cowboys", "", marked("x", "kube-bind-a"), Ok(()));
    check_binder(
        "UPDATE",
        "a.io/cowboys",
        "",
        marked("x", "kube-bind-b"),
        Err(
            "contract kube-bind-a writes cowboys only under names that begin with kube-bind-a-, or what is marked as its own \
             before and after",
        ),
    );
    check_binder(
        "DELETE",
        "a.io/cowboys",
        "other",
        named("x"),
        Err(
            "contract kube-bind-a writes cowboys in namespace other only under names that begin with kube-bind-a-, or what is \
             marked as its own before and after",
        ),
    );
    check_binder(
        "CREATE",
        "kube-bind.io/apiservicenamespaces",
        "kube-bind-a",
        named("policy.probe"),
        Err("policy.probe is refused by kube-bind-binder, revision 4"),
    );
    // Konnectors of kube-bind add owner references with this to requests for namespaces.
    let mut owned = named("team1");
    owned["metadata"]["ownerReferences"] = json!([{"name": "cowboys", "blockOwnerDeletion": true}]);
    check_binder(
        "CREATE",
        "kube-bind.io/apiservicenamespaces",
        "kube-bind-a",
        owned,
        Ok(()),
    );
    let mut token = named("t");
    token["type"] = json!("kubernetes.io/service-account-token");
    check_binder(
        "CREATE",
        "/secrets",
        "kube-bind-a",
        token,
        Err("Secrets that hold tokens of Kubernetes are no consumer's"),
    );
}

fn with_finalizers(name: &str, finalizers: &[&str]) -> Value {
    let mut object = named(name);
    object["metadata"]["finalizers"] = json!(finalizers);
    object
}

#[track_caller]
fn check_finalizers(resource: &str, namespace: &str, before: Option<&[&str]>, after: &[&str], is_admitted: bool) {
    let store = with_policies(include_str!("../../../../deploy/server/policy.yaml"));
    let binder = user("system:serviceaccount:kube-bind-a:kube-binder", &[]);
    let of = |finalizers: &[&str]| with_finalizers("kube-bind-a-x", finalizers);
    let write = Write {
        user: &binder,
        operation: if before.is_some() { "UPDATE" } else { "CREATE" },
        resource,
        namespace,
        object: Some(of(after)),
        old: before.map(of),
    };
    let judged = judge(&store, &write).map_err(|error| error.message);
    if is_admitted {
        assert_eq!(
            judged,
            Ok(Vec::new()),
            "{resource} in {namespace:?}: {before:?} {after:?}"
        );
        return;
    }
    let refusal = judged.expect_err("admitted");
    let (_, plural) = resource.split_once('/').unwrap();
    let words = format!("contract kube-bind-a adds no finalizers to {plural}");
    assert!(refusal.contains(&words), "{refusal}");
}

#[test]
fn a_contract_adds_no_finalizers_and_keeps_those_of_others() {
    let (operators, own) = ("operator.dev/cleans", "joe.dev/stays");
    for (resource, namespace) in [
        ("a.io/cowboys", "kube-bind-a"),
        ("a.io/cowboys", "kube-bind-a-ranch"),
        ("a.io/cowboys", ""),
        ("/secrets", "kube-bind-a-ranch"),
        ("/secrets", "other"),
        ("kube-bind.io/apiservicenamespaces", "kube-bind-a"),
        ("kube-bind.io/apiserviceexportrequests", "kube-bind-a"),
    ] {
        let check = |before: Option<&[&str]>, after: &[&str], is_admitted| {
            check_finalizers(resource, namespace, before, after, is_admitted);
        };
        check(None, &[], true);
        check(None, &[own], false);
        check(Some(&[]), &[own], false);
        check(Some(&[operators]), &[operators], true);
        check(Some(&[operators]), &[], true);
        check(Some(&[operators]), &[operators, own], false);
        check(Some(&[operators]), &[own], false);
    }
}

#[test]
fn others_are_not_limited_by_it() {
    let store = with_policies(include_str!("../../../../deploy/server/policy.yaml"));
    let admin = user("admin", &["system:masters"]);
    let write = Write {
        user: &admin,
        operation: "CREATE",
        resource: "kube-bind.io/apiservicenamespaces",
        namespace: "kube-bind-a",
        object: Some(named("policy.probe")),
        old: None,
    };
    assert_eq!(judge(&store, &write), Ok(Vec::new()));
}

#[test]
fn a_denial_is_an_answer_of_kubernetes() {
    let store = with_policies(include_str!("../../../../deploy/server/policy.yaml"));
    let binder = user("system:serviceaccount:kube-bind-a:kube-binder", &[]);
    let write = Write {
        user: &binder,
        operation: "CREATE",
        resource: "kube-bind.io/apiservicenamespaces",
        namespace: "kube-bind-a",
        object: Some(named("policy.probe")),
        old: None,
    };
    let cause = "ValidatingAdmissionPolicy 'kube-bind-binder' with binding 'kube-bind-binder' denied request: policy.probe is \
        refused by kube-bind-binder, revision 4";
    let expect = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": format!("apiservicenamespaces.kube-bind.io \"policy.probe\" is forbidden: {cause}"),
        "details": {
            "name": "policy.probe", "group": "kube-bind.io", "kind": "apiservicenamespaces", "causes": [{"message": cause}],
        },
    });
    assert_eq!(judge(&store, &write).unwrap_err().body(), expect);
}

/// A request as a resource, for an author and a template.
fn request(author: &str) -> Value {
    let spec = json!({
        "author": author, "templateRef": {"name": "cowboys"}, "clusterIdentity": {"identity": "u"}, "ttlAfterFinished": "90s",
    });
    json!({"metadata": {"name": "r"}, "spec": spec})
}

#[track_caller]
fn check_request(object: Value, old: Option<Value>, expect: Result<(), &str>) {
    let mut store = with_policies(include_str!("../../../../deploy/server/requests-policy.yaml"));
    let rules = json!([
        {"apiGroups": ["kube-bind.io"], "resources": ["apiserviceexporttemplates"], "verbs": ["bind"], "resourceNames": ["cowboys"]},
        {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["bob"]},
    ]);
    store.put(RBAC, "clusterroles", role("", "binder", rules));
    let ann = json!({"kind": "User", "name": "ann"});
    store.put(
        RBAC,
        "clusterrolebindings",
        binding("", "ann", ("ClusterRole", "binder"), ann),
    );
    let write = Write {
        user: &user("ann", &[]),
        operation: if old.is_some() { "UPDATE" } else { "CREATE" },
        resource: "kube-bind.io/bindableresourcesrequests",
        namespace: "kube-bind",
        object: Some(object),
        old,
    };
    let denied = judge(&store, &write).map(drop).map_err(|error| error.message);
    match (denied, expect) {
        (Ok(()), Ok(())) => {}
        (Err(message), Err(words)) => assert!(message.ends_with(&format!("denied request: {words}")), "{message}"),
        (denied, expect) => assert_eq!(denied, expect.map_err(str::to_owned)),
    }
}

#[test]
fn the_policy_on_requests_asks_who_may_what() {
    check_request(request("ann"), None, Ok(()));
    check_request(request("bob"), None, Ok(()));
    check_request(
        request("eve"),
        None,
        Err("ann may not ask in the name of eve; set spec.author to ann, or be granted impersonate on that user"),
    );
    let mut other = request("ann");
    other["spec"]["templateRef"]["name"] = json!("sheriffs");
    check_request(
        other.clone(),
        None,
        Err("ann may not bind template sheriffs; ask for verb bind on apiserviceexporttemplates/sheriffs"),
    );
    check_request(
        other,
        Some(request("ann")),
        Err("spec is immutable; delete the request and create another"),
    );
    let mut odd = request("ann");
    odd["spec"]["ttlAfterFinished"] = json!("soon");
    check_request(
        odd,
        None,
        Err("spec.ttlAfterFinished is no duration; write one such as 90s or 1h30m"),
    );
    let mut probe = request("policy.probe");
    probe["metadata"]["name"] = json!("policy.probe");
    check_request(
        probe,
        None,
        Err("policy.probe is refused by kube-bind-requests, revision 3"),
    );
}

#[track_caller]
fn check_konnector(operation: &'static str, resource: &str, namespace: &str, object: Value, expect: Result<(), &str>) {
    let store = with_policies(include_str!("../../../../deploy/konnector/policy.yaml"));
    let write = Write {
        user: &user("system:serviceaccount:kube-bind:konnector", &[]),
        operation,
        resource,
        namespace,
        object: Some(object.clone()),
        old: (operation == "UPDATE").then_some(object),
    };
    let denied = judge(&store, &write).map(drop).map_err(|error| error.message);
    match (denied, expect) {
        (Err(message), Err(words)) => assert!(message.ends_with(&format!("denied request: {words}")), "{message}"),
        (denied, expect) => assert_eq!(denied, expect.map_err(str::to_owned)),
    }
}

#[test]
fn the_policies_on_the_konnector_limit_it() {
    let owner = json!([{"kind": "APIServiceBinding", "apiVersion": "kube-bind.io/v1alpha2", "controller": true}]);
    let crd = |group: &str| json!({"metadata": {"name": "x", "ownerReferences": owner}, "spec": {"group": group}});
    let crds = "apiextensions.k8s.io/customresourcedefinitions";
    check_konnector("CREATE", crds, "", crd("wildwest.dev"), Ok(()));
    check_konnector(
        "CREATE",
        crds,
        "",
        crd("apps.k8s.io"),
        Err("the konnector writes no CustomResourceDefinition of group apps.k8s.io"),
    );
    check_konnector("CREATE", "/secrets", "kube-bind", named("s"), Ok(()));
    let no_marks = "the konnector writes no secrets but copies of the provider that carry its marks";
    check_konnector("CREATE", "/secrets", "other", named("s"), Err(no_marks));
}

#[track_caller]
fn check_grant(resource: &str, namespace: &str, object: Value, expect: Result<(), &str>) {
    let mut store = Store::default();
    let rules = json!([
        {"apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": ["bind"], "resourceNames": ["view"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
    ]);
    store.put(RBAC, "clusterroles", role("", "server", rules));
    let all = json!([{"apiGroups": ["*"], "resources": ["pods"], "verbs": ["list", "get"]}]);
    store.put(RBAC, "clusterroles", role("", "view", all.clone()));
    store.put(RBAC, "clusterroles", role("", "edit", all));
    let server = user("server", &["devs"]);
    let subject = json!({"kind": "User", "name": "server"});
    store.put(
        RBAC,
        "clusterrolebindings",
        binding("", "server", ("ClusterRole", "server"), subject),
    );
    let write = Write {
        user: &server,
        operation: "CREATE",
        resource,
        namespace,
        object: Some(object),
        old: None,
    };
    let denied = judge(&store, &write).map(drop).map_err(|error| error.message);
    assert_eq!(denied, expect.map_err(str::to_owned));
}

#[test]
fn nobody_grants_more_than_it_holds() {
    let roles = "rbac.authorization.k8s.io/roles";
    let bindings = "rbac.authorization.k8s.io/rolebindings";
    let subject = || json!({"kind": "User", "name": "eve"});
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["x"]}]);
    check_grant(roles, "n", role("n", "r", secrets), Ok(()));
    let more = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]}]);
    check_grant(
        roles,
        "n",
        role("n", "r", more),
        Err(
            "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"server\" (groups=[\"devs\"]) is attempting to grant RBAC \
             permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"list\" \"watch\"]}",
        ),
    );
    check_grant(
        bindings,
        "n",
        binding("n", "b", ("ClusterRole", "view"), subject()),
        Ok(()),
    );
    check_grant(
        bindings,
        "n",
        binding("n", "b", ("ClusterRole", "edit"), subject()),
        Err(
            "rolebindings.rbac.authorization.k8s.io \"b\" is forbidden: user \"server\" (groups=[\"devs\"]) is attempting to grant \
             RBAC permissions not currently held:\n{APIGroups:[\"*\"], Resources:[\"pods\"], Verbs:[\"list\" \"get\"]}",
        ),
    );
    check_grant(
        bindings,
        "n",
        binding("n", "b", ("ClusterRole", "gone"), subject()),
        Err("rolebindings.rbac.authorization.k8s.io \"gone\" not found"),
    );
}
