//! Waiting for the programs, and noticing at once when one has ended instead.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{Api, Client};
use tokio::net::UnixStream;

use crate::{Process, eventually};

/// Generous, for the tests of a small machine start several control planes at once.
const LIMIT: Duration = Duration::from_mins(2);

/// Waits until it accepts connections.
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

/// Waits for what a fresh cluster gets from its controllers first.
pub(super) async fn default_service_account(process: &mut Process, client: &Client) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    until(process, "the service account of namespace default", async || {
        namespaces.get("default").await?;
        accounts.get("default").await?;
        Ok(())
    })
    .await
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
