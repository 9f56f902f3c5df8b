//! Conversion of metadata, times and references.

use std::time::Duration;

use bindery_api::v1alpha2 as api;
use bindery_proto::v1alpha2 as proto;
use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use prost_types::{Duration as ProtoDuration, Timestamp as ProtoTimestamp};

/// The message of the metadata of an object, without annotations.
pub(crate) fn metadata(metadata: &ObjectMeta) -> proto::ObjectMeta {
    proto::ObjectMeta {
        name: metadata.name.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        generation: metadata.generation.unwrap_or_default(),
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
        creation_timestamp: metadata.creation_timestamp.as_ref().map(time),
        deletion_timestamp: metadata.deletion_timestamp.as_ref().map(time),
        labels: metadata
            .labels
            .iter()
            .flatten()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    }
}

/// The message of a retention.
pub(crate) fn retention(retention: &api::Retention) -> proto::Retention {
    let suspend = retention.suspend.as_ref().map(ToString::to_string);
    proto::Retention {
        duration: retention.duration.to_string(),
        suspend: suspend.map(Bytes::from).unwrap_or_default(),
    }
}

/// The message of a time of the Kubernetes API.
pub(crate) fn time(time: &Time) -> ProtoTimestamp {
    timestamp(time.0)
}

/// The message of a time.
pub(crate) fn timestamp(timestamp: Timestamp) -> ProtoTimestamp {
    ProtoTimestamp {
        seconds: timestamp.as_second(),
        nanos: timestamp.subsec_nanosecond(),
    }
    .normalized()
}

/// The message of a duration, which becomes the longest possible if it is too long.
pub(crate) fn duration(duration: Duration) -> ProtoDuration {
    ProtoDuration::try_from(duration).unwrap_or(ProtoDuration {
        seconds: i64::MAX,
        nanos: 0,
    })
}

/// The messages of references by name.
pub(crate) fn names(names: &[api::NameRef]) -> Vec<proto::NameRef> {
    names
        .iter()
        .map(|reference| proto::NameRef {
            name: reference.name.clone(),
        })
        .collect()
}

/// The messages of the resources of an export or a template.
pub(crate) fn resources(resources: &[api::ExportResource]) -> Vec<proto::Resource> {
    let resource = |resource: &api::ExportResource| proto::Resource {
        group: resource.group_resource.group.clone(),
        resource: resource.group_resource.resource.clone(),
        versions: resource.versions.clone(),
    };
    resources.iter().map(resource).collect()
}

/// The message of a reference to a key of a Secret.
pub(crate) fn secret_key(reference: &api::LocalSecretKeyRef) -> proto::LocalSecretKeyRef {
    proto::LocalSecretKeyRef {
        name: reference.name.clone(),
        key: reference.key.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_moment() {
        for text in ["2026-11-21T12:00:00Z", "1969-12-31T23:59:59.5Z", "1970-01-01T00:00:00Z"] {
            let moment: Timestamp = text.parse().expect("a time");
            assert_eq!(
                timestamp(moment).to_string().parse::<Timestamp>().expect("a time"),
                moment,
                "{text}"
            );
        }
        assert_eq!(duration(Duration::MAX).seconds, i64::MAX);
    }
}
