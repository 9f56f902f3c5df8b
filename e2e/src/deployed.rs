//! Runs the program of a Deployment as a process, as its pod would run it: as its ServiceAccount, with its flags, variables and
//! mounted files. The control planes have no nodes.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Container, EnvVar, PodSpec, Secret, Volume},
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{ControlPlane, Process, eventually, http, lease, process::Programs, provider::free_port};

const START_TIMEOUT: Duration = Duration::from_mins(2);
/// The flags with the address of the admin port, of server and konnector.
const ADMIN: [&str; 2] = ["--admin-address", "--server-address"];
/// The flag with the address of the gRPC port, and the one with the URL at which it is reached.
const GRPC: (&str, &str) = ("--listen-address", "--external-grpc-address");

/// A running replica of a Deployment.
#[derive(Debug)]
pub struct Deployed {
    /// The program.
    pub process: Process,
    admin: u16,
    namespace: String,
    name: String,
}

impl Deployed {
    /// Starts a replica of the Deployment as it is now, and waits until it is ready. A server listens on the port of the URL at
    /// which it says to be reached, which is on loopback.
    pub async fn start(plane: &ControlPlane, programs: &Programs, namespace: &str, name: &str) -> Result<Self> {
        let deployments = Api::<Deployment>::namespaced(plane.client(), namespace);
        let deployment = deployments.get(name).await?;
        let spec = deployment.spec.and_then(|spec| spec.template.spec);
        let pod = spec.with_context(|| format!("Deployment {name} has no pod"))?;
        let admin = free_port()?;
        let command = command(plane, programs, (namespace, name), &pod, admin).await?;
        let process = Process::spawn(&format!("{}-{namespace}-{name}", plane.name()), &command)?;
        let mut deployed = Self {
            process,
            admin,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        deployed.ready().await?;
        Ok(deployed)
    }

    /// Reports all replicas of the Deployment as available, as the deployment controller does once they are.
    pub async fn report_available(&self, plane: &ControlPlane) -> Result<()> {
        let deployments = Api::<Deployment>::namespaced(plane.client(), &self.namespace);
        let deployment = deployments.get(&self.name).await?;
        let patch = Patch::Merge(available(&deployment));
        deployments
            .patch_status(&self.name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Ends the replica as a kubelet does.
    pub async fn stop(mut self) -> Result<()> {
        self.process.terminate(START_TIMEOUT).await?;
        self.process.hush();
        Ok(())
    }

    async fn ready(&mut self) -> Result<()> {
        let admin = self.admin;
        let process = &mut self.process;
        let ready = eventually(format!("{} to be ready", process.name()), START_TIMEOUT, async || {
            ensure!(process.is_running(), "it ended:\n{}", process.tail());
            Ok((http::get(admin, "/readyz").await?.0 == 200).then_some(()))
        });
        ready.await
    }
}

/// The status of a Deployment whose replicas are all available.
pub(crate) fn available(deployment: &Deployment) -> Value {
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    json!({"status": {
        "observedGeneration": deployment.metadata.generation,
        "replicas": replicas,
        "updatedReplicas": replicas,
        "readyReplicas": replicas,
        "availableReplicas": replicas,
        "conditions": [
            {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
        ],
    }})
}

/// The command of the first container of a pod.
async fn command(
    plane: &ControlPlane,
    programs: &Programs,
    (namespace, name): (&str, &str),
    pod: &PodSpec,
    admin: u16,
) -> Result<Command> {
    let container = pod.containers.first().context("a pod without a container")?;
    let program = container.command.as_ref().and_then(|command| command.first());
    let account = pod.service_account_name.as_deref().unwrap_or("default");
    let mounts = mounts(plane, (namespace, name), pod, container).await?;
    let mut command = programs.command(program.context("a container without a command")?)?;
    command
        .arg("--kubeconfig")
        .arg(plane.service_account_kubeconfig(namespace, account).await?);
    let args = args(container.args.as_deref().unwrap_or_default(), &mounts, admin)?;
    command.args(lease::flags(&args)).args(args);
    for variable in container.env.iter().flatten() {
        command.env(&variable.name, value(variable, namespace, name)?);
    }
    Ok(command)
}

/// The arguments of a container, with files and addresses of this machine.
fn args(given: &[String], mounts: &[(String, PathBuf)], admin: u16) -> Result<Vec<String>> {
    let flag = |name: &str| given.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='));
    let grpc = flag(GRPC.1).map(|url| {
        let port = url.strip_prefix("https://127.0.0.1:");
        port.with_context(|| format!("{} {url} is not on loopback with a port", GRPC.1))
    });
    let grpc = grpc.transpose()?;
    let local = |arg: &String| match arg.split_once('=') {
        Some((name, _)) if ADMIN.contains(&name) => format!("{name}=127.0.0.1:{admin}"),
        Some((name, _)) if name == GRPC.0 => format!("{name}=127.0.0.1:{}", grpc.unwrap_or("0")),
        Some((name, path)) => match mounts
            .iter()
            .find_map(|(at, folder)| Some((path.strip_prefix(at)?, folder)))
        {
            Some((file, folder)) => format!("{name}={}", folder.join(file.trim_start_matches('/')).display()),
            None => arg.clone(),
        },
        None => arg.clone(),
    };
    Ok(given.iter().map(local).collect())
}

/// The folders of this machine that stand for what is mounted, by the path in the container.
async fn mounts(
    plane: &ControlPlane,
    (namespace, name): (&str, &str),
    pod: &PodSpec,
    container: &Container,
) -> Result<Vec<(String, PathBuf)>> {
    let mut mounts = Vec::new();
    for volume in pod.volumes.iter().flatten() {
        let folder = plane
            .workdir()
            .path()
            .join(format!("{namespace}-{name}-{}", volume.name));
        write(&folder, content(plane, namespace, volume).await?)?;
        let mut all = container.volume_mounts.iter().flatten();
        let mount = all.find(|mount| mount.name == volume.name);
        let mount = mount.with_context(|| format!("volume {} is not mounted", volume.name))?;
        mounts.push((mount.mount_path.clone(), folder));
    }
    Ok(mounts)
}

/// The files of a volume.
async fn content(plane: &ControlPlane, namespace: &str, volume: &Volume) -> Result<BTreeMap<String, Vec<u8>>> {
    if let Some(secret) = volume.secret.as_ref().and_then(|secret| secret.secret_name.as_ref()) {
        let secret = Api::<Secret>::namespaced(plane.client(), namespace).get(secret).await?;
        let data = secret.data.unwrap_or_default().into_iter();
        return Ok(data.map(|(key, value)| (key, value.0)).collect());
    }
    let map = volume.config_map.as_ref();
    let map = map.with_context(|| format!("volume {} is neither a Secret nor a ConfigMap", volume.name))?;
    let map = Api::<ConfigMap>::namespaced(plane.client(), namespace)
        .get(&map.name)
        .await?;
    let data = map.data.unwrap_or_default().into_iter();
    Ok(data.map(|(key, value)| (key, value.into_bytes())).collect())
}

fn write(folder: &Path, files: BTreeMap<String, Vec<u8>>) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for (name, content) in files {
        std::fs::write(folder.join(name), content)?;
    }
    Ok(())
}

/// The value of a variable: written out, or a field of the pod, whose name is that of its Deployment.
fn value(variable: &EnvVar, namespace: &str, name: &str) -> Result<String> {
    if let Some(value) = &variable.value {
        return Ok(value.clone());
    }
    let source = variable
        .value_from
        .as_ref()
        .and_then(|source| source.field_ref.as_ref());
    match source.map(|field| field.field_path.as_str()) {
        Some("metadata.namespace") => Ok(namespace.to_owned()),
        Some("metadata.name") => Ok(name.to_owned()),
        _ => anyhow::bail!("variable {} has a source that is not known here", variable.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_files_are_those_of_this_machine() {
        let given = [
            "--listen-address=0.0.0.0:8443",
            "--admin-address=0.0.0.0:8081",
            "--external-grpc-address=https://127.0.0.1:4000",
            "--tls-cert-file=/etc/bindery/tls/tls.crt",
            "--log=info",
            "--only-own-bindings",
        ]
        .map(str::to_owned);
        let mounts = [("/etc/bindery/tls".to_owned(), PathBuf::from("/work/tls"))];
        let expect = [
            "--listen-address=127.0.0.1:4000",
            "--admin-address=127.0.0.1:5000",
            "--external-grpc-address=https://127.0.0.1:4000",
            "--tls-cert-file=/work/tls/tls.crt",
            "--log=info",
            "--only-own-bindings",
        ];
        assert_eq!(args(&given, &mounts, 5000).unwrap(), expect);
        let away = ["--external-grpc-address=https://bind.example.com".to_owned()];
        assert!(args(&away, &[], 5000).is_err());
    }
}
