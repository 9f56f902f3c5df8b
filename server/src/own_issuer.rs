//! The issuer of the provider's own ServiceAccounts, as its API server tells it.

use kube::Client;
use serde::Deserialize;

/// Asks the API server, which tells every ServiceAccount. An API server with several issuers tells the one that signs.
pub async fn find(client: &Client) -> Result<String, kube::Error> {
    #[derive(Deserialize)]
    struct Discovery {
        issuer: String,
    }
    let request = http::Request::get("/.well-known/openid-configuration");
    let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
    let discovery: Discovery = client.request(request).await?;
    Ok(discovery.issuer)
}
