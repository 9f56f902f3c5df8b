//! The resource that a benchmark is about.

use std::{fmt, str::FromStr};

/// A namespaced resource of an API group, written `group/version/plural/Kind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    group: Box<str>,
    version: Box<str>,
    plural: Box<str>,
    pub kind: Box<str>,
}

impl Resource {
    /// `group/version`, as objects carry it.
    pub(crate) fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// Path of the collection in a namespace, or in all if it is empty.
    pub(crate) fn collection(&self, namespace: &str) -> String {
        let Self {
            group, version, plural, ..
        } = self;
        if namespace.is_empty() {
            format!("/apis/{group}/{version}/{plural}")
        } else {
            format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}")
        }
    }

    /// Path of an object.
    pub(crate) fn path(&self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.collection(namespace))
    }
}

impl FromStr for Resource {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<_> = text.split('/').collect();
        let [group, version, plural, kind] = parts[..] else {
            return Err("a resource is group/version/plural/Kind");
        };
        if parts.iter().any(|part| part.is_empty()) {
            return Err("no part of a resource is empty");
        }
        Ok(Self {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            kind: kind.into(),
        })
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.plural, self.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_read_and_leads_to_its_paths() {
        let gadgets: Resource = "bench.example.com/v1/gadgets/Gadget".parse().unwrap();
        assert_eq!(gadgets.api_version(), "bench.example.com/v1");
        assert_eq!(gadgets.to_string(), "gadgets.bench.example.com");
        assert_eq!(gadgets.collection(""), "/apis/bench.example.com/v1/gadgets");
        assert_eq!(
            gadgets.path("a", "b"),
            "/apis/bench.example.com/v1/namespaces/a/gadgets/b"
        );
        for bad in ["", "a/b/c", "a/b/c/d/e", "a//c/d"] {
            assert!(bad.parse::<Resource>().is_err(), "{bad}");
        }
    }
}
