//! Asks a provider regularly whether it is there, and whether the contract is the one that it was.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Core, Session,
    dial::{self, DialError},
    pace::Pace,
};

/// However often the exports change, it is asked at most this often.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// An answer that takes longer is none.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// What was found last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// When it was asked.
    pub at: Timestamp,
    /// How often in a row it has not answered, or not well.
    pub failures: u32,
    /// What was wrong.
    pub problem: Option<DialError>,
    /// Version of the exports that were known before it was asked: this contract's, if it answered well.
    pub version: u64,
}

/// Asks until dropped.
#[derive(Debug)]
pub struct Prober {
    probed: watch::Receiver<Option<Probed>>,
    _task: AbortOnDropHandle<()>,
}

// === impl Prober ===

impl Prober {
    /// Starts to ask: at this pace, and whenever exports or credential change.
    pub fn start(session: &Session, pace: Pace) -> Self {
        let (sender, probed) = watch::channel(None);
        let task = tokio::spawn(run(Arc::clone(&session.core), pace, sender));
        Self {
            probed,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// What was found last, to read or to wait for; `None` before the first answer.
    pub fn probed(&self) -> watch::Receiver<Option<Probed>> {
        self.probed.clone()
    }
}

async fn run(core: Arc<Core>, pace: Pace, sender: watch::Sender<Option<Probed>>) {
    let mut exports = core.exports.changes();
    let mut credential = core.credential.changes();
    let mut failures: u32 = 0;
    loop {
        let version = *exports.borrow_and_update();
        credential.mark_unchanged();
        let problem = timeout(ANSWER_MAX, probe(&core))
            .await
            .unwrap_or_else(|_| Err(silent(&core)))
            .err();
        tracing::debug!(contract = %core.contract.namespace, ?problem, "provider probed");
        failures = if problem.is_some() {
            failures.saturating_add(1)
        } else {
            0
        };
        sender.send_replace(Some(Probed {
            at: Timestamp::now(),
            failures,
            problem,
            version,
        }));
        sleep(PAUSE_MIN).await;
        let pause = failures
            .checked_sub(1)
            .map_or(pace.interval, |last| pace.after_failure(last));
        // Both senders live in the session's core.
        tokio::select! {
            () = sleep(pause) => {}
            _ = exports.changed() => {}
            _ = credential.changed() => {}
        }
    }
}

async fn probe(core: &Core) -> Result<(), DialError> {
    let access = core.credential.held().access;
    let found = dial::contract(&core.clients, &access).await?;
    if found.uid == core.contract.uid {
        return Ok(());
    }
    Err(DialError::Gone {
        server: access.server(),
        namespace: format!("{} with UID {}", found.namespace, core.contract.uid),
    })
}

fn silent(core: &Core) -> DialError {
    DialError::Unreachable {
        server: core.credential.held().access.server(),
        message: format!("no answer for {}s", ANSWER_MAX.as_secs()),
    }
}
