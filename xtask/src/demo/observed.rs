//! A Prometheus beside the demo, with the rules that are shipped.

use std::net::TcpListener;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    ControlPlane, Kubelet, Prometheus, Workdir,
    charts::{KONNECTOR, Release, SERVER},
    eventually_ok,
    observe::{Program, Target},
    wildwest::SOON,
};
use serde_json::json;

/// The Service of the metrics of either program.
const SERVICE: &str = "metrics";

/// Addresses at which the metrics of both programs are reached.
pub(super) struct Metrics {
    server: TcpListener,
    konnector: TcpListener,
}

impl Metrics {
    pub(super) fn new() -> Result<Self> {
        let listener = || TcpListener::bind(("127.0.0.1", 0)).context("no free loopback port");
        Ok(Self {
            server: listener()?,
            konnector: listener()?,
        })
    }

    /// Has both nodes lead to them.
    pub(super) fn expose<'a>(&self, nodes: (Kubelet<'a>, Kubelet<'a>)) -> Result<(Kubelet<'a>, Kubelet<'a>)> {
        let (server, konnector) = (self.server.try_clone()?, self.konnector.try_clone()?);
        Ok((
            nodes.0.exposing(SERVER.namespace, SERVICE, server),
            nodes.1.exposing(KONNECTOR.namespace, SERVICE, konnector),
        ))
    }

    /// Starts a Prometheus, with its files in `folder`, and waits until it has metrics of both programs.
    pub(super) async fn scrape(
        &self,
        folder: &Workdir,
        provider: &ControlPlane,
        consumer: &ControlPlane,
    ) -> Result<Prometheus> {
        provider.apply(&service(SERVER)).await?;
        consumer.apply(&service(KONNECTOR)).await?;
        let prometheus = Prometheus::start(folder.path(), &Target::Plain).await?;
        for (program, listener) in [(Program::Server, &self.server), (Program::Konnector, &self.konnector)] {
            prometheus.scrape(program, &[listener.local_addr()?.port()])?;
        }
        eventually_ok("Prometheus to have metrics of both", SOON, async || {
            ensure!(prometheus.samples("up == 1").await? == 2, "not of both yet");
            Ok(())
        })
        .await?;
        Ok(prometheus)
    }
}

fn service(release: Release<'_>) -> String {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": release.namespace},
        "spec": {
            "selector": {"app.kubernetes.io/name": release.name},
            "ports": [{"name": "admin", "port": 80, "targetPort": "admin"}],
        },
    });
    service.to_string()
}
