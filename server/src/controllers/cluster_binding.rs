//! Whether the konnector of a contract is alive, as condition `Healthy` on its ClusterBinding.

use bindery_api::{names, v1alpha2::ClusterBinding};
use bindery_runtime::{cache::ObjectKey, queue::Queue};
use jiff::Timestamp;
use kube::Api;
use serde_json::json;

use super::{Context, Next, Reconcile, Running};
use crate::{
    state::State,
    writes::{self, WriteError},
};

mod plan;

struct Health {
    state: State,
}

pub(super) fn start(context: &Context, running: &mut Running) {
    let queue = Queue::new();
    running.watch(&context.state.caches.cluster_bindings, &queue, |change| {
        change.new.map(|_| change.key.clone())
    });
    let health = Health {
        state: context.state.clone(),
    };
    running.work(health, &queue);
}

impl Reconcile for Health {
    type Key = ObjectKey;
    const NAME: &'static str = "cluster-binding";
    const WORKERS: usize = 2;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, WriteError> {
        let Some(binding) = self.state.caches.cluster_bindings.get_key(key) else {
            return Ok(Next::Change);
        };
        if self.state.contract(&key.namespace).is_none() || &*key.name != names::CLUSTER_BINDING {
            return Ok(Next::Change);
        }
        let plan = plan::plan(&binding, Timestamp::now());
        if let Some(conditions) = plan.conditions {
            let api: Api<ClusterBinding> = Api::namespaced(self.state.clients.write.clone(), &key.namespace);
            let patch = json!({ "metadata": writes::seen(&*binding), "status": { "conditions": conditions } });
            writes::merge_status(&api, &key.name, &patch).await?;
        }
        Ok(plan.look_again.map_or(Next::Change, Next::After))
    }
}
