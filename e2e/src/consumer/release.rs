//! The konnector as users install it: by Helm, with its program in Pods.

use std::path::PathBuf;

use anyhow::Result;

use super::Consumer;
use crate::{
    ControlPlane, Kubelet, Provider,
    charts::{Helm, KONNECTOR},
    process::Programs,
};

impl Consumer {
    /// Starts a cluster without a konnector. [`Consumer::install_release`] installs one.
    pub async fn start_empty(name: &str) -> Result<Self> {
        Ok(Self {
            plane: ControlPlane::start_for_pods(name).await?,
            programs: Programs::default(),
            konnectors: Vec::new(),
            extra: Vec::new(),
            env: Vec::new(),
            // Pods have the tokens of their ServiceAccount instead.
            kubeconfig: PathBuf::new(),
            admin: 0,
        })
    }

    /// Runs Pods of the cluster, which reach a provider.
    pub fn kubelet(&self, provider: &Provider) -> Kubelet<'_> {
        Kubelet::new(&self.plane).reaching(provider.reachable())
    }

    /// Installs the release [`KONNECTOR`]. The caller runs [`Consumer::kubelet`] meanwhile.
    pub async fn install_release(&self, helm: &Helm) -> Result<()> {
        let args = ["--create-namespace", "--wait"];
        helm.apply(&self.plane, "install", KONNECTOR, &args).await?;
        Ok(())
    }
}
