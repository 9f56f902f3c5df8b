//! Annotations of a Lease that its leader keeps, and writes with its renewals.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// The domain of the annotations that are kept here, or the end of it. All others are somebody else's, who may change them at any time.
const DOMAIN: &str = "kube-bind.io";
/// Number of renewals without an answer whose annotations are remembered. A leader that gets none gives up before.
const SENT_MAX: usize = 16;

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
    /// What was sent since the Lease was written or read last, oldest first: each of it may have arrived.
    sent: Vec<Annotations>,
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
    pub fn of(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let notes = Self::default();
        notes.0.state.lock().known = annotations.cloned().unwrap_or_default();
        notes
    }

    /// The annotation that the Lease has.
    pub fn get(&self, key: &str) -> Option<String> {
        self.0.state.lock().known.get(key).cloned()
    }

    /// The keys below a domain that the Lease has, or will have with the next renewal.
    pub fn keys(&self, domain: &str) -> Vec<String> {
        let state = self.0.state.lock();
        let is_below = |key: &&String| key.split_once('/').is_some_and(|(of, _)| of == domain);
        let stays = |key: &&String| !matches!(state.wanted.get(*key), Some(None));
        let known = state.known.keys().filter(is_below).filter(stays);
        let wanted = state.wanted.iter().filter(|(_, value)| value.is_some());
        let keys: BTreeSet<_> = known.chain(wanted.map(|(key, _)| key).filter(is_below)).collect();
        keys.into_iter().cloned().collect()
    }

    /// Changes an annotation with the next renewal; `None` removes it.
    pub fn set(&self, key: &str, value: Option<String>) {
        let mut state = self.0.state.lock();
        // A renewal without an answer may have written something else.
        if state.sent.is_empty() && state.known.get(key) == value.as_ref() {
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
        let sent = annotations.clone().unwrap_or_default();
        if !state.sent.contains(&sent) {
            if state.sent.len() == SENT_MAX {
                state.sent.remove(0);
            }
            state.sent.push(sent);
        }
        state.begun += 1;
        state.begun
    }

    /// Notes that the API server accepted a renewal, and the annotations that the Lease has since.
    pub(super) fn accept(&self, renewal: u64, annotations: Option<&Annotations>) {
        let mut state = self.0.state.lock();
        state.learn(annotations);
        drop(state);
        self.0.accepted.send_replace(renewal);
    }

    /// Notes the annotations of the Lease as they were read after a conflict. If ours are neither what it had nor what any renewal sent
    /// that got no answer, it went back in time, or somebody else has changed them: then what was wanted is dropped, because it was decided
    /// from another Lease.
    pub(super) fn reread(&self, annotations: Option<&Annotations>) {
        let mut state = self.0.state.lock();
        let empty = Annotations::new();
        let read = annotations.unwrap_or(&empty);
        let is_known = state
            .sent
            .iter()
            .chain([&state.known])
            .any(|known| are_same(known, read));
        if !is_known {
            state.wanted.clear();
            state.rewinds += 1;
        }
        state.learn(annotations);
    }
}

impl State {
    /// Notes what the Lease has, and forgets the changes that it has. What was sent before cannot arrive any more: the Lease has another
    /// version since.
    fn learn(&mut self, annotations: Option<&Annotations>) {
        self.known = annotations.cloned().unwrap_or_default();
        self.sent.clear();
        let known = &self.known;
        self.wanted.retain(|key, value| known.get(key) != value.as_ref());
    }
}

/// Whether two versions of a Lease have the same annotations of ours.
fn are_same(one: &Annotations, other: &Annotations) -> bool {
    let is_ours = |(key, _): &(&String, &String)| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let parent = domain.strip_suffix(DOMAIN);
        parent.is_some_and(|parent| parent.is_empty() || parent.ends_with('.'))
    };
    one.iter().filter(is_ours).eq(other.iter().filter(is_ours))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const KEY: &str = "holder.kube-bind.io/a";

    fn lease(value: Option<&str>) -> Option<Annotations> {
        value.map(|value| Annotations::from([(KEY.to_owned(), value.to_owned())]))
    }

    #[test]
    fn what_is_wanted_rides_on_the_next_renewal() {
        let notes = LeaseNotes::of(lease(Some("1")).as_ref());
        notes.set(KEY, Some("2".to_owned()));
        assert_eq!(notes.get(KEY).as_deref(), Some("1"));
        let mut sent = lease(Some("1"));
        let renewal = notes.begin(&mut sent);
        assert_eq!(sent, lease(Some("2")));
        let waiting = notes.renewed();
        notes.accept(renewal, sent.as_ref());
        assert_eq!(notes.get(KEY).as_deref(), Some("2"));
        assert_eq!(waiting.now_or_never(), None, "it waits for one that begins later");
        notes.set(KEY, None);
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
        notes.set(KEY, Some("2".to_owned()));
        notes.begin(&mut lease(Some("1")));
        notes.reread(lease(Some("2")).as_ref());
        assert_eq!((notes.get(KEY).as_deref(), notes.rewinds()), (Some("2"), 0));
        notes.set(KEY, Some("3".to_owned()));
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
        assert_eq!((notes.get(KEY).as_deref(), notes.rewinds()), (Some("0"), 1));
        let mut after = lease(Some("0"));
        notes.begin(&mut after);
        assert_eq!(
            after,
            lease(Some("0")),
            "what was decided from another Lease is not written"
        );
    }

    #[test]
    fn each_renewal_without_an_answer_may_have_arrived() {
        for arrived in ["1", "2", "3", "4"] {
            let notes = LeaseNotes::of(lease(Some("1")).as_ref());
            for wanted in ["2", "3", "4"] {
                notes.set(KEY, Some(wanted.to_owned()));
                // None of them is answered.
                notes.begin(&mut lease(Some("1")));
            }
            notes.reread(lease(Some(arrived)).as_ref());
            assert_eq!((notes.get(KEY).as_deref(), notes.rewinds()), (Some(arrived), 0));
            let mut next = lease(Some(arrived));
            notes.begin(&mut next);
            assert_eq!(
                next,
                lease(Some("4")),
                "the last change is still wanted after {arrived}"
            );
        }
        let notes = LeaseNotes::of(lease(Some("1")).as_ref());
        notes.set(KEY, Some("2".to_owned()));
        let mut sent = lease(Some("1"));
        let renewal = notes.begin(&mut sent);
        notes.accept(renewal, sent.as_ref());
        notes.reread(lease(Some("1")).as_ref());
        assert_eq!(notes.rewinds(), 1, "it had 2 before");
    }

    #[test]
    fn what_is_taken_back_while_a_renewal_is_on_its_way_is_taken_back() {
        let notes = LeaseNotes::of(lease(Some("1")).as_ref());
        notes.set(KEY, Some("2".to_owned()));
        let mut sent = lease(Some("1"));
        let renewal = notes.begin(&mut sent);
        notes.set(KEY, Some("1".to_owned()));
        notes.accept(renewal, sent.as_ref());
        let mut next = sent.clone();
        notes.begin(&mut next);
        assert_eq!((sent, next), (lease(Some("2")), lease(Some("1"))));
    }

    #[test]
    fn annotations_of_others_are_no_rewind() {
        let notes = LeaseNotes::of(lease(Some("1")).as_ref());
        notes.set(KEY, Some("2".to_owned()));
        notes.begin(&mut lease(Some("1")));
        let mut read = lease(Some("1"));
        for key in ["team", "example.com/team", "notkube-bind.io/team"] {
            read.get_or_insert_default().insert(key.to_owned(), "west".to_owned());
        }
        notes.reread(read.as_ref());
        assert_eq!(notes.rewinds(), 0);
        let mut next = read.clone();
        notes.begin(&mut next);
        let expect = read.map(|mut all| {
            all.insert(KEY.to_owned(), "2".to_owned());
            all
        });
        assert_eq!(next, expect, "what is wanted is written, and what is another's is kept");
        let mut foreign = lease(Some("2"));
        foreign
            .get_or_insert_default()
            .insert("holder.kube-bind.io/b".to_owned(), "0".to_owned());
        notes.reread(foreign.as_ref());
        assert_eq!(notes.rewinds(), 1, "a contract that was given up is there again");
    }

    #[test]
    fn keys_are_those_that_the_lease_has_or_gets() {
        let notes = LeaseNotes::of(lease(Some("1")).as_ref());
        let domain = "holder.kube-bind.io";
        notes.set("holder.kube-bind.io/b", Some("1".to_owned()));
        notes.set("other.kube-bind.io/c", Some("1".to_owned()));
        assert_eq!(notes.keys(domain), [KEY, "holder.kube-bind.io/b"]);
        notes.set(KEY, None);
        assert_eq!(notes.keys(domain), ["holder.kube-bind.io/b"]);
    }
}
