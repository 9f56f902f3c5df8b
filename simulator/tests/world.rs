//! A world without faults: one server and one konnector, an API that is bound, an object and its status.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_simulator::{
    topology::{Cluster, Topology},
    world::{World, begin},
};
use bytes::Bytes;
use http::{Method, Request, header};
use serde_json::{Value, json};

const CONSUMER: Cluster = Cluster::Consumer(1);
const PROVIDER: Cluster = Cluster::Provider(1);

fn send(world: &mut World, cluster: Cluster, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let content = match (&method, path.contains("fieldManager=")) {
        (&Method::PATCH, true) => "application/apply-patch+yaml",
        (&Method::PATCH, false) => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = if body.is_null() {
        Bytes::new()
    } else {
        body.to_string().into()
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content)
        .body(body);
    let answer = world.request(cluster, "admin", request.expect("a request"));
    let status = answer.status().as_u16();
    (status, serde_json::from_slice(answer.body()).unwrap_or_default())
}

fn create(world: &mut World, cluster: Cluster, path: &str, object: &Value) {
    let (status, answer) = send(world, cluster, Method::POST, path, object);
    assert_eq!(status, 201, "{path}: {answer}");
}

/// Runs until the object at a path satisfies a condition.
fn until(world: &mut World, cluster: Cluster, path: &str, condition: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..120 {
        let (status, object) = send(world, cluster, Method::GET, path, &Value::Null);
        if status == 200 && condition(&object) {
            return object;
        }
        world.run_for(Duration::from_millis(500));
    }
    let (_, last) = send(world, cluster, Method::GET, path, &Value::Null);
    panic!("{path} of {cluster} never became so: {last}\n{}", world.trace());
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "cowboys.wildwest.dev", "labels": {"kube-bind.io/exported": "true"}},
        "spec": {
            "group": "wildwest.dev", "scope": "Namespaced",
            "names": {"kind": "Cowboy", "listKind": "CowboyList", "plural": "cowboys", "singular": "cowboy"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"intent": {"type": "string"}}},
                    "status": {"type": "object", "properties": {"result": {"type": "string"}}}
                }}}
            }]
        }
    })
}

fn run(seed: u64) -> World {
    let mut world = World::new(seed, &Topology::pair());
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    create(&mut world, PROVIDER, crds, &definition());
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "bindery-server-export-cowboys", "labels": {"rbac.kube-bind.io/aggregate-to-server": "true"}},
        "rules": [{
            "apiGroups": ["wildwest.dev"], "resources": ["cowboys"],
            "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"]
        }]
    });
    create(&mut world, PROVIDER, &format!("{rbac}/clusterroles"), &role);
    let template = "/apis/kube-bind.io/v1alpha2/apiserviceexporttemplates";
    until(
        &mut world,
        PROVIDER,
        &format!("{crds}/apiserviceexporttemplates.kube-bind.io"),
        |crd| crd["status"]["conditions"].to_string().contains("Established"),
    );
    create(
        &mut world,
        PROVIDER,
        template,
        &json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExportTemplate", "metadata": {"name": "cowboys"},
            "spec": {
                "scope": "Namespaced",
                "resources": [{"group": "wildwest.dev", "resource": "cowboys", "versions": ["v1alpha1"]}]
            }
        }),
    );
    create(
        &mut world,
        PROVIDER,
        "/api/v1/namespaces",
        &json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "orders"}
        }),
    );
    let (_, kube_system) = send(
        &mut world,
        CONSUMER,
        Method::GET,
        "/api/v1/namespaces/kube-system",
        &Value::Null,
    );
    create(
        &mut world,
        PROVIDER,
        "/api/v1/namespaces/orders/serviceaccounts",
        &json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "pipeline", "namespace": "orders"}
        }),
    );
    let binder = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "bind-cowboys"},
        "rules": [{"apiGroups": ["kube-bind.io"], "resources": ["apiserviceexporttemplates"], "verbs": ["bind"]}]
    });
    create(&mut world, PROVIDER, &format!("{rbac}/clusterroles"), &binder);
    create(
        &mut world,
        PROVIDER,
        &format!("{rbac}/clusterrolebindings"),
        &json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "bind-cowboys"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bind-cowboys"},
            "subjects": [{"kind": "ServiceAccount", "name": "pipeline", "namespace": "orders"}]
        }),
    );
    let path = "/api/v1/namespaces/orders/serviceaccounts/pipeline/token";
    let (_, granted) = send(
        &mut world,
        PROVIDER,
        Method::POST,
        path,
        &json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": ["https://bind-1.sim"], "expirationSeconds": 3600}
        }),
    );
    let token = granted["status"]["token"].as_str().expect("a token").to_owned();
    let identity = kube_system["metadata"]["uid"].as_str().expect("a UID").to_owned();
    let bound = world.call(1, &token, move |client| async move {
        let bound = client
            .bind_template("cowboys", identity)
            .await
            .map_err(|error| error.to_string())?;
        Ok::<_, String>(
            bound
                .kubeconfig
                .map(|kubeconfig| kubeconfig.expose().to_vec())
                .unwrap_or_default(),
        )
    });
    let kubeconfig = match bound {
        Some(Ok(kubeconfig)) => STANDARD.encode(kubeconfig),
        other => panic!("{other:?}\n{}", world.trace()),
    };
    let konnector_role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "konnector-cowboys"},
        "rules": [{"apiGroups": ["wildwest.dev"], "resources": ["*"], "verbs": ["*"]}]
    });
    create(&mut world, CONSUMER, &format!("{rbac}/clusterroles"), &konnector_role);
    create(
        &mut world,
        CONSUMER,
        &format!("{rbac}/clusterrolebindings"),
        &json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "konnector-cowboys"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "konnector-cowboys"},
            "subjects": [{"kind": "ServiceAccount", "name": "konnector", "namespace": "kube-bind"}]
        }),
    );
    create(
        &mut world,
        CONSUMER,
        "/api/v1/namespaces/kube-bind/secrets",
        &json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "west", "namespace": "kube-bind"},
            "data": {"kubeconfig": kubeconfig}
        }),
    );
    let bindings = "/apis/kube-bind.io/v1alpha2/apiservicebindings";
    create(
        &mut world,
        CONSUMER,
        bindings,
        &json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding", "metadata": {"name": "cowboys"},
            "spec": {"kubeconfigSecretRef": {"name": "west", "namespace": "kube-bind", "key": "kubeconfig"}}
        }),
    );
    until(&mut world, CONSUMER, &format!("{bindings}/cowboys"), |binding| {
        let conditions = binding["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .iter()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    });
    create(
        &mut world,
        CONSUMER,
        "/apis/wildwest.dev/v1alpha1/namespaces/default/cowboys",
        &json!({
            "apiVersion": "wildwest.dev/v1alpha1", "kind": "Cowboy",
            "metadata": {"name": "billy", "namespace": "default"}, "spec": {"intent": "ride"}
        }),
    );
    world.run_for(Duration::from_secs(5));
    let (_, copies) = send(
        &mut world,
        PROVIDER,
        Method::GET,
        "/apis/wildwest.dev/v1alpha1/cowboys",
        &Value::Null,
    );
    let copy = &copies["items"][0];
    assert_eq!(copy["spec"]["intent"], "ride", "{copies}\n{}", world.trace());
    let namespace = copy["metadata"]["namespace"].as_str().expect("a namespace");
    let path = format!("/apis/wildwest.dev/v1alpha1/namespaces/{namespace}/cowboys/billy/status");
    send(
        &mut world,
        PROVIDER,
        Method::PATCH,
        &path,
        &json!({"status": {"result": "rode"}}),
    );
    until(
        &mut world,
        CONSUMER,
        "/apis/wildwest.dev/v1alpha1/namespaces/default/cowboys/billy",
        |cowboy| cowboy["status"]["result"] == "rode",
    );
    world.run_for(Duration::from_secs(60));
    world
}

/// Environment variable `SEED` chooses another seed, and `TRACE` prints the trace.
#[test]
fn an_object_is_synced_and_its_status_comes_down() {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(7);
    begin(seed);
    let mut world = run(seed);
    assert_eq!(world.problems(), []);
    if std::env::var_os("TRACE").is_some() {
        println!("{}", world.trace());
    }
    println!("{} requests, {} lines", world.requests(), world.trace().lines().len());
}
