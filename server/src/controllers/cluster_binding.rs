//! Reports whether the konnector of a contract is alive, by condition `Healthy` on its ClusterBinding.

use std::{collections::HashMap, time::Duration};

use bindery_api::{names, v1alpha2::ClusterBinding};
use bindery_runtime::{cache::ObjectKey, queue::Queue};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::{Context, Next, Reconcile, Running};
use crate::{
    state::State,
    writes::{Write, WriteError},
};

mod plan;

struct Health {
    state: State,
    heartbeats: Mutex<Heartbeats>,
}

/// When the last heartbeat of each ClusterBinding came, by the clock of this server.
#[derive(Default)]
struct Heartbeats(HashMap<ObjectKey, SeenHeartbeat>);

struct SeenHeartbeat {
    /// The time that the konnector wrote.
    written: Option<Timestamp>,
    /// When it was seen to come; `None` if it was there when the server started.
    came: Option<Instant>,
}

pub(super) fn start(context: &Context, running: &mut Running) {
    let queue = Queue::new();
    running.watch(&context.state.caches.cluster_bindings, &queue, |change| {
        Some(change.key.clone())
    });
    let health = Health {
        state: context.state.clone(),
        heartbeats: Mutex::default(),
    };
    running.work(health, &queue);
}

impl Reconcile for Health {
    type Key = ObjectKey;
    const NAME: &'static str = "cluster-binding";
    const WORKERS: usize = 2;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, WriteError> {
        let Some(binding) = self.state.caches.cluster_bindings.get_key(key) else {
            self.heartbeats.lock().forget(key);
            return Ok(Next::Change);
        };
        if self.state.contract(&key.namespace).is_none() || &*key.name != names::CLUSTER_BINDING {
            return Ok(Next::Change);
        }
        let since = self.heartbeats.lock().since(key, &binding);
        let plan = plan::plan(&binding, since, Timestamp::now());
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

impl Heartbeats {
    /// Notes the heartbeat that a ClusterBinding has. Returns how long ago it came; `None` if it was there before this server looked first.
    fn since(&mut self, key: &ObjectKey, binding: &ClusterBinding) -> Option<Duration> {
        let status = binding.status.as_ref();
        let written = status
            .and_then(|status| status.last_heartbeat_time.as_ref())
            .map(|time| time.0);
        let known = self.0.get(key);
        let came = match known {
            Some(known) if known.written == written => known.came,
            Some(_) => Some(Instant::now()),
            None => None,
        };
        self.0.insert(key.clone(), SeenHeartbeat { written, came });
        came.map(|came| came.elapsed())
    }

    fn forget(&mut self, key: &ObjectKey) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_heartbeat_came_when_it_was_seen_to_change() {
        let mut heartbeats = Heartbeats::default();
        let (key, other) = (ObjectKey::new("a", "cluster"), ObjectKey::new("b", "cluster"));
        let binding = |written: Option<&str>| -> ClusterBinding {
            let status = written.map(|written| json!({ "lastHeartbeatTime": written, "conditions": [] }));
            serde_json::from_value(json!({
                "metadata": { "name": "cluster" },
                "spec": { "kubeconfigSecretRef": { "name": "kubeconfig", "key": "kubeconfig" }, "providerPrettyName": "W" },
                "status": status,
            }))
            .unwrap()
        };
        let (first, second) = (
            binding(Some("2026-01-01T00:00:00Z")),
            binding(Some("2020-01-01T00:00:00Z")),
        );
        assert_eq!(heartbeats.since(&key, &first), None, "it was there before");
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(heartbeats.since(&key, &first), None);
        assert_eq!(heartbeats.since(&key, &second), Some(Duration::ZERO));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(heartbeats.since(&key, &second), Some(Duration::from_secs(5)));
        assert_eq!(heartbeats.since(&other, &binding(None)), None);
        assert_eq!(heartbeats.since(&other, &first), Some(Duration::ZERO), "the first one");
        heartbeats.forget(&key);
        assert_eq!(heartbeats.since(&key, &second), None);
    }
}
