//! Manifests as API servers write them another way: what they add, leave out or round is no change, and every field that is
//! said otherwise is one.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{case::Case, world::case};

fn shapes() -> Vec<Value> {
    [workloads(), others()].concat()
}

fn workloads() -> Vec<Value> {
    let pod = json!({
        "metadata": {"creationTimestamp": null, "labels": {"app": "web"}},
        "spec": {
            "securityContext": {},
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}},
            ]}},
            "containers": [{
                "name": "web", "image": "example.com/web:1",
                "ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}],
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                ],
                "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": 0.5}},
                "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "cfg", "mountPath": "/cfg"}],
            }],
            "volumes": [
                {"name": "tmp", "emptyDir": {}},
                {"name": "cfg", "configMap": {"name": "c", "items": [{"key": "a", "path": "a"}]}},
            ],
        },
    });
    vec![
        object(
            "apps/v1",
            "Deployment",
            json!({"spec": {
            "replicas": 1, "strategy": {"rollingUpdate": {"maxSurge": 1}}, "selector": {"matchLabels": {"app": "web"}}, "template": pod,
        }, "status": {}}),
        ),
        object(
            "apps/v1",
            "StatefulSet",
            json!({"spec": {
                "serviceName": "shape", "selector": {"matchLabels": {"app": "db"}},
                "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "db", "image": "example.com/db:1"}]}},
                "volumeClaimTemplates": [{
                    "metadata": {"name": "data", "creationTimestamp": null},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}},
                    "status": {},
                }],
            }}),
        ),
    ]
}

fn others() -> Vec<Value> {
    vec![
        object(
            "v1",
            "Service",
            json!({"spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "name": "http"}, {"port": 443, "name": "https"}]}}),
        ),
        object("v1", "ServiceAccount", json!({"automountServiceAccountToken": false})),
        object(
            "v1",
            "Secret",
            json!({"stringData": {"k": "hunter2"}, "data": {"b": "MQ=="}}),
        ),
        object(
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}}),
        ),
        object(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            json!({"spec": {"podSelector": {}, "ingress": [{}], "egress": []}}),
        ),
        object(
            "networking.k8s.io/v1",
            "Ingress",
            json!({"spec": {"rules": [{"host": "a.example", "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "shape", "port": {"name": "http"}}}},
            ]}}]}}),
        ),
        object(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({"spec": {
                "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shape"},
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}],
            }}),
        ),
        object(
            "policy/v1",
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}}}),
        ),
        object(
            "batch/v1",
            "CronJob",
            json!({"spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "example.com/c:1", "args": ["a", "b"]}],
            }}}}}}),
        ),
        object(
            "rbac.authorization.k8s.io/v1",
            "Role",
            json!({"rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}, {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["get"]},
            ]}),
        ),
        object(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            json!({
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "shape"},
                "subjects": [{"kind": "ServiceAccount", "name": "shape"}, {"kind": "User", "name": "jane"}],
            }),
        ),
        object(
            "v1",
            "ResourceQuota",
            json!({"spec": {"hard": {"cpu": "2000m", "pods": 10}}}),
        ),
    ]
}

fn object(api: &str, kind: &str, mut rest: Value) -> Value {
    rest["apiVersion"] = json!(api);
    rest["kind"] = json!(kind);
    rest["metadata"]["name"] = json!("shape");
    rest
}

/// Says one field of the object of a kind otherwise, or not any more.
fn say(set: &[Value], kind: &str, pointer: &str, value: Option<&Value>) -> Result<Vec<Value>> {
    let mut set = set.to_vec();
    let object = set
        .iter_mut()
        .find(|object| object["kind"] == kind)
        .context("such a kind")?;
    let (parent, field) = pointer.rsplit_once('/').context("a path")?;
    match (object.pointer_mut(parent).context("such a field")?, value) {
        (Value::Object(fields), Some(value)) => drop(fields.insert(field.to_owned(), value.clone())),
        (Value::Object(fields), None) => drop(fields.remove(field).context("it is there")?),
        (Value::Array(items), None) => drop(items.remove(field.parse()?)),
        (parent, Some(value)) => parent[field.parse::<usize>()?] = value.clone(),
        (parent, None) => anyhow::bail!("{parent} has no fields"),
    }
    Ok(set)
}

async fn is_unchanged(case: &Case, set: &[Value]) -> Result<()> {
    let since = case.now()?;
    case.apply(set).await?.done()?;
    case.wrote_nothing(since)?;
    let asked = case.asked(since)?.dry_runs;
    ensure!(asked.len() <= 2, "asked in vain: {asked:#?}");
    Ok(())
}

/// A plan names the object of this kind alone, and nothing is left to do once it is applied.
async fn is_one_change(case: &Case, set: &[Value], kind: &str) -> Result<()> {
    let plan = case.plan(set, &["-o", "json"]).await?.expect(3, &[])?.json()?;
    let objects = plan["objects"].as_array().into_iter().flatten();
    let differ: Vec<_> = objects.filter(|object| object["decision"] != "unchanged").collect();
    ensure!(differ.len() == 1 && differ[0]["kind"] == kind, "{differ:#?}");
    case.apply(set).await?.done()?;
    is_unchanged(case, set).await
}

#[test]
fn what_the_api_server_writes_another_way_is_no_change() -> Result<()> {
    case("shapes", async |case| {
        let mut set = shapes();
        case.apply(&set).await?.done()?;
        is_unchanged(case, &set).await?;
        let container = "/spec/template/spec/containers/0";
        let changes = [
            (
                "Deployment",
                format!("{container}/resources/limits/cpu"),
                Some(json!("2000m")),
            ),
            ("Deployment", format!("{container}/env/2"), None),
            (
                "Deployment",
                format!("{container}/env/1/valueFrom/fieldRef/fieldPath"),
                Some(json!("metadata.name")),
            ),
            ("Deployment", format!("{container}/ports/1"), None),
            ("Deployment", format!("{container}/readinessProbe"), None),
            (
                "Deployment",
                format!("{container}/securityContext"),
                Some(json!({"runAsUser": 1})),
            ),
            ("Deployment", format!("{container}/securityContext"), None),
            (
                "Deployment",
                "/spec/template/spec/volumes/1/configMap/items".to_owned(),
                None,
            ),
            ("Deployment", "/spec/strategy".to_owned(), None),
            ("Deployment", "/spec/replicas".to_owned(), None),
            ("Deployment", "/spec/template/spec/affinity".to_owned(), None),
            ("StatefulSet", format!("{container}/command"), Some(json!(["db"]))),
            ("Service", "/spec/ports/1".to_owned(), None),
            ("Service", "/spec/ports/0/targetPort".to_owned(), Some(json!("web"))),
            ("Service", "/spec/ports/0/targetPort".to_owned(), None),
            ("Secret", "/stringData/k".to_owned(), Some(json!("hunter3"))),
            ("Secret", "/data/b".to_owned(), None),
            ("NetworkPolicy", "/spec/egress/0".to_owned(), None),
            ("NetworkPolicy", "/spec/ingress/0".to_owned(), None),
            ("Ingress", "/spec/rules/0/host".to_owned(), None),
            (
                "HorizontalPodAutoscaler",
                "/spec/minReplicas".to_owned(),
                Some(json!(2)),
            ),
            ("PodDisruptionBudget", "/spec/minAvailable".to_owned(), Some(json!(1))),
            (
                "CronJob",
                "/spec/jobTemplate/spec/template/spec/containers/0/args/1".to_owned(),
                None,
            ),
            ("Role", "/rules/0/verbs/1".to_owned(), None),
            ("Role", "/rules/1".to_owned(), None),
            ("RoleBinding", "/subjects/1".to_owned(), None),
            ("ResourceQuota", "/spec/hard/cpu".to_owned(), Some(json!("3"))),
            ("ServiceAccount", "/automountServiceAccountToken".to_owned(), None),
        ];
        let mut wrong = Vec::new();
        for (kind, pointer, value) in changes {
            // What is said first may be there already, to be taken out: it is put in where it is not.
            let before = if kind == "NetworkPolicy" && pointer.contains("egress") {
                say(&set, kind, "/spec/egress", Some(&json!([{"ports": [{"port": 53}]}])))?
            } else {
                set.clone()
            };
            if before != set {
                case.apply(&before).await?.done()?;
            }
            set = say(&before, kind, &pointer, value.as_ref())?;
            if let Err(error) = is_one_change(case, &set, kind).await {
                wrong.push(format!("{kind} {pointer} {value:?}: {error:#}"));
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
        case.delete().await?.done().map(drop)
    })
}
