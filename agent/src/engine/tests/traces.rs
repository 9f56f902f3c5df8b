use std::sync::Arc;

use bindery_api::v1alpha2::{InformerScope, Scope};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SdkTracerProvider, SpanData, SpanExporter},
};

use super::*;
use crate::model::{BoundResource, Placement};

/// Keeps the spans that end.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().extend(batch);
        Ok(())
    }
}

impl Kept {
    fn spans(&self) -> Vec<SpanData> {
        self.0.lock().clone()
    }

    fn names(&self) -> Vec<String> {
        self.spans().iter().map(|span| span.name.to_string()).collect()
    }

    #[track_caller]
    fn span(&self, name: &str) -> SpanData {
        let spans = self.spans();
        let found = spans.into_iter().find(|span| span.name == name);
        found.unwrap_or_else(|| panic!("no span {name} among {:?}", self.names()))
    }

    #[track_caller]
    fn is_child(&self, child: &str, parent: &str) {
        let (child, parent) = (self.span(child), self.span(parent));
        assert_eq!(child.parent_span_id, parent.span_context.span_id(), "{}", child.name);
        assert_eq!(child.span_context.trace_id(), parent.span_context.trace_id());
    }
}

/// An operation of a test, which may write the status of a copy that carries this trace context.
struct Written {
    status_of: Option<String>,
}

impl Operation for Written {
    fn name(&self) -> &'static str {
        if self.status_of.is_some() { "status" } else { "update" }
    }

    fn verb(&self) -> &'static str {
        "patch"
    }

    fn writes_copy(&self) -> bool {
        self.status_of.is_none()
    }

    fn continues(&self) -> Option<&str> {
        self.status_of.as_deref()
    }

    fn is_on_consumer(&self) -> bool {
        self.status_of.is_some()
    }

    fn is_guarded(&self) -> bool {
        false
    }

    fn carries_change(&self) -> bool {
        true
    }

    fn is_deletion(&self) -> bool {
        false
    }

    fn read(_: bool) -> Self {
        UPDATE
    }
}

const UPDATE: Written = Written { status_of: None };

fn key() -> ObjectKey {
    ObjectKey::new("wild-west", "billy")
}

fn frame() -> Frame {
    Frame {
        holder: "cowboys".into(),
        contract: "kube-bind-x".into(),
        resource: BoundResource {
            group: "wildwest.dev".into(),
            version: "v1alpha1".into(),
            plural: "cowboys".into(),
            kind: "Cowboy".into(),
            scope: Scope::Namespaced,
            status_subresource: true,
        },
        placement: Placement::Mapped,
        informer_scope: InformerScope::Namespaced,
        last_wins: false,
        suspend: None,
    }
}

fn changes(ratio: f64) -> (Changes, Kept) {
    let kept = Kept::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
    let changes = Changes {
        tracer: Some(Tracer::of(&provider, ratio)),
        known: Mutex::default(),
    };
    (changes, kept)
}

/// Makes an attempt with this one operation. Returns the annotation that the operation writes.
fn attempt(changes: &Changes, op: &Written, outcome: &Result<(), kube::Error>) -> Option<String> {
    let mut attempt = changes.begin(&key(), Duration::ZERO).unwrap();
    Attempt::planning(Some(&mut attempt), || Some(())).unwrap();
    let operation = attempt.operation(&frame(), &key(), op);
    let annotation = operation
        .as_ref()
        .and_then(|operation| operation.annotation().map(str::to_owned));
    if let Some(operation) = operation {
        attempt.answered(operation, outcome);
    }
    attempt.finish(&key(), outcome.is_err());
    annotation
}

fn refused() -> kube::Error {
    let status = kube::core::Status::failure("the content is planted-secret", "Conflict").with_code(409);
    kube::Error::Api(Box::new(status))
}

#[test]
fn a_change_is_one_trace_on_to_the_first_status() {
    let (changes, kept) = changes(1.0);
    changes.shown(&key());
    let carried = attempt(&changes, &UPDATE, &Ok(())).expect("an annotation");
    let mut names = kept.names();
    names.sort();
    assert_eq!(names, ["change", "plan", "queue", "update"]);
    for child in ["queue", "plan", "update"] {
        kept.is_child(child, "change");
    }
    let status = Written {
        status_of: Some(carried),
    };
    assert_eq!(attempt(&changes, &status, &Ok(())), None, "no annotation comes down");
    kept.is_child("status", "update");
    // Only the first one continues it.
    attempt(&changes, &status, &Ok(()));
    assert_eq!(kept.names().iter().filter(|name| *name == "status").count(), 1);
    assert!(changes.known.lock().awaited.is_empty());
    assert!(changes.known.lock().unwritten.is_empty());
}

#[test]
fn a_change_that_needs_no_write_leaves_no_trace() {
    let (changes, kept) = changes(1.0);
    changes.shown(&key());
    let mut nothing = changes.begin(&key(), Duration::ZERO).unwrap();
    Attempt::planning(Some(&mut nothing), || Some(())).unwrap();
    nothing.finish(&key(), false);
    assert_eq!(kept.names(), [""; 0]);
    assert!(changes.known.lock().unwritten.is_empty());
}

#[test]
fn what_was_not_drawn_is_not_traced() {
    let (changes, kept) = changes(0.0);
    changes.shown(&key());
    assert_eq!(attempt(&changes, &UPDATE, &Ok(())), None);
    // An annotation that this process did not write, as after a restart, continues nothing.
    let status_of = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
    attempt(&changes, &Written { status_of }, &Ok(()));
    assert_eq!(kept.names(), [""; 0]);
}

#[test]
fn with_traces_off_nothing_is_kept() {
    let changes = Changes::default();
    changes.shown(&key());
    assert!(changes.known.lock().unwritten.is_empty());
    assert!(changes.begin(&key(), Duration::ZERO).is_none());
}

#[test]
fn a_write_that_fails_is_tried_again_in_the_same_trace() {
    let (changes, kept) = changes(1.0);
    changes.shown(&key());
    attempt(&changes, &UPDATE, &Err(refused()));
    attempt(&changes, &UPDATE, &Ok(()));
    kept.is_child("retry", "change");
    assert!(changes.known.lock().unwritten.is_empty());
    let failed = kept.span("update");
    assert!(matches!(failed.status, opentelemetry::trace::Status::Error { .. }));
    let code = failed.attributes.iter().find(|one| one.key.as_str() == "bindery.code");
    assert_eq!(
        code.map(|code| code.value.as_str().into_owned()).as_deref(),
        Some("409")
    );
    assert!(!format!("{:?}", kept.spans()).contains("planted-secret"));
}

#[test]
fn an_object_that_waits_for_its_namespace_keeps_its_trace() {
    let (changes, kept) = changes(1.0);
    changes.shown(&key());
    let mut waiting = changes.begin(&key(), Duration::ZERO).unwrap();
    assert_eq!(Attempt::planning(Some(&mut waiting), || None::<()>), None);
    waiting.waits();
    waiting.finish(&key(), false);
    assert_eq!(changes.known.lock().unwritten.len(), 1);
    attempt(&changes, &UPDATE, &Ok(())).expect("an annotation");
    kept.is_child("update", "change");
}

#[test]
fn a_deletion_that_needs_no_write_is_not_kept() {
    let (changes, _) = changes(1.0);
    changes.shown(&key());
    let mut gone = changes.begin(&key(), Duration::ZERO).unwrap();
    assert_eq!(Attempt::planning(Some(&mut gone), || None::<()>), None);
    gone.finish(&key(), false);
    assert!(changes.known.lock().unwritten.is_empty());
}

#[test]
fn a_status_whose_write_fails_first_is_traced_when_it_comes() {
    let (changes, kept) = changes(1.0);
    changes.shown(&key());
    let carried = attempt(&changes, &UPDATE, &Ok(())).expect("an annotation");
    let status = Written {
        status_of: Some(carried),
    };
    attempt(&changes, &status, &Err(refused()));
    attempt(&changes, &status, &Ok(()));
    attempt(&changes, &status, &Ok(()));
    assert_eq!(kept.names().iter().filter(|name| *name == "status").count(), 2);
}

#[test]
fn memory_is_bounded() {
    let (changes, _) = changes(1.0);
    for number in 0..2 * CHANGES_MAX {
        changes.shown(&ObjectKey::new("wild-west", format!("billy-{number}")));
    }
    assert_eq!(changes.known.lock().unwritten.len(), CHANGES_MAX);
    let awaited = |number: usize| TraceContext::parse(&format!("00-{:032x}-{:016x}-01", 1, number + 1)).unwrap();
    for number in 0..=AWAITED_MAX {
        changes.await_status(awaited(number));
    }
    assert_eq!(changes.known.lock().awaited.len(), AWAITED_MAX);
    assert!(!changes.is_awaited(&awaited(0)), "the oldest is forgotten");
    assert!(changes.is_awaited(&awaited(AWAITED_MAX)));
}

#[test]
fn no_span_is_as_long_as_a_pause() {
    let (changes, kept) = changes(1.0);
    let since = SystemTime::now() - Duration::from_hours(1);
    let change = Change { since, context: None };
    changes.known.lock().unwritten.insert(key(), change);
    attempt(&changes, &UPDATE, &Ok(()));
    for span in kept.spans() {
        let length = span.end_time.duration_since(span.start_time).unwrap();
        assert!(
            length < WAIT_SHOWN_MAX + Duration::from_secs(5),
            "{} {length:?}",
            span.name
        );
    }
    let queue = kept.span("queue");
    let waited = queue
        .attributes
        .iter()
        .find(|one| one.key.as_str() == "bindery.waited_seconds");
    let waited = waited.map(|waited| waited.value.clone());
    assert!(
        matches!(waited, Some(opentelemetry::Value::F64(seconds)) if seconds >= 3600.0),
        "{waited:?}"
    );
}
