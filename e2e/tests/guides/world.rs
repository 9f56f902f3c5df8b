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

    /// What every page is given that logs in with the token of a ServiceAccount: the address of the server, and its CA.
    pub(crate) fn given(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::from([
            ("KUBECTL_BIND_SERVER", self.provider.address()),
            ("CA_FILE", self.provider.ca_path().display().to_string()),
        ])
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
        let provider = self.provider.kubelet()?.reaching(addresses);
        let consumer = self.kubelet(&self.consumer);
        let follow = self.install_and_follow(page, given, Vec::new());
        provider.during(consumer.during(follow)).await
    }

    /// As [`World::follow`], with API servers that are stopped meanwhile: programs that end for that are started again.
    pub(crate) async fn follow_through_outages(&self, page: &str, given: BTreeMap<&'static str, String>) -> Result<()> {
        let provider = self.provider.kubelet()?.allowing_restarts();
        let consumer = self.kubelet(&self.consumer).allowing_restarts();
        let follow = self.install_and_follow(page, given, Vec::new());
        provider.during(consumer.during(follow)).await
    }

    /// As [`World::follow`], with one more consumer, whose context has this name.
    pub(crate) async fn follow_with(
        &self,
        page: &str,
        given: BTreeMap<&'static str, String>,
        (name, other): (&'static str, &ControlPlane),
    ) -> Result<()> {
        let provider = self.provider.kubelet()?;
        let (consumer, third) = (self.kubelet(&self.consumer), self.kubelet(other));
        let follow = self.install_and_follow(page, given, vec![(name, other)]);
        provider.during(consumer.during(third.during(follow))).await
    }

    /// A node of a consumer, whose Pods reach the provider.
    fn kubelet<'a>(&self, consumer: &'a ControlPlane) -> Kubelet<'a> {
        Kubelet::new(consumer).reaching(self.provider.reachable())
    }

    async fn install_and_follow(
        &self,
        page: &str,
        given: BTreeMap<&'static str, String>,
        others: Vec<(&'static str, &ControlPlane)>,
    ) -> Result<()> {
        let reader = Reader {
            provider: &self.provider.plane,
            consumer: &self.consumer,
            others,
            given,
        };
        self.provider.install_release(&Helm::get().await?).await?;
        reader.follow(page).await
    }
}
