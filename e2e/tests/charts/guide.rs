//! The page about the installation with Helm, command by command.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
};

use anyhow::{Result, ensure};
use bindery_e2e::{ControlPlane, Kubelet, charts::SERVER, free_port, guide::Reader, run};

const PAGE: &str = include_str!("../../../docs/guides/install-with-helm.md");

#[test]
fn install_with_helm() -> Result<()> {
    run(async {
        let (provider, consumer) = tokio::try_join!(
            Box::pin(ControlPlane::start("guide-helm-p")),
            Box::pin(ControlPlane::start("guide-helm-c"))
        )?;
        let endpoint = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let reader = Reader {
            given: BTreeMap::from([
                ("BIND_URL", format!("https://{endpoint}")),
                ("KUBERNETES_URL", provider.server_url()),
            ]),
            provider: &provider,
            consumer: &consumer,
        };
        let provider_node = Kubelet::new(&provider).exposing(SERVER.namespace, SERVER.name, endpoint);
        let consumer_node = Kubelet::new(&consumer).reaching([provider.server_address(), endpoint]);
        let follow = reader.follow("install-with-helm.md");
        Box::pin(provider_node.during(consumer_node.during(follow))).await
    })
}

#[test]
fn a_reader_needs_fewer_than_ten_commands() -> Result<()> {
    let (to_sync, _) = PAGE.split_once("\n## Upgrade").unwrap_or((PAGE, ""));
    let mut commands = 0;
    for block in to_sync.split("```sh\n").skip(1) {
        let (block, _) = block.split_once("```").unwrap_or((block, ""));
        let lines = block.replace("\\\n", " ");
        commands += lines.lines().filter(|line| !line.trim().is_empty()).count();
    }
    ensure!((2..10).contains(&commands), "{commands} commands");
    Ok(())
}
