//! Sees changes of exports on one bare watch of the API server: the least time in which any server could tell of them.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bindery_api::v1alpha2::APIServiceExport;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, Client,
    api::{ListParams, WatchEvent, WatchParams},
};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

/// The label that a change of an export writes, and that every stream carries; its value is the number of the change.
pub(super) const LABEL: &str = "bench.bindery.dev/change";

/// A watch that notes when it showed each change. It ends when this is dropped.
pub(super) struct BareWatch {
    seen: Arc<Mutex<HashMap<u64, Instant>>>,
    _task: AbortOnDropHandle<()>,
}

// === impl BareWatch ===

impl BareWatch {
    /// Opens the watch. Changes that are written from now on are seen.
    pub(super) async fn open(client: Client) -> kube::Result<Self> {
        let exports: Api<APIServiceExport> = Api::all(client);
        let list = exports.list_metadata(&ListParams::default().limit(1)).await?;
        let version = list.metadata.resource_version.unwrap_or_default();
        // Seconds. Any useful load ends sooner, so that the watch is not opened again when it times out.
        let params = WatchParams::default().timeout(290);
        let mut events = exports.watch_metadata(&params, &version).await?.boxed();
        let seen = Arc::new(Mutex::new(HashMap::new()));
        let task = tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                // The load writes the number of each change into a label of the export.
                while let Ok(Some(event)) = events.try_next().await {
                    if let WatchEvent::Modified(export) = event
                        && let Some(number) = export
                            .metadata
                            .labels
                            .and_then(|labels| labels.get(LABEL)?.parse::<u64>().ok())
                    {
                        seen.lock().insert(number, Instant::now());
                    }
                }
            }
        });
        Ok(Self {
            seen,
            _task: AbortOnDropHandle::new(task),
        })
    }

    /// Returns the latency of each change that the watch showed. It counts from the time in `meant`: when the load was
    /// to write the change of this number, even if the write itself was late.
    pub(super) fn latencies(&self, meant: &HashMap<u64, Instant>) -> Vec<Duration> {
        let seen = self.seen.lock();
        let latency = |(number, meant): (&u64, &Instant)| Some(seen.get(number)?.saturating_duration_since(*meant));
        meant.iter().filter_map(latency).collect()
    }
}
