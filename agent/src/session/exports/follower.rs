//! Follows the exports of a contract: by the stream of a backend that answers, or else in Kubernetes (`fallback`).

use std::{sync::Arc, time::Duration};

use bindery_proto::v1alpha2::{ErrorReason, Export, WatchExportsRequest};
use bindery_runtime::guard::{Guard, NameRule, Reader, Verdict};
use bindery_sdk::WatchEvent;
use kube::Client;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{ExportSnapshot, Exports, convert, fallback::KubernetesFallback};
use crate::session::{
    backend::BackendError,
    credential::{BackendRoute, SessionCredential},
};

/// The backend may take this long to open its stream or to return before Kubernetes is followed instead.
const PATIENCE: Duration = Duration::from_secs(8);

/// Follows the exports of one contract.
pub(crate) struct ExportFollower {
    pub(crate) exports: Exports,
    pub(crate) credential: SessionCredential,
    pub(crate) namespace: Arc<str>,
    pub(crate) watch: Client,
    /// Pause before a failed backend is tried again, and between lists where Kubernetes forbids watches.
    pub(crate) pause: watch::Receiver<Duration>,
    /// The longest pause after a failure.
    pub(crate) retry: Duration,
    /// Checks the names of exports, and limits how much of them is held.
    pub(crate) guard: Guard,
}

/// State of one stream of the backend.
#[derive(Default)]
struct ExportStream {
    snapshot: Option<ExportSnapshot>,
    /// Whether the stream is not connected.
    disconnected: bool,
    /// Whether Kubernetes is followed at the same time, so that failures of the stream do not count.
    has_fallback: bool,
    /// Judges the exports that come.
    reader: Option<Reader>,
}

impl ExportFollower {
    /// Follows the exports until dropped.
    pub(crate) async fn run(self) {
        let mut fallback = None;
        let mut stream = ExportStream {
            reader: Some(
                self.guard
                    .reader("the backend's stream of exports", NameRule::Subdomain),
            ),
            ..ExportStream::default()
        };
        loop {
            let mut changes = self.credential.changes();
            let pause = match self.credential.backend() {
                Err(BackendError::Missing) => None,
                Err(error) => {
                    tracing::warn!(namespace = %self.namespace, %error, "cannot open the backend's stream of exports");
                    // No other credential comes when the files of the client certificate are whole again.
                    matches!(error, BackendError::ClientCertificate(_)).then(|| self.retry_pause())
                }
                Ok((route, client)) => {
                    let failure = self.stream(&route, &client, &mut fallback, &mut stream).await;
                    tracing::info!(namespace = %self.namespace, failure, "the backend's stream of exports ended");
                    if fallback.is_none() {
                        self.exports.fail(failure);
                    }
                    Some(self.retry_pause())
                }
            };
            fallback.get_or_insert_with(|| self.fall_back());
            match pause {
                Some(pause) => tokio::select! { _ = changes.changed() => {}, () = sleep(pause) => {} },
                // This owns the credential with the sender, so this never fails.
                None => drop(changes.changed().await),
            }
        }
    }

    /// Pause before the backend is tried again.
    fn retry_pause(&self) -> Duration {
        self.retry.min(*self.pause.borrow())
    }

    /// Follows the backend's stream until it ends, or has broken and the backend is reached by another route now. Returns why
    /// it ended.
    async fn stream(
        &self,
        route: &BackendRoute,
        client: &bindery_sdk::Client,
        fallback: &mut Option<AbortOnDropHandle<()>>,
        stream: &mut ExportStream,
    ) -> String {
        let mut watch = client.watch_exports(WatchExportsRequest {
            contract: self.namespace.to_string(),
            ..WatchExportsRequest::default()
        });
        stream.begin();
        loop {
            let next = if stream.disconnected && fallback.is_none() {
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
                    // The token for Kubernetes is revoked too, though open watches continue for minutes.
                    if error.reason() == Some(ErrorReason::CredentialRevoked) {
                        self.credential.refuse(&self.credential.held().access);
                    }
                    return error.to_string();
                }
                // With the former CA, the stream would never come back.
                Some(Ok(WatchEvent::Disconnected { .. }))
                    if self.credential.backend().is_ok_and(|(now, _)| now != *route) =>
                {
                    return "the backend's address, its CA or the client certificate has changed".to_owned();
                }
                Some(Ok(event)) => {
                    if is_current(&event) {
                        // The fallback ends first, so that its older events never overwrite those of the stream.
                        *fallback = None;
                    }
                    stream.has_fallback = fallback.is_some();
                    if !stream.take(event, &self.exports) {
                        return "the backend sends more exports than the limits of the konnector allow".to_owned();
                    }
                }
            }
        }
    }

    /// Follows the exports in Kubernetes until dropped.
    fn fall_back(&self) -> AbortOnDropHandle<()> {
        let fallback = KubernetesFallback {
            exports: self.exports.clone(),
            client: self.watch.clone(),
            namespace: Arc::clone(&self.namespace),
            guard: self.guard.clone(),
            pause: self.pause.clone(),
            retry: self.retry,
        };
        AbortOnDropHandle::new(tokio::spawn(fallback.run()))
    }
}

impl ExportStream {
    /// Begins another stream.
    fn begin(&mut self) {
        self.snapshot = None;
        self.disconnected = true;
    }

    /// Handles one event of the stream. Returns false if the exports exceed a limit.
    fn take(&mut self, event: WatchEvent<Export>, exports: &Exports) -> bool {
        match event {
            WatchEvent::Connected { resumed } => {
                self.disconnected = false;
                if resumed {
                    exports.recovered();
                }
            }
            WatchEvent::SnapshotBegin { .. } => {
                self.snapshot = Some(ExportSnapshot::default());
                if let Some(reader) = &mut self.reader {
                    reader.begin();
                }
            }
            WatchEvent::Applied(export) => {
                let (name, entry) = convert::from_stream(export);
                let is_listed = self.snapshot.is_some();
                let verdict = self.reader.as_mut().map(|reader| {
                    if is_listed {
                        reader.listed("", &name)
                    } else {
                        reader.applied("", &name)
                    }
                });
                match verdict {
                    Some(Verdict::Exceeded) => return false,
                    Some(Verdict::Skip) => return true,
                    Some(Verdict::Take) | None => {}
                }
                match &mut self.snapshot {
                    Some(snapshot) => {
                        snapshot.add(&name, entry.clone());
                        exports.apply_listed(&name, &entry);
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
                return self.reader.as_mut().is_none_or(Reader::complete);
            }
            WatchEvent::Disconnected { error, .. } => {
                // An incomplete snapshot does not prove that exports are gone.
                self.snapshot = None;
                self.disconnected = true;
                if let Some(error) = error.filter(|_| !self.has_fallback) {
                    exports.fail(error.to_string());
                }
            }
        }
        true
    }
}

/// Whether all exports are known once this event was handled.
fn is_current(event: &WatchEvent<Export>) -> bool {
    matches!(
        event,
        WatchEvent::SnapshotComplete | WatchEvent::Connected { resumed: true }
    )
}

#[cfg(test)]
mod tests {
    use super::{super::ExportLookup, *};

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
    fn kubernetes_is_followed_until_the_stream_is_complete() {
        assert!(is_current(&WatchEvent::Connected { resumed: true }));
        assert!(is_current(&WatchEvent::SnapshotComplete));
        assert!(!is_current(&WatchEvent::Connected { resumed: false }));
        assert!(!is_current(&WatchEvent::SnapshotBegin { refused: None }));
    }

    #[test]
    fn a_lost_stream_is_no_failure_while_kubernetes_is_followed() {
        for (has_fallback, fails) in [(false, true), (true, false)] {
            let exports = Exports::default();
            exports.replace(ExportSnapshot::default());
            let mut stream = ExportStream {
                has_fallback,
                ..ExportStream::default()
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
            assert!(stream.disconnected);
        }
    }

    #[test]
    fn a_backend_that_sends_without_end_or_bad_names_is_read_no_further() {
        let guard = Guard::new(bindery_runtime::guard::Limits {
            objects: 3,
            bytes: 1 << 20,
        });
        let exports = Exports::guarded(&guard);
        let mut stream = ExportStream {
            reader: Some(guard.reader("the stream", NameRule::Subdomain)),
            ..ExportStream::default()
        };
        assert!(stream.take(WatchEvent::SnapshotBegin { refused: None }, &exports));
        assert!(stream.take(WatchEvent::Applied(sent("../a?b")), &exports));
        let taken = (0..10).take_while(|at| stream.take(WatchEvent::Applied(sent(&format!("a{at}"))), &exports));
        assert_eq!(taken.count(), 2);
        assert_eq!(guard.held().0, 2);
        let faults = guard.faults().borrow().clone();
        assert!(faults.exceeded().is_some() && faults.invalid_names().unwrap().first.contains("../a?b"));
        stream.begin();
        assert!(!exports.is_complete(), "that the snapshot ended proves nothing");
        assert!(stream.take(WatchEvent::SnapshotBegin { refused: None }, &exports));
        assert!(stream.take(WatchEvent::Applied(sent("a0")), &exports));
        assert!(stream.take(WatchEvent::SnapshotComplete, &exports));
        assert_eq!(
            (guard.held().0, guard.faults().borrow().exceeded().is_some()),
            (1, false)
        );
    }

    #[test]
    fn an_incomplete_snapshot_removes_nothing() {
        let exports = Exports::default();
        let mut stream = ExportStream::default();
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
        assert!(matches!(exports.get("b"), ExportLookup::Broken { .. }), "b is gone");
        take(begin());
        take(WatchEvent::Applied(sent("a")));
        take(WatchEvent::SnapshotComplete);
        assert_eq!(exports.get("b"), ExportLookup::Absent);
        take(WatchEvent::Removed(bindery_proto::v1alpha2::Removed {
            name: "a".to_owned(),
            uid: "uid of a".to_owned(),
            ..bindery_proto::v1alpha2::Removed::default()
        }));
        assert_eq!(exports.get("a"), ExportLookup::Absent);
    }
}
