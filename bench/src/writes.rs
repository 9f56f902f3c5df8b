//! The writes that a konnector must make, as its engine makes them: the same bodies, preconditions and answers.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use bindery_api::{annotations, finalizers};
use bindery_runtime::client::ClusterTraffic;
use http::Method;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{json, value::RawValue};

use crate::{
    resource::Resource,
    send::{APPLY, Answer, JSON, JSON_PATCH, MERGE, send},
    sides::Sides,
};

/// The field manager of all writes, the same as the konnector's.
const FIELD_MANAGER: &str = "kube-bind.io";
/// A resource version that no object has: server-side apply with it creates, and fails if the object exists.
const CREATE_ONLY: &str = "1";
/// Stands for the fingerprint of an object's content, with the same length.
const FINGERPRINT: &str = "00000000000000000000000000000000";
/// Stands for an object's generation and the holder that wrote it, with the same length.
const GENERATION: &str = "1/0000000000000000";

/// A consumer's object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub resource: &'a Resource,
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
}

/// Makes writes, and counts them.
#[derive(Debug)]
pub(crate) struct Writer {
    pub sides: Sides,
    pub tally: Tally,
}

/// What was written so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    orders: AtomicU64,
    errors: AtomicU64,
    error: Mutex<Option<String>>,
    by: [AtomicU64; Write::ALL.len()],
}

/// A kind of write.
#[derive(Clone, Copy, Debug)]
enum Write {
    Copy,
    Hold,
    Update,
    Status,
    Delete,
    Release,
}

/// A [`Tally`] as it is printed.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    orders: u64,
    requests: u64,
    errors: u64,
    error: Option<String>,
    by: BTreeMap<&'static str, u64>,
    /// Bytes that TCP carried since the program began, in both directions, to both clusters.
    wire_bytes: u64,
}

/// A copy. The order of fields is the engine's.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Copy<'a> {
    api_version: String,
    kind: &'a str,
    metadata: Meta<'a>,
    spec: &'a RawValue,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    name: &'a str,
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
    labels: BTreeMap<&'a str, &'a str>,
    annotations: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
struct StatusOp<'a> {
    op: &'static str,
    path: &'static str,
    value: &'a RawValue,
}

// === impl Writer ===

impl Writer {
    pub(crate) fn new(sides: Sides) -> Self {
        Self {
            sides,
            tally: Tally::default(),
        }
    }

    /// Creates the copy of an object and has the object held. Answers the UID of the copy.
    pub(crate) async fn create(&self, source: Source<'_>, version: &str, spec: &RawValue) -> anyhow::Result<Box<str>> {
        let copy = self.copy(Write::Copy, source, None, spec).await?;
        let patch = json!({"metadata": {
            "resourceVersion": version,
            "finalizers": [finalizers::SYNCER],
            "annotations": {
                annotations::PROVIDER_NAMESPACE: self.sides.place(source.namespace)?,
                annotations::PROVIDER_UID: copy.metadata.uid,
            },
        }});
        self.patch(Write::Hold, source, "", MERGE, &patch).await?;
        Ok(copy.metadata.uid)
    }

    /// Writes what an object says to its copy of this UID.
    pub(crate) async fn update(&self, source: Source<'_>, copy: &str, spec: &RawValue) -> anyhow::Result<()> {
        self.copy(Write::Update, source, Some(copy), spec).await.map(drop)
    }

    /// Writes a status to the consumer's object.
    pub(crate) async fn status(&self, source: Source<'_>, status: &RawValue) -> anyhow::Result<()> {
        let test = json!({"op": "test", "path": "/metadata/uid", "value": source.uid});
        let add = StatusOp {
            op: "add",
            path: "/status",
            value: status,
        };
        self.patch(Write::Status, source, "/status", JSON_PATCH, &(test, add))
            .await
    }

    /// Deletes the copy of this UID, then lets go of the object, which is being deleted.
    pub(crate) async fn delete(&self, source: Source<'_>, version: &str, copy: &str) -> anyhow::Result<()> {
        let place = self.sides.place(source.namespace)?;
        let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": copy}});
        let path = source.resource.path(place, source.name);
        let client = &self.sides.provider.write;
        self.tally.count(Write::Delete);
        send(client, Method::DELETE, &path, JSON, &body).await?;
        let release = json!({"metadata": {"resourceVersion": version, "finalizers": []}});
        self.patch(Write::Release, source, "", MERGE, &release).await
    }

    /// What was done so far.
    pub(crate) fn report(&self) -> Report {
        let tally = &self.tally;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let by = Write::ALL.map(|(write, name)| (name, read(&tally.by[write as usize])));
        let totals = self.sides.meters.iter().map(ClusterTraffic::totals);
        Report {
            orders: read(&tally.orders),
            requests: by.iter().map(|(_, count)| count).sum(),
            errors: read(&tally.errors),
            error: tally.error.lock().clone(),
            by: by.into(),
            wire_bytes: totals.map(|totals| totals.bytes_sent + totals.bytes_received).sum(),
        }
    }

    async fn copy(
        &self,
        write: Write,
        source: Source<'_>,
        uid: Option<&str>,
        spec: &RawValue,
    ) -> anyhow::Result<Answer> {
        let place = self.sides.place(source.namespace)?;
        let marks = BTreeMap::from([
            (annotations::CLUSTER_NAMESPACE, &*self.sides.contract),
            (annotations::CONSUMER_NAMESPACE, source.namespace),
            (annotations::CONSUMER_UID, source.uid),
            (annotations::BOUND, annotations::TRUE),
            (annotations::PROJECTION_HASH, FINGERPRINT),
            (annotations::SOURCE_GENERATION, GENERATION),
        ]);
        let copy = Copy {
            api_version: source.resource.api_version(),
            kind: &source.resource.kind,
            metadata: Meta {
                name: source.name,
                namespace: place,
                uid,
                resource_version: uid.is_none().then_some(CREATE_ONLY),
                labels: BTreeMap::new(),
                annotations: marks,
            },
            spec,
        };
        let path = source.resource.path(place, source.name);
        let path = format!("{path}?fieldManager={FIELD_MANAGER}&force=true");
        let client = &self.sides.provider.write;
        self.tally.count(write);
        Ok(send(client, Method::PATCH, &path, APPLY, &copy).await?)
    }

    async fn patch(
        &self,
        write: Write,
        source: Source<'_>,
        subresource: &str,
        content_type: &'static str,
        body: &impl Serialize,
    ) -> anyhow::Result<()> {
        let path = source.resource.path(source.namespace, source.name);
        let path = format!("{path}{subresource}?fieldManager={FIELD_MANAGER}");
        let client = &self.sides.consumer.write;
        self.tally.count(write);
        send(client, Method::PATCH, &path, content_type, body).await?;
        Ok(())
    }
}

// === impl Write ===

impl Write {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Copy, "copy"),
        (Self::Hold, "hold"),
        (Self::Update, "update"),
        (Self::Status, "status"),
        (Self::Delete, "delete"),
        (Self::Release, "release"),
    ];
}

// === impl Tally ===

impl Tally {
    fn count(&self, write: Write) {
        self.by[write as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Notes what came of one order.
    pub(crate) fn finished(&self, outcome: anyhow::Result<()>) {
        self.orders.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = outcome {
            self.errors.fetch_add(1, Ordering::Relaxed);
            self.error.lock().get_or_insert_with(|| format!("{error:#}"));
        }
    }
}
