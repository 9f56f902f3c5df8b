//! Traces of single changes: from the consumer's watch to the write on the provider, and on to the first status that follows it.
//!
//! A change is drawn when the watch shows it, and its trace is kept with its key until the copy is written. Spans are made only once there
//! is something to write, so a change that needs no write leaves no trace. The copy carries the context of the write in an annotation,
//! which is no part of what is copied. The first status that comes down from that copy continues it.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, SystemTime},
};

use bindery_runtime::{
    cache::ObjectKey,
    traces::{self, Attribute, OpenSpan, SpanKind, TraceContext, Tracer},
};
use parking_lot::Mutex;

use crate::engine::{Frame, strategy::Operation};

/// At most this many traced changes are kept per engine; further ones are not traced.
const CHANGES_MAX: usize = 1024;
/// At most this many writes are kept per engine whose first status may still come; the oldest is forgotten first.
const AWAITED_MAX: usize = 4096;
/// The longest wait that a span shows as a part of its length. Longer ones, such as those of an engine that is paused, are told by the
/// attribute alone.
const WAIT_SHOWN_MAX: Duration = Duration::from_secs(10);

/// The traced changes of one engine.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// `None` while traces are off.
    tracer: Option<Tracer>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Changes that are not written yet, by the key of their object.
    unwritten: HashMap<ObjectKey, Change>,
    /// The contexts of writes whose first status has not come yet, the oldest first.
    awaited: VecDeque<TraceContext>,
}

/// One traced change.
#[derive(Clone, Debug)]
struct Change {
    /// When the watch showed it.
    since: SystemTime,
    /// The first span of its trace, once an attempt to write it has made one.
    context: Option<TraceContext>,
}

/// One attempt to sync an object, while traces are on.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    changes: &'a Changes,
    tracer: &'a Tracer,
    /// When the worker got the object, and how long that was queued.
    taken: SystemTime,
    waited: Duration,
    change: Option<Change>,
    /// When the last plan began and ended, until its span is made.
    plan: Option<(SystemTime, SystemTime)>,
    /// The span that the spans of this attempt are children of.
    parent: Option<OpenSpan>,
    /// Whether the object waits for its provider namespace.
    waits: bool,
}

/// The span of one operation, with the context that the copy which it writes is to carry.
#[derive(Debug)]
pub(crate) struct OperationSpan {
    span: OpenSpan,
    carried: Option<(TraceContext, String)>,
    /// The context of the write whose first status it writes.
    awaited: Option<TraceContext>,
}

// === impl Changes ===

impl Changes {
    /// The changes of a new engine, which are traced if the process has a tracer.
    pub(crate) fn of_process() -> Self {
        Self {
            tracer: traces::tracer().cloned(),
            ..Self::default()
        }
    }

    /// Draws whether a change that the consumer's watch shows now is traced. A change of an object whose last one is not written yet
    /// belongs to that.
    pub(crate) fn shown(&self, key: &ObjectKey) {
        if self.tracer.as_ref().is_some_and(Tracer::draws) {
            let mut known = self.known.lock();
            if known.unwritten.len() < CHANGES_MAX {
                known.unwritten.entry(key.clone()).or_insert_with(|| Change {
                    since: SystemTime::now(),
                    context: None,
                });
            }
        }
    }

    /// Begins an attempt to sync an object that was queued for this long. `None` while traces are off.
    pub(crate) fn begin(&self, key: &ObjectKey, waited: Duration) -> Option<Attempt<'_>> {
        let tracer = self.tracer.as_ref()?;
        Some(Attempt {
            changes: self,
            tracer,
            taken: SystemTime::now(),
            waited,
            change: self.known.lock().unwritten.remove(key),
            plan: None,
            parent: None,
            waits: false,
        })
    }

    /// Whether a copy carries the context of a write of this process whose first status has not come yet.
    fn is_awaited(&self, context: &TraceContext) -> bool {
        self.known.lock().awaited.contains(context)
    }

    fn status_came(&self, context: &TraceContext) {
        self.known.lock().awaited.retain(|known| known != context);
    }

    fn await_status(&self, context: TraceContext) {
        let awaited = &mut self.known.lock().awaited;
        if awaited.len() >= AWAITED_MAX {
            awaited.pop_front();
        }
        awaited.push_back(context);
    }
}

// === impl Attempt ===

impl Attempt<'_> {
    /// Runs a plan, and notes how long it took if the change is traced.
    pub(crate) fn planning<T>(attempt: Option<&mut Self>, plan: impl FnOnce() -> Option<T>) -> Option<T> {
        let Some(attempt) = attempt.filter(|attempt| attempt.change.is_some()) else {
            return plan();
        };
        let began = SystemTime::now();
        let planned = plan();
        attempt.plan = Some((began, SystemTime::now()));
        planned
    }

    /// Notes that the object waits for its provider namespace.
    pub(crate) fn waits(&mut self) {
        self.waits = true;
    }

    /// Begins an operation on an object. `None` if it is a part of no trace.
    pub(crate) fn operation(&mut self, frame: &Frame, key: &ObjectKey, op: &impl Operation) -> Option<OperationSpan> {
        let awaited = self.continued(op);
        let (name, parent, since) = match awaited.clone() {
            Some(context) => ("status", context, before(self.taken, self.waited.min(WAIT_SHOWN_MAX))),
            None => (op.name(), self.parent(frame, key)?, SystemTime::now()),
        };
        let mut attributes = attributes(frame, key);
        attributes.extend([
            Attribute::new("bindery.operation", op.name()),
            Attribute::new("bindery.verb", op.verb()),
            Attribute::new(
                "bindery.cluster",
                if op.is_on_consumer() { "consumer" } else { "provider" },
            ),
        ]);
        let span = self
            .tracer
            .start(name, SpanKind::Client, Some(&parent), since, attributes);
        let carried = span.context().filter(|_| op.writes_copy());
        Some(OperationSpan {
            carried: carried.map(|context| (context.clone(), context.to_string())),
            awaited,
            span,
        })
    }

    /// Notes the outcome of an operation, and ends its span.
    pub(crate) fn answered<T>(&mut self, operation: OperationSpan, outcome: &Result<T, kube::Error>) {
        let OperationSpan {
            mut span,
            carried,
            awaited,
        } = operation;
        match outcome {
            Ok(_) => {
                span.set("bindery.code", "ok");
                if let Some(context) = awaited {
                    self.changes.status_came(&context);
                }
                if let Some((context, _)) = carried {
                    self.changes.await_status(context);
                }
            }
            Err(error) => {
                span.set("bindery.code", code(error));
                span.fail();
            }
        }
    }

    /// Ends the attempt. A change that failed, or waits for its provider namespace, is kept for the next one.
    pub(crate) fn finish(self, key: &ObjectKey, failed: bool) {
        let Some(mut change) = self.change.filter(|_| failed || self.waits) else {
            return;
        };
        if let Some(mut parent) = self.parent {
            change.context = change.context.or_else(|| parent.context());
            if failed {
                parent.fail();
            }
        }
        let mut known = self.changes.known.lock();
        if known.unwritten.len() < CHANGES_MAX {
            known.unwritten.insert(key.clone(), change);
        }
    }

    /// The write of which an operation writes the first status.
    fn continued(&self, op: &impl Operation) -> Option<TraceContext> {
        let context = TraceContext::parse(op.continues()?)?;
        self.changes.is_awaited(&context).then_some(context)
    }

    /// The span that an operation is a child of. The first operation of an attempt begins it.
    fn parent(&mut self, frame: &Frame, key: &ObjectKey) -> Option<TraceContext> {
        let change = self.change.as_ref()?;
        let attributes = || attributes(frame, key);
        if self.parent.is_none() {
            let since = change.since.max(before(self.taken, WAIT_SHOWN_MAX));
            let parent = match &change.context {
                None => self
                    .tracer
                    .start("change", SpanKind::Consumer, None, since, attributes()),
                Some(first) => self
                    .tracer
                    .start("retry", SpanKind::Internal, Some(first), self.taken, attributes()),
            };
            if change.context.is_none() {
                let context = parent.context();
                let mut queue = self
                    .tracer
                    .start("queue", SpanKind::Internal, context.as_ref(), since, attributes());
                let waited = self.taken.duration_since(change.since).unwrap_or_default();
                queue.set("bindery.waited_seconds", waited.as_secs_f64());
                queue.end_at(self.taken.max(since));
            }
            self.parent = Some(parent);
        }
        let context = self.parent.as_ref()?.context()?;
        if let Some((began, ended)) = self.plan.take() {
            let plan = self
                .tracer
                .start("plan", SpanKind::Internal, Some(&context), began, attributes());
            plan.end_at(ended);
        }
        Some(context)
    }
}

// === impl OperationSpan ===

impl OperationSpan {
    /// The value of the annotation on the copy that the operation writes; `None` if it writes none.
    pub(crate) fn annotation(&self) -> Option<&str> {
        self.carried.as_ref().map(|(_, text)| text.as_str())
    }
}

/// What a span says of its object: names alone.
fn attributes(frame: &Frame, key: &ObjectKey) -> Vec<Attribute> {
    vec![
        Attribute::new("bindery.binding", frame.holder.clone()),
        Attribute::new("bindery.contract", frame.contract.clone()),
        Attribute::new("bindery.resource", frame.resource.plural.clone()),
        Attribute::new("bindery.namespace", key.namespace.clone()),
        Attribute::new("bindery.object", key.name.clone()),
    ]
}

/// How an API server refused a request, without its message, which may repeat content.
fn code(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.code.to_string(),
        _ => "unanswered".to_owned(),
    }
}

fn before(time: SystemTime, duration: Duration) -> SystemTime {
    time.checked_sub(duration).unwrap_or(time)
}

#[cfg(test)]
#[path = "tests/traces.rs"]
mod tests;
