//! The README's way to a synced object, and the page about the installation with Helm, command by command.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bindery_e2e::{
    Pair,
    charts::{KONNECTOR, SERVER},
    guide::{Reader, section},
    run,
};

use crate::network::lets_through;

const README: &str = include_str!("../../../README.md");
const USE_IT: &str = "Use it";

#[test]
fn install_with_helm() -> Result<()> {
    run(followed("guide-helm", async |reader| {
        reader.follow("install-with-helm.md").await
    }))
}

/// From two empty control planes to an object in sync.
#[test]
fn use_it() -> Result<()> {
    run(followed("readme", async |reader| reader.follow_readme(USE_IT).await))
}

/// Starts two control planes, whose nodes run the Pods of what the reader installs. The NetworkPolicies must let their connections
/// through.
async fn followed(name: &str, follow: impl AsyncFnOnce(&Reader<'_>) -> Result<()>) -> Result<()> {
    let clusters = Pair::start(name).await?;
    let Pair { provider, consumer, .. } = &clusters;
    let endpoint = clusters.endpoint()?;
    let reader = Reader {
        given: BTreeMap::from([
            ("BIND_URL", format!("https://{endpoint}")),
            ("KUBERNETES_URL", provider.server_url()),
        ]),
        provider,
        consumer,
        others: Vec::new(),
    };
    let (provider_node, consumer_node) = clusters.kubelets(SERVER)?;
    Box::pin(provider_node.during(consumer_node.during(follow(&reader)))).await?;
    lets_through(SERVER, &provider_node.connected(), &[provider.server_address()])?;
    let reached = [consumer.server_address(), provider.server_address(), endpoint];
    lets_through(KONNECTOR, &consumer_node.connected(), &reached)
}

#[test]
fn a_reader_needs_fewer_than_ten_commands() -> Result<()> {
    let mut commands = 0;
    for block in section(README, USE_IT)?.split("```sh\n").skip(1) {
        let (block, _) = block.split_once("```").unwrap_or((block, ""));
        let lines = block.replace("\\\n", " ");
        commands += lines.lines().filter(|line| !line.trim().is_empty()).count();
    }
    ensure!((2..10).contains(&commands), "{commands} commands");
    Ok(())
}
