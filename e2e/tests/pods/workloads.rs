//! The controllers of Kubernetes make Pods of workloads, and see what becomes of them.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{NAMESPACE, eventually};
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job, core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::world::{Node, SOON, short};

pub(crate) async fn a_job_ends_as_its_program_does(node: &Node<'_>) -> Result<()> {
    let jobs = Api::<Job>::namespaced(node.plane.client(), NAMESPACE);
    for (name, argument, condition) in [("good", "--version", "Complete"), ("bad", "--nonsense", "Failed")] {
        let template = json!({"spec": short("registry.example.com/synk:0.1.0", &[argument])});
        let spec = json!({"backoffLimit": 0, "template": template});
        let job = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        jobs.create(&PostParams::default(), &job).await?;
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
}

/// The Deployment of the konnector, as it ships.
pub(crate) async fn a_deployment_replaces_its_pods(node: &Node<'_>) -> Result<()> {
    let deployments = Api::<Deployment>::namespaced(node.plane.client(), NAMESPACE);
    available(&deployments, 1).await?;
    // Two Pods listen at the same port, each in its own network.
    let scale = Patch::Merge(json!({"spec": {"replicas": 2}}));
    deployments.patch("konnector", &PatchParams::default(), &scale).await?;
    available(&deployments, 2).await?;
    one_may_be_disrupted(node).await?;

    let first = konnectors(node).await?.first().context("no Pod")?.name_any();
    node.pods.delete(&first, &DeleteParams::default()).await?;
    eventually("another Pod in its place", SOON, async || {
        let names: Vec<_> = konnectors(node).await?.iter().map(ResourceExt::name_any).collect();
        ensure!(!names.contains(&first) && names.len() == 2, "{names:?}");
        Ok(Some(()))
    })
    .await?;
    available(&deployments, 2).await?;

    let zero = Patch::Merge(json!({"spec": {"replicas": 0}}));
    deployments.patch("konnector", &PatchParams::default(), &zero).await?;
    eventually("all Pods to be gone", SOON, async || {
        let left = konnectors(node).await?.len();
        ensure!(left == 0, "{left} are left");
        Ok(Some(()))
    })
    .await
}

async fn one_may_be_disrupted(node: &Node<'_>) -> Result<()> {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "konnector", "namespace": NAMESPACE},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app.kubernetes.io/name": "konnector"}}},
    });
    node.plane.apply(&budget.to_string()).await?;
    let budgets = Api::<PodDisruptionBudget>::namespaced(node.plane.client(), NAMESPACE);
    eventually("one disruption to be allowed", SOON, async || {
        let status = budgets.get("konnector").await?.status.unwrap_or_default();
        let is_so = (status.current_healthy, status.disruptions_allowed) == (2, 1);
        ensure!(is_so, "{status:?}");
        Ok(Some(()))
    })
    .await
}

/// The Pods of the Deployment, also those that end.
async fn konnectors(node: &Node<'_>) -> Result<Vec<Pod>> {
    let of_deployment = ListParams::default().labels("app.kubernetes.io/name=konnector");
    Ok(node.pods.list(&of_deployment).await?.items)
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
