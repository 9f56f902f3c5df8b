//! Waits until the programs of a control plane are ready, and fails at once when one has ended.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::{Api, Client};
use tokio::net::UnixStream;

use crate::{Process, eventually};

/// The longest wait for a program: a small machine starts several control planes at once.
const LIMIT: Duration = Duration::from_mins(2);

/// The namespaces that the API server makes.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Waits until a program accepts connections on a Unix socket.
pub(super) async fn listening(process: &mut Process, socket: &Path) -> Result<()> {
    until(process, "it to listen", async || {
        Ok(UnixStream::connect(socket).await.map(|_| ())?)
    })
    .await
}

/// Waits until the API server says that it is ready.
pub(super) async fn ready(process: &mut Process, client: &Client) -> Result<()> {
    until(process, "/readyz", async || {
        let request = http::Request::get("/readyz").body(Vec::new())?;
        client.request_text(request).await?;
        Ok(())
    })
    .await
}

/// Waits for what a fresh cluster gets from its controllers first, which must go on running.
pub(super) async fn default_service_account(is_running: impl Fn() -> bool, client: &Client) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    while_running(is_running, "the service account of namespace default", async || {
        namespaces.get("default").await?;
        accounts.get("default").await?;
        Ok(())
    })
    .await
}

/// Waits for what the controllers put into each namespace of a fresh cluster, and Pods cannot be without. They must go on
/// running.
pub(super) async fn ready_for_pods(is_running: impl Fn() -> bool, client: &Client) -> Result<()> {
    while_running(is_running, "the namespaces to be ready for Pods", async || {
        for namespace in NAMESPACES {
            let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
            accounts.get("default").await.with_context(|| namespace.to_owned())?;
            let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
            maps.get("kube-root-ca.crt")
                .await
                .with_context(|| namespace.to_owned())?;
        }
        Ok(())
    })
    .await
}

/// Waits until `probe` succeeds, and fails at once when the controllers have ended.
async fn while_running(
    is_running: impl Fn() -> bool,
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<()>,
) -> Result<()> {
    let outcome = eventually(what, LIMIT, async || {
        if !is_running() {
            // Not an error of this probe: there is nothing left to wait for.
            return Ok(Some(Err(())));
        }
        probe().await.map(|()| Some(Ok(())))
    });
    outcome.await?.map_err(|()| anyhow!("the controller manager ended"))
}

async fn until(process: &mut Process, what: &str, mut probe: impl AsyncFnMut() -> Result<()>) -> Result<()> {
    let name = process.name().to_owned();
    let outcome = eventually(format_args!("{name}: {what}"), LIMIT, async || {
        if let Some(status) = process.try_wait()? {
            // Not an error of this probe: there is nothing left to wait for.
            return Ok(Some(Err(status)));
        }
        probe().await.map(|()| Some(Ok(())))
    })
    .await;
    match outcome {
        Ok(Ok(())) => Ok(()),
        Ok(Err(status)) => bail!("{name} ended ({status}); its log ends:\n{}", process.tail()),
        Err(error) => Err(error).with_context(|| format!("the log of {name} ends:\n{}", process.tail())),
    }
}
