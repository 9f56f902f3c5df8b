//! The requests made as resources that a contract has been bound for. Each binds once: what it says of itself can be written by
//! others, and what it has bound can be unbound, so that the contract's namespace, which only the server writes, remembers it.

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use serde_json::{Value, json};

/// The UIDs, as JSON.
const SERVED: &str = "backend.kube-bind.io/served-requests";
/// So many are remembered of those that are there, for annotations have a limit.
pub const MAX: usize = 1_000;

/// UIDs of the requests that a contract was bound for.
pub fn served(namespace: &Namespace) -> Vec<String> {
    let json = namespace.annotations().get(SERVED);
    json.and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default()
}

/// Whether a contract was bound for the request of that UID.
pub fn is_served(namespace: &Namespace, uid: Option<&str>) -> bool {
    let json = namespace.annotations().get(SERVED);
    json.is_some() && uid.is_some_and(|uid| served(namespace).iter().any(|served| served == uid))
}

/// The patch that remembers one more, and those of the others that are still there; `None` if these are too many.
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
