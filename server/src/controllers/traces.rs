//! Traces of what controllers do for a call: the objects that a call makes carry its trace context in an annotation, and each reconcile of such
//! an object is a span, until the object has what it was made for.

use bindery_api::annotations;
use bindery_runtime::traces::{TARGET, TraceContext};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use tracing::{Span, field};

use super::metrics::ReconcileResult;

/// How long after its creation an object continues a trace, so that one which waits for somebody does not go on with it for days.
const CONTINUED_MAX: SignedDuration = SignedDuration::from_mins(10);

/// An object whose reconciles continue a trace.
#[derive(Debug)]
pub(super) struct Traced {
    parent: TraceContext,
    namespace: String,
    name: String,
}

// === impl Traced ===

impl Traced {
    /// An object that is under way; `None` if it continues no trace, or was created long ago.
    pub(super) fn of(object: &impl ResourceExt, now: Timestamp) -> Option<Self> {
        let parent = object.annotations().get(annotations::TRACEPARENT)?;
        let created = object.meta().creation_timestamp.as_ref()?.0;
        if now.duration_since(created) > CONTINUED_MAX {
            return None;
        }
        Some(Self {
            parent: TraceContext::parse(parent)?,
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        })
    }

    /// Begins the span of a reconcile.
    pub(super) fn begin(&self, controller: &'static str) -> Span {
        let span = tracing::info_span!(
            target: TARGET,
            parent: None,
            "reconcile",
            otel.status_code = field::Empty,
            bindery.controller = controller,
            bindery.namespace = self.namespace,
            bindery.object = self.name,
            bindery.result = field::Empty,
        );
        self.parent.adopt(&span);
        span
    }
}

/// The annotation by which an object continues the trace of another one.
pub(super) fn continued(from: &impl ResourceExt) -> Option<(&'static str, String)> {
    // A consumer can write it on some objects.
    let context = TraceContext::parse(from.annotations().get(annotations::TRACEPARENT)?)?;
    Some((annotations::TRACEPARENT, context.to_string()))
}

/// Notes how a reconcile ended.
pub(super) fn ended(span: &Span, result: ReconcileResult) {
    if span.is_none() {
        return;
    }
    span.record("bindery.result", result.label());
    if result == ReconcileResult::Failed {
        span.record("otel.status_code", "error");
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{APIServiceExportRequest, APIServiceExportRequestSpec};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const NOT_SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

    fn object(traceparent: Option<&str>) -> APIServiceExportRequest {
        let mut object = APIServiceExportRequest::new("cowboys", APIServiceExportRequestSpec::default());
        object.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        object.metadata.annotations =
            traceparent.map(|value| [(annotations::TRACEPARENT.to_owned(), value.to_owned())].into());
        object
    }

    #[track_caller]
    fn check(traceparent: Option<&str>, age: SignedDuration, is_traced: bool) {
        let traced = Traced::of(&object(traceparent), Timestamp::UNIX_EPOCH + age);
        assert_eq!(traced.is_some(), is_traced, "{traceparent:?} {age:?}");
    }

    #[test]
    fn an_object_continues_a_trace_for_ten_minutes() {
        check(Some(SAMPLED), SignedDuration::ZERO, true);
        check(Some(SAMPLED), CONTINUED_MAX, true);
        check(Some(SAMPLED), CONTINUED_MAX + SignedDuration::from_secs(1), false);
        check(Some(NOT_SAMPLED), SignedDuration::ZERO, false);
        check(Some("<script>"), SignedDuration::ZERO, false);
        check(None, SignedDuration::ZERO, false);
    }

    #[test]
    fn what_is_no_trace_context_is_not_passed_on() {
        let passed = |value| continued(&object(value)).map(|(_, value)| value);
        assert_eq!(passed(Some(SAMPLED)).as_deref(), Some(SAMPLED));
        assert_eq!(passed(Some("a secret")), None);
        assert_eq!(passed(None), None);
    }
}
