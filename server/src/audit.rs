//! The audit log: one line of JSON for each call that binds, renews, shares, unbinds or revokes, whether it succeeded or was
//! refused, and for each request made as a resource that was decided.
//!
//! Recording neither waits nor fails. Lines go through a bounded queue to a thread of their own, which writes them one by one. Lines
//! that do not fit, are above the rate of their caller, or cannot be written are counted and reported in the program's log.

use std::{
    collections::HashMap,
    fmt,
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bindery_runtime::telemetry::Registry;
use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

mod entry;

pub(crate) use entry::cut;
pub use entry::{AuditEntry, AuditPrincipal, Decision};

/// Lines that may wait for the writer.
const QUEUE_LENGTH: usize = 4_096;
/// Lost lines are reported in the program's log at most this often for each way to lose one.
const REPORT_PAUSE: Duration = Duration::from_mins(1);

/// The audit log. Clones write to the same file.
#[derive(Clone, Default)]
pub struct AuditLog(Option<Arc<Shared>>);

struct Shared {
    queue: mpsc::Sender<Message>,
    lines: Lines,
}

enum Message {
    Line(Box<AuditEntry>),
    /// Tells when all lines before it are written.
    Flush(oneshot::Sender<()>),
}

/// Why the audit log cannot be written to.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be opened.
    #[error("--audit-log-path: cannot open {} for appending: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The thread of the writer cannot be started.
    #[error("--audit-log-path: cannot start the writer: {0}")]
    Thread(io::Error),
}

/// Counts lines by what became of them, and reports those that are lost. Clones count together.
#[derive(Clone, Debug, Default)]
struct Lines {
    counts: Family<OutcomeLabels, Counter>,
    /// When the loss of a line was last reported.
    reported: Arc<Mutex<HashMap<Loss, Instant>>>,
}

/// The label of lines that were written.
const WRITTEN: &str = "written";

/// How a line is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Loss {
    /// The queue is full, for the output is too slow.
    Dropped,
    /// The call is above the rate at which calls of its caller are written.
    Limited,
    /// The output failed.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

// === impl AuditLog ===

impl AuditLog {
    /// An audit log that writes nothing.
    pub fn off() -> Self {
        Self::default()
    }

    /// Opens the file for appending, or makes it, readable by its owner alone; `-` is standard output.
    pub fn open(path: &Path, registry: &mut Registry) -> Result<Self, AuditError> {
        let output: Box<dyn Write + Send> = if path == Path::new("-") {
            Box::new(io::stdout())
        } else {
            let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
            Box::new(opened.map_err(|source| AuditError::Open {
                path: path.to_owned(),
                source,
            })?)
        };
        Self::start(output, registry)
    }

    fn start(output: Box<dyn Write + Send>, registry: &mut Registry) -> Result<Self, AuditError> {
        let lines = Lines::default();
        registry.register(
            "audit_lines",
            "Lines of the audit log: written, dropped for a full queue, limited by the rate of a caller, or failed to be written",
            lines.counts.clone(),
        );
        // From the start on, so that the first loss is an increase.
        let losses = [Loss::Dropped, Loss::Limited, Loss::Failed].map(Loss::outcome);
        for outcome in losses.into_iter().chain([WRITTEN]) {
            drop(lines.counts.get_or_create(&OutcomeLabels { outcome }));
        }
        let (queue, messages) = mpsc::channel(QUEUE_LENGTH);
        let writer = Writer {
            output,
            lines: lines.clone(),
        };
        thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(messages))
            .map_err(AuditError::Thread)?;
        Ok(Self(Some(Arc::new(Shared { queue, lines }))))
    }

    /// Queues an entry, or counts it as dropped if the queue is full. `entry` is not called if nothing is written.
    pub fn record(&self, entry: impl FnOnce() -> AuditEntry) {
        let Some(shared) = &self.0 else {
            return;
        };
        if shared.queue.try_send(Message::Line(Box::new(entry()))).is_err() {
            shared.lines.lose(Loss::Dropped, &"the output is too slow");
        }
    }

    /// Counts an entry that is not written, because its call is above the rate of its caller.
    pub fn skip(&self) {
        if let Some(shared) = &self.0 {
            shared
                .lines
                .lose(Loss::Limited, &"a caller is refused, or fails, too often");
        }
    }

    /// Waits until all entries so far are written, for `patience` at most.
    pub async fn flush(&self, patience: Duration) {
        let Some(shared) = &self.0 else {
            return;
        };
        let (done, written) = oneshot::channel();
        let flushed = async {
            if shared.queue.send(Message::Flush(done)).await.is_ok() {
                let _ = written.await;
            }
        };
        if timeout(patience, flushed).await.is_err() {
            tracing::warn!("the audit log was not written to its end in time");
        }
    }
}

impl fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AuditLog").field(&self.0.is_some()).finish()
    }
}

impl Lines {
    fn count(&self, outcome: &'static str) -> u64 {
        self.counts.get_or_create(&OutcomeLabels { outcome }).inc() + 1
    }

    /// Counts a lost line, and reports it if no such loss was reported lately.
    fn lose(&self, loss: Loss, why: &dyn fmt::Display) {
        let outcome = loss.outcome();
        let lines = self.count(outcome);
        if self.is_due(loss, Instant::now()) {
            tracing::error!(%why, outcome, lines, "the audit log lacks lines; calls go on without them");
        }
    }

    /// Whether to report a loss now, which is then taken as done.
    fn is_due(&self, loss: Loss, now: Instant) -> bool {
        let mut reported = self.reported.lock();
        let is_due = reported
            .get(&loss)
            .is_none_or(|at| now.duration_since(*at) >= REPORT_PAUSE);
        if is_due {
            reported.insert(loss, now);
        }
        is_due
    }
}

impl Loss {
    /// The label of the metric.
    const fn outcome(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Limited => "limited",
            Self::Failed => "failed",
        }
    }
}

/// Writes the queued lines, one at a time.
struct Writer {
    output: Box<dyn Write + Send>,
    lines: Lines,
}

impl Writer {
    fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        while let Some(message) = messages.blocking_recv() {
            match message {
                Message::Line(entry) => self.write(&entry),
                // The caller may have stopped waiting.
                Message::Flush(done) => drop(done.send(())),
            }
        }
    }

    fn write(&mut self, entry: &AuditEntry) {
        let written = entry.to_line().and_then(|line| {
            // A whole line at once, so that nothing comes between its parts where others write to the same file.
            self.output.write_all(line.as_bytes())?;
            self.output.flush()
        });
        match written {
            Ok(()) => drop(self.lines.count(WRITTEN)),
            Err(error) => self.lines.lose(Loss::Failed, &error),
        }
    }
}

#[cfg(test)]
mod tests;
