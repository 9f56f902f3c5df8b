//! Waits until the programs of a control plane are ready, and fails at once when one has ended.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{Api, Client};
use tokio::net::UnixStream;

use crate::{Process, eventually};

/// The longest wait for a program: a small machine starts several control planes at once.
const LIMIT: Duration = Duration::from_mins(2);

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
    let outcome = eventually("the service account of namespace default", LIMIT, async || {
        if !is_running() {
            // Not an error of this probe: there is nothing left to wait for.
            return Ok(Some(Err(())));
        }
        namespaces.get("default").await?;
        accounts.get("default").await?;
        Ok(Some(Ok(())))
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
