//! Deletes anchor Secrets whose tokens have all expired.

use std::{sync::Arc, time::Duration};

use bindery_runtime::queue::Queue;

use super::{Context, Next, Reconcile, Running};
use crate::{contract, credentials::Issuer, state::State, writes::WriteError};

/// How often each contract is looked at. Anchors live for days, so that an hour more does not matter. An anchor that is deleted before its
/// time ends credentials that are in use, so that the API server's time counts, by which it issued them.
const INTERVAL: Duration = Duration::from_hours(1);

struct Anchors {
    state: State,
    issuer: Issuer,
}

pub(super) fn start(context: &Context, running: &mut Running) {
    let queue = Queue::new();
    running.watch(&context.state.caches.namespaces, &queue, |change| {
        // Only when a contract is first seen: from then on it is looked at by time.
        let first = change.old.is_none();
        let namespace = change.new.filter(|namespace| first && contract::is_contract(namespace));
        namespace.map(|_| Arc::clone(&change.key.name))
    });
    let anchors = Anchors {
        state: context.state.clone(),
        issuer: context.issuer.clone(),
    };
    running.work(anchors, &queue);
}

impl Reconcile for Anchors {
    type Key = Arc<str>;
    const NAME: &'static str = "anchors";
    const WORKERS: usize = 1;

    async fn reconcile(&self, contract: &Arc<str>) -> Result<Next, WriteError> {
        let namespace = self.state.contract(contract);
        if namespace.is_none_or(|namespace| contract::is_terminating(&namespace)) {
            return Ok(Next::Change);
        }
        if let Some(now) = self.state.time() {
            let deleted = self.issuer.collect(contract, now).await?;
            if deleted > 0 {
                tracing::info!(contract = %contract, deleted, "deleted anchors of expired tokens");
            }
        }
        Ok(Next::After(INTERVAL.mul_f64(1.0 + rand::random::<f64>() / 4.0)))
    }
}
