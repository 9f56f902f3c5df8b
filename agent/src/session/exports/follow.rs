//! Keeps the state of a contract's exports: from the backend's stream where there is one that answers, else from
//! Kubernetes.

use std::{sync::Arc, time::Duration};

use bindery_proto::v1alpha2::{ErrorReason, Export, WatchExportsRequest};
use bindery_runtime::{
    cache::{Cache, Subscription},
    watch::Source,
};
use bindery_sdk::WatchEvent;
use futures::StreamExt as _;
use kube::Client;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::{Exports, Snapshot, convert, convert::AnyExport};
use crate::session::credential::Credential;

/// How long the backend may take to open its stream, or be away, before Kubernetes is asked instead.
const PATIENCE: Duration = Duration::from_secs(8);

/// What to follow, and how.
pub(crate) struct Follow {
    pub(crate) exports: Exports,
    pub(crate) credential: Credential,
    pub(crate) namespace: Arc<str>,
    pub(crate) watch: Client,
    /// How often a backend that refused is asked again.
    pub(crate) pause: Duration,
}

/// A watch of the exports in Kubernetes that feeds the state; ends when dropped.
struct Fallback {
    _subscription: Subscription,
    _settle: AbortOnDropHandle<()>,
}

/// One stream as it is read.
#[derive(Default)]
struct Stream {
    snapshot: Option<Snapshot>,
    /// Nothing can be expected to come for now.
    away: bool,
}

impl Follow {
    /// Follows until dropped.
    pub(crate) async fn run(self) {
        let mut fallback = None;
        loop {
            let mut changes = self.credential.changes();
            let pause = match self.credential.backend() {
                None => None,
                Some(client) => {
                    let failure = self.stream(&client, &mut fallback).await;
                    tracing::info!(namespace = %self.namespace, failure, "the backend's stream of exports ended");
                    self.exports.fail(failure);
                    Some(self.pause)
                }
            };
            fallback.get_or_insert_with(|| self.fall_back());
            match pause {
                Some(pause) => tokio::select! { _ = changes.changed() => {}, () = sleep(pause) => {} },
                // The sender lives in the credential that this holds.
                None => drop(changes.changed().await),
            }
        }
    }

    /// Follows the backend's stream until it refuses; says why.
    async fn stream(&self, client: &bindery_sdk::Client, fallback: &mut Option<Fallback>) -> String {
        let mut watch = client.watch_exports(WatchExportsRequest {
            contract: self.namespace.to_string(),
            ..WatchExportsRequest::default()
        });
        let mut stream = Stream {
            away: true,
            ..Stream::default()
        };
        loop {
            let next = if stream.away && fallback.is_none() {
                let Ok(next) = timeout(PATIENCE, watch.next()).await else {
                    *fallback = Some(self.fall_back());
                    continue;
                };
                next
            } else {
                watch.next().await
            };
            match next {
                None => return "it ended".to_owned(),
                Some(Err(error)) => {
                    // The kubeconfig's own token goes with it, though open watches live on for minutes.
                    if error.reason() == Some(ErrorReason::CredentialRevoked) {
                        self.credential.refuse(&self.credential.held().access);
                    }
                    return error.to_string();
                }
                Some(Ok(event)) => {
                    if is_current(&event) {
                        // First the fallback ends, so that no older word of its comes after the stream's.
                        *fallback = None;
                    }
                    stream.take(event, &self.exports);
                }
            }
        }
    }

    fn fall_back(&self) -> Fallback {
        let source = Source::of::<AnyExport>(Some(&self.namespace));
        let cache: Cache<AnyExport> = Cache::start(self.watch.clone(), source);
        let exports = self.exports.clone();
        let subscription = cache.subscribe(move |change| match (change.new, change.old) {
            (Some(export), _) => exports.apply(&change.key.name, &convert::object(export)),
            (None, Some(old)) => exports.remove(&change.key.name, old.metadata.uid.as_deref().unwrap_or_default()),
            (None, None) => {}
        });
        let settle = tokio::spawn(settle(cache, self.exports.clone(), Arc::clone(&self.namespace)));
        Fallback {
            _subscription: subscription,
            _settle: AbortOnDropHandle::new(settle),
        }
    }
}

impl Stream {
    fn take(&mut self, event: WatchEvent<Export>, exports: &Exports) {
        match event {
            WatchEvent::Connected { .. } => self.away = false,
            WatchEvent::SnapshotBegin { .. } => self.snapshot = Some(Snapshot::default()),
            WatchEvent::Applied(export) => {
                let (name, entry) = convert::export(export);
                if let Some(snapshot) = &mut self.snapshot {
                    snapshot.add(&name, entry.clone());
                }
                exports.apply(&name, &entry);
            }
            WatchEvent::Removed(removed) => {
                if let Some(snapshot) = &mut self.snapshot {
                    snapshot.remove(&removed.name, &removed.uid);
                }
                exports.remove(&removed.name, &removed.uid);
            }
            WatchEvent::SnapshotComplete => {
                if let Some(snapshot) = self.snapshot.take() {
                    exports.replace(snapshot);
                }
            }
            WatchEvent::Disconnected { error, .. } => {
                // What an unfinished snapshot did not bring proves nothing.
                self.snapshot = None;
                self.away = true;
                if let Some(error) = error {
                    exports.fail(error.to_string());
                }
            }
        }
    }
}

/// Whether all that there is has been told with this event.
fn is_current(event: &WatchEvent<Export>) -> bool {
    matches!(
        event,
        WatchEvent::SnapshotComplete | WatchEvent::Connected { resumed: true }
    )
}

/// The first complete list tells what went while nobody looked; after that every change is told. Holds the cache.
async fn settle(cache: Cache<AnyExport>, exports: Exports, namespace: Arc<str>) {
    let mut health = cache.health();
    loop {
        let now = health.borrow_and_update().clone();
        if now.synced {
            exports.settle(|name| cache.get(&namespace, name).is_some());
            std::future::pending::<()>().await;
        }
        if let Some(failure) = now.failure {
            exports.fail(failure);
        }
        if health.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Lookup, *};

    fn sent(name: &str) -> Export {
        use bindery_proto::v1alpha2 as proto;
        Export {
            metadata: Some(proto::ObjectMeta {
                name: name.to_owned(),
                uid: format!("uid of {name}"),
                ..proto::ObjectMeta::default()
            }),
            ..Export::default()
        }
    }

    #[test]
    fn kubernetes_is_asked_until_the_stream_has_told_all() {
        assert!(is_current(&WatchEvent::Connected { resumed: true }));
        assert!(is_current(&WatchEvent::SnapshotComplete));
        assert!(!is_current(&WatchEvent::Connected { resumed: false }));
        assert!(!is_current(&WatchEvent::SnapshotBegin { refused: None }));
    }

    #[test]
    fn a_snapshot_that_breaks_off_removes_nothing() {
        let exports = Exports::default();
        let mut stream = Stream::default();
        let mut take = |event| stream.take(event, &exports);
        let begin = || WatchEvent::SnapshotBegin { refused: None };
        take(begin());
        take(WatchEvent::Applied(sent("a")));
        take(WatchEvent::Applied(sent("b")));
        take(WatchEvent::SnapshotComplete);
        take(begin());
        take(WatchEvent::Applied(sent("a")));
        take(WatchEvent::Disconnected {
            error: None,
            retry_in: Duration::ZERO,
        });
        take(WatchEvent::SnapshotComplete);
        assert!(matches!(exports.get("b"), Lookup::Broken { .. }), "b is gone");
        take(begin());
        take(WatchEvent::Applied(sent("a")));
        take(WatchEvent::SnapshotComplete);
        assert_eq!(exports.get("b"), Lookup::Absent);
        take(WatchEvent::Removed(bindery_proto::v1alpha2::Removed {
            name: "a".to_owned(),
            uid: "uid of a".to_owned(),
            ..bindery_proto::v1alpha2::Removed::default()
        }));
        assert_eq!(exports.get("a"), Lookup::Absent);
    }
}
