//! Attempts against the shipped admission policies, by accounts to which RBAC gives all rights.

use serde_json::{Value, json};

use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, COWBOY, DEFINITION, Kind, LEASE, NAMESPACE, SECRET, SERVICE_ACCOUNT, SHERIFF},
    step::{Call, User},
};

const ALL: &str = "simulated:powerful";
const MARK: &str = "kube-bind.io/cluster-namespace";

/// An account of a contract, at home and elsewhere.
pub(super) fn contracts(draft: &mut Draft) {
    let contract = format!("kube-bind-{}", draft.id);
    let user = draft.account(&contract, "kube-binder", &[ALL]);
    let ranch = format!("{contract}-ranch");
    for name in [&contract, &ranch] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        draft.call(Call::post(NAMESPACE.list(""), namespace));
    }
    for kind in [CONFIG_MAP, SECRET, COWBOY, SERVICE_ACCOUNT] {
        draft.state.insert(kind.list(&ranch));
    }
    draft.state.insert(SERVICE_ACCOUNT.list(&draft.namespace));
    draft.settle();
    for _ in 0..6 {
        let namespace = if draft.random.chance(40) {
            ranch.clone()
        } else {
            draft.namespace.clone()
        };
        let call = by_contract(draft, &contract, &namespace);
        draft.call(call.by(&user));
    }
}

fn by_contract(draft: &mut Draft, contract: &str, namespace: &str) -> Call {
    let kind = draft.kind(&[CONFIG_MAP, SECRET, COWBOY, SHERIFF]);
    let name = match draft.random.below(4) {
        0 => format!("{contract}-{}", draft.fresh(CONFIG_MAP)),
        1 => format!("kube-bind-x{}", draft.fresh(CONFIG_MAP)),
        _ => draft.name(kind),
    };
    let name = if kind.is_namespaced || name.contains(&draft.id) {
        name
    } else {
        draft.scoped(kind, &name)
    };
    let mut object = kind.object(&name, &mut draft.random);
    let mark = draft.random.pick(&["", "own", "other"]);
    let mark = match mark {
        "own" => json!({MARK: contract}),
        "other" => json!({MARK: "kube-bind-other"}),
        _ => Value::Null,
    };
    json_patch::merge(&mut object["metadata"], &json!({"annotations": mark}));
    let (list, path) = (kind.list(namespace), kind.path(namespace, &name));
    if !kind.is_namespaced {
        draft.watch_state(kind, &name);
    }
    match draft.random.below(11) {
        0 => Call::delete(path),
        1 => Call::merge(path, kind.change(&mut draft.random)),
        2 => Call::merge(path, json!({"metadata": {"annotations": {MARK: "kube-bind-other"}}})),
        3 => Call::apply(path, "one", object).query("force", "true"),
        4 => Call::get(path),
        5 => Call::delete(list).query("labelSelector", format!("sequence={}", draft.id)),
        6 if kind == SECRET => {
            object["type"] = "bootstrap.kubernetes.io/token".into();
            Call::post(list, object)
        }
        6 => Call::merge(format!("{path}/status"), json!({"status": {"result": "won"}})),
        7 => Call::post(
            format!("{}/token", SERVICE_ACCOUNT.path(namespace, "default")),
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
        )
        .query("dryRun", "All"),
        _ => Call::post(list, object),
    }
}

/// Somebody who makes a request as a resource.
pub(super) fn requests(draft: &mut Draft) {
    const KIND: Kind = Kind {
        api: "kube-bind.io/v1alpha2",
        name: "BindableResourcesRequest",
        resource: "bindableresourcesrequests",
        is_namespaced: true,
    };
    let name = format!("{}-rob", draft.id);
    let rob = draft.user(&name, &["simulated:requesters"]);
    let powerful = draft.user(&format!("{}-pam", draft.id), &[ALL]);
    let binder = draft.account(&format!("kube-bind-{}", draft.id), "kube-binder", &[ALL]);
    draft.state.insert(draft.list(KIND));
    for _ in 0..5 {
        let who = draft.random.below(4);
        let (user, own): (&User, &str) = match who {
            0 => (&powerful, "pam"),
            1 => (&binder, "binder"),
            _ => (&rob, "rob"),
        };
        let own = if own == "binder" {
            format!("system:serviceaccount:kube-bind-{}:kube-binder", draft.id)
        } else {
            format!("{}-{own}", draft.id)
        };
        let author = if draft.random.chance(70) {
            own
        } else {
            "someone".to_owned()
        };
        let request = draft.name(KIND);
        let mut object = json!({
            "apiVersion": KIND.api, "kind": KIND.name, "metadata": {"name": request},
            "spec": {
                "author": author, "templateRef": {"name": "cowboys"}, "clusterIdentity": {"identity": "some-cluster"},
            },
        });
        json_patch::merge(&mut object, &odd_request(draft));
        let path = draft.path(KIND, &request);
        let call = match draft.random.below(6) {
            0 => Call::merge(path, json!({"spec": {"templateRef": {"name": "other"}}})),
            1 => Call::merge(path, json!({"metadata": {"labels": {"kube-bind.io/via": "grpc"}}})),
            2 => Call::merge(path, json!({"metadata": {"labels": {"free": "1"}}})),
            _ => Call::post(draft.list(KIND), object),
        };
        draft.call(call.by(user));
    }
}

fn odd_request(draft: &mut Draft) -> Value {
    match draft.random.below(10) {
        0 => json!({"metadata": {"name": "policy.probe"}}),
        1 => json!({"spec": {"templateRef": null}}),
        2 => json!({"spec": {"clusterIdentity": {"identity": ""}}}),
        3 => json!({"spec": {"ttlAfterFinished": "soon"}}),
        4 => json!({"spec": {"ttlAfterFinished": "1h30m"}}),
        5 => json!({"metadata": {"annotations": {"backend.kube-bind.io/principal": "root"}}}),
        _ => json!({}),
    }
}

/// The konnector's account, among CustomResourceDefinitions and claimed objects.
pub(super) fn konnectors(draft: &mut Draft) {
    let user = draft.account("kube-bind", "konnector", &[ALL]);
    for _ in 0..5 {
        let call = if draft.random.chance(30) {
            definition(draft)
        } else {
            claimed(draft)
        };
        draft.call(call.by(&user));
    }
}

fn claimed(draft: &mut Draft) -> Call {
    let kind = draft.kind(&[CONFIG_MAP, SECRET, SERVICE_ACCOUNT, LEASE]);
    let name = draft.name(kind);
    let path = draft.path(kind, &name);
    let marks = json!({
        "annotations": {MARK: "kube-bind-x"}, "labels": {"kube-bind.io/owner": "provider", "sequence": draft.id},
    });
    let mut object = draft.object(kind, &name);
    if draft.random.chance(60) {
        json_patch::merge(&mut object["metadata"], &marks);
    }
    match draft.random.below(8) {
        0 => Call::delete(path),
        1 => Call::merge(path, kind.change(&mut draft.random)),
        2 => Call::merge(path, json!({"metadata": {"annotations": {MARK: null}}})),
        3 => Call::apply(path, "one", object).query("force", "true"),
        4 if kind == SECRET => {
            object["type"] = "kubernetes.io/service-account-token".into();
            object["metadata"]["annotations"] =
                json!({MARK: "kube-bind-x", "kubernetes.io/service-account.name": "default"});
            Call::post(draft.list(kind), object).query("dryRun", "All")
        }
        5 => {
            object["metadata"]["name"] = "synk-x".into();
            Call::post(kind.list("kube-bind"), object).query("dryRun", "All")
        }
        _ => Call::post(draft.list(kind), object),
    }
}

fn definition(draft: &mut Draft) -> Call {
    let group = match draft.random.below(4) {
        0 => "apps.k8s.io".to_owned(),
        1 => format!("{}.kube-bind.io", draft.id),
        _ => format!("{}.bindery.test", draft.id),
    };
    let owner = json!({
        "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding", "name": "x", "uid": "1-2-3", "controller": true,
    });
    let owners = if draft.random.chance(50) {
        json!([owner])
    } else {
        Value::Null
    };
    let object = json!({
        "apiVersion": DEFINITION.api, "kind": DEFINITION.name,
        "metadata": {"name": format!("things.{group}"), "ownerReferences": owners},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    Call::post(DEFINITION.list(""), object).query("dryRun", "All")
}
