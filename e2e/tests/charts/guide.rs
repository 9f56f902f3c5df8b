//! The README and the page about the installation with Helm, command by command.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{ControlPlane, Kubelet, charts::SERVER, free_port, guide::Reader, run};

const PAGE: &str = include_str!("../../../docs/guides/install-with-helm.md");
const README: &str = include_str!("../../../README.md");

#[test]
fn install_with_helm() -> Result<()> {
    follow("install-with-helm.md", PAGE)
}

#[test]
fn the_readme() -> Result<()> {
    follow("README.md", use_it()?)
}

#[test]
fn a_reader_needs_fewer_than_ten_commands() -> Result<()> {
    let (to_sync, _) = PAGE.split_once("\n## Upgrade").unwrap_or((PAGE, ""));
    for text in [to_sync, use_it()?] {
        let commands = commands(text);
        ensure!((2..10).contains(&commands), "{commands} commands:\n{text}");
    }
    Ok(())
}

/// Runs the commands of a text on two clusters on which nothing is installed.
fn follow(name: &str, text: &str) -> Result<()> {
    run(async {
        let (provider, consumer) = (format!("{name}-p"), format!("{name}-c"));
        let (provider, consumer) = tokio::try_join!(
            Box::pin(ControlPlane::start(&provider)),
            Box::pin(ControlPlane::start(&consumer))
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
        let follow = reader.follow_text(name, text);
        provider_node.during(consumer_node.during(follow)).await
    })
}

/// The section of the README that goes from two empty clusters to a synced object.
fn use_it() -> Result<&'static str> {
    let (_, section) = README
        .split_once("\n## Use it\n")
        .context("the README has no section Use it")?;
    Ok(section.split("\n## ").next().unwrap_or(section))
}

fn commands(text: &str) -> usize {
    let blocks = text.split("```sh\n").skip(1);
    let lines = blocks.map(|block| block.split("```").next().unwrap_or(block).replace("\\\n", " "));
    lines
        .map(|lines| lines.lines().filter(|line| !line.trim().is_empty()).count())
        .sum()
}
