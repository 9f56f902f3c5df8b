//! The watches of `load`. They read only those fields of an object that show which change has reached it, and note the time.

use std::{sync::Arc, time::Instant};

use bindery_api::finalizers;
use bindery_runtime::watch::{self, Decode, Event, Source};
use kube::Client;
use serde::Deserialize;
use tokio::sync::oneshot;

use super::{
    board::{At, Board, Seen},
    command::Key,
};
use crate::resource::Resource;

/// Whose objects are watched.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    /// The objects of the consumer with this index.
    Consumer(usize),
    /// The copies of all consumers' objects; these are the consumers' contracts, in their order.
    Provider(Arc<[String]>),
}

/// Decodes the objects of one resource.
struct Lean {
    resource: usize,
    side: Side,
}

/// A decoded object, and when it was read.
struct Receipt {
    when: Instant,
    key: Key,
    seen: Seen,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    spec: Option<Said>,
    status: Option<Said>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    name: &'a str,
    #[serde(default)]
    namespace: &'a str,
    uid: &'a str,
    #[serde(borrow, default)]
    finalizers: Vec<&'a str>,
    #[serde(borrow, default)]
    annotations: Marks<'a>,
}

/// Annotations of a copy: its contract, and the namespace of its source.
#[derive(Default, Deserialize)]
struct Marks<'a> {
    #[serde(borrow, rename = "kube-bind.io/cluster-namespace")]
    contract: Option<&'a str>,
    #[serde(borrow, rename = "kube-bind.io/consumer-namespace")]
    namespace: Option<&'a str>,
}

#[derive(Deserialize)]
struct Said {
    seq: Option<u64>,
}

/// Watches one resource until the future is dropped. The receiver gets a value once the first list is complete.
pub(crate) fn watch(
    client: &Client,
    (number, resource): (usize, &Resource),
    side: Side,
    board: &Arc<Board>,
) -> (impl Future<Output = ()> + use<>, oneshot::Receiver<()>) {
    let (listed, is_listed) = oneshot::channel();
    let source = Source::path(resource.collection(""));
    let lean = Lean {
        resource: number,
        side: side.clone(),
    };
    let sink = sink(number, side, Arc::clone(board), listed);
    (watch::run(client.clone(), source, lean, sink), is_listed)
}

fn sink(
    resource: usize,
    side: Side,
    board: Arc<Board>,
    listed: oneshot::Sender<()>,
) -> impl FnMut(Event<Option<Receipt>>) + Send {
    let at = match side {
        Side::Consumer(_) => At::Consumer,
        Side::Provider(_) => At::Provider,
    };
    let mut listed = Some(listed);
    let mut listing = 0;
    move |event| match event {
        Event::Reset => listing += 1,
        Event::Listed(Some(it)) | Event::Applied(Some(it)) => board.saw(at, it.key, it.seen, it.when, listing),
        Event::Deleted(Some(it)) => board.lost(at, &it.key, it.when),
        Event::Complete(_) => {
            let is_about = |key: &Key| {
                key.resource == resource
                    && match side {
                        Side::Consumer(consumer) => key.consumer == consumer,
                        Side::Provider(_) => true,
                    }
            };
            board.listed(at, is_about, listing, Instant::now());
            if let Some(listed) = listed.take() {
                // There is no receiver any more if the program is about to end.
                let _ = listed.send(());
            }
        }
        Event::Failed(error) => tracing::warn!(%error, "a watch failed, and is tried again"),
        _ => {}
    }
}

// === impl Lean ===

impl Decode for Lean {
    /// `None` for an object of the provider that is not a copy of one of the consumers' objects.
    type Object = Option<Receipt>;

    fn decode(&self, json: &str) -> serde_json::Result<Option<Receipt>> {
        let when = Instant::now();
        let object: Object<'_> = serde_json::from_str(json)?;
        let meta = &object.metadata;
        let (consumer, namespace) = match &self.side {
            Side::Consumer(consumer) => (*consumer, meta.namespace),
            Side::Provider(contracts) => {
                let marks = meta.annotations.contract.zip(meta.annotations.namespace);
                let source = marks.and_then(|(contract, namespace)| {
                    let consumer = contracts.iter().position(|known| known == contract)?;
                    Some((consumer, namespace))
                });
                let Some(source) = source else {
                    return Ok(None);
                };
                source
            }
        };
        Ok(Some(Receipt {
            when,
            key: Key {
                resource: self.resource,
                consumer,
                namespace: namespace.into(),
                name: meta.name.into(),
            },
            seen: Seen {
                uid: meta.uid.into(),
                namespace: meta.namespace.into(),
                seq: object.spec.and_then(|said| said.seq),
                status_seq: object.status.and_then(|said| said.seq),
                held: meta.finalizers.contains(&finalizers::SYNCER),
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::annotations;
    use serde_json::json;

    use super::*;

    fn copy(contract: &str) -> String {
        let object = json!({
            "apiVersion": "bench.example.com/v1", "kind": "Gadget",
            "metadata": {
                "name": "a-0", "namespace": "kube-bind-x-bench-0", "uid": "u1", "resourceVersion": "5",
                "annotations": {
                    annotations::CLUSTER_NAMESPACE: contract, annotations::CONSUMER_NAMESPACE: "bench-0", "more": "x",
                },
                "managedFields": [{"manager": "x", "fieldsV1": {"f:spec": {}}}],
            },
            "spec": {"payload": "xxx", "seq": 7}, "status": {"payload": "", "seq": 8},
        });
        object.to_string()
    }

    #[test]
    fn a_copy_leads_to_its_source() {
        let side = Side::Provider(["other".to_owned(), "mine".to_owned()].into());
        let lean = Lean { resource: 3, side };
        let it = lean.decode(&copy("mine")).unwrap().unwrap();
        let key = Key {
            resource: 3,
            consumer: 1,
            namespace: "bench-0".into(),
            name: "a-0".into(),
        };
        assert_eq!(it.key, key);
        assert_eq!((it.seen.seq, it.seen.status_seq), (Some(7), Some(8)));
        assert_eq!(&*it.seen.namespace, "kube-bind-x-bench-0");
        assert!(lean.decode(&copy("another")).unwrap().is_none());
    }

    #[test]
    fn the_finalizer_of_a_consumers_object_is_seen() {
        let lean = Lean {
            resource: 0,
            side: Side::Consumer(2),
        };
        let object = |finalizers: &[&str]| {
            json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "finalizers": finalizers}}).to_string()
        };
        let held = |finalizers: &[&str]| lean.decode(&object(finalizers)).unwrap().unwrap().seen.held;
        assert!(held(&["x", finalizers::SYNCER]));
        assert!(!held(&["x"]));
    }
}
