//! An etcd, an API server and a controller manager on loopback.

mod apply;
mod etcd;
mod people;
mod ports;
mod programs;
mod readiness;
mod service_accounts;
mod tokens;

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Context, Result};
use kube::Client;
use parking_lot::Mutex;

pub(crate) use self::ports::{free as free_address, free_listener};
pub use self::{
    etcd::Backup,
    people::Person,
    tokens::{LEEWAY, ServiceAccountClaims},
};
use self::{
    programs::{Layout, SELDOM_COLLECTED},
    tokens::SigningKey,
};
use crate::{
    Audit, Kubeconfig, Process, Proxy, User, Workdir,
    binaries::{Binaries, Program},
    pki::Authority,
    process::{self, Signal},
};

/// How many times a start is tried, each with another port, while the chosen port is taken.
const ATTEMPTS: usize = 5;

/// The longest time for a command of the admin.
const ADMIN_LIMIT: Duration = Duration::from_mins(3);

/// A Kubernetes cluster without nodes. Stops on drop and leaves nothing behind.
///
/// Fields are dropped in their order: the processes before the folder that they write to.
pub struct ControlPlane {
    name: String,
    binaries: &'static Binaries,
    layout: Layout,
    authority: Authority,
    admin: Kubeconfig,
    admin_path: PathBuf,
    client: Client,
    signing_key: SigningKey,
    has_controllers: bool,
    /// Whether the controllers for Pods run too.
    has_workloads: AtomicBool,
    /// None if it has none, or none yet.
    controller_manager: Mutex<Option<Process>>,
    /// None while it is stopped.
    api_server: Mutex<Option<Process>>,
    etcd: Mutex<Process>,
    workdir: Workdir,
}

/// What a control plane has beside its store and its API server.
#[derive(Clone, Copy, Debug)]
struct Parts {
    audit: bool,
    controllers: bool,
    /// Whether Pods must keep the standard `restricted`.
    restricted: bool,
}

impl ControlPlane {
    /// Starts a control plane and waits until it is ready. The first start of a user builds the binaries.
    pub async fn start(name: &str) -> Result<Self> {
        let plane = Self::start_before_controllers(name).await?;
        plane.restart_controller_manager()?;
        plane.is_served_by_controllers().await?;
        Ok(plane)
    }

    /// As [`ControlPlane::start`], with the controllers for Pods, which a [`Kubelet`](crate::Kubelet) would start later. Pods are
    /// refused that do not keep the standard `restricted` of Kubernetes, except in namespaces that allow more.
    pub async fn start_for_pods(name: &str) -> Result<Self> {
        let restricted = Parts {
            audit: false,
            controllers: true,
            restricted: true,
        };
        let plane = Box::pin(Self::start_with(name, restricted)).await?;
        plane.run_workloads().await?;
        Ok(plane)
    }

    /// As [`ControlPlane::start`], with an audit log.
    pub async fn start_audited(name: &str) -> Result<Self> {
        let audited = Parts {
            audit: true,
            controllers: true,
            restricted: false,
        };
        let plane = Box::pin(Self::start_with(name, audited)).await?;
        plane.restart_controller_manager()?;
        plane.is_served_by_controllers().await?;
        Ok(plane)
    }

    /// As [`ControlPlane::start_audited`], without a controller manager: nothing is garbage collected.
    pub async fn start_bare(name: &str) -> Result<Self> {
        let bare = Parts {
            audit: true,
            controllers: false,
            restricted: false,
        };
        Box::pin(Self::start_with(name, bare)).await
    }

    /// As [`ControlPlane::start`], without starting the controllers yet. The caller starts them once the kinds are there that
    /// the garbage collector must know from its start on.
    pub async fn start_before_controllers(name: &str) -> Result<Self> {
        let plain = Parts {
            audit: false,
            controllers: true,
            restricted: false,
        };
        Box::pin(Self::start_with(name, plain)).await
    }

    async fn start_with(name: &str, parts: Parts) -> Result<Self> {
        let binaries = Binaries::get().await?;
        let mut attempt = 1;
        loop {
            match Box::pin(Self::try_start(name, binaries, parts)).await {
                Err(error) if attempt < ATTEMPTS && programs::is_port_collision(&error) => attempt += 1,
                outcome => return outcome.with_context(|| format!("cannot start the control plane {name:?}")),
            }
        }
    }

    async fn try_start(name: &str, binaries: &'static Binaries, parts: Parts) -> Result<Self> {
        let workdir = Workdir::new(name)?;
        let authority = Authority::new(&format!("{name} CA"))?;
        let signing_key = SigningKey::generate()?;
        let mut layout = Layout::prepare(&workdir, &authority, &signing_key)?;
        if parts.audit {
            layout = layout.audited(&workdir)?;
        }
        if parts.restricted {
            layout = layout.restricted(&workdir)?;
        }
        let admin = Kubeconfig {
            server: layout.server_url(),
            ca_pem: authority.pem(),
            namespace: "default".to_owned(),
            user: User::Certificate(authority.client("admin", "system:masters")?),
        };
        let admin_path = workdir.write("admin.kubeconfig", admin.to_yaml()?)?;
        let client = admin.client().await?;

        let mut etcd = layout.spawn_etcd(binaries)?;
        readiness::listening(&mut etcd, &layout.etcd_socket()).await?;
        let mut api_server = layout.spawn_api_server(binaries)?;
        readiness::ready(&mut api_server, &client).await?;
        Ok(Self {
            name: name.to_owned(),
            binaries,
            layout,
            authority,
            admin,
            admin_path,
            client,
            signing_key,
            has_controllers: parts.controllers,
            has_workloads: AtomicBool::new(false),
            controller_manager: Mutex::default(),
            api_server: Mutex::new(Some(api_server)),
            etcd: Mutex::new(etcd),
            workdir,
        })
    }

    /// The name of the control plane, for messages and files.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client with the rights of the admin.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The admin's kubeconfig.
    pub fn kubeconfig(&self) -> &Kubeconfig {
        &self.admin
    }

    /// The file with the admin's kubeconfig.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.admin_path
    }

    /// The content of [`Self::kubeconfig_path`].
    pub fn kubeconfig_yaml(&self) -> Result<String> {
        self.admin.to_yaml()
    }

    /// URL of the API server, which is also its service-account issuer and the audience of its own tokens.
    pub fn server_url(&self) -> String {
        self.layout.server_url()
    }

    /// Address of the API server.
    pub fn server_address(&self) -> SocketAddr {
        self.layout.server_address()
    }

    /// The audit log. Fails if the control plane was started without one.
    pub fn audit(&self) -> Result<&Audit> {
        self.layout.audit().context("a control plane without an audit log")
    }

    /// The certificate authority of the API server, PEM.
    pub fn ca_pem(&self) -> String {
        self.authority.pem()
    }

    /// The file with [`Self::ca_pem`].
    pub fn ca_path(&self) -> PathBuf {
        self.layout.ca_path()
    }

    /// The certificate authority of the API server, which may sign other certificates.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// A folder for files of the test, removed with the control plane.
    pub fn workdir(&self) -> &Workdir {
        &self.workdir
    }

    /// The process ids of the programs that run now.
    pub fn pids(&self) -> Vec<u32> {
        let api_server = self.api_server.lock().as_ref().map(Process::id);
        let controller_manager = self.controller_manager.lock().as_ref().map(Process::id);
        let others = api_server.into_iter().chain(controller_manager);
        others.chain([self.etcd.lock().id()]).collect()
    }

    /// Kills the API server. Its state stays in etcd.
    pub fn stop_api_server(&self) -> Result<()> {
        match self.api_server.lock().take() {
            Some(mut process) => process.kill9(),
            None => Ok(()),
        }
    }

    /// Starts the API server again under the same address and waits until it is ready. Nothing happens if it runs.
    pub async fn start_api_server(&self) -> Result<()> {
        if self.api_server.lock().as_mut().is_some_and(Process::is_running) {
            return Ok(());
        }
        let mut process = self.layout.spawn_api_server(self.binaries)?;
        readiness::ready(&mut process, &self.client).await?;
        *self.api_server.lock() = Some(process);
        // One that elects leaders ends without an API server and is started again. This one does not, and would wait
        // for as long as it has learnt to by now.
        self.restart_controller_manager()
    }

    /// Starts the controllers, or starts them anew, if the control plane has any. The garbage collector looks for new kinds
    /// when it starts, and then only twice a minute.
    pub fn restart_controller_manager(&self) -> Result<()> {
        if self.has_controllers {
            let mut controller_manager = self.controller_manager.lock();
            // Two at a time would get into each other's way.
            drop(controller_manager.take());
            let has_workloads = self.has_workloads.load(Ordering::Relaxed);
            let spawned = self
                .layout
                .spawn_controller_manager(self.binaries, &self.admin_path, has_workloads);
            *controller_manager = Some(spawned?);
        }
        Ok(())
    }

    /// Starts the controllers of Deployments, ReplicaSets, Jobs and PodDisruptionBudgets too, if they do not run yet, and waits
    /// until Pods of every namespace that a fresh cluster has could start.
    pub(crate) async fn run_workloads(&self) -> Result<()> {
        if !self.has_workloads.swap(true, Ordering::Relaxed) {
            self.restart_controller_manager()?;
        }
        let is_running = || self.runs_controllers();
        Box::pin(readiness::ready_for_pods(is_running, &self.client)).await
    }

    /// Waits for what a fresh cluster gets from its controllers first, if it has any.
    pub(crate) async fn is_served_by_controllers(&self) -> Result<()> {
        if self.has_controllers {
            let is_running = || self.runs_controllers();
            Box::pin(readiness::default_service_account(is_running, &self.client)).await?;
        }
        Ok(())
    }

    fn runs_controllers(&self) -> bool {
        let mut controller_manager = self.controller_manager.lock();
        controller_manager.as_mut().is_none_or(Process::is_running)
    }

    /// Pauses the API server, so that clients wait instead of being refused, until [`Self::resume_api_server`]. Returns once
    /// it stands still.
    pub fn pause_api_server(&self) -> Result<()> {
        let mut slot = self.api_server.lock();
        slot.as_mut().context("the API server is stopped")?.pause()
    }

    /// Resumes a paused API server.
    pub fn resume_api_server(&self) -> Result<()> {
        let mut slot = self.api_server.lock();
        slot.as_mut()
            .context("the API server is stopped")?
            .signal(Signal::SIGCONT)
    }

    /// A proxy to the API server, for clients that should lose their connections while others keep theirs.
    pub async fn proxy(&self) -> Result<Proxy> {
        Proxy::start(self.server_address()).await
    }

    /// Runs kubectl as admin and returns its standard output; a failure shows its standard error.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let mut command = self.kubectl_command(&self.admin_path);
        command.args(args);
        let output = process::run(command, ADMIN_LIMIT).await?;
        process::stdout(&output).with_context(|| format!("kubectl {}", args.join(" ")))
    }

    /// Applies manifests as admin, and waits until the kinds that they define are served.
    pub async fn apply(&self, yaml: &str) -> Result<()> {
        let applied = tokio::time::timeout(ADMIN_LIMIT, Box::pin(apply::apply(&self.client, yaml))).await;
        applied.with_context(|| format!("manifests are not applied within {ADMIN_LIMIT:?}"))?
    }

    /// A kubectl with a kubeconfig of the caller's choice and a cache of its own.
    pub fn kubectl_command(&self, kubeconfig: &Path) -> Command {
        let mut command = Command::new(self.binaries.path(Program::Kubectl));
        command
            .envs(SELDOM_COLLECTED)
            .env("KUBECONFIG", kubeconfig)
            .env("KUBECACHEDIR", self.workdir.path().join("kubectl-cache"));
        command
    }

    /// The path of grpcurl.
    pub fn grpcurl_path(&self) -> &Path {
        self.binaries.path(Program::Grpcurl)
    }

    /// The path of kubectl. With its folder in `PATH`, `kubectl bind` works.
    pub fn kubectl_path(&self) -> &Path {
        self.binaries.path(Program::Kubectl)
    }

    /// The kubeconfig of a user that authenticates by `token`, in `namespace`.
    pub fn token_kubeconfig(&self, namespace: &str, token: impl Into<String>) -> Kubeconfig {
        Kubeconfig {
            namespace: namespace.to_owned(),
            user: User::Token(token.into()),
            ..self.admin.clone()
        }
    }
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlane")
            .field("name", &self.name)
            .field("server", &self.server_url())
            .field("workdir", &self.workdir.path())
            .finish_non_exhaustive()
    }
}
