//! Server and konnector of two versions work together, whichever is the newer one, and while the server is rolled back.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    Consumer, ControlPlane, Provider, former, lease, process::Programs, remains, wildwest, wildwest::Cowboys,
};
use kube::ResourceExt as _;

use crate::world::{NAMESPACE, ready, tails};

/// A consumer that binds `cowboys`, and the token of the principal that binds.
struct Party {
    consumer: Consumer,
    token: PathBuf,
    /// The command that ends its binding with all copies. A former one deletes them unasked.
    unbind: &'static [&'static str],
}

/// UID and resource version of an object and its copy.
type Versions = [Option<String>; 4];

pub(crate) async fn check() -> Result<()> {
    let former = tokio::task::spawn_blocking(former::locate).await??;
    let provider = async {
        let plane = ControlPlane::start("apart-p").await?;
        Provider::start_from(former.clone(), plane, &lease::PATIENT).await
    };
    let with_former = async {
        let plane = ControlPlane::start("apart-former").await?;
        Consumer::start_from(former.clone(), plane, &lease::PATIENT).await
    };
    let with_present = Consumer::start_with("apart-present", &lease::PATIENT);
    let (mut provider, with_former, with_present) =
        tokio::try_join!(Box::pin(provider), Box::pin(with_former), Box::pin(with_present))?;
    let parties = [
        Party::new(&provider, with_former, "former", &["unbind", "cowboys"]).await?,
        Party::new(
            &provider,
            with_present,
            "present",
            &["unbind", "cowboys", "--delete-objects"],
        )
        .await?,
    ];
    let outcome = Box::pin(versions_apart(&mut provider, &parties, former)).await;
    let konnectors = parties.iter().flat_map(|party| &party.consumer.konnectors);
    outcome.map_err(|error| tails(&error, provider.servers.iter().chain(konnectors)))
}

async fn versions_apart(provider: &mut Provider, parties: &[Party], former: Programs) -> Result<()> {
    let mut kept = Vec::new();
    for party in parties {
        party.bind(provider, &["cowboys"]).await?;
        party.works(provider, "kept").await.context("with the former server")?;
        kept.push(party.versions(provider, "kept").await?);
    }
    provider.upgrade(Programs::default()).await?;
    for party in parties {
        party
            .works(provider, "upgraded")
            .await
            .context("with the present server")?;
        party.bind(provider, &["renew", "cowboys"]).await?;
        party
            .works(provider, "renewed")
            .await
            .context("with a credential of the present server")?;
    }
    provider.upgrade(former).await?;
    for (party, kept) in parties.iter().zip(&kept) {
        party
            .works(provider, "rolled-back")
            .await
            .context("with the former server again")?;
        party.bind(provider, &["renew", "cowboys"]).await?;
        party.works(provider, "renewed-again").await?;
        ensure!(
            party.versions(provider, "kept").await? == *kept,
            "an object that nobody touched was written or replaced"
        );
        party.bind(provider, party.unbind).await?;
        remains::none(provider, &party.consumer, "cowboys", "wildwest.dev").await?;
    }
    Ok(())
}

impl Party {
    async fn new(provider: &Provider, consumer: Consumer, name: &str, unbind: &'static [&'static str]) -> Result<Self> {
        wildwest::namespace(consumer.plane.client(), NAMESPACE).await?;
        let token = provider.principal(name, &["cowboys"]).await?;
        Ok(Self {
            consumer,
            token,
            unbind,
        })
    }

    async fn bind(&self, provider: &Provider, args: &[&str]) -> Result<String> {
        self.consumer.bind(provider, &self.token, args).await
    }

    /// A new object goes up, its status comes down, and the binding is ready.
    async fn works(&self, provider: &Provider, name: &str) -> Result<()> {
        let cowboys = Cowboys::of(provider, &self.consumer, NAMESPACE).await?;
        cowboys.create(name, "ride").await?;
        cowboys.copied(name, "ride").await?;
        cowboys.report(name, "done").await?;
        cowboys.reported(name, "done").await?;
        ready(&self.consumer, "cowboys").await
    }

    async fn versions(&self, provider: &Provider, name: &str) -> Result<Versions> {
        let cowboys = Cowboys::of(provider, &self.consumer, NAMESPACE).await?;
        let (ours, copy) = tokio::try_join!(cowboys.ours.get(name), cowboys.copies.get(name))?;
        Ok([ours.uid(), ours.resource_version(), copy.uid(), copy.resource_version()])
    }
}
