//! Follows the exports of a contract in Kubernetes: by a watch, or by lists where watches are forbidden.

use std::{mem, sync::Arc, time::Duration};

use bindery_runtime::{
    errors,
    guard::{Guard, NameRule},
    watch::{self, Decode, Event, Source},
};
use kube::Client;
use tokio::{
    sync::{Notify, watch as channel},
    time::{Instant, sleep},
};

use super::{ExportEntry, ExportSnapshot, Exports, convert, convert::AnyExport};

/// Pause before a forbidden watch is tried again.
const WATCH_RETRY: Duration = Duration::from_mins(5);

/// Follows the exports of one contract in Kubernetes.
pub(super) struct KubernetesFallback {
    pub(super) exports: Exports,
    pub(super) client: Client,
    pub(super) namespace: Arc<str>,
    /// Pause between lists, where watches are forbidden.
    pub(super) pause: channel::Receiver<Duration>,
    /// The longest pause after a failed list.
    pub(super) retry: Duration,
    /// Checks the names of exports, and limits how much of them is held.
    pub(super) guard: Guard,
}

/// Handles the events of a watch or a list.
struct ExportEventHandler {
    exports: Exports,
    listed: Option<ExportSnapshot>,
    /// Whether the last event completed a list, so that the next refusal concerns the watch.
    is_listed: bool,
    forbidden: Arc<Notify>,
}

/// Reads exports from the JSON of the API server.
struct ExportDecoder;

impl Decode for ExportDecoder {
    type Object = AnyExport;

    fn decode(&self, json: &str) -> serde_json::Result<AnyExport> {
        serde_json::from_str(json)
    }

    fn name(export: &AnyExport) -> (&str, &str) {
        let meta = &export.metadata;
        (
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }
}

impl KubernetesFallback {
    /// Follows the exports until dropped.
    pub(super) async fn run(mut self) {
        loop {
            self.watch().await;
            tracing::info!(
                namespace = %self.namespace,
                "watches of exports are forbidden; listing them every {:?}",
                *self.pause.borrow()
            );
            self.poll().await;
        }
    }

    /// Watches until the watch turns out to be forbidden while lists are not.
    async fn watch(&self) {
        let forbidden = Arc::<Notify>::default();
        let mut handler = ExportEventHandler::new(&self.exports, &forbidden);
        let watch = watch::run(self.client.clone(), self.source(), ExportDecoder, move |event| {
            handler.handle(event);
        });
        tokio::select! { () = watch => {}, () = forbidden.notified() => {} }
    }

    /// Lists repeatedly until it is time to try the watch again.
    async fn poll(&mut self) {
        let until = Instant::now() + WATCH_RETRY;
        while Instant::now() < until {
            let pause = *self.pause.borrow_and_update();
            let pause = if self.exports.is_failing() {
                pause.min(self.retry)
            } else {
                pause
            };
            tokio::select! { () = sleep(pause) => {}, Ok(()) = self.pause.changed() => continue }
            let mut handler = ExportEventHandler::new(&self.exports, &Arc::default());
            watch::list(self.client.clone(), self.source(), ExportDecoder, move |event| {
                handler.handle(event);
            })
            .await;
        }
    }

    /// The collection of exports of the contract.
    fn source(&self) -> Source {
        Source::of::<AnyExport>(Some(&self.namespace)).guarded(&self.guard, NameRule::Subdomain)
    }
}

impl ExportEventHandler {
    /// A handler that updates `exports`, and notifies `forbidden` when the watch is refused but the list is not.
    fn new(exports: &Exports, forbidden: &Arc<Notify>) -> Self {
        Self {
            exports: exports.clone(),
            listed: None,
            is_listed: false,
            forbidden: Arc::clone(forbidden),
        }
    }

    /// Handles one event.
    fn handle(&mut self, event: Event<AnyExport>) {
        let was_listed = mem::replace(&mut self.is_listed, false);
        match event {
            Event::Reset => self.listed = Some(ExportSnapshot::default()),
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
            Event::Following => self.exports.recovered(),
            Event::Rewound | Event::Ended => {}
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

    /// Adds an export of a list that is being read.
    fn list(&mut self, name: &str, entry: &ExportEntry) {
        if let Some(listed) = &mut self.listed {
            listed.add(name, entry.clone());
        }
        // An export is usable before its list is complete.
        self.exports.apply_listed(name, entry);
    }
}

/// Returns the name of an export and its entry.
fn named(export: &AnyExport) -> (String, ExportEntry) {
    (
        export.metadata.name.clone().unwrap_or_default(),
        convert::from_object(export),
    )
}

#[cfg(test)]
mod tests {
    use bindery_runtime::watch::ObjectName;
    use serde_json::json;

    use super::{super::ExportLookup, *};

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

    /// Exports, their event handler, and the notification that the watch was given up.
    fn handler() -> (Exports, ExportEventHandler, Arc<Notify>) {
        let (exports, given_up) = (Exports::default(), Arc::<Notify>::default());
        let handler = ExportEventHandler::new(&exports, &given_up);
        (exports, handler, given_up)
    }

    async fn is_told(notify: &Notify) -> bool {
        tokio::time::timeout(Duration::from_millis(1), notify.notified())
            .await
            .is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_watch_that_is_forbidden_is_given_up() {
        let (exports, mut handler, given_up) = handler();
        handler.handle(Event::Failed(forbidden()));
        assert!(!is_told(&given_up).await, "the list is forbidden");
        assert!(!exports.list().complete && exports.list().failing.is_some());
        handler.handle(Event::Reset);
        handler.handle(Event::Failed(forbidden()));
        assert!(!is_told(&given_up).await, "the list broke off");
        handler.handle(Event::Reset);
        handler.handle(Event::Complete("1".to_owned()));
        handler.handle(Event::Following);
        handler.handle(Event::Failed(forbidden()));
        assert!(!is_told(&given_up).await, "it was allowed");
        handler.handle(Event::Reset);
        handler.handle(Event::Complete("2".to_owned()));
        handler.handle(Event::Failed(forbidden()));
        assert!(is_told(&given_up).await);
        assert!(
            exports.list().complete && exports.list().failing.is_none(),
            "lists go on well"
        );
    }

    #[test]
    fn a_list_that_breaks_off_or_cannot_be_read_removes_nothing() {
        let (exports, mut handler, _) = handler();
        handler.handle(Event::Reset);
        handler.handle(Event::Listed(export("a")));
        handler.handle(Event::Listed(export("b")));
        handler.handle(Event::Complete("1".to_owned()));
        handler.handle(Event::Following);
        handler.handle(Event::Failed(forbidden()));
        handler.handle(Event::Reset);
        handler.handle(Event::Listed(export("a")));
        assert!(exports.list().failing.is_some(), "it may yet break off");
        handler.handle(Event::Failed(forbidden()));
        assert!(matches!(exports.get("b"), ExportLookup::Present(_)));
        handler.handle(Event::Reset);
        for name in ["b", "c"] {
            handler.handle(Event::Unreadable(ObjectName {
                namespace: "kube-bind-x".into(),
                name: name.into(),
            }));
        }
        handler.handle(Event::Complete("2".to_owned()));
        assert_eq!(exports.get("a"), ExportLookup::Absent);
        assert!(
            matches!(exports.get("b"), ExportLookup::Present(_)),
            "it is as it was last read"
        );
        assert!(matches!(exports.get("c"), ExportLookup::Broken { .. }));
    }

    #[test]
    fn changes_are_followed() {
        let (exports, mut handler, _) = handler();
        handler.handle(Event::Reset);
        handler.handle(Event::Complete("1".to_owned()));
        handler.handle(Event::Following);
        handler.handle(Event::Applied(export("a")));
        assert!(matches!(exports.get("a"), ExportLookup::Present(_)));
        handler.handle(Event::Deleted(export("a")));
        assert_eq!(exports.get("a"), ExportLookup::Absent);
    }
}
