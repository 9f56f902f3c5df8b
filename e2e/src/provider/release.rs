//! The server as users install it: by Helm, with its programs in Pods.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::{Certificates, Ports, Provider};
use crate::{
    ControlPlane, Kubelet,
    charts::{Helm, SERVER},
    control_plane,
    process::Programs,
    provider::free_port,
};

impl Provider {
    /// Starts a cluster without a server. [`Provider::install_release`] installs one.
    pub async fn start_empty(name: &str) -> Result<Self> {
        let endpoint = control_plane::free_listener()?;
        Ok(Self {
            plane: ControlPlane::start_for_pods(name).await?,
            programs: Programs::default(),
            servers: Vec::new(),
            ports: Ports {
                grpc: endpoint.local_addr()?.port(),
                admin: free_port()?,
            },
            external: None,
            replicas: Vec::new(),
            extra: Vec::new(),
            env: Vec::new(),
            // Pods have the tokens of their ServiceAccount instead.
            kubeconfig: PathBuf::new(),
            certificates: Certificates::Managed,
            endpoint: Some(endpoint),
        })
    }

    /// Runs Pods of the cluster, and makes the Service of the release reachable at [`Provider::address`]. Fails if the cluster was
    /// not started by [`Provider::start_empty`].
    pub fn kubelet(&self) -> Result<Kubelet<'_>> {
        let endpoint = self.endpoint.as_ref();
        let endpoint = endpoint.context("the server does not run in Pods")?.try_clone()?;
        Ok(Kubelet::new(&self.plane).exposing(SERVER.namespace, SERVER.name, endpoint))
    }

    /// Installs the release [`SERVER`] and the example API `cowboys`. The caller runs [`Provider::kubelet`] meanwhile.
    pub async fn install_release(&self, helm: &Helm) -> Result<()> {
        let (grpc, kubernetes) = (self.address(), self.plane.server_url());
        let values = format!("grpc.address={grpc},kubernetes.address={kubernetes},prettyName=Wild West");
        let args = ["--create-namespace", "--wait", "--set", &values];
        helm.apply(&self.plane, "install", SERVER, &args).await?;
        // The garbage collector looks for the kinds of the server when it starts.
        self.plane.restart_controller_manager()?;
        self.fetch_ca().await?;
        let example = self.programs.manifests("examples/cowboys/provider")?;
        self.plane.apply(&example).await
    }
}
