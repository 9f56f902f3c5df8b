//! A request that an admission policy has to deny.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
};
use serde_json::Value;

/// A creation that a policy has to deny.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Name of the policy.
    pub policy: String,
    /// The type of the object.
    pub resource: ApiResource,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// The object.
    pub object: Value,
}

// === impl Probe ===

impl Probe {
    /// Sends the request as a dry run.
    pub async fn send(&self, client: Client) -> kube::Result<DynamicObject> {
        let api: Api<DynamicObject> = match &self.namespace {
            None => Api::all_with(client, &self.resource),
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
        };
        let object = serde_json::from_value(self.object.clone()).map_err(kube::Error::SerdeError)?;
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        api.create(&params, &object).await
    }
}
