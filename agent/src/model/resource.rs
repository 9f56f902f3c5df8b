//! The resource that an engine syncs.

use std::sync::Arc;

use bindery_api::{names::push_segment, v1alpha2::Scope};

/// A resource that both clusters serve, in the version to sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundResource {
    /// API group; empty for core.
    pub group: Arc<str>,
    /// Version, such as `v1alpha1`.
    pub version: Arc<str>,
    /// Plural name.
    pub plural: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Scope on the consumer.
    pub scope: Scope,
    /// Whether the status is written through the subresource `/status`.
    pub status_subresource: bool,
}

impl BoundResource {
    /// `group/version`, as objects carry it.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Path of the collection in a namespace; of all namespaces, or of a cluster-scoped resource, if it is empty.
    pub(crate) fn collection(&self, namespace: &str) -> String {
        let mut path = String::with_capacity(128);
        if self.group.is_empty() {
            path.push_str("/api");
        } else {
            path.push_str("/apis");
            push_segment(&mut path, &self.group);
        }
        push_segment(&mut path, &self.version);
        if !namespace.is_empty() {
            path.push_str("/namespaces");
            push_segment(&mut path, namespace);
        }
        push_segment(&mut path, &self.plural);
        path
    }

    /// Path of an object; of one that is cluster-scoped, if the namespace is empty. A name of any characters stays one segment.
    pub(crate) fn path(&self, namespace: &str, name: &str) -> String {
        let mut path = self.collection(namespace);
        push_segment(&mut path, name);
        path
    }
}

impl std::fmt::Display for BoundResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.plural, self.group)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resource(group: &str) -> BoundResource {
        BoundResource {
            group: group.into(),
            version: "v1".into(),
            plural: "hats".into(),
            kind: "Hat".into(),
            scope: Scope::Namespaced,
            status_subresource: false,
        }
    }

    #[test]
    fn paths_are_those_of_kubernetes() {
        assert_eq!(resource("").path("west", "a.b"), "/api/v1/namespaces/west/hats/a.b");
        assert_eq!(
            resource("wild.dev").path("", "system:a"),
            "/apis/wild.dev/v1/hats/system:a"
        );
        assert_eq!(
            resource("wild.dev").collection("west"),
            "/apis/wild.dev/v1/namespaces/west/hats"
        );
    }

    proptest! {
        /// Whatever a provider calls a namespace or an object: a request about it stays within the resource.
        #[test]
        fn no_name_leads_to_another_resource(
            namespace in prop_oneof![Just("team1/otherresources/x?y=".to_owned()), Just("..".to_owned()), "\\PC{1,9}"],
            name in prop_oneof![Just("../../pods/x".to_owned()), Just("a#b".to_owned()), Just(".".to_owned()), "\\PC{1,9}"],
        ) {
            let path = resource("wild.dev").path(&namespace, &name);
            let uri: http::Uri = path.parse().unwrap();
            prop_assert_eq!(uri.query(), None);
            let segments: Vec<_> = uri.path().split('/').collect();
            prop_assert_eq!(segments.len(), 8, "{}", path);
            prop_assert_eq!([segments[4], segments[6]], ["namespaces", "hats"]);
            prop_assert!(!segments.contains(&".") && !segments.contains(&".."), "{}", path);
        }
    }
}
