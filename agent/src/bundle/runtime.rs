//! The tasks that run for one bundle: its provider connection and the probes of its provider.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use bindery_runtime::queue::Queue;
use jiff::Timestamp;
use tokio::time::Instant;

use super::observed::RemovedExport;
use crate::{
    attempt::Link,
    controller::{access::ContractAccess, connection::ProviderConnection},
    session::{
        Session,
        connect::ConnectError,
        polling::{PollPolicy, PollRequest},
        provider_probe::{ProbeResult, ProviderProber},
    },
};

/// Name of a bundle.
pub(super) type BundleKey = Arc<str>;

/// The tasks that run for a bundle. Dropping it ends them all.
#[derive(Debug)]
pub(super) struct BundleRuntime {
    /// The attempts to reach the provider, and the session with it.
    pub(super) connection: ProviderConnection<BundleKey>,
    /// The probes of the provider; `None` before it was first reached.
    probes: Option<RunningProbes>,
    /// The last failed attempt to reach the provider: the count of failures in a row, and when this count was first seen.
    failed_attempt: Option<(u32, Timestamp)>,
    /// By name of each export that is no longer to be bound: since when, and whether the provider announced a successor. A
    /// successor is the same export, deleted and created again under its name, because its spec cannot be changed.
    removed: HashMap<String, (Instant, bool)>,
}

/// Probes that run, and what they were started for. Dropping it stops them.
#[derive(Debug)]
struct RunningProbes {
    /// Id of the session that is probed.
    session: u64,
    policy: PollPolicy,
    prober: ProviderProber,
    /// Makes the session poll at the interval of the policy.
    _request: PollRequest,
    /// Queues the bundle at every new result.
    _link: Link,
}

impl BundleRuntime {
    /// A runtime without tasks, for the bundle of that UID.
    pub(super) fn new(uid: Option<String>, queue: &Queue<BundleKey>, key: &BundleKey) -> Self {
        Self {
            connection: ProviderConnection::new(uid, queue, key),
            probes: None,
            failed_attempt: None,
            removed: HashMap::new(),
        }
    }

    /// Uses this session for the bundle from now on, and probes its provider as the policy says. Probes that run already
    /// for the same session and policy go on.
    pub(super) fn attach(&mut self, session: &Arc<Session>, policy: PollPolicy) {
        self.connection.attach(session);
        let is_same = |probes: &RunningProbes| probes.session == session.id() && probes.policy == policy;
        if self.probes.as_ref().is_some_and(is_same) {
            return;
        }
        let prober = ProviderProber::start(session, policy);
        self.probes = Some(RunningProbes {
            session: session.id(),
            policy,
            _request: session.poll_every(policy.interval),
            _link: self.connection.link(prober.last_result()),
            prober,
        });
    }

    /// Returns how the provider answered last: the probe of the session, or the failed attempt to reach it.
    pub(super) fn last_probe<C>(&mut self, access: &ContractAccess<C>, now: Timestamp) -> Option<ProbeResult> {
        if let ContractAccess::Failed(problem) = access {
            return Some(self.failed_probe(problem, now));
        }
        // The next failure is the first of another row.
        self.failed_attempt = None;
        match access {
            ContractAccess::Reached(_) => self.probes.as_ref()?.prober.last_result().borrow().clone(),
            _ => None,
        }
    }

    /// Returns the last failed attempt to reach the provider as a probe. Until the next attempt fails, every call returns
    /// the same time.
    fn failed_probe(&mut self, problem: &ConnectError, now: Timestamp) -> ProbeResult {
        let failures = self.connection.attempts.failures();
        let at = match self.failed_attempt {
            Some((known, at)) if known == failures => at,
            _ => now,
        };
        self.failed_attempt = Some((failures, at));
        ProbeResult {
            at,
            failures,
            problem: Some(problem.clone()),
            exports_version: 0,
            is_verified: false,
        }
    }

    /// Notes all exports that are no longer to be bound, each with whether a successor is announced. Returns how long ago
    /// each was first noted, but at most `read_for`: for so long the list of exports has been read without a break, so that
    /// a successor would have been seen.
    pub(super) fn removed_exports<'a>(
        &mut self,
        exports: impl IntoIterator<Item = (&'a str, bool)>,
        read_for: Duration,
    ) -> BTreeMap<String, RemovedExport> {
        let mut before = std::mem::take(&mut self.removed);
        for (export, is_replaced) in exports {
            let (since, was_replaced) = before.remove(export).unwrap_or_else(|| (Instant::now(), false));
            self.removed
                .insert(export.to_owned(), (since, was_replaced || is_replaced));
        }
        let removed = |(since, replaced): &(Instant, bool)| RemovedExport {
            removed_for: since.elapsed().min(read_for),
            replaced: *replaced,
        };
        self.removed
            .iter()
            .map(|(export, known)| (export.clone(), removed(known)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> BundleRuntime {
        BundleRuntime::new(None, &Queue::new(), &"west".into())
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nothing_could_be_seen_does_not_count() {
        let mut runtime = runtime();
        let secs = Duration::from_secs;
        let check = |runtime: &mut BundleRuntime, replaced, steady, expect: u64, expect_replaced| {
            let removed = runtime.removed_exports([("a", replaced)], secs(steady));
            let (removed_for, replaced) = (secs(expect), expect_replaced);
            assert_eq!(removed["a"], RemovedExport { removed_for, replaced });
        };
        check(&mut runtime, true, 1000, 0, true);
        tokio::time::advance(secs(40)).await;
        check(&mut runtime, false, 1000, 40, true);
        check(&mut runtime, false, 0, 0, true);
        check(&mut runtime, false, 7, 7, true);
        assert!(runtime.removed_exports([], secs(1000)).is_empty());
        check(&mut runtime, false, 1000, 0, false);
    }

    #[tokio::test]
    async fn each_row_of_failures_has_its_own_time() {
        let mut runtime = runtime();
        let (server, message) = ("https://x".to_owned(), "no route".to_owned());
        let failed = ContractAccess::<()>::Failed(ConnectError::Unreachable { server, message });
        let (morning, noon) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(3600).unwrap());
        let at = |runtime: &mut BundleRuntime, now| runtime.last_probe(&failed, now).unwrap().at;
        assert_eq!(at(&mut runtime, morning), morning);
        assert_eq!(at(&mut runtime, noon), morning, "it is the same failure still");
        for between in [ContractAccess::Reached(()), ContractAccess::Connecting] {
            assert_eq!(runtime.last_probe(&between, morning), None);
            assert_eq!(at(&mut runtime, noon), noon);
            runtime.last_probe(&between, morning);
            assert_eq!(at(&mut runtime, morning), morning);
        }
    }
}
