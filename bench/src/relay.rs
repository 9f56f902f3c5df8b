//! `bindery-bench relay`: syncs objects with the least work possible. For each line of a watch, it sends the writes that
//! follow from this line alone. It keeps no state, so the driver must tell it which kind of change comes next.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use anyhow::{Context as _, Result};
use bindery_api::finalizers;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{json, value::RawValue};

use crate::{
    output, sides, stand_in,
    writes::{Source, Writer},
};

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    sides: sides::Args,
}

/// The kind of change that the driver makes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Op {
    None,
    Create,
    Update,
    Status,
    Delete,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Command {
    op: Op,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: Object<'a>,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    #[serde(default)]
    name: &'a str,
    #[serde(default)]
    namespace: &'a str,
    #[serde(default)]
    uid: &'a str,
    resource_version: &'a str,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(borrow, default)]
    finalizers: Vec<&'a str>,
    #[serde(borrow, default)]
    annotations: Marks<'a>,
}

/// Annotations of a consumer's object (`copy`) or of a copy (the others).
#[derive(Default, Deserialize)]
struct Marks<'a> {
    #[serde(borrow, rename = "kube-bind.io/provider-uid")]
    copy: Option<&'a str>,
    #[serde(borrow, rename = "kube-bind.io/cluster-namespace")]
    contract: Option<&'a str>,
    #[serde(borrow, rename = "kube-bind.io/consumer-namespace")]
    namespace: Option<&'a str>,
    #[serde(borrow, rename = "kube-bind.io/consumer-uid")]
    uid: Option<&'a str>,
}

/// The write that follows from a line of a watch, and the consumer's object that it is about.
#[derive(Debug, PartialEq, Eq)]
struct Work {
    namespace: Box<str>,
    name: Box<str>,
    uid: Box<str>,
    write: Write,
}

#[derive(Debug, PartialEq, Eq)]
enum Write {
    Create { version: Box<str>, spec: Box<str> },
    Update { copy: Box<str>, spec: Box<str> },
    Status { status: Box<str> },
    Delete { version: Box<str>, copy: Box<str> },
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let writer = Arc::new(Writer::new(args.sides.connect().await?));
    let current = Arc::new(AtomicU8::new(Op::None as u8));
    let take = {
        let (writer, current) = (Arc::clone(&writer), Arc::clone(&current));
        move |resource: usize, is_consumer: bool, line: &[u8]| {
            let op = Op::of(current.load(Ordering::Relaxed));
            let work = work(op, is_consumer, &writer.sides.contract, line).context("a line of a watch is none");
            if let Some(work) = work.transpose() {
                tokio::spawn(relay(Arc::clone(&writer), resource, work));
            }
        }
    };
    let command = |line: &str| {
        let Command { op } = serde_json::from_str(line).with_context(|| format!("no command: {line:?}"))?;
        current.store(op as u8, Ordering::Relaxed);
        output::line(&json!({"op": op, "following": true}))
    };
    stand_in::run(&writer, take, command).await
}

/// Returns the write that follows from a line of a watch; `None` if the line is not about the present kind of change.
fn work(op: Op, is_consumer: bool, contract: &str, line: &[u8]) -> serde_json::Result<Option<Work>> {
    if op == Op::None || is_consumer == (op == Op::Status) {
        return Ok(None);
    }
    let line: Line<'_> = serde_json::from_slice(line)?;
    if !matches!(line.kind, "ADDED" | "MODIFIED") {
        return Ok(None);
    }
    let Object { metadata, spec, status } = line.object;
    let marks = &metadata.annotations;
    let (held, deleting) = (
        metadata.finalizers.contains(&finalizers::SYNCER),
        metadata.deletion_timestamp.is_some(),
    );
    let version = metadata.resource_version;
    let text = |json: Option<&RawValue>| json.map(|json| json.get().into());
    let write = match op {
        Op::None => None,
        Op::Create if held || deleting => None,
        Op::Create => text(spec).map(|spec| Write::Create {
            version: version.into(),
            spec,
        }),
        Op::Update => marks.copy.zip(text(spec)).map(|(copy, spec)| Write::Update {
            copy: copy.into(),
            spec,
        }),
        Op::Status if marks.contract != Some(contract) => None,
        Op::Status => text(status).map(|status| Write::Status { status }),
        Op::Delete if !held || !deleting => None,
        Op::Delete => marks.copy.map(|copy| Write::Delete {
            version: version.into(),
            copy: copy.into(),
        }),
    };
    let (namespace, uid) = match op {
        Op::Status => (marks.namespace.unwrap_or_default(), marks.uid.unwrap_or_default()),
        _ => (metadata.namespace, metadata.uid),
    };
    Ok(write.map(|write| Work {
        namespace: namespace.into(),
        name: metadata.name.into(),
        uid: uid.into(),
        write,
    }))
}

/// Sends a write, and counts its outcome.
async fn relay(writer: Arc<Writer>, resource: usize, work: Result<Work>) {
    let outcome = async {
        let work = work?;
        let source = Source {
            resource: writer.sides.resource(resource)?,
            namespace: &work.namespace,
            name: &work.name,
            uid: &work.uid,
        };
        let json = |text| RawValue::from_string(String::from(text));
        match work.write {
            Write::Create { version, spec } => writer.create(source, &version, &json(spec)?).await.map(drop),
            Write::Update { copy, spec } => writer.update(source, &copy, &json(spec)?).await,
            Write::Status { status } => writer.status(source, &json(status)?).await,
            Write::Delete { version, copy } => writer.delete(source, &version, &copy).await,
        }
    };
    writer.tally.finished(outcome.await);
}

// === impl Op ===

impl Op {
    const fn of(number: u8) -> Self {
        match number {
            1 => Self::Create,
            2 => Self::Update,
            3 => Self::Status,
            4 => Self::Delete,
            _ => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::annotations;
    use serde_json::Value;

    use super::*;

    #[track_caller]
    fn check(op: Op, is_consumer: bool, kind: &str, object: &Value, expect: Option<(&str, &str, Write)>) {
        let line = json!({"type": kind, "object": object}).to_string();
        let expect = expect.map(|(namespace, uid, write)| Work {
            namespace: namespace.into(),
            name: "a-0".into(),
            uid: uid.into(),
            write,
        });
        assert_eq!(work(op, is_consumer, "mine", line.as_bytes()).unwrap(), expect);
        assert_eq!(work(Op::None, is_consumer, "mine", line.as_bytes()).unwrap(), None);
    }

    fn object(finalizers: &[&str], deleting: bool) -> Value {
        let mut object = json!({
            "metadata": {
                "name": "a-0", "namespace": "bench-0", "uid": "u1", "resourceVersion": "5", "finalizers": finalizers,
                "annotations": {annotations::PROVIDER_UID: "c1"},
            },
            "spec": {"seq": 1},
        });
        if deleting {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        object
    }

    #[test]
    fn an_object_is_followed_by_what_is_being_changed() {
        let (bare, held) = (object(&[], false), object(&[finalizers::SYNCER], false));
        let ending = object(&[finalizers::SYNCER], true);
        let (version, spec, copy): (Box<str>, Box<str>, Box<str>) = ("5".into(), r#"{"seq":1}"#.into(), "c1".into());
        let create = Write::Create {
            version: version.clone(),
            spec: spec.clone(),
        };
        check(Op::Create, true, "ADDED", &bare, Some(("bench-0", "u1", create)));
        check(Op::Create, true, "MODIFIED", &held, None);
        check(Op::Create, false, "ADDED", &bare, None);
        let update = Write::Update {
            copy: copy.clone(),
            spec,
        };
        check(Op::Update, true, "MODIFIED", &held, Some(("bench-0", "u1", update)));
        check(Op::Update, false, "MODIFIED", &held, None);
        check(Op::Delete, true, "MODIFIED", &held, None);
        let delete = Write::Delete { version, copy };
        check(Op::Delete, true, "MODIFIED", &ending, Some(("bench-0", "u1", delete)));
        check(Op::Delete, true, "DELETED", &ending, None);
    }

    #[test]
    fn a_status_goes_to_the_source_of_its_copy() {
        let copy = |contract: &str, status: &str| {
            let object = json!({
                "metadata": {
                    "name": "a-0", "namespace": "mine-bench-0", "uid": "c1", "resourceVersion": "9",
                    "annotations": {
                        annotations::CLUSTER_NAMESPACE: contract, annotations::CONSUMER_NAMESPACE: "bench-0",
                        annotations::CONSUMER_UID: "u1",
                    },
                },
                "spec": {"seq": 1}, status: {"seq": 4},
            });
            object
        };
        let status = Write::Status {
            status: r#"{"seq":4}"#.into(),
        };
        check(
            Op::Status,
            false,
            "MODIFIED",
            &copy("mine", "status"),
            Some(("bench-0", "u1", status)),
        );
        check(Op::Status, false, "MODIFIED", &copy("mine", "other"), None);
        check(Op::Status, false, "MODIFIED", &copy("others", "status"), None);
        check(Op::Status, true, "MODIFIED", &copy("mine", "status"), None);
    }

    #[test]
    fn each_op_is_kept_as_its_number() {
        for op in [Op::None, Op::Create, Op::Update, Op::Status, Op::Delete] {
            assert_eq!(Op::of(op as u8), op);
        }
    }
}
