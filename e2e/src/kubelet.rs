//! Plays the kubelet and the deployment controller for the konnector, as far as its users see them: the clusters here have
//! no nodes.

use std::{collections::BTreeMap, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context as _, Result};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Container, EnvVar, PodSpec},
};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use tokio::time::sleep;

use crate::{
    ControlPlane, Process,
    deployed::available,
    http,
    provider::{NAMESPACE, free_port},
};

const DEPLOYMENT: &str = "konnector";
const POLL: Duration = Duration::from_millis(100);
const GRACE: Duration = Duration::from_secs(30);
/// Flags of the Deployment that are replaced, because the process here is no pod.
const OWN: [&str; 2] = ["--kubeconfig", "--server-address"];

/// Runs the konnector as long as its Deployment exists, with the flags of its Deployment.
#[derive(Debug)]
pub struct Kubelet<'a> {
    plane: &'a ControlPlane,
    running: Option<Running>,
}

/// A running konnector, and the pod template that it was started for.
#[derive(Debug)]
struct Running {
    process: Process,
    pod: Pod,
    admin: u16,
    /// The generation of the Deployment that was reported as available.
    reported: Option<i64>,
}

/// The parts of a pod template that make a difference to the process.
#[derive(Clone, Debug, PartialEq)]
struct Pod {
    args: Vec<String>,
    env: BTreeMap<String, String>,
    service_account: String,
}

impl<'a> Kubelet<'a> {
    /// A kubelet that runs nothing yet.
    pub const fn new(plane: &'a ControlPlane) -> Self {
        Self { plane, running: None }
    }

    /// Follows the Deployment until this future is dropped, which ends the konnector, or an error occurs.
    pub async fn work(&mut self) -> Result<()> {
        let deployments = Api::<Deployment>::namespaced(self.plane.client(), NAMESPACE);
        loop {
            self.look(&deployments).await.context("running the konnector")?;
            sleep(POLL).await;
        }
    }

    /// Prints nothing of the konnector's log when it ends.
    pub fn hush(&mut self) {
        if let Some(running) = &mut self.running {
            running.process.hush();
        }
    }

    async fn look(&mut self, deployments: &Api<Deployment>) -> Result<()> {
        let deployment = deployments.get_opt(DEPLOYMENT).await?;
        let pod = deployment.as_ref().map(Pod::of).transpose()?;
        if let Some(running) = &mut self.running
            && (pod.as_ref() != Some(&running.pod) || !running.process.is_running())
        {
            running.process.hush();
            running.process.terminate(GRACE).await?;
            self.running = None;
        }
        let (Some(deployment), Some(pod)) = (deployment, pod) else {
            return Ok(());
        };
        if self.running.is_none() {
            self.running = Some(Running::start(self.plane, pod).await?);
        }
        if let Some(running) = &mut self.running {
            running.report(&deployment, deployments).await?;
        }
        Ok(())
    }
}

impl Running {
    async fn start(plane: &ControlPlane, pod: Pod) -> Result<Self> {
        let kubeconfig = plane
            .service_account_kubeconfig(NAMESPACE, &pod.service_account)
            .await?;
        let admin = free_port()?;
        let process = Process::spawn(&format!("{}-konnector", plane.name()), &pod.command(kubeconfig, admin)?)?;
        Ok(Self {
            process,
            pod,
            admin,
            reported: None,
        })
    }

    /// Reports the Deployment as available once the konnector is ready.
    async fn report(&mut self, deployment: &Deployment, deployments: &Api<Deployment>) -> Result<()> {
        let generation = deployment.metadata.generation;
        let is_ready = self.reported != generation
            && http::get(self.admin, "/readyz")
                .await
                .is_ok_and(|(status, _)| status == 200);
        if !is_ready {
            return Ok(());
        }
        let patch = Patch::Merge(available(deployment));
        deployments
            .patch_status(&deployment.name_any(), &PatchParams::default(), &patch)
            .await?;
        self.reported = generation;
        Ok(())
    }
}

impl Pod {
    fn of(deployment: &Deployment) -> Result<Self> {
        let spec = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let spec: &PodSpec = spec.context("a Deployment without a pod")?;
        let container: &Container = spec.containers.first().context("a pod without a container")?;
        let env = container.env.iter().flatten();
        Ok(Self {
            args: container.args.clone().unwrap_or_default(),
            env: env
                .filter_map(|variable| Some((variable.name.clone(), value(variable)?)))
                .collect(),
            service_account: spec
                .service_account_name
                .clone()
                .unwrap_or_else(|| "default".to_owned()),
        })
    }

    fn command(&self, kubeconfig: PathBuf, admin: u16) -> Result<Command> {
        let mut command = Process::cargo_bin("bindery-konnector")?;
        command.arg("--kubeconfig").arg(kubeconfig);
        command.args(["--server-address", &format!("127.0.0.1:{admin}")]);
        command.args(without(&self.args, &OWN));
        command.envs(&self.env);
        Ok(command)
    }
}

/// The value of a variable that is written out or is the pod's namespace.
fn value(variable: &EnvVar) -> Option<String> {
    let field = || {
        let source = variable.value_from.as_ref()?.field_ref.as_ref()?;
        (source.field_path == "metadata.namespace").then(|| NAMESPACE.to_owned())
    };
    variable.value.clone().or_else(field)
}

/// Returns the arguments without these flags and their values.
fn without<'a>(args: &'a [String], flags: &[&str]) -> Vec<&'a str> {
    let mut left = Vec::new();
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        match flags.iter().find_map(|flag| arg.strip_prefix(flag)) {
            Some("") => drop(args.next()),
            Some(value) if value.starts_with('=') => {}
            _ => left.push(arg),
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_kubelet_gives_what_it_knows_better() {
        let args = [
            "--server-address=0.0.0.0:8090",
            "--adoption",
            "all",
            "--kubeconfig",
            "x",
            "--namespace=kube-bind",
        ]
        .map(str::to_owned);
        assert_eq!(without(&args, &OWN), ["--adoption", "all", "--namespace=kube-bind"]);
    }

    #[test]
    fn a_pod_is_read_from_its_deployment() {
        let deployment = serde_json::from_value(json!({
            "metadata": {"name": "konnector"},
            "spec": {"selector": {}, "template": {"spec": {
                "serviceAccountName": "konnector",
                "containers": [{"name": "konnector", "args": ["--adoption=off"], "env": [
                    {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "RUST_BACKTRACE", "value": "1"},
                ]}],
            }}},
        }))
        .unwrap();
        let pod = Pod::of(&deployment).unwrap();
        assert_eq!(pod.args, ["--adoption=off"]);
        assert_eq!(pod.service_account, "konnector");
        let env: Vec<_> = pod.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(env, ["POD_NAMESPACE=kube-bind", "RUST_BACKTRACE=1"]);
    }
}
