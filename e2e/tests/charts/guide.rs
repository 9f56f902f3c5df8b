//! The page about the installation with Helm, command by command.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bindery_e2e::{
    ControlPlane, Deployed, charts::SERVER, eventually, free_port, guide::Reader, process::Programs, run,
    wildwest::SOON,
};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;

const PAGE: &str = include_str!("../../../docs/guides/install-with-helm.md");

#[test]
fn install_with_helm() -> Result<()> {
    run(async {
        let (provider, consumer) = tokio::try_join!(
            Box::pin(ControlPlane::start("guide-helm-p")),
            Box::pin(ControlPlane::start("guide-helm-c"))
        )?;
        let reader = Reader {
            given: BTreeMap::from([
                ("BIND_URL", format!("https://127.0.0.1:{}", free_port()?)),
                ("KUBERNETES_URL", provider.server_url()),
            ]),
            provider: &provider,
            consumer: &consumer,
        };
        tokio::select! {
            outcome = reader.follow("install-with-helm.md") => outcome,
            failed = serve(&provider) => failed,
        }
    })
}

/// Runs the server once it is installed, as the provider's kubelet. Returns only with an error.
async fn serve(provider: &ControlPlane) -> Result<()> {
    let deployments = Api::<Deployment>::namespaced(provider.client(), SERVER.namespace);
    eventually("the server to be installed", SOON, async || {
        deployments.get_opt(SERVER.name).await.map_err(Into::into)
    })
    .await?;
    let mut server = Deployed::start(provider, &Programs::default(), SERVER.namespace, SERVER.name).await?;
    server.process.hush();
    server.report_available(provider).await?;
    std::future::pending().await
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
