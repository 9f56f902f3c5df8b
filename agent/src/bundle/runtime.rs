//! What runs for a bundle: inquiries, its session, and the probes of its provider. Dropping it ends all of that.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use bindery_runtime::{cache::Subscription, queue::Queue};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Key, observe::Gone};
use crate::{
    attempt::Link,
    binding::credential::Access,
    lull::Lull,
    session::{
        Session,
        dial::{DialError, Dials},
        pace::{Pace, Wish},
        probe::{Probed, Prober},
    },
};

/// What runs for a bundle.
#[derive(Debug)]
pub struct Runtime {
    /// UID of the bundle that all this is for.
    uid: Option<String>,
    pub(super) dials: Dials<Key>,
    attached: Option<Attached>,
    /// The last inquiry that failed: how often it had by then, and when.
    tried: Option<(u32, Timestamp)>,
    pub(super) lull: Lull,
    /// Since when exports are not to be bound any more, and whether to make room for a successor.
    gone: HashMap<String, (Instant, bool)>,
}

struct Attached {
    session: Arc<Session>,
    pace: Pace,
    prober: Prober,
    _wish: Wish,
    _links: [Link; 4],
    _subscription: Subscription,
}

// === impl Runtime ===

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.session.fmt(f)
    }
}

impl Runtime {
    /// Nothing runs yet for this bundle.
    pub(super) fn new(uid: Option<String>, queue: &Queue<Key>, key: &Key) -> Self {
        Self {
            uid,
            dials: Dials::new(queue.clone(), Arc::clone(key)),
            attached: None,
            tried: None,
            lull: Lull::default(),
            gone: HashMap::new(),
        }
    }

    /// Whether all this is for the bundle of that UID, and not for a namesake before it.
    pub(super) fn is_for(&self, uid: Option<&String>) -> bool {
        self.uid.as_ref() == uid
    }

    /// The session with the bundle's contract.
    pub(super) fn session(&self) -> Option<&Arc<Session>> {
        self.attached.as_ref().map(|attached| &attached.session)
    }

    /// From now on this session is the bundle's, and its provider is asked at this pace.
    pub(super) fn attach(&mut self, session: Arc<Session>, pace: Pace, queue: &Queue<Key>, key: &Key) {
        let is_same = |attached: &Attached| attached.session.id() == session.id() && attached.pace == pace;
        if self.attached.as_ref().is_some_and(is_same) {
            return;
        }
        let prober = Prober::start(&session, pace);
        let bindings = (queue.clone(), Arc::clone(key));
        let link = (queue.clone(), Arc::clone(key));
        self.attached = Some(Attached {
            _wish: session.poll_every(pace.interval),
            _links: [
                Link::new(session.exports().changes(), link.0.clone(), Arc::clone(&link.1)),
                Link::new(session.credential().changes(), link.0.clone(), Arc::clone(&link.1)),
                Link::new(session.heartbeat(), link.0.clone(), Arc::clone(&link.1)),
                Link::new(prober.probed(), link.0, link.1),
            ],
            _subscription: session
                .cluster_binding()
                .subscribe(move |change| bindings.0.add(Arc::clone(&bindings.1), change.lane)),
            session,
            pace,
            prober,
        });
    }

    /// What the provider answered last: that of the session, or one that was asked for its contract and did not give it.
    pub(super) fn answered<C>(&mut self, access: &Access<C>, now: Timestamp) -> Option<Probed> {
        if let Access::Failed(problem) = access {
            return Some(self.tried(problem, now));
        }
        // The next failure is the first of other inquiries.
        self.tried = None;
        match access {
            Access::Reached(_) => self.attached.as_ref()?.prober.probed().borrow().clone(),
            _ => None,
        }
    }

    fn tried(&mut self, problem: &DialError, now: Timestamp) -> Probed {
        let failures = self.dials.failures();
        let at = match self.tried {
            Some((known, at)) if known == failures => at,
            _ => now,
        };
        self.tried = Some((failures, at));
        Probed {
            at,
            failures,
            problem: Some(problem.clone()),
            version: 0,
        }
    }

    /// Notes which exports are not to be bound any more, whether one is being replaced, and tells since when. Only the time
    /// counts in which a successor would have been seen: that for which the exports were read without a break.
    pub(super) fn gone<'a>(
        &mut self,
        exports: impl IntoIterator<Item = (&'a str, bool)>,
        steady: Duration,
    ) -> BTreeMap<String, Gone> {
        let mut before = std::mem::take(&mut self.gone);
        for (export, is_replaced) in exports {
            let (since, was_replaced) = before.remove(export).unwrap_or_else(|| (Instant::now(), false));
            self.gone
                .insert(export.to_owned(), (since, was_replaced || is_replaced));
        }
        let gone = |(since, replaced): &(Instant, bool)| Gone {
            since: since.elapsed().min(steady),
            replaced: *replaced,
        };
        self.gone
            .iter()
            .map(|(export, known)| (export.clone(), gone(known)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> Runtime {
        Runtime::new(None, &Queue::new(), &"west".into())
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nothing_could_be_seen_does_not_count() {
        let mut runtime = runtime();
        let secs = Duration::from_secs;
        let check = |runtime: &mut Runtime, replaced, steady, expect: u64, expect_replaced| {
            let gone = runtime.gone([("a", replaced)], secs(steady));
            let (since, replaced) = (secs(expect), expect_replaced);
            assert_eq!(gone["a"], Gone { since, replaced });
        };
        check(&mut runtime, true, 1000, 0, true);
        tokio::time::advance(secs(40)).await;
        check(&mut runtime, false, 1000, 40, true);
        check(&mut runtime, false, 0, 0, true);
        check(&mut runtime, false, 7, 7, true);
        assert!(runtime.gone([], secs(1000)).is_empty());
        check(&mut runtime, false, 1000, 0, false);
    }

    #[tokio::test]
    async fn each_row_of_failures_has_its_own_time() {
        let mut runtime = runtime();
        let (server, message) = ("https://x".to_owned(), "no route".to_owned());
        let failed = Access::<()>::Failed(DialError::Unreachable { server, message });
        let (morning, noon) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(3600).unwrap());
        let at = |runtime: &mut Runtime, now| runtime.answered(&failed, now).unwrap().at;
        assert_eq!(at(&mut runtime, morning), morning);
        assert_eq!(at(&mut runtime, noon), morning, "it is the same failure still");
        for between in [Access::Reached(()), Access::Connecting] {
            assert_eq!(runtime.answered(&between, morning), None);
            assert_eq!(at(&mut runtime, noon), noon);
            runtime.answered(&between, morning);
            assert_eq!(at(&mut runtime, morning), morning);
        }
    }
}
