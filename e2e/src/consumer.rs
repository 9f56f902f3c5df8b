//! A consumer: a control plane with the shipped manifests of the konnector, and konnectors that run as their ServiceAccount.

mod release;

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};

use crate::{
    ControlPlane, Process, Provider, eventually, http, lease,
    process::{Programs, run},
    provider::{NAMESPACE, free_port},
};

const START_TIMEOUT: Duration = Duration::from_mins(2);
const COMMAND_TIMEOUT: Duration = Duration::from_mins(3);

/// A consumer cluster with its konnector.
#[derive(Debug)]
pub struct Consumer {
    /// The cluster.
    pub plane: ControlPlane,
    /// The konnectors, in the order of their start. Some may have ended.
    pub konnectors: Vec<Process>,
    programs: Programs,
    extra: Vec<String>,
    env: Vec<(String, String)>,
    kubeconfig: PathBuf,
    /// The admin port of the last konnector.
    admin: u16,
}

impl Consumer {
    /// Starts a cluster, installs the konnector and starts it.
    pub async fn start(name: &str) -> Result<Self> {
        Self::start_with(name, &[]).await
    }

    /// As [`Consumer::start`], with more flags for the konnector.
    pub async fn start_with(name: &str, extra: &[&str]) -> Result<Self> {
        Self::start_on(ControlPlane::start_before_controllers(name).await?, extra).await
    }

    /// As [`Consumer::start_with`], on a cluster that runs already.
    pub async fn start_on(plane: ControlPlane, extra: &[&str]) -> Result<Self> {
        Box::pin(Self::start_from(Programs::default(), plane, extra)).await
    }

    /// As [`Consumer::start_on`], with konnector and command line of a build of the caller's choice.
    pub async fn start_from(programs: Programs, plane: ControlPlane, extra: &[&str]) -> Result<Self> {
        plane.apply(&programs.manifests("konnector")?).await?;
        plane.restart_controller_manager()?;
        Box::pin(Self::start_installed(programs, plane, extra)).await
    }

    /// As [`Consumer::start_from`], on a cluster that has the manifests of the konnector already.
    pub async fn start_installed(programs: Programs, plane: ControlPlane, extra: &[&str]) -> Result<Self> {
        let kubeconfig = plane.service_account_kubeconfig(NAMESPACE, "konnector").await?;
        let mut consumer = Self {
            plane,
            programs,
            konnectors: Vec::new(),
            extra: extra.iter().map(|flag| (*flag).to_owned()).collect(),
            env: Vec::new(),
            kubeconfig,
            admin: 0,
        };
        Box::pin(consumer.start_konnector()).await?;
        consumer.plane.is_served_by_controllers().await?;
        Ok(consumer)
    }

    /// Starts one more konnector and waits until it is ready.
    pub async fn start_konnector(&mut self) -> Result<()> {
        let admin = self.spawn_konnector()?;
        let konnector = self.konnectors.last_mut().context("just started")?;
        let ready = eventually("the konnector to be ready", START_TIMEOUT, || async {
            Ok((http::get(admin, "/readyz").await?.0 == 200).then_some(()))
        });
        ready
            .await
            .with_context(|| format!("log of the konnector:\n{}", konnector.log()))?;
        ensure!(konnector.is_running(), "the konnector ended");
        Ok(())
    }

    /// Starts a konnector whenever the last one has ended, as a kubelet does, until one is ready.
    pub async fn keep_konnector_up(&mut self) -> Result<()> {
        let mut admin = self.admin;
        eventually("a konnector to be ready", START_TIMEOUT, async || {
            let last = self.konnectors.last_mut().context("none was started")?;
            if !last.is_running() {
                admin = self.spawn_konnector()?;
            }
            Ok((http::get(admin, "/readyz").await?.0 == 200).then_some(()))
        })
        .await
    }

    /// Sets the build of konnectors and commands that are started from now on.
    pub fn set_programs(&mut self, programs: Programs) {
        self.programs = programs;
    }

    /// Sets an environment variable for konnectors that are started from now on.
    pub fn with_env(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// Sets the flag `FLAG=VALUE` for konnectors that are started from now on, in place of its earlier value.
    pub fn set_flag(&mut self, flag: &str, value: &str) {
        self.clear_flag(flag);
        self.extra.push(format!("{flag}={value}"));
    }

    /// Takes the flag `FLAG=VALUE` from konnectors that are started from now on.
    pub fn clear_flag(&mut self, flag: &str) {
        let of_flag = |given: &str| given.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='));
        self.extra.retain(|given| !of_flag(given));
    }

    /// Sets the URL at which konnectors that are started from now on reach their API server, such as that of a
    /// [`Proxy`](crate::Proxy).
    pub fn reach_through(&mut self, url: &str) -> Result<()> {
        let kubeconfig = std::fs::read_to_string(&self.kubeconfig)?.replace(&self.plane.server_url(), url);
        self.kubeconfig = self.plane.workdir().write("detour.kubeconfig", kubeconfig)?;
        Ok(())
    }

    /// Starts one more konnector without waiting for it, and returns its admin port.
    pub fn spawn_konnector(&mut self) -> Result<u16> {
        let admin = free_port()?;
        let mut command = self.programs.command("bindery-konnector")?;
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command.args(["--server-address", &format!("127.0.0.1:{admin}")]);
        command.args(["--namespace", NAMESPACE, "--lease-namespace", NAMESPACE]);
        command.args(lease::flags(&self.extra));
        command.args(&self.extra);
        let name = format!("{}-konnector-{}", self.plane.name(), self.konnectors.len());
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        self.konnectors.push(Process::spawn(&name, &command)?);
        self.admin = admin;
        Ok(admin)
    }

    /// Ends all konnectors with SIGTERM. They release their Lease, so that the next one need not wait.
    pub async fn stop_konnectors(&mut self) -> Result<()> {
        for konnector in &mut self.konnectors {
            konnector.terminate(START_TIMEOUT).await?;
            konnector.hush();
        }
        self.konnectors.clear();
        Ok(())
    }

    /// The admin port of the last konnector.
    pub fn admin_port(&self) -> u16 {
        self.admin
    }

    /// The path of the kubeconfig with which konnectors run.
    pub fn konnector_kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the UID of `kube-system`, by which a provider identifies the cluster.
    pub async fn identity(&self) -> Result<String> {
        let namespace = Api::<Namespace>::all(self.plane.client()).get("kube-system").await?;
        namespace.uid().context("a namespace has a UID")
    }

    /// The command `kubectl-bind`, with the kubeconfig of the admin of this cluster.
    pub fn bind_command(&self) -> Result<Command> {
        let mut command = self.programs.command("kubectl-bind")?;
        command.env("KUBECONFIG", self.plane.kubeconfig_path());
        Ok(command)
    }

    /// The command `kubectl-bind` with the flags for a provider and the caller's token.
    pub fn bind_command_for(&self, provider: &Provider, token: &Path) -> Result<Command> {
        let mut command = self.bind_command()?;
        command.args(["--server", &provider.address()]);
        command.arg("--certificate-authority").arg(provider.ca_path());
        command.arg("--token-file").arg(token);
        Ok(command)
    }

    /// Runs `kubectl-bind ARGS` against a provider, and returns its standard output. A failure shows all output.
    pub async fn bind(&self, provider: &Provider, token: &Path, args: &[&str]) -> Result<String> {
        let mut command = self.bind_command_for(provider, token)?;
        command.args(args);
        let output = run(command, COMMAND_TIMEOUT).await?;
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        ensure!(
            output.status.success(),
            "kubectl-bind {} failed: {stderr}\n{stdout}",
            args.join(" ")
        );
        Ok(stdout.into_owned())
    }
}
