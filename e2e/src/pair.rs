//! Two clusters with nodes: one for the server of the backend, which runs in its Pods, and one for the konnector.

use std::net::{SocketAddr, TcpListener};

use anyhow::Result;

use crate::{ControlPlane, Kubelet, charts::Release, control_plane};

/// A provider and a consumer without any program of the project.
#[derive(Debug)]
pub struct Pair {
    /// The cluster for the server.
    pub provider: ControlPlane,
    /// The cluster for the konnector.
    pub consumer: ControlPlane,
    /// Where this machine and the consumer's Pods reach the Service of the server.
    endpoint: TcpListener,
}

impl Pair {
    /// Starts both clusters, `NAME-p` and `NAME-c`.
    pub async fn start(name: &str) -> Result<Self> {
        let (provider, consumer) = (format!("{name}-p"), format!("{name}-c"));
        let (provider, consumer) = tokio::try_join!(
            Box::pin(ControlPlane::start_for_pods(&provider)),
            Box::pin(ControlPlane::start_for_pods(&consumer))
        )?;
        Ok(Self {
            provider,
            consumer,
            endpoint: control_plane::free_listener()?,
        })
    }

    /// The address at which the Service of the server is reached.
    pub fn endpoint(&self) -> Result<SocketAddr> {
        Ok(self.endpoint.local_addr()?)
    }

    /// The nodes of the provider and of the consumer. Pods of the consumer reach the provider's API server, and the Service of
    /// this release.
    pub fn kubelets(&self, server: Release<'_>) -> Result<(Kubelet<'_>, Kubelet<'_>)> {
        let provider = Kubelet::new(&self.provider);
        let consumer = Kubelet::new(&self.consumer);
        Ok((
            provider.exposing(server.namespace, server.name, self.endpoint.try_clone()?),
            consumer.reaching([self.provider.server_address(), self.endpoint()?]),
        ))
    }

    /// Runs the Pods of both clusters until `work` has ended, as [`Kubelet::during`] does.
    pub fn during<T>(
        &self,
        server: Release<'_>,
        work: impl Future<Output = Result<T>>,
    ) -> impl Future<Output = Result<T>> {
        let work = Box::pin(work);
        async move {
            let (provider, consumer) = self.kubelets(server)?;
            provider.during(consumer.during(work)).await
        }
    }
}
