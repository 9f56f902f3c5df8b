//! Reports whether the konnector of a contract is alive, by condition `Healthy` on its ClusterBinding.

use bindery_api::names;
use bindery_runtime::{cache::ObjectKey, queue::Queue};
use jiff::Timestamp;
use serde_json::json;

use super::{Context, Next, Reconcile, Running};
use crate::{
    state::State,
    writes::{Write, WriteError},
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
            let write = Write::status(
                "the konnector's health changed",
                &*binding,
                &json!({ "conditions": conditions }),
            );
            write.apply(&self.state.clients.write).await?;
        }
        Ok(plan.look_again.map_or(Next::Change, Next::After))
    }
}
