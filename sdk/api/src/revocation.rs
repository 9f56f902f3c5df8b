//! The record of a revocation, an annotation of the contract's ClusterBinding. It is not in the status, which the consumer may
//! write: the holder of a stolen credential could erase it there.

use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    annotations,
    v1alpha2::{BindableResourcesRequest, ClusterBinding, Phase},
};

/// Number of requests that are recorded by UID. If there are more, only a request that is newer than all ends the revocation.
const REQUESTS_MAX: usize = 1_000;

/// The record that the credentials of a contract are revoked. It is removed when an owner of the contract makes a new request
/// to bind that the server can serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Revocation {
    /// Random id of the revocation.
    pub id: String,
    /// When they were revoked.
    pub time: Timestamp,
    /// The reason, in the words of the caller who revoked them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// UIDs of requests that do not end the revocation: those that were pending, and all that users created as resources
    /// and not by a gRPC call, since others can set the status of those back to pending. They are recorded by UID and not
    /// compared by time, because the API server's clock may differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<String>,
    /// Creation time of the newest of these requests, if there are more than `REQUESTS_MAX`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<Timestamp>,
}

/// The current revocation, if there is one. A record that cannot be read counts as a revocation.
pub fn revocation(binding: &ClusterBinding) -> Option<Revocation> {
    let text = binding.annotations().get(annotations::REVOCATION)?;
    Some(serde_json::from_str(text).unwrap_or_default())
}

/// The id of the last revocation that ended. It is part of the names of anchors, the Secrets that tokens are bound to, so
/// that new tokens never get an anchor that was revoked.
pub fn last_ended(binding: &ClusterBinding) -> Option<&str> {
    let id = binding.annotations().get(annotations::LAST_REVOCATION)?;
    let is_id = !id.is_empty()
        && id
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
    is_id.then_some(id)
}

impl Revocation {
    /// Makes a revocation with a random id of hexadecimal digits, that happens now, in the contract of this identity.
    /// `own_namespace` is the server's, which holds the requests of calls.
    pub fn new(
        id: String,
        now: Timestamp,
        reason: Option<&str>,
        identity: Option<&str>,
        requests: &[BindableResourcesRequest],
        own_namespace: &str,
    ) -> Self {
        let then: Vec<_> = requests
            .iter()
            .filter(|request| Some(request.spec.cluster_identity.identity.as_str()) == identity)
            .filter(|request| request.phase() == Phase::Pending || !request.is_grpc(own_namespace))
            .collect();
        let made = then.iter().filter_map(|request| made(request));
        let newest = if then.len() > REQUESTS_MAX { made.max() } else { None };
        Self {
            id,
            time: now,
            reason: reason.map(ToOwned::to_owned),
            requests: then
                .iter()
                .filter_map(|request| request.uid())
                .take(REQUESTS_MAX)
                .collect(),
            newest,
        }
    }

    /// Whether a request was made after this revocation, and so ends it.
    pub fn is_before(&self, request: &BindableResourcesRequest) -> bool {
        let uid = request.metadata.uid.as_ref();
        let is_newer = self.newest.is_none_or(|newest| made(request) > Some(newest));
        is_newer && uid.is_some_and(|uid| !self.requests.contains(uid))
    }

    /// The patch that writes the record. It has no precondition on the version, for heartbeats of the consumer could make it fail
    /// again and again.
    pub fn patch(&self, binding: &ClusterBinding) -> Value {
        json!({ "metadata": {
            "uid": binding.metadata.uid,
            "annotations": { annotations::REVOCATION: json!(self).to_string() },
        } })
    }

    /// The patch that ends this revocation. It fails if the binding was changed since it was read, since another revocation
    /// may have replaced this one.
    pub fn end_patch(&self, binding: &ClusterBinding) -> Value {
        json!({ "metadata": {
            "uid": binding.metadata.uid,
            "resourceVersion": binding.metadata.resource_version,
            "annotations": { annotations::REVOCATION: null, annotations::LAST_REVOCATION: self.id },
        } })
    }
}

/// When a request was created.
fn made(request: &BindableResourcesRequest) -> Option<Timestamp> {
    request.metadata.creation_timestamp.as_ref().map(|made| made.0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::{
        labels,
        v1alpha2::{BindableResourcesRequestSpec, BindableResourcesRequestStatus, ClusterBindingSpec, ClusterIdentity},
    };

    const ID: &str = "0a1b";
    const OWN_NAMESPACE: &str = "kube-bind";

    /// A binding with a record of that text.
    fn recorded(text: Option<&str>) -> ClusterBinding {
        let mut binding = ClusterBinding::new("cluster", ClusterBindingSpec::default());
        if let Some(text) = text {
            let annotations = binding.annotations_mut();
            annotations.insert(annotations::REVOCATION.to_owned(), text.to_owned());
        }
        binding
    }

    fn request(uid: &str, identity: &str, phase: Phase) -> BindableResourcesRequest {
        let spec = BindableResourcesRequestSpec {
            cluster_identity: ClusterIdentity {
                identity: identity.to_owned(),
                pretty_name: None,
            },
            ..BindableResourcesRequestSpec::default()
        };
        let mut request = BindableResourcesRequest::new(uid, spec);
        request.metadata.uid = Some(uid.to_owned());
        request.status = Some(BindableResourcesRequestStatus {
            phase,
            ..BindableResourcesRequestStatus::default()
        });
        request
    }

    /// A request that the server created for a gRPC call.
    fn call(uid: &str, phase: Phase) -> BindableResourcesRequest {
        let mut request = request(uid, "a", phase);
        request.metadata.namespace = Some(OWN_NAMESPACE.to_owned());
        let via = (labels::VIA.to_owned(), labels::VIA_GRPC.to_owned());
        request.labels_mut().extend([via]);
        request
    }

    /// A revocation in the contract of identity `a`, while these requests exist.
    fn revoked_with(requests: &[BindableResourcesRequest]) -> Revocation {
        let identity = Some("a");
        Revocation::new(
            ID.to_owned(),
            Timestamp::UNIX_EPOCH,
            None,
            identity,
            requests,
            OWN_NAMESPACE,
        )
    }

    #[test]
    fn the_record_is_in_the_metadata_and_what_is_there_counts() {
        let written = Revocation::new(
            ID.to_owned(),
            Timestamp::UNIX_EPOCH,
            Some("lost laptop"),
            None,
            &[],
            OWN_NAMESPACE,
        );
        let text = written.patch(&recorded(None))["metadata"]["annotations"][annotations::REVOCATION].clone();
        assert_eq!(revocation(&recorded(text.as_str())), Some(written));
        assert_eq!(revocation(&recorded(None)), None);
        for broken in ["", "null", "{}", "true"] {
            assert_eq!(
                revocation(&recorded(Some(broken))),
                Some(Revocation::default()),
                "{broken:?}"
            );
        }
    }

    #[test]
    fn a_request_of_then_does_not_end_it_and_a_later_one_does() {
        let then = [
            request("older", "a", Phase::Pending),
            request("decided", "a", Phase::Succeeded),
            request("other", "b", Phase::Pending),
            call("called", Phase::Succeeded),
            call("calls", Phase::Pending),
        ];
        let revocation = revoked_with(&then);
        // A user who may write the status could set `decided` back to pending.
        assert_eq!(revocation.requests, ["older", "decided", "calls"]);
        assert!(!revocation.is_before(&then[0]));
        assert!(!revocation.is_before(&request("decided", "a", Phase::Pending)));
        assert!(revocation.is_before(&request("later", "a", Phase::Pending)));
    }

    #[test]
    fn where_they_are_too_many_only_a_newer_request_counts() {
        let made = |uid: &str, second| {
            let mut request = request(uid, "a", Phase::Pending);
            let time = Timestamp::from_second(second).unwrap();
            request.metadata.creation_timestamp = Some(Time(time));
            request
        };
        let mut then: Vec<_> = (0..REQUESTS_MAX).map(|number| made(&format!("r{number}"), 5)).collect();
        let few = revoked_with(&then);
        assert!(few.is_before(&made("other", 5)));
        then.push(made("one too many", 5));
        let many = revoked_with(&then);
        assert!(!many.is_before(&made("one too many", 5)));
        assert!(many.is_before(&made("later", 6)));
    }

    #[test]
    fn only_an_id_goes_into_names() {
        let mut binding = recorded(None);
        for (text, expect) in [("0a1b", Some("0a1b")), ("", None), ("A", None), ("a/b", None)] {
            binding
                .annotations_mut()
                .insert(annotations::LAST_REVOCATION.to_owned(), text.to_owned());
            assert_eq!(last_ended(&binding), expect, "{text:?}");
        }
    }
}
