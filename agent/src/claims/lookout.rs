//! The watches over whole clusters that the engines of one claimed resource share: one of the consumer, and perhaps one of the
//! provider.

use std::sync::Arc;

use bindery_api::v1alpha2::InformerScope;
use bindery_runtime::{
    errors,
    watch::{self, Event, Name, Source},
};
use kube::{Client, Error};
use tokio_util::task::AbortOnDropHandle;

use super::flavour::Claimed;
use crate::{
    engine::{Shared, events},
    model::object::{Lean, Object},
};

/// Watches for some engines until dropped.
pub(crate) struct Lookout {
    engines: Vec<u64>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

type Sink = Box<dyn FnMut(Event<Object>) + Send>;

// === impl Lookout ===

impl Lookout {
    /// Starts to watch for these engines of one resource. All of it is shown to all of them.
    pub(crate) fn start(engines: &[Arc<Shared<Claimed>>]) -> Option<Self> {
        let first = engines.first()?;
        let collection = Source::path(first.frame.resource.collection(""));
        let of_consumer = engines.iter().map(|engine| {
            let sink: Sink = Box::new(events::consumer(Arc::clone(engine)));
            sink
        });
        let wide = engines
            .iter()
            .filter(|engine| engine.frame.informer_scope == InformerScope::Cluster);
        let of_provider: Vec<_> = wide
            .map(|engine| {
                let sink: Sink = Box::new(events::provider_cluster(Arc::clone(engine)));
                sink
            })
            .collect();
        let mut tasks = vec![run(
            first.sides.consumer.watch.clone(),
            collection.clone(),
            of_consumer.collect(),
        )];
        if !of_provider.is_empty() {
            tasks.push(run(first.sides.provider.watch.clone(), collection, of_provider));
        }
        Some(Self {
            engines: ids(engines),
            _tasks: tasks,
        })
    }

    /// Whether it is these that it watches for.
    pub(crate) fn is_for(&self, engines: &[Arc<Shared<Claimed>>]) -> bool {
        self.engines == ids(engines)
    }
}

fn ids(engines: &[Arc<Shared<Claimed>>]) -> Vec<u64> {
    engines.iter().map(|engine| engine.id()).collect()
}

fn run(client: Client, collection: Source, mut sinks: Vec<Sink>) -> AbortOnDropHandle<()> {
    let tee = move |event: Event<Object>| {
        let Some((last, others)) = sinks.split_last_mut() else {
            return;
        };
        for sink in others {
            sink(again(&event));
        }
        last(event);
    };
    AbortOnDropHandle::new(tokio::spawn(watch::run(client, collection, Lean, tee)))
}

/// The same event once more.
fn again(event: &Event<Object>) -> Event<Object> {
    match event {
        Event::Rewound => Event::Rewound,
        Event::Reset => Event::Reset,
        Event::Listed(object) => Event::Listed(object.clone()),
        Event::Unreadable(name) => Event::Unreadable(Name {
            namespace: Arc::clone(&name.namespace),
            name: Arc::clone(&name.name),
        }),
        Event::Complete(version) => Event::Complete(version.clone()),
        Event::Following => Event::Following,
        Event::Applied(object) => Event::Applied(object.clone()),
        Event::Deleted(object) => Event::Deleted(object.clone()),
        Event::Failed(Error::Api(status)) => Event::Failed(Error::Api(status.clone())),
        Event::Failed(error) => Event::Failed(Error::Service(errors::explain(error).into())),
    }
}
