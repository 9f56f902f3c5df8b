//! The kubelet of the tests runs Pods as they are: what later suites show of Deployments, they show of what users get.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bindery_e2e::{ControlPlane, Kubelet, eventually, manifests, run};
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job, core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_mins(2);
const NAMESPACE: &str = "kube-bind";

/// Runs a test on a control plane with a kubelet.
fn with_node(name: &'static str, test: impl AsyncFnOnce(&ControlPlane) -> Result<()>) -> Result<()> {
    run(async {
        let plane = ControlPlane::start(name).await?;
        let mut kubelet = Kubelet::new(&plane);
        let outcome = tokio::select! {
            outcome = test(&plane) => outcome,
            ended = kubelet.work() => ended.and_then(|()| bail!("the kubelet has ended")),
        };
        if outcome.is_ok() {
            kubelet.hush();
        }
        outcome
    })
}

fn pod(name: &str, image: &str, args: &[&str], more: &Value) -> Pod {
    let mut spec = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "containers": [{"name": "it", "image": image, "args": args}],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a Pod")
}

/// Waits until what is said of the one container of a Pod, and of the Pod's phase, satisfies the test.
async fn state(pods: &Api<Pod>, name: &str, what: &str, test: impl Fn(&Value) -> bool) -> Result<Value> {
    eventually(what, SOON, async || {
        let pod = serde_json::to_value(pods.get(name).await?)?;
        ensure!(test(&pod["status"]), "{}", pod["status"]);
        Ok(Some(pod["status"].clone()))
    })
    .await
}

#[test]
fn an_image_that_was_not_built_cannot_be_pulled() -> Result<()> {
    with_node("pods-pull", async |plane| {
        let pods = Api::<Pod>::namespaced(plane.client(), "default");
        for (name, image) in [
            ("unknown", "registry.example.com/nobody:0.1.0"),
            ("version", "synk:0.0.9"),
            (
                "digest",
                "synk@sha256:0000000000000000000000000000000000000000000000000000000000000000",
            ),
        ] {
            pods.create(&PostParams::default(), &pod(name, image, &["--version"], &json!({})))
                .await?;
            let status = state(&pods, name, "the image not to be found", |status| {
                status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImagePull"
            })
            .await?;
            let message = &status["containerStatuses"][0]["state"]["waiting"]["message"];
            ensure!(message.as_str().is_some_and(|it| it.contains(image)), "{message}");
            assert_eq!(status["phase"], "Pending");
        }
        Ok(())
    })
}

#[test]
fn a_pod_ends_as_its_program_does_and_a_job_with_it() -> Result<()> {
    with_node("pods-jobs", async |plane| {
        let jobs = Api::<Job>::namespaced(plane.client(), "default");
        let job = |name: &str, argument: &str| -> Job {
            let template = pod("any", "registry.example.com/synk:0.1.0", &[argument], &json!({}));
            let value = json!({"metadata": {"name": name}, "spec": {
                "backoffLimit": 0, "template": {"spec": template.spec},
            }});
            serde_json::from_value(value).expect("a Job")
        };
        for (name, argument, condition) in [("good", "--version", "Complete"), ("bad", "--nonsense", "Failed")] {
            jobs.create(&PostParams::default(), &job(name, argument)).await?;
            eventually(format!("Job {name} to be {condition}"), SOON, async || {
                let status = jobs.get(name).await?.status.unwrap_or_default();
                let mut conditions = status.conditions.iter().flatten();
                let is_so = conditions.any(|it| it.type_ == condition && it.status == "True");
                ensure!(is_so, "{status:?}");
                Ok(Some(()))
            })
            .await?;
        }
        Ok(())
    })
}

#[test]
fn what_a_pod_lacks_is_said_until_it_is_there() -> Result<()> {
    with_node("pods-volumes", async |plane| {
        let pods = Api::<Pod>::namespaced(plane.client(), "default");
        let more = json!({
            "volumes": [{"name": "given", "secret": {"secretName": "late"}}],
            "containers": [{
                "name": "it", "image": "synk:0.1.0", "args": ["$(COMMAND)"],
                "env": [{"name": "COMMAND", "valueFrom": {"secretKeyRef": {"name": "late", "key": "command"}}}],
                "volumeMounts": [{"name": "given", "mountPath": "/given"}],
            }],
        });
        pods.create(&PostParams::default(), &pod("late", "", &[], &more))
            .await?;
        state(&pods, "late", "the missing Secret to be named", |status| {
            let message = &status["containerStatuses"][0]["state"]["waiting"]["message"];
            message
                .as_str()
                .is_some_and(|it| it.contains("secret \"late\" not found"))
        })
        .await?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late", "namespace": "default"},
            "stringData": {"command": "--version"}});
        plane.apply(&secret.to_string()).await?;
        state(&pods, "late", "the Pod to succeed", |status| {
            status["phase"] == "Succeeded"
        })
        .await?;
        Ok(())
    })
}

#[test]
fn a_program_that_must_not_be_root_is_not() -> Result<()> {
    with_node("pods-root", async |plane| {
        let pods = Api::<Pod>::namespaced(plane.client(), "default");
        let more = json!({"securityContext": {"runAsUser": 0, "runAsNonRoot": true}});
        pods.create(
            &PostParams::default(),
            &pod("root", "synk:0.1.0", &["--version"], &more),
        )
        .await?;
        state(&pods, "root", "the container to be refused", |status| {
            status["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerConfigError"
        })
        .await?;
        Ok(())
    })
}

/// The konnector's Pods that are not being deleted.
async fn konnectors(pods: &Api<Pod>) -> Result<Vec<Pod>> {
    let all = pods
        .list(&ListParams::default().labels("app.kubernetes.io/name=konnector"))
        .await?;
    Ok(all
        .items
        .into_iter()
        .filter(|it| it.metadata.deletion_timestamp.is_none())
        .collect())
}

async fn available(deployments: &Api<Deployment>, replicas: i32) -> Result<()> {
    eventually(format!("{replicas} available konnectors"), SOON, async || {
        let deployment = deployments.get("konnector").await?;
        let status = deployment.status.unwrap_or_default();
        let is_current = status.observed_generation == deployment.metadata.generation;
        let counts = [status.replicas, status.updated_replicas, status.available_replicas];
        ensure!(is_current && counts == [Some(replicas); 3], "{status:?}");
        Ok(Some(()))
    })
    .await
}

#[test]
fn the_konnector_is_available_comes_back_and_is_replaced() -> Result<()> {
    with_node("pods-deployment", async |plane| {
        plane.apply(&manifests::folder("konnector")?).await?;
        let deployments = Api::<Deployment>::namespaced(plane.client(), NAMESPACE);
        let pods = Api::<Pod>::namespaced(plane.client(), NAMESPACE);
        available(&deployments, 1).await?;

        // Two Pods listen at the same port, each in its own network.
        let scale = Patch::Merge(json!({"spec": {"replicas": 2}}));
        deployments.patch("konnector", &PatchParams::default(), &scale).await?;
        available(&deployments, 2).await?;
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "konnector", "namespace": NAMESPACE},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app.kubernetes.io/name": "konnector"}}}});
        plane.apply(&budget.to_string()).await?;
        let budgets = Api::<PodDisruptionBudget>::namespaced(plane.client(), NAMESPACE);
        eventually("one disruption to be allowed", SOON, async || {
            let status = budgets.get("konnector").await?.status.unwrap_or_default();
            ensure!(
                (status.current_healthy, status.disruptions_allowed) == (2, 1),
                "{status:?}"
            );
            Ok(Some(()))
        })
        .await?;

        let first = konnectors(&pods).await?.first().context("no Pod")?.name_any();
        pods.delete(&first, &DeleteParams::default()).await?;
        eventually("another Pod in its place", SOON, async || {
            let names: Vec<_> = konnectors(&pods).await?.iter().map(ResourceExt::name_any).collect();
            ensure!(pods.get_opt(&first).await?.is_none() && names.len() == 2, "{names:?}");
            Ok(Some(()))
        })
        .await?;
        available(&deployments, 2).await?;

        let zero = Patch::Merge(json!({"spec": {"replicas": 0}}));
        deployments.patch("konnector", &PatchParams::default(), &zero).await?;
        eventually("all Pods to be gone", SOON, async || {
            let left = pods.list(&ListParams::default()).await?.items.len();
            ensure!(left == 0, "{left} are left");
            Ok(Some(()))
        })
        .await
    })
}

#[test]
fn a_container_that_is_not_alive_is_started_again() -> Result<()> {
    with_node("pods-liveness", async |plane| {
        let mut all = manifests::documents(&manifests::folder("konnector")?)?;
        let workload = all
            .iter_mut()
            .find(|it| it["kind"] == "Deployment")
            .context("no Deployment")?;
        let container = &mut workload["spec"]["template"]["spec"]["containers"][0];
        container["livenessProbe"] = json!({
            "httpGet": {"path": "/nothing-is-here", "port": "admin"}, "periodSeconds": 1, "failureThreshold": 2,
        });
        for document in &all {
            plane.apply(&document.to_string()).await?;
        }
        let pods = Api::<Pod>::namespaced(plane.client(), NAMESPACE);
        eventually("the konnector to be started again", SOON, async || {
            let pods = konnectors(&pods).await?;
            let status =
                serde_json::to_value(pods.first().context("no Pod")?)?["status"]["containerStatuses"][0].clone();
            ensure!(status["restartCount"].as_i64() >= Some(1), "{status}");
            // The konnector ends as SIGTERM asks it to.
            assert_eq!(status["lastState"]["terminated"]["exitCode"], 0, "{status}");
            Ok(Some(()))
        })
        .await
    })
}
