//! A provider: a control plane with the shipped manifests of the backend, and servers that run as their ServiceAccount.

mod release;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    authorization::v1::ResourceAttributes,
    core::v1::{Namespace, Secret, ServiceAccount},
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use serde_json::json;

use crate::{ControlPlane, Process, control_plane, eventually, http, lease, pki::Identity, process::Programs, rights};

/// The namespace of the backend.
pub const NAMESPACE: &str = "kube-bind";
/// The Secret with the certificates that servers make.
pub const TLS_SECRET: &str = "bindery-server-tls";
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// A provider cluster with its backend.
#[derive(Debug)]
pub struct Provider {
    /// The cluster.
    pub plane: ControlPlane,
    /// The servers. The first listens on [`Provider::address`]. Some may have ended.
    pub servers: Vec<Process>,
    programs: Programs,
    ports: Ports,
    /// The URL that clients dial, if it is that of a proxy.
    external: Option<String>,
    /// The ports of all servers that were ever started, in their order.
    replicas: Vec<Ports>,
    extra: Vec<String>,
    env: Vec<(String, String)>,
    kubeconfig: PathBuf,
    certificates: Certificates,
    /// Keeps the address of a server that runs in Pods.
    endpoint: Option<TcpListener>,
}

/// Where the servers get their certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// From files that the CA of the cluster signed.
    Files,
    /// They make them, and keep them in Secret [`TLS_SECRET`].
    Managed,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    grpc: u16,
    admin: u16,
}

impl Provider {
    /// Starts a cluster, installs the backend and the example API `cowboys`, and starts one server.
    pub async fn start(name: &str) -> Result<Self> {
        Self::start_with(name, &[]).await
    }

    /// As [`Provider::start`], with more flags for the server.
    pub async fn start_with(name: &str, extra: &[&str]) -> Result<Self> {
        Self::start_on(ControlPlane::start_before_controllers(name).await?, extra).await
    }

    /// As [`Provider::start_with`], on a cluster that runs already.
    pub async fn start_on(plane: ControlPlane, extra: &[&str]) -> Result<Self> {
        Box::pin(Self::start_from(Programs::default(), plane, extra)).await
    }

    /// As [`Provider::start_with`], with servers that make their certificates.
    pub async fn start_managed(name: &str, extra: &[&str]) -> Result<Self> {
        let plane = ControlPlane::start_before_controllers(name).await?;
        Box::pin(Self::install(
            Programs::default(),
            plane,
            extra,
            Certificates::Managed,
            None,
        ))
        .await
    }

    /// As [`Provider::start_with`], with servers that clients reach at the URL of a proxy.
    pub async fn start_behind(url: &str, name: &str, extra: &[&str]) -> Result<Self> {
        let plane = ControlPlane::start_before_controllers(name).await?;
        let external = Some(url.to_owned());
        Box::pin(Self::install(
            Programs::default(),
            plane,
            extra,
            Certificates::Files,
            external,
        ))
        .await
    }

    /// As [`Provider::start_on`], with the server of another build.
    pub async fn start_from(programs: Programs, plane: ControlPlane, extra: &[&str]) -> Result<Self> {
        Box::pin(Self::install(programs, plane, extra, Certificates::Files, None)).await
    }

    async fn install(
        programs: Programs,
        plane: ControlPlane,
        extra: &[&str],
        certificates: Certificates,
        external: Option<String>,
    ) -> Result<Self> {
        plane.apply(&programs.manifests("crds")?).await?;
        plane.restart_controller_manager()?;
        plane.apply(&programs.manifests("server")?).await?;
        plane.apply(&programs.manifests("examples/cowboys/provider")?).await?;
        let kubeconfig = plane.service_account_kubeconfig(NAMESPACE, "bindery-server").await?;
        let identity = plane.authority().server(&["127.0.0.1", "localhost"])?;
        let mut provider = Self {
            plane,
            programs,
            servers: Vec::new(),
            ports: Ports {
                grpc: free_port()?,
                admin: free_port()?,
            },
            external,
            replicas: Vec::new(),
            extra: extra.iter().map(|flag| (*flag).to_owned()).collect(),
            env: Vec::new(),
            kubeconfig,
            certificates,
            endpoint: None,
        };
        provider.serve_certificate(&identity)?;
        Box::pin(provider.start_server()).await?;
        if certificates == Certificates::Managed {
            provider.fetch_ca().await?;
        }
        provider.plane.is_served_by_controllers().await?;
        Ok(provider)
    }

    /// Writes the files of the server's certificate, which it reads again within seconds.
    pub fn serve_certificate(&self, identity: &Identity) -> Result<()> {
        self.plane.workdir().write("grpc.key", &identity.key)?;
        self.plane.workdir().write("grpc.crt", &identity.certificate)?;
        Ok(())
    }

    /// Starts one more server and waits until it is ready. The first one gets the address that consumers know, others get
    /// addresses of their own.
    pub async fn start_server(&mut self) -> Result<()> {
        let ports = if self.servers.is_empty() {
            self.ports
        } else {
            Ports {
                grpc: free_port()?,
                admin: free_port()?,
            }
        };
        let name = format!("{}-server-{}", self.plane.name(), self.servers.len());
        let server = Process::spawn(&name, &self.server_command(ports)?)?;
        self.servers.push(server);
        self.replicas.push(ports);
        self.server_ready(self.servers.len() - 1, ports.admin).await
    }

    /// Starts the first server again, after it was killed.
    pub async fn restart_server(&mut self) -> Result<()> {
        self.spawn_server()?;
        self.server_ready(0, self.ports.admin).await
    }

    /// As [`Provider::restart_server`], without waiting until it is ready.
    pub fn spawn_server(&mut self) -> Result<()> {
        let name = format!("{}-server-0", self.plane.name());
        self.servers[0] = Process::spawn(&name, &self.server_command(self.ports)?)?;
        Ok(())
    }

    /// Starts the first server again whenever it has ended, as a kubelet does, until it is ready.
    pub async fn keep_server_up(&mut self) -> Result<()> {
        let admin = self.ports.admin;
        let outcome = eventually("the server to be ready again", START_TIMEOUT, async || {
            if !self.servers[0].is_running() {
                self.spawn_server()?;
            }
            Ok((http::get(admin, "/readyz").await?.0 == 200).then_some(()))
        });
        outcome
            .await
            .with_context(|| format!("log of the server:\n{}", self.servers[0].log()))
    }

    /// Sets the URL at which servers that are started from now on reach the API server, such as that of a
    /// [`Gate`](crate::Gate). Consumers reach it as before.
    pub fn reach_through(&mut self, url: &str) -> Result<()> {
        let direct = self.plane.server_url();
        let kubeconfig = std::fs::read_to_string(&self.kubeconfig)?.replace(&direct, url);
        self.kubeconfig = self.plane.workdir().write("detour.kubeconfig", kubeconfig)?;
        self.extra.extend(["--external-address".to_owned(), direct]);
        Ok(())
    }

    /// Ends all servers, installs another build of the backend and starts one server of it.
    pub async fn upgrade(&mut self, programs: Programs) -> Result<()> {
        for mut server in self.servers.drain(..) {
            server.terminate(START_TIMEOUT).await?;
            server.hush();
        }
        self.replicas.clear();
        self.plane.apply(&programs.manifests("server")?).await?;
        self.programs = programs;
        self.start_server().await
    }

    /// Sets an environment variable for servers that are started from now on.
    pub fn with_env(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// Sets the flag `FLAG=VALUE` for servers that are started from now on, in place of its earlier value.
    pub fn set_flag(&mut self, flag: &str, value: &str) {
        let of_flag = |given: &str| given.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='));
        self.extra.retain(|given| !of_flag(given));
        self.extra.push(format!("{flag}={value}"));
    }

    async fn server_ready(&mut self, index: usize, admin: u16) -> Result<()> {
        let server = &mut self.servers[index];
        let ready = eventually("the server to be ready", START_TIMEOUT, || async {
            Ok((http::get(admin, "/readyz").await?.0 == 200).then_some(()))
        });
        ready
            .await
            .with_context(|| format!("log of the server:\n{}", server.log()))?;
        ensure!(server.is_running(), "the server ended");
        Ok(())
    }

    fn server_command(&self, ports: Ports) -> Result<Command> {
        let mut command = self.programs.command("bindery-server")?;
        let path = |name: &str| self.plane.workdir().path().join(name);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command.args(["--listen-address", &format!("127.0.0.1:{}", ports.grpc)]);
        command.args(["--admin-address", &format!("127.0.0.1:{}", ports.admin)]);
        command.args(["--external-grpc-address", &self.address()]);
        if self.certificates == Certificates::Files {
            command.arg("--tls-cert-file").arg(path("grpc.crt"));
            command.arg("--tls-key-file").arg(path("grpc.key"));
            command.arg("--external-grpc-ca-file").arg(self.ca_path());
        }
        command.args([
            "--namespace",
            NAMESPACE,
            "--lease-namespace",
            NAMESPACE,
            "--pretty-name",
            "Wild West",
        ]);
        command.args(lease::flags(&self.extra));
        command.args(&self.extra);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// The URL that clients dial, and the audience of their tokens.
    pub fn address(&self) -> String {
        let direct = || format!("https://127.0.0.1:{}", self.ports.grpc);
        self.external.clone().unwrap_or_else(direct)
    }

    /// The addresses of loopback to which konnectors connect: those of the API server and of all servers so far.
    pub fn reachable(&self) -> Vec<SocketAddr> {
        let ports = self.replicas.iter().chain([&self.ports]);
        let servers = ports.map(|it| SocketAddr::from((Ipv4Addr::LOCALHOST, it.grpc)));
        servers.chain([self.plane.server_address()]).collect()
    }

    /// The URL of one server. All of them expect tokens for [`Provider::address`].
    pub fn replica_address(&self, index: usize) -> String {
        format!("https://127.0.0.1:{}", self.replicas[index].grpc)
    }

    /// The port of one server's admin address.
    pub fn replica_admin_port(&self, index: usize) -> u16 {
        self.replicas[index].admin
    }

    /// How many servers were ever started.
    pub fn replica_count(&self) -> usize {
        self.replicas.len()
    }

    /// Starts one more server, which must end by itself with a failure. Returns its output.
    pub async fn refused_server(&self) -> Result<String> {
        let ports = Ports {
            grpc: free_port()?,
            admin: free_port()?,
        };
        let name = format!("{}-refused-server", self.plane.name());
        let mut server = Process::spawn(&name, &self.server_command(ports)?)?;
        let status = server.wait(START_TIMEOUT).await?;
        ensure!(!status.success(), "the server ended without a failure");
        server.hush();
        Ok(server.log())
    }

    /// The port of the first server's admin address.
    pub fn admin_port(&self) -> u16 {
        self.ports.admin
    }

    /// The CA that signed the server's certificate; if the server made it, as [`Provider::fetch_ca`] found it.
    pub fn ca_path(&self) -> PathBuf {
        match self.certificates {
            Certificates::Files => self.plane.ca_path(),
            Certificates::Managed => self.plane.workdir().path().join("managed-ca.crt"),
        }
    }

    /// Reads the CAs that the server made from its Secret, as its admin does, and stores them at [`Provider::ca_path`].
    pub async fn fetch_ca(&self) -> Result<String> {
        let secrets: Api<Secret> = Api::namespaced(self.plane.client(), NAMESPACE);
        let mut data = secrets.get(TLS_SECRET).await?.data.context("an empty Secret")?;
        let pem = String::from_utf8(data.remove("ca.crt").context("no ca.crt")?.0)?;
        std::fs::write(self.ca_path(), &pem)?;
        Ok(pem)
    }

    /// Creates a ServiceAccount in a namespace of its own that may bind the named templates, and returns the path of a file
    /// with a token of it for this backend.
    pub async fn principal(&self, name: &str, templates: &[&str]) -> Result<PathBuf> {
        let client = self.plane.client();
        let meta = |name: &str| ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        };
        let namespace = Namespace {
            metadata: meta(name),
            ..Namespace::default()
        };
        Api::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await?;
        let account = ServiceAccount {
            metadata: meta("binder"),
            ..ServiceAccount::default()
        };
        Api::namespaced(client, name)
            .create(&PostParams::default(), &account)
            .await?;
        if let Some(last) = templates.last() {
            let grant = json!({"apiVersion": "v1", "kind": "List", "items": [
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
                    "rules": [{
                        "apiGroups": ["kube-bind.io"], "resources": ["apiserviceexporttemplates"],
                        "resourceNames": templates, "verbs": ["bind"],
                    }],
                },
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                    "metadata": {"name": name},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                    "subjects": [{"kind": "ServiceAccount", "namespace": name, "name": "binder"}],
                },
            ]});
            self.plane.apply(&grant.to_string()).await?;
            let bind = ResourceAttributes {
                verb: Some("bind".to_owned()),
                group: Some("kube-bind.io".to_owned()),
                resource: Some("apiserviceexporttemplates".to_owned()),
                name: Some((*last).to_owned()),
                ..ResourceAttributes::default()
            };
            let binder = format!("system:serviceaccount:{name}:binder");
            rights::wait_until(&self.plane, &binder, &bind, true).await?;
        }
        self.token_file(name).await
    }

    /// Writes a fresh token of a principal for this backend into a file, and returns its path.
    pub async fn token_file(&self, principal: &str) -> Result<PathBuf> {
        let token = self
            .plane
            .token_for(principal, "binder", &[&self.address()], 3600)
            .await?;
        let path = self.plane.workdir().path().join(format!("{principal}.token"));
        std::fs::write(&path, token)?;
        Ok(path)
    }

    /// The name of the contract namespace of a consumer, by the UID of its `kube-system`.
    pub fn contract(identity: &str) -> String {
        bindery_api::names::contract_namespace("kube-bind-", identity)
    }

    /// The path of the kubeconfig with which the server runs.
    pub fn server_kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

/// Returns a port on which nobody listens now.
pub fn free_port() -> Result<u16> {
    Ok(control_plane::free_address()?.port())
}
