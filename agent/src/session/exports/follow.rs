//! Keeps the state of a contract's exports: from the backend's stream where there is one that answers, else from
//! Kubernetes (`fallback`).

use std::{sync::Arc, time::Duration};

use bindery_proto::v1alpha2::{ErrorReason, Export, WatchExportsRequest};
use bindery_sdk::WatchEvent;
use futures::StreamExt as _;
use kube::Client;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{Exports, Snapshot, convert, fallback::Fallback};
use crate::session::credential::Credential;

/// How long the backend may take to open its stream, or be away, before Kubernetes is asked instead.
const PATIENCE: Duration = Duration::from_secs(8);

/// What to follow, and how.
pub(crate) struct Follow {
    pub(crate) exports: Exports,
    pub(crate) credential: Credential,
    pub(crate) namespace: Arc<str>,
    pub(crate) watch: Client,
    /// How often a backend that refused is asked again, and Kubernetes where it cannot be watched.
    pub(crate) pause: watch::Receiver<Duration>,
    /// After a failure, at least this often.
    pub(crate) retry: Duration,
}

/// One stream as it is read.
#[derive(Default)]
struct Stream {
    snapshot: Option<Snapshot>,
    /// Nothing can be expected to come for now.
    away: bool,
    /// Kubernetes is asked instead, and whether that works is what counts.
    replaced: bool,
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
                    if fallback.is_none() {
                        self.exports.fail(failure);
                    }
                    Some(self.retry.min(*self.pause.borrow()))
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
    async fn stream(&self, client: &bindery_sdk::Client, fallback: &mut Option<AbortOnDropHandle<()>>) -> String {
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
                    stream.replaced = fallback.is_some();
                    stream.take(event, &self.exports);
                }
            }
        }
    }

    /// Follows Kubernetes until dropped.
    fn fall_back(&self) -> AbortOnDropHandle<()> {
        let fallback = Fallback {
            exports: self.exports.clone(),
            client: self.watch.clone(),
            namespace: Arc::clone(&self.namespace),
            pause: self.pause.clone(),
            retry: self.retry,
        };
        AbortOnDropHandle::new(tokio::spawn(fallback.run()))
    }
}

impl Stream {
    fn take(&mut self, event: WatchEvent<Export>, exports: &Exports) {
        match event {
            WatchEvent::Connected { resumed } => {
                self.away = false;
                if resumed {
                    exports.well();
                }
            }
            WatchEvent::SnapshotBegin { .. } => self.snapshot = Some(Snapshot::default()),
            WatchEvent::Applied(export) => {
                let (name, entry) = convert::export(export);
                match &mut self.snapshot {
                    Some(snapshot) => {
                        snapshot.add(&name, entry.clone());
                        exports.learn(&name, &entry);
                    }
                    None => exports.apply(&name, &entry),
                }
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
                if let Some(error) = error.filter(|_| !self.replaced) {
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
    fn a_backend_that_is_away_is_no_failure_while_kubernetes_tells() {
        for (replaced, fails) in [(false, true), (true, false)] {
            let exports = Exports::default();
            exports.replace(Snapshot::default());
            let mut stream = Stream {
                replaced,
                ..Stream::default()
            };
            let error = bindery_sdk::Error::Protocol {
                address: "https://backend".to_owned(),
                fault: "it went away".to_owned(),
            };
            let lost = WatchEvent::Disconnected {
                error: Some(error),
                retry_in: Duration::ZERO,
            };
            stream.take(lost, &exports);
            assert_eq!(exports.list().failing.is_some(), fails);
            assert!(stream.away);
        }
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
