//! A provider on which the release of the server is installed, and a consumer on which nothing is.

use std::{collections::BTreeMap, net::SocketAddr};

use anyhow::Result;
use bindery_e2e::{ControlPlane, Kubelet, Provider, charts::Helm, guide::Reader};

pub(crate) struct World {
    pub(crate) provider: Provider,
    pub(crate) consumer: ControlPlane,
}

impl World {
    pub(crate) async fn start(name: &str) -> Result<Self> {
        let (provider, consumer) = (format!("{name}-p"), format!("{name}-c"));
        let (provider, consumer) = tokio::try_join!(
            Provider::start_empty(&provider),
            ControlPlane::start_for_pods(&consumer)
        )?;
        Ok(Self { provider, consumer })
    }

    /// Installs the server, and does what a page says, with what it says is given.
    pub(crate) async fn follow(&self, page: &str, given: BTreeMap<&'static str, String>) -> Result<()> {
        self.follow_reaching(page, given, []).await
    }

    /// As [`World::follow`], with more addresses that the Pods of the provider reach.
    pub(crate) async fn follow_reaching(
        &self,
        page: &str,
        given: BTreeMap<&'static str, String>,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<()> {
        let reader = Reader {
            provider: &self.provider.plane,
            consumer: &self.consumer,
            given,
        };
        let provider = self.provider.kubelet()?.reaching(addresses);
        let consumer = Kubelet::new(&self.consumer).reaching(self.provider.reachable());
        let follow = async {
            self.provider.install_release(&Helm::get().await?).await?;
            reader.follow(page).await
        };
        provider.during(consumer.during(follow)).await
    }
}
