//! Waiting until a cache shows an object as it should be.

use std::sync::Arc;

use bindery_runtime::cache::{Cache, ObjectKey};
use kube::Resource;
use serde::de::DeserializeOwned;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

/// Waits until `is_wanted` holds for the object of this key, or for its absence. False if it does not hold in time.
pub(crate) async fn until_shown<K>(
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
