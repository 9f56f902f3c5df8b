//! The server as users install it: by Helm, with its programs in Pods.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::Result;

use super::{Certificates, Ports, Provider};
use crate::{
    ControlPlane, Kubelet,
    charts::{Helm, SERVER},
    process::Programs,
    provider::free_port,
};

impl Provider {
    /// Starts a cluster without a server. [`Provider::install_release`] installs one.
    pub async fn start_empty(name: &str) -> Result<Self> {
        Ok(Self {
            plane: ControlPlane::start_for_pods(name).await?,
            programs: Programs::default(),
            servers: Vec::new(),
            ports: Ports {
                grpc: free_port()?,
                admin: free_port()?,
            },
            replicas: Vec::new(),
            extra: Vec::new(),
            env: Vec::new(),
            // Pods have the tokens of their ServiceAccount instead.
            kubeconfig: PathBuf::new(),
            certificates: Certificates::Managed,
        })
    }

    /// Runs Pods of the cluster, and makes the Service of the release reachable at [`Provider::address`].
    pub fn kubelet(&self) -> Kubelet<'_> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.grpc));
        Kubelet::new(&self.plane).exposing(SERVER.namespace, SERVER.name, address)
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
