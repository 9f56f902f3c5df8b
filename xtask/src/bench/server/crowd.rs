//! Binds of some tenants while another one has very many objects in the queues of the controllers.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bindery_api::{
    labels,
    v1alpha2::{APIServiceNamespace, APIServiceNamespaceSpec},
};
use bindery_e2e::Provider;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use tokio::time::sleep;

use super::{Order, Row, stage::Stage};
use crate::bench::metrics::Metrics;

/// The cluster whose contract has the objects.
const CROWDED: &str = "bench-000000";
/// Objects that are created at a time.
const CREATED_AT_ONCE: usize = 64;
/// Name of an object of which each creation and deletion queues all objects of that contract that are within its limit.
const TRIGGER: &str = "bench-crowd";
/// Pause between two changes of that object.
const PAUSE: Duration = Duration::from_millis(250);

impl Stage {
    /// Measures binds without and with a crowd in the queues. One bind is under way at a time, so that binds do not wait for each other.
    pub(super) async fn crowded(&mut self) -> Result<Vec<Row>> {
        let order = Order::Bind {
            count: self.args.crowd_binds,
            concurrency: 1,
        };
        let idle = self.phase("bind idle", &order).await?;
        let client = self.provider.plane.client();
        let contract = Provider::contract(CROWDED);
        eprintln!("==> {} objects of one contract", self.args.crowd);
        create(client.clone(), &contract, self.args.crowd).await?;
        let trigger = tokio::spawn(keep_queued(client, contract));
        let crowded = self.unquiet_phase("bind crowded", &order).await;
        trigger.abort();
        let mut crowded = crowded?;
        crowded.queued = Some(self.queued().await?);
        Ok(vec![idle, crowded])
    }

    /// How many keys wait for the server's controllers.
    async fn queued(&self) -> Result<f64> {
        let metrics = Metrics::of(self.provider.admin_port()).await?;
        Ok(metrics.sum("queued_keys", &[]))
    }
}

/// Creates APIServiceNamespaces in a contract. Those beyond its limit are queued, too, until they are told so.
async fn create(client: Client, contract: &str, count: u32) -> Result<()> {
    let api: Api<APIServiceNamespace> = Api::namespaced(client, contract);
    let created = stream::iter(0..count).map(|number| {
        let api = api.clone();
        async move {
            let object = APIServiceNamespace::new(&format!("crowd-{number:06}"), APIServiceNamespaceSpec {});
            let created = api.create(&PostParams::default(), &object).await;
            created.map(drop).context("an object of the crowd")
        }
    });
    created.buffer_unordered(CREATED_AT_ONCE).try_collect().await
}

/// Has the controllers look again and again at all objects of a contract that are within its limit.
async fn keep_queued(client: Client, contract: String) -> Result<()> {
    let api: Api<ClusterRoleBinding> = Api::all(client);
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": TRIGGER, "labels": {labels::CONTRACT: contract}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": TRIGGER},
    }))?;
    loop {
        api.create(&PostParams::default(), &binding).await?;
        sleep(PAUSE).await;
        api.delete(TRIGGER, &DeleteParams::default()).await?;
        sleep(PAUSE).await;
    }
}
