//! The shared informer of one claimed resource: the watches that its engines share.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::v1alpha2::InformerScope;
use bindery_runtime::{
    errors,
    guard::NameRule,
    watch::{self, Event, ObjectName, Source},
};
use kube::{Client, Error};
use tokio_util::task::AbortOnDropHandle;

use super::strategy::Claimed;
use crate::{
    engine::{Shared, events},
    index::ConsumerScope,
    model::object::{Lean, Object},
};

/// Watches the consumer, and the whole provider if one of the engines is cluster-wide, for the engines of one claimed
/// resource. Dropping it ends the watches.
pub(crate) struct SharedInformer {
    engines: Vec<u64>,
    /// The watches of the consumer by their namespace; `None` for that of the whole cluster.
    consumer: BTreeMap<Option<Arc<str>>, AbortOnDropHandle<()>>,
    _provider: Option<AbortOnDropHandle<()>>,
}

type EventHandler = Box<dyn FnMut(Event<Object>) + Send>;

// === impl SharedInformer ===

impl SharedInformer {
    /// Starts the watch of the provider. Every event goes to every one of these engines. `None` if there are no engines.
    pub(crate) fn start(engines: &[Arc<Shared<Claimed>>]) -> Option<Self> {
        let first = engines.first()?;
        let collection = Source::path(first.frame.resource.collection(""));
        let wide = engines
            .iter()
            .filter(|engine| engine.frame.informer_scope == InformerScope::Cluster);
        let of_provider: Vec<_> = wide
            .map(|engine| {
                let handler: EventHandler = Box::new(events::provider_cluster(Arc::clone(engine)));
                handler
            })
            .collect();
        let provider = (!of_provider.is_empty()).then(|| {
            let collection = collection.guarded(&first.around.guard, NameRule::Object);
            run(first.sides.provider.watch.clone(), collection, of_provider)
        });
        Some(Self {
            engines: ids(engines),
            consumer: BTreeMap::new(),
            _provider: provider,
        })
    }

    /// Watches these consumer namespaces for its engines, each by itself. Watches that go on are left alone.
    pub(crate) fn watch_consumer(&mut self, engines: &[Arc<Shared<Claimed>>], scope: &ConsumerScope) {
        let watches = scope.watches();
        // Set first: an engine ignores the events of a watch that is not in its scope, so none of a new watch is lost, and none of an
        // ended one counts.
        for engine in engines {
            engine.set_consumer_scope(scope);
        }
        self.consumer.retain(|namespace, _| watches.contains(namespace));
        for namespace in watches {
            let Some(first) = engines.first().filter(|_| !self.consumer.contains_key(&namespace)) else {
                continue;
            };
            let handlers = engines.iter().map(|engine| {
                let handler: EventHandler = Box::new(events::consumer(Arc::clone(engine), namespace.clone()));
                handler
            });
            let collection = first
                .frame
                .resource
                .collection(namespace.as_deref().unwrap_or_default());
            let client = first.sides.consumer.watch.clone();
            let watch = run(client, Source::path(collection), handlers.collect());
            self.consumer.insert(namespace, watch);
        }
    }

    /// Tells whether it watches for exactly these engines.
    pub(crate) fn is_for(&self, engines: &[Arc<Shared<Claimed>>]) -> bool {
        self.engines == ids(engines)
    }
}

fn ids(engines: &[Arc<Shared<Claimed>>]) -> Vec<u64> {
    engines.iter().map(|engine| engine.id()).collect()
}

fn run(client: Client, collection: Source, mut handlers: Vec<EventHandler>) -> AbortOnDropHandle<()> {
    let handle = move |event: Event<Object>| {
        let Some((last, others)) = handlers.split_last_mut() else {
            return;
        };
        for handler in others {
            handler(copy_of(&event));
        }
        last(event);
    };
    AbortOnDropHandle::new(tokio::spawn(watch::run(client, collection, Lean, handle)))
}

/// Copies an event. An error that cannot be cloned becomes one with the same text.
fn copy_of(event: &Event<Object>) -> Event<Object> {
    match event {
        Event::Rewound => Event::Rewound,
        Event::Reset => Event::Reset,
        Event::Listed(object) => Event::Listed(object.clone()),
        Event::Unreadable(name) => Event::Unreadable(ObjectName {
            namespace: Arc::clone(&name.namespace),
            name: Arc::clone(&name.name),
        }),
        Event::Complete(version) => Event::Complete(version.clone()),
        Event::Following => Event::Following,
        Event::Ended => Event::Ended,
        Event::Applied(object) => Event::Applied(object.clone()),
        Event::Deleted(object) => Event::Deleted(object.clone()),
        Event::Failed(Error::Api(status)) => Event::Failed(Error::Api(status.clone())),
        Event::Failed(error) => Event::Failed(Error::Service(errors::explain(error).into())),
    }
}
