//! Waiting for a cache to show something, by its changes.

use std::sync::Arc;

use bindery_runtime::cache::{Cache, ObjectKey};
use kube::Resource;
use serde::de::DeserializeOwned;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

/// Waits until the cache shows what is looked for. False if it does not in time.
pub(super) async fn until_shown<K>(
    cache: &Cache<K>,
    key: &ObjectKey,
    until: Instant,
    is_wanted: impl Fn(Option<&K>) -> bool,
) -> bool
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    if is_wanted(cache.get_key(key).as_deref()) {
        return true;
    }
    let changed = Arc::new(Notify::new());
    let _subscription = cache.subscribe({
        let (changed, key) = (Arc::clone(&changed), key.clone());
        move |change| {
            if *change.key == key {
                changed.notify_one();
            }
        }
    });
    loop {
        if is_wanted(cache.get_key(key).as_deref()) {
            return true;
        }
        if timeout_at(until, changed.notified()).await.is_err() {
            return false;
        }
    }
}
