//! One write of an object to the consumer cluster.

use std::fmt;

use kube::{Resource, api::ApiResource};
use serde::Serialize;
use serde_json::Value;

use crate::errors::Failure;

/// How an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteKind {
    /// The object does not exist yet.
    Create,
    /// The object exists; fields that this command sets are taken over from other managers.
    Change,
    /// Another manager made the binding; only the record of accepted claims is written into it.
    RecordClaims,
}

/// One write of an object to the consumer cluster.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) kind: WriteKind,
    pub(crate) resource: ApiResource,
    pub(crate) manifest: Value,
}

impl Write {
    pub(super) fn new<K>(kind: WriteKind, object: &K) -> Result<Self, Failure>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        Ok(Self {
            kind,
            resource: ApiResource::erase::<K>(&()),
            manifest: manifest(object)?,
        })
    }

    /// The past participle of the write, for progress.
    pub(crate) fn past(&self) -> &'static str {
        match self.kind {
            WriteKind::Create => "created",
            WriteKind::Change | WriteKind::RecordClaims => "changed",
        }
    }

    /// Name and namespace of the object.
    pub(crate) fn key(&self) -> (&str, Option<&str>) {
        let metadata = &self.manifest["metadata"];
        (
            metadata["name"].as_str().unwrap_or_default(),
            metadata["namespace"].as_str(),
        )
    }
}

/// The object as messages name it, such as `Secret kube-bind/kubeconfig-cowboys`.
impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key() {
            (name, Some(namespace)) => write!(f, "{} {namespace}/{name}", self.resource.kind),
            (name, None) => write!(f, "{} {name}", self.resource.kind),
        }
    }
}

/// The object as JSON, with its apiVersion and kind.
pub(crate) fn manifest(object: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(object).map_err(|error| Failure::Format(error.to_string()))
}
