//! The calls of a bind, as a program makes them.

use std::{path::Path, time::Duration};

use anyhow::Result;
use bindery_e2e::{Provider, call::wish};
use bindery_proto::v1alpha2::DeleteExportRequest;
use bindery_sdk::{Bound, Client, Error};

const PATIENCE: Duration = Duration::from_mins(2);

/// A client that dials this address of a provider.
pub(super) fn client(provider: &Provider, address: &str, token: &Path) -> Result<Client> {
    let builder = Client::builder(address).ca_pem(std::fs::read(provider.ca_path())?);
    Ok(builder.token_file(token).build()?)
}

/// Binds the template `cowboys` for a cluster.
pub(super) async fn bind(client: &Client, identity: &str) -> Result<Bound, Error> {
    client
        .bind_by_request(wish("cowboys", "cowboys", identity), PATIENCE, |_| ())
        .await
}

/// Deletes the export `cowboys` of that UID.
pub(super) async fn unbind(client: &Client, contract: &str, uid: &str) -> Result<(), Error> {
    let request = DeleteExportRequest {
        contract: contract.to_owned(),
        name: "cowboys".to_owned(),
        uid: uid.to_owned(),
        allow_missing: true,
        ..DeleteExportRequest::default()
    };
    client.delete_export(request).await.map(drop)
}
