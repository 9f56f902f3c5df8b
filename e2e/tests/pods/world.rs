//! A control plane with a kubelet, and Pods to run on it.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{ControlPlane, Kubelet, NAMESPACE, eventually, manifests, run};
use futures::future::{LocalBoxFuture, try_join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

pub(crate) const SOON: Duration = Duration::from_mins(2);
/// The container of the konnector's Pods.
const KONNECTOR: &str = "konnector";

pub(crate) struct Node<'a> {
    pub(crate) plane: &'a ControlPlane,
    pub(crate) pods: Api<Pod>,
    kubelet: &'a Kubelet<'a>,
}

/// Runs cases beside each other on one node, in a namespace in which the konnector is installed.
pub(crate) fn with_node(
    name: &str,
    change: fn(Kubelet<'_>) -> Kubelet<'_>,
    cases: impl for<'a> FnOnce(&'a Node<'a>) -> Vec<LocalBoxFuture<'a, Result<()>>>,
) -> Result<()> {
    run(async {
        let plane = ControlPlane::start_for_pods(name).await?;
        let kubelet = change(Kubelet::new(&plane));
        let node = Node {
            plane: &plane,
            pods: Api::namespaced(plane.client(), NAMESPACE),
            kubelet: &kubelet,
        };
        let work = async {
            plane.apply(&manifests::folder(KONNECTOR)?).await?;
            // The cases ask for what good Pods do not.
            let label = "pod-security.kubernetes.io/enforce=privileged";
            plane.kubectl(&["label", "namespace", NAMESPACE, label]).await?;
            try_join_all(cases(&node)).await
        };
        kubelet.during(work).await.map(drop)
    })
}

impl Node<'_> {
    /// Creates a Pod.
    pub(crate) async fn create(&self, name: &str, spec: &Value) -> Result<()> {
        let pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        self.pods.create(&PostParams::default(), &pod).await?;
        Ok(())
    }

    /// Waits until the status of a Pod satisfies the test.
    pub(crate) async fn status(&self, name: &str, what: &str, test: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(format!("{name}: {what}"), SOON, async || {
            let status = serde_json::to_value(self.pods.get(name).await?.status)?;
            ensure!(test(&status), "{status}");
            Ok(Some(status))
        })
        .await
    }

    /// Waits until a Pod of the konnector is ready, and returns the folder of its process in `/proc`.
    pub(crate) async fn ready(&self, name: &str) -> Result<PathBuf> {
        self.status(name, "to be ready", |status| container(status)["ready"] == true)
            .await?;
        self.process(name).await
    }

    /// Returns the folder in `/proc` of the process of a Pod of the konnector. Fails while it does not run.
    pub(crate) async fn process(&self, name: &str) -> Result<PathBuf> {
        let pod = self.pods.get(name).await?;
        let id = self.kubelet.process(&pod, KONNECTOR).context("no process")?;
        Ok(PathBuf::from(format!("/proc/{id}")))
    }
}

/// The spec of a Pod that ends by itself.
pub(crate) fn short(image: &str, args: &[&str]) -> Value {
    json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "containers": [{"name": "it", "image": image, "args": args}],
    })
}

/// The spec of a Pod of the konnector as it ships, which runs until it is ended.
pub(crate) fn konnector() -> Result<Value> {
    let all = manifests::documents(&manifests::folder(KONNECTOR)?)?;
    let workload = all.iter().find(|it| it["kind"] == "Deployment");
    Ok(workload.context("no Deployment")?["spec"]["template"]["spec"].clone())
}

/// The status of the one container of a Pod.
pub(crate) fn container(status: &Value) -> &Value {
    &status["containerStatuses"][0]
}

/// Whether the container waits for that reason, with a message that contains these words.
pub(crate) fn waits(status: &Value, reason: &str, says: &str) -> bool {
    let waiting = &container(status)["state"]["waiting"];
    let message = waiting["message"].as_str().unwrap_or_default();
    waiting["reason"] == reason && message.contains(says)
}
