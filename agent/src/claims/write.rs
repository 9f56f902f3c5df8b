//! Runs the operations of a plan, and notes their outcome in the index.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{annotations, labels, v1alpha2::Owner};
use bindery_runtime::{cache::ObjectKey, errors};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use super::{
    pair::{Cluster, Pair, Side},
    plan::Op,
    rules::ClaimRules,
};
use crate::{
    connection::{Answered, Meta, Target, Writer},
    index::{Index, PlannedUids},
    model::{
        object::{Object, Version},
        projection::{LastProjection, carried},
    },
};

/// The outcome of an operation.
#[derive(Debug)]
pub(crate) enum Learned {
    /// The object that a cluster has under the name, if any.
    Read { on: Cluster, object: Option<Object> },
    /// A copy was written.
    Written { on: Cluster, copy: Side },
    /// A copy was deleted; finalizers may hold it.
    Deleted { on: Cluster, is_gone: bool },
}

/// Runs one operation. It fails after a time in which any API server that works has answered.
pub(crate) async fn apply(
    writer: &Writer,
    rules: &ClaimRules,
    target: Target<'_>,
    op: &Op,
) -> Result<Learned, kube::Error> {
    let work = async {
        match op {
            Op::Read { on } => read(writer, target, *on).await,
            Op::Create { on, source, last } => write(writer, rules, target, *on, source, None, *last).await,
            Op::Update {
                on,
                source,
                uid,
                version,
                last,
                transferred,
            } => {
                let mut version = *version;
                if *transferred {
                    let (client, path) = path(writer, target, *on);
                    match writer.transfer_ownership(client, &path, uid, source).await? {
                        Some(made) => version = made,
                        // Another object took the name. The next plan decides.
                        None => return read(writer, target, *on).await,
                    }
                }
                write(writer, rules, target, *on, source, Some((uid, version)), *last).await
            }
            Op::Delete { on, uid, .. } => delete(writer, target, *on, uid).await,
            Op::DeleteOrphan { on, uid, source_uid } => {
                match read_source(writer, target, on.other()).await? {
                    // The cache was behind. The next plan decides.
                    Some(object) if *object.meta.uid == **source_uid => Ok(Learned::Read {
                        on: on.other(),
                        object: Some(object),
                    }),
                    _ => delete(writer, target, *on, uid).await,
                }
            }
        }
    };
    Writer::in_time(work).await
}

async fn read(writer: &Writer, target: Target<'_>, on: Cluster) -> Result<Learned, kube::Error> {
    let (client, path) = path(writer, target, on);
    let object = writer.read(client, &path).await?;
    Ok(Learned::Read { on, object })
}

/// Reads the source of a copy. A namespace of the consumer that does not exist holds none, and the right to read in it went with it.
async fn read_source(writer: &Writer, target: Target<'_>, on: Cluster) -> Result<Option<Object>, kube::Error> {
    let (client, path) = path(writer, target, on);
    match writer.read(client, &path).await {
        Err(error) if on == Cluster::Consumer && errors::is_forbidden(&error) => {
            let namespaces: Api<Namespace> = Api::all(client.clone());
            match namespaces.get_metadata_opt(&target.key.namespace).await? {
                None => Ok(None),
                Some(_) => Err(error),
            }
        }
        read => read,
    }
}

async fn delete(writer: &Writer, target: Target<'_>, on: Cluster, uid: &str) -> Result<Learned, kube::Error> {
    let (client, path) = path(writer, target, on);
    let is_gone = writer.delete(client, &path, uid, None).await?;
    Ok(Learned::Deleted { on, is_gone })
}

async fn write(
    writer: &Writer,
    rules: &ClaimRules,
    target: Target<'_>,
    on: Cluster,
    source: &Object,
    replaced: Option<(&Arc<str>, Version)>,
    last: LastProjection,
) -> Result<Learned, kube::Error> {
    let mark = last.to_string();
    let mut notes: BTreeMap<_, _> = carried(&source.meta.annotations).collect();
    let mut marks: BTreeMap<_, _> = carried(&source.meta.labels).collect();
    notes.extend([
        (annotations::CLUSTER_NAMESPACE, &*rules.contract),
        (annotations::PROJECTION_HASH, &mark),
    ]);
    let namespace = match on {
        Cluster::Provider => {
            notes.insert(annotations::CONSUMER_NAMESPACE, &source.meta.namespace);
            notes.insert(annotations::CONSUMER_UID, &source.meta.uid);
            if let Some(traceparent) = target.traceparent {
                notes.insert(annotations::TRACEPARENT, traceparent);
            }
            marks.insert(labels::OWNER, Owner::Consumer.as_str());
            target.place
        }
        Cluster::Consumer => {
            notes.insert(annotations::PROVIDER_NAMESPACE, &source.meta.namespace);
            notes.insert(annotations::PROVIDER_UID, &source.meta.uid);
            marks.insert(labels::OWNER, Owner::Provider.as_str());
            marks.insert(labels::CONTRACT_UID, &rules.contract_uid);
            &*target.key.namespace
        }
    };
    let (client, path) = path(writer, target, on);
    let replaced = replaced.map(|(uid, version)| (&**uid, version));
    let meta = Meta::of_copy(target.name, namespace, replaced, marks, notes);
    let Answered { uid, version } = writer.write(client, &path, source, meta).await?;
    Ok(Learned::Written {
        on,
        copy: Side::copy(source, &uid, version, last),
    })
}

/// The client of a cluster and the path of the object there.
fn path<'a>(writer: &'a Writer, target: Target<'_>, on: Cluster) -> (&'a Client, String) {
    match on {
        Cluster::Consumer => (&writer.consumer, writer.consumer_path(target.key)),
        Cluster::Provider => (&writer.provider, writer.provider_path(target)),
    }
}

/// Notes the outcome of an operation in the index. Outcomes for objects of other UIDs than the plan's are discarded.
pub(crate) fn learn(index: &mut Index<Pair>, key: &ObjectKey, learned: Learned, planned: &PlannedUids) {
    let current = |index: &Index<Pair>, on: Cluster| {
        let side = index.pair(key).and_then(|pair| pair.sides.of(on).as_ref());
        side.map(|side| side.uid.clone())
    };
    let planned_for = |on: Cluster| match on {
        Cluster::Consumer => planned.consumer.clone(),
        Cluster::Provider => planned.provider.clone(),
    };
    match learned {
        Learned::Read {
            on,
            object: Some(object),
        } => {
            match on {
                Cluster::Consumer => index.consumer_seen(key, object),
                Cluster::Provider => index.provider_seen(key, object),
            };
        }
        Learned::Written { on, copy } => {
            index.note(key, |pair| pair.written(on, copy));
        }
        Learned::Read { on, .. } | Learned::Deleted { on, is_gone: true } => {
            if current(index, on) == planned_for(on) {
                // The end of a copy is no evidence that its source ended, and where the absence of a source matters it is read again.
                match on {
                    Cluster::Consumer => index.consumer_deleted(key, None),
                    Cluster::Provider => index.provider_deleted(key, None),
                }
            }
        }
        Learned::Deleted { on, is_gone: false } => {
            if current(index, on) == planned_for(on) {
                index.note(key, |pair| {
                    if let Some(side) = pair.sides.of_mut(on) {
                        side.deleting = true;
                    }
                });
            }
        }
    }
}
