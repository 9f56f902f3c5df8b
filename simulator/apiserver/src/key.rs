//! The key of an object in the store of a cluster.

use std::{cmp::Ordering, fmt};

/// An object's place in the store. The version of the API is not part of the key, because all versions share one object.
///
/// Keys are ordered as etcd orders them, so that lists have the order of a real API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    /// API group, empty for core kinds.
    pub group: String,
    /// Plural name of the resource, such as `secrets`.
    pub resource: String,
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: String,
    /// `metadata.name` of the object.
    pub name: String,
}

impl ObjectKey {
    /// Builds a key from its four parts.
    pub fn new(group: &str, resource: &str, namespace: &str, name: &str) -> Self {
        Self {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// If the key is of this resource.
    pub fn is_of(&self, group: &str, resource: &str) -> bool {
        self.resource == resource && self.group == group
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.resource
            .cmp(&other.resource)
            .then_with(|| self.group.cmp(&other.group))
            .then_with(|| namespace_order(&self.namespace, &other.namespace))
            .then_with(|| self.name.cmp(&other.name))
    }
}

/// In a key of etcd a slash follows the namespace, and `-` sorts before `/`: `a-b/x` comes before `a/x`.
fn namespace_order(one: &str, other: &str) -> Ordering {
    if one == other {
        return Ordering::Equal;
    }
    match (one.strip_prefix(other), other.strip_prefix(one)) {
        (Some(rest), None) if !other.is_empty() => rest.as_bytes()[0].cmp(&b'/'),
        (None, Some(rest)) if !one.is_empty() => b'/'.cmp(&rest.as_bytes()[0]),
        _ => one.cmp(other),
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.namespace.is_empty() {
            write!(f, "/{}", self.namespace)?;
        }
        write!(f, "/{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_etcd() {
        let key = |namespace: &str, name: &str| ObjectKey::new("", "secrets", namespace, name);
        let mut keys = [
            key("a", "x"),
            key("a-b", "x"),
            key("a0", "x"),
            key("", "x"),
            key("a", "w"),
        ];
        keys.sort();
        let order: Vec<_> = keys
            .iter()
            .map(|key| format!("{}/{}", key.namespace, key.name))
            .collect();
        assert_eq!(order, ["/x", "a-b/x", "a/w", "a/x", "a0/x"]);
    }
}
