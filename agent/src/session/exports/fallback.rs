//! Follows the exports of a contract in Kubernetes: by a watch, and by lists where watching is forbidden.

use std::{mem, sync::Arc, time::Duration};

use bindery_runtime::{
    errors,
    watch::{self, Decode, Event, Source},
};
use kube::Client;
use tokio::{
    sync::{Notify, watch as channel},
    time::{Instant, sleep},
};

use super::{Entry, Exports, Snapshot, convert, convert::AnyExport};

/// How soon it is tried again whether watching is allowed by now.
const WATCH_AGAIN: Duration = Duration::from_mins(5);

/// What to follow.
pub(super) struct Fallback {
    pub(super) exports: Exports,
    pub(super) client: Client,
    pub(super) namespace: Arc<str>,
    /// Between lists, where watching is forbidden.
    pub(super) pause: channel::Receiver<Duration>,
    /// After a list that failed, no longer than this.
    pub(super) retry: Duration,
}

/// Takes what a watch or a list shows.
struct Sink {
    exports: Exports,
    listed: Option<Snapshot>,
    /// The last word was that of a complete list: what is refused next is the watch.
    is_listed: bool,
    forbidden: Arc<Notify>,
}

struct Any;

impl Decode for Any {
    type Object = AnyExport;

    fn decode(&self, json: &str) -> serde_json::Result<AnyExport> {
        serde_json::from_str(json)
    }
}

// === impl Fallback ===

impl Fallback {
    /// Follows until dropped.
    pub(super) async fn run(mut self) {
        loop {
            self.watch().await;
            tracing::info!(
                namespace = %self.namespace,
                "the exports may not be watched; they are listed every {:?}",
                *self.pause.borrow()
            );
            self.poll().await;
        }
    }

    /// Watches until that turns out to be forbidden, although listing is not.
    async fn watch(&self) {
        let forbidden = Arc::<Notify>::default();
        let mut sink = Sink::new(&self.exports, &forbidden);
        let watch = watch::run(self.client.clone(), self.source(), Any, move |event| sink.take(event));
        tokio::select! { () = watch => {}, () = forbidden.notified() => {} }
    }

    /// Lists again and again for a while.
    async fn poll(&mut self) {
        let until = Instant::now() + WATCH_AGAIN;
        while Instant::now() < until {
            let pause = *self.pause.borrow_and_update();
            let pause = if self.exports.is_failing() {
                pause.min(self.retry)
            } else {
                pause
            };
            tokio::select! { () = sleep(pause) => {}, Ok(()) = self.pause.changed() => continue }
            let mut sink = Sink::new(&self.exports, &Arc::default());
            watch::list(self.client.clone(), self.source(), Any, move |event| sink.take(event)).await;
        }
    }

    fn source(&self) -> Source {
        Source::of::<AnyExport>(Some(&self.namespace))
    }
}

// === impl Sink ===

impl Sink {
    fn new(exports: &Exports, forbidden: &Arc<Notify>) -> Self {
        Self {
            exports: exports.clone(),
            listed: None,
            is_listed: false,
            forbidden: Arc::clone(forbidden),
        }
    }

    fn take(&mut self, event: Event<AnyExport>) {
        let was_listed = mem::replace(&mut self.is_listed, false);
        match event {
            Event::Reset => self.listed = Some(Snapshot::default()),
            Event::Listed(export) => {
                let (name, entry) = named(&export);
                self.list(&name, &entry);
            }
            Event::Unreadable(named) => {
                let known = self.exports.known(&named.name);
                self.list(&named.name, &known.unwrap_or_else(|| convert::unreadable(&named.name)));
            }
            Event::Complete(_) => {
                if let Some(listed) = self.listed.take() {
                    self.exports.replace(listed);
                }
                self.is_listed = true;
            }
            Event::Following => self.exports.well(),
            Event::Rewound => {}
            Event::Applied(export) => {
                let (name, entry) = named(&export);
                self.exports.apply(&name, &entry);
            }
            Event::Deleted(export) => {
                let uid = export.metadata.uid.as_deref().unwrap_or_default();
                self.exports
                    .remove(export.metadata.name.as_deref().unwrap_or_default(), uid);
            }
            Event::Failed(error) if was_listed && errors::is_forbidden(&error) => self.forbidden.notify_one(),
            Event::Failed(error) => self.exports.fail(errors::explain(&error)),
        }
    }

    fn list(&mut self, name: &str, entry: &Entry) {
        if let Some(listed) = &mut self.listed {
            listed.add(name, entry.clone());
        }
        // Known from the first list on, before it is complete.
        self.exports.learn(name, entry);
    }
}

fn named(export: &AnyExport) -> (String, Entry) {
    (
        export.metadata.name.clone().unwrap_or_default(),
        convert::object(export),
    )
}

#[cfg(test)]
mod tests {
    use bindery_runtime::watch::Name;
    use serde_json::json;

    use super::{super::Lookup, *};

    fn export(name: &str) -> AnyExport {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": format!("uid of {name}"), "resourceVersion": "1"},
            "spec": {
                "resources": [{"group": "wildwest.dev", "resource": "cowboys"}],
                "informerScope": "Namespaced", "isolation": "Prefixed",
            },
        }))
        .unwrap()
    }

    fn forbidden() -> kube::Error {
        kube::Error::Api(kube::core::Status::failure("no", "Forbidden").with_code(403).boxed())
    }

    /// Exports, a sink for them, and whether the watch was given up.
    fn sink() -> (Exports, Sink, Arc<Notify>) {
        let (exports, given_up) = (Exports::default(), Arc::<Notify>::default());
        let sink = Sink::new(&exports, &given_up);
        (exports, sink, given_up)
    }

    async fn is_told(notify: &Notify) -> bool {
        tokio::time::timeout(Duration::from_millis(1), notify.notified())
            .await
            .is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_watch_that_is_forbidden_is_given_up() {
        let (exports, mut sink, given_up) = sink();
        sink.take(Event::Failed(forbidden()));
        assert!(!is_told(&given_up).await, "the list is forbidden");
        assert!(!exports.list().complete && exports.list().failing.is_some());
        sink.take(Event::Reset);
        sink.take(Event::Failed(forbidden()));
        assert!(!is_told(&given_up).await, "the list broke off");
        sink.take(Event::Reset);
        sink.take(Event::Complete("1".to_owned()));
        sink.take(Event::Following);
        sink.take(Event::Failed(forbidden()));
        assert!(!is_told(&given_up).await, "it was allowed");
        sink.take(Event::Reset);
        sink.take(Event::Complete("2".to_owned()));
        sink.take(Event::Failed(forbidden()));
        assert!(is_told(&given_up).await);
        assert!(
            exports.list().complete && exports.list().failing.is_none(),
            "lists go on well"
        );
    }

    #[test]
    fn a_list_that_breaks_off_or_cannot_be_read_removes_nothing() {
        let (exports, mut sink, _) = sink();
        sink.take(Event::Reset);
        sink.take(Event::Listed(export("a")));
        sink.take(Event::Listed(export("b")));
        sink.take(Event::Complete("1".to_owned()));
        sink.take(Event::Following);
        sink.take(Event::Failed(forbidden()));
        sink.take(Event::Reset);
        sink.take(Event::Listed(export("a")));
        assert!(exports.list().failing.is_some(), "it may yet break off");
        sink.take(Event::Failed(forbidden()));
        assert!(matches!(exports.get("b"), Lookup::Present(_)));
        sink.take(Event::Reset);
        for name in ["b", "c"] {
            sink.take(Event::Unreadable(Name {
                namespace: "kube-bind-x".into(),
                name: name.into(),
            }));
        }
        sink.take(Event::Complete("2".to_owned()));
        assert_eq!(exports.get("a"), Lookup::Absent);
        assert!(
            matches!(exports.get("b"), Lookup::Present(_)),
            "it is as it was last read"
        );
        assert!(matches!(exports.get("c"), Lookup::Broken { .. }));
    }

    #[test]
    fn changes_are_followed() {
        let (exports, mut sink, _) = sink();
        sink.take(Event::Reset);
        sink.take(Event::Complete("1".to_owned()));
        sink.take(Event::Following);
        sink.take(Event::Applied(export("a")));
        assert!(matches!(exports.get("a"), Lookup::Present(_)));
        sink.take(Event::Deleted(export("a")));
        assert_eq!(exports.get("a"), Lookup::Absent);
    }
}
