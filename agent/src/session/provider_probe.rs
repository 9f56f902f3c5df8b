//! Probes a provider regularly: whether it answers, and whether the contract is still the same.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Session,
    connect::{self, ConnectError, FoundContract},
    polling::PollPolicy,
    session_core::SessionCore,
};
use crate::contract::is_unverified;

/// The least pause between probes, however often the exports change.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// A probe fails after this time without an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeResult {
    /// When the probe was made.
    pub at: Timestamp,
    /// Count of failed probes in a row.
    pub failures: u32,
    /// Why the probe failed, if it did.
    pub problem: Option<ConnectError>,
    /// Version of the exports that were known before the probe. A successful probe confirms that they are this contract's, if it
    /// verified the contract.
    pub exports_version: u64,
    /// Whether the probe verified the contract by its UID.
    pub is_verified: bool,
}

/// Probes a provider until dropped.
#[derive(Debug)]
pub struct ProviderProber {
    last_result: watch::Receiver<Option<ProbeResult>>,
    _task: AbortOnDropHandle<()>,
}

impl ProviderProber {
    /// Starts to probe: as often as the policy says, and whenever exports or credential change.
    pub fn start(session: &Session, policy: PollPolicy) -> Self {
        let (sender, last_result) = watch::channel(None);
        let task = tokio::spawn(run(Arc::clone(&session.core), policy, sender));
        Self {
            last_result,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// The last result, to read or to wait for; `None` before the first probe has ended.
    pub fn last_result(&self) -> watch::Receiver<Option<ProbeResult>> {
        self.last_result.clone()
    }
}

/// Probes repeatedly and publishes each result.
async fn run(core: Arc<SessionCore>, policy: PollPolicy, sender: watch::Sender<Option<ProbeResult>>) {
    let mut exports = core.exports.changes();
    let mut credential = core.credential.changes();
    let mut failures: u32 = 0;
    loop {
        let exports_version = *exports.borrow_and_update();
        credential.mark_unchanged();
        let outcome = timeout(TIMEOUT, probe(&core))
            .await
            .unwrap_or_else(|_| Err(timed_out(&core)));
        let is_verified = outcome == Ok(true);
        let problem = outcome.err();
        tracing::debug!(contract = %core.contract.namespace, ?problem, "provider probed");
        failures = if problem.is_some() {
            failures.saturating_add(1)
        } else {
            0
        };
        sender.send_replace(Some(ProbeResult {
            at: Timestamp::now(),
            failures,
            problem,
            exports_version,
            is_verified,
        }));
        sleep(PAUSE_MIN).await;
        let pause = failures
            .checked_sub(1)
            .map_or(policy.interval, |last| policy.after_failure(last));
        // The core owns both senders, so this never fails.
        tokio::select! {
            () = sleep(pause) => {}
            _ = exports.changed() => {}
            _ = credential.changed() => {}
        }
    }
}

/// Reads the contract namespace, or the exports in it where only they may be read. Fails if the namespace is gone or was created
/// anew. Returns whether the contract was verified.
async fn probe(core: &SessionCore) -> Result<bool, ConnectError> {
    let access = core.credential.held().access;
    let read = connect::read_contract(&core.sides.provider, &access).await;
    if matches!(read, Err(ConnectError::Gone { .. })) {
        core.note_gone();
    }
    let FoundContract { contract, is_verified } = read?;
    core.note_found(is_verified.then(|| Arc::clone(&contract.uid)));
    if !is_verified || contract.uid == core.contract.uid || is_unverified(&core.contract.uid) {
        return Ok(is_verified);
    }
    Err(ConnectError::Gone {
        server: access.server(),
        namespace: format!("{} with UID {}", contract.namespace, core.contract.uid),
    })
}

/// The failure of a probe without an answer.
fn timed_out(core: &SessionCore) -> ConnectError {
    ConnectError::Unreachable {
        server: core.credential.held().access.server(),
        message: format!("no answer within {}s", TIMEOUT.as_secs()),
    }
}
