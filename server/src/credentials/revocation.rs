//! The record of a revocation, which stands in the metadata of the contract's ClusterBinding: its status is the
//! consumer's to write, and a thief must not be able to erase what keeps him out.

use bindery_api::{
    annotations,
    v1alpha2::{BindableResourcesRequest, ClusterBinding, Phase},
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// So many requests are remembered; who has more under way may end the revocation by one of them.
const REQUESTS_MAX: usize = 1_000;

/// That the credentials of a contract are revoked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Revocation {
    /// Tells it from any other revocation of the contract.
    pub id: String,
    /// When they were revoked.
    pub time: Timestamp,
    /// Why, in the words of whoever revoked them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// UIDs of the requests that were under way then. They are known by name and not by time, for their times are of
    /// another clock.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<String>,
}

/// The revocation that is in force, if one is. A record that cannot be read is one all the same.
pub fn revocation(binding: &ClusterBinding) -> Option<Revocation> {
    let text = binding.annotations().get(annotations::REVOCATION)?;
    Some(serde_json::from_str(text).unwrap_or_default())
}

/// The id of the revocation that ended last, which tells new anchors from those that were revoked.
pub(super) fn last(binding: &ClusterBinding) -> Option<&str> {
    let id = binding.annotations().get(annotations::LAST_REVOCATION)?;
    let is_id = !id.is_empty()
        && id
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
    is_id.then_some(id)
}

impl Revocation {
    /// A revocation now, in a contract of that identity.
    pub(super) fn new(
        now: Timestamp,
        reason: Option<&str>,
        identity: Option<&str>,
        requests: &[BindableResourcesRequest],
    ) -> Self {
        let undecided = requests.iter().filter(|request| {
            let phase = request.status.as_ref().map(|status| status.phase).unwrap_or_default();
            phase == Phase::Pending && Some(request.spec.cluster_identity.identity.as_str()) == identity
        });
        Self {
            id: format!("{:016x}", rand::random::<u64>()),
            time: now,
            reason: reason.map(ToOwned::to_owned),
            requests: undecided
                .filter_map(kube::ResourceExt::uid)
                .take(REQUESTS_MAX)
                .collect(),
        }
    }

    /// Whether a request was made after this, so that it ends it.
    pub fn is_before(&self, request: &BindableResourcesRequest) -> bool {
        let uid = request.metadata.uid.as_ref();
        uid.is_some_and(|uid| !self.requests.contains(uid))
    }

    /// The patch that writes the record. Not tied to the version that was read: whoever beats for the consumer could
    /// delay it without end.
    pub(super) fn patch(&self, binding: &ClusterBinding) -> Value {
        json!({ "metadata": {
            "uid": binding.metadata.uid,
            "annotations": { annotations::REVOCATION: json!(self).to_string() },
        } })
    }

    /// The patch that ends this revocation and no other.
    pub(super) fn end_patch(&self, binding: &ClusterBinding) -> Value {
        json!({ "metadata": {
            "uid": binding.metadata.uid,
            "resourceVersion": binding.metadata.resource_version,
            "annotations": { annotations::REVOCATION: null, annotations::LAST_REVOCATION: self.id },
        } })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use bindery_api::v1alpha2::{
        BindableResourcesRequestSpec, BindableResourcesRequestStatus, ClusterBindingSpec, ClusterIdentity,
    };

    use super::*;

    /// A binding with a record of that text.
    pub(crate) fn recorded(text: Option<&str>) -> ClusterBinding {
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

    #[test]
    fn the_record_is_in_the_metadata_and_what_is_there_counts() {
        let written = Revocation::new(Timestamp::UNIX_EPOCH, Some("lost laptop"), None, &[]);
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
        ];
        let revocation = Revocation::new(Timestamp::UNIX_EPOCH, None, Some("a"), &then);
        assert_eq!(revocation.requests, ["older"]);
        assert!(!revocation.is_before(&then[0]));
        assert!(revocation.is_before(&request("later", "a", Phase::Pending)));
    }

    #[test]
    fn only_an_id_goes_into_names() {
        let mut binding = recorded(None);
        for (text, expect) in [("0a1b", Some("0a1b")), ("", None), ("A", None), ("a/b", None)] {
            binding
                .annotations_mut()
                .insert(annotations::LAST_REVOCATION.to_owned(), text.to_owned());
            assert_eq!(last(&binding), expect, "{text:?}");
        }
    }
}
