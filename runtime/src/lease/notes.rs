//! Annotations of a Lease that its leader keeps, and writes with its renewals.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// Annotations of a Lease. Its leader writes them with its renewals. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct LeaseNotes(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// The number of the last renewal that the API server accepted.
    accepted: watch::Sender<u64>,
    hurried: Notify,
}

type Annotations = BTreeMap<String, String>;

#[derive(Debug, Default)]
struct State {
    /// What the Lease has, as it was written or read last.
    known: Annotations,
    /// What was sent with the last renewal.
    sent: Annotations,
    /// Changes that the Lease does not have yet; `None` removes an annotation.
    wanted: BTreeMap<String, Option<String>>,
    /// The number of renewals that were begun.
    begun: u64,
    /// How often the Lease was found to have gone back in time.
    rewinds: u64,
}

// === impl LeaseNotes ===

impl LeaseNotes {
    /// The notes of a Lease that has these annotations.
    pub(super) fn of(annotations: Option<&Annotations>) -> Self {
        let notes = Self::default();
        notes.0.state.lock().known = annotations.cloned().unwrap_or_default();
        notes
    }

    /// The annotation that the Lease has.
    pub fn get(&self, key: &str) -> Option<String> {
        self.0.state.lock().known.get(key).cloned()
    }

    /// Changes an annotation with the next renewal; `None` removes it.
    pub fn set(&self, key: &str, value: Option<String>) {
        let mut state = self.0.state.lock();
        if state.known.get(key) == value.as_ref() {
            state.wanted.remove(key);
        } else {
            state.wanted.insert(key.to_owned(), value);
        }
    }

    /// Makes the leader renew the Lease now.
    pub fn hurry(&self) {
        self.0.hurried.notify_one();
    }

    /// Waits until the API server has accepted a renewal that begins after this call. What was set before may still be missing then, if
    /// the Lease went back in time.
    pub async fn renewed(&self) {
        let next = self.0.state.lock().begun.saturating_add(1);
        let mut accepted = self.0.accepted.subscribe();
        // Waiting cannot fail: this value owns the sender.
        let _ = accepted.wait_for(|accepted| *accepted >= next).await;
    }

    /// How often the Lease was found to have gone back in time, as after a restore of its cluster from a backup.
    pub fn rewinds(&self) -> u64 {
        self.0.state.lock().rewinds
    }

    /// Waits until somebody asks for a renewal.
    pub(super) async fn hurried(&self) {
        self.0.hurried.notified().await;
    }

    /// Begins a renewal: adds what is wanted to the annotations. Returns the number of the renewal.
    pub(super) fn begin(&self, annotations: &mut Option<Annotations>) -> u64 {
        let mut state = self.0.state.lock();
        for (key, value) in &state.wanted {
            match value {
                Some(value) => drop(annotations.get_or_insert_default().insert(key.clone(), value.clone())),
                None => drop(annotations.as_mut().and_then(|all| all.remove(key))),
            }
        }
        state.sent = annotations.clone().unwrap_or_default();
        state.begun += 1;
        state.begun
    }

    /// Notes that the API server accepted a renewal, and the annotations that the Lease has since.
    pub(super) fn accept(&self, renewal: u64, annotations: Option<&Annotations>) {
        let mut state = self.0.state.lock();
        state.known = annotations.cloned().unwrap_or_default();
        state.settle();
        drop(state);
        self.0.accepted.send_replace(renewal);
    }

    /// Notes the annotations of the Lease as they were read after a conflict. If they are neither what it had nor what was sent, it went
    /// back in time, or somebody else has changed it: then what was wanted is dropped, because it was decided from another Lease.
    pub(super) fn reread(&self, annotations: Option<&Annotations>) {
        let mut state = self.0.state.lock();
        let read = annotations.cloned().unwrap_or_default();
        if read != state.known && read != state.sent {
            state.wanted.clear();
            state.rewinds += 1;
        }
        state.known = read;
        state.settle();
    }
}

impl State {
    /// Forgets the changes that the Lease has.
    fn settle(&mut self) {
        let known = &self.known;
        self.wanted.retain(|key, value| known.get(key) != value.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn lease(value: Option<&str>) -> Option<Annotations> {
        value.map(|value| Annotations::from([("a".to_owned(), value.to_owned())]))
    }

    #[test]
    fn what_is_wanted_rides_on_the_next_renewal() {
        let notes = LeaseNotes::of(lease(Some("1")).as_ref());
        notes.set("a", Some("2".to_owned()));
        assert_eq!(notes.get("a").as_deref(), Some("1"));
        let mut sent = lease(Some("1"));
        let renewal = notes.begin(&mut sent);
        assert_eq!(sent, lease(Some("2")));
        let waiting = notes.renewed();
        notes.accept(renewal, sent.as_ref());
        assert_eq!(notes.get("a").as_deref(), Some("2"));
        assert_eq!(waiting.now_or_never(), None, "it waits for one that begins later");
        notes.set("a", None);
        let mut sent = lease(Some("2"));
        notes.begin(&mut sent);
        assert_eq!(sent, Some(Annotations::new()));
    }

    #[tokio::test]
    async fn a_renewal_that_begins_after_the_call_ends_the_wait() {
        let notes = LeaseNotes::default();
        let waiting = tokio::spawn({
            let notes = notes.clone();
            async move { notes.renewed().await }
        });
        tokio::task::yield_now().await;
        let renewal = notes.begin(&mut None);
        notes.accept(renewal, None);
        waiting.await.unwrap();
    }

    #[test]
    fn a_lost_answer_is_no_rewind_and_an_old_lease_is() {
        let notes = LeaseNotes::of(lease(Some("1")).as_ref());
        notes.set("a", Some("2".to_owned()));
        notes.begin(&mut lease(Some("1")));
        notes.reread(lease(Some("2")).as_ref());
        assert_eq!((notes.get("a").as_deref(), notes.rewinds()), (Some("2"), 0));
        notes.set("a", Some("3".to_owned()));
        notes.begin(&mut lease(Some("2")));
        notes.reread(lease(Some("2")).as_ref());
        let mut again = lease(Some("2"));
        notes.begin(&mut again);
        assert_eq!(
            (again, notes.rewinds()),
            (lease(Some("3")), 0),
            "it was not written, and is sent again"
        );
        notes.reread(lease(Some("0")).as_ref());
        assert_eq!((notes.get("a").as_deref(), notes.rewinds()), (Some("0"), 1));
        let mut after = lease(Some("0"));
        notes.begin(&mut after);
        assert_eq!(
            after,
            lease(Some("0")),
            "what was decided from another Lease is not written"
        );
    }
}
