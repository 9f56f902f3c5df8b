//! The record of requests that were made as resources and that the contract has fulfilled. Each request binds only once. Others can
//! write the status of such a request, so that the record is an annotation of the contract's namespace, which only the server
//! writes.

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use serde_json::{Value, json};

/// Annotation with the UIDs of the fulfilled requests, as a JSON list.
const SERVED: &str = "backend.kube-bind.io/served-requests";
/// Number of fulfilled requests that are recorded per contract, for the size of annotations is limited.
pub const MAX: usize = 1_000;

/// UIDs of the requests that the contract has fulfilled.
pub fn served(namespace: &Namespace) -> Vec<String> {
    let json = namespace.annotations().get(SERVED);
    json.and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default()
}

/// Whether the contract has fulfilled the request with this UID.
pub fn is_served(namespace: &Namespace, uid: Option<&str>) -> bool {
    let json = namespace.annotations().get(SERVED);
    json.is_some() && uid.is_some_and(|uid| served(namespace).iter().any(|served| served == uid))
}

/// The patch that records one more request, and forgets those that do not exist any more. None if too many still exist.
pub fn patch(namespace: &Namespace, uid: &str, is_there: impl Fn(&str) -> bool) -> Option<Value> {
    let mut served = served(namespace);
    served.retain(|served| served != uid && is_there(served));
    if served.len() >= MAX {
        return None;
    }
    served.push(uid.to_owned());
    Some(json!({ "metadata": { "annotations": { SERVED: json!(served).to_string() } } }))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Has a contract remember requests.
    pub(crate) fn remember(namespace: &mut Namespace, uids: &[&str]) {
        let annotations = namespace.annotations_mut();
        annotations.insert(SERVED.to_owned(), json!(uids).to_string());
    }

    #[test]
    fn a_request_is_remembered_for_as_long_as_it_is_there() {
        let mut namespace = Namespace::default();
        assert!(!is_served(&namespace, Some("r1")));
        remember(&mut namespace, &["r1", "gone"]);
        assert!(is_served(&namespace, Some("r1")));
        assert!(!is_served(&namespace, Some("r2")));
        assert!(!is_served(&namespace, None));
        let patch = patch(&namespace, "r2", |uid| uid == "r1").unwrap();
        assert_eq!(patch["metadata"]["annotations"][SERVED], r#"["r1","r2"]"#);
    }

    #[test]
    fn there_is_an_end_to_what_is_remembered() {
        let mut namespace = Namespace::default();
        let uids: Vec<_> = (0..MAX).map(|number| format!("r{number}")).collect();
        remember(&mut namespace, &uids.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(patch(&namespace, "new", |_| true), None);
        assert!(patch(&namespace, "new", |uid| uid != "r0").is_some());
    }
}
