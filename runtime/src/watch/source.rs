//! The collection that a watch is about, and the requests for it.

use std::sync::Arc;

use http::Request;

use crate::guard::{Guard, NameRule, Reader};

/// A collection of objects of one kind, and selectors that limit it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Path of the collection, such as `/apis/wildwest.dev/v1alpha1/cowboys`.
    pub path: Arc<str>,
    /// Only objects with these labels, in the syntax of kubectl's `-l`; empty for all.
    pub labels: String,
    /// Only objects with these fields, such as `metadata.name=cluster`; empty for all.
    pub fields: String,
    /// The guard against what the API server sends, if it is not trusted, and the names that its objects may have.
    pub guard: Option<(Guard, NameRule)>,
}

// === impl Source ===

impl Source {
    /// All objects of a kind, in one namespace or, with `None`, in all.
    pub fn of<K>(namespace: Option<&str>) -> Self
    where
        K: kube::Resource,
        K::DynamicType: Default,
    {
        Self::path(K::url_path(&K::DynamicType::default(), namespace))
    }

    /// All objects of the collection at this path.
    pub fn path(path: impl Into<Arc<str>>) -> Self {
        Self {
            path: path.into(),
            labels: String::new(),
            fields: String::new(),
            guard: None,
        }
    }

    /// Guards against what the API server sends: objects have names by this rule, and are counted.
    #[must_use]
    pub fn guarded(mut self, guard: &Guard, rule: NameRule) -> Self {
        self.guard = Some((guard.clone(), rule));
        self
    }

    /// Begins to judge what comes, if the API server is not trusted.
    pub(super) fn reader(&self) -> Option<Reader> {
        let (guard, rule) = self.guard.as_ref()?;
        Some(guard.reader(Arc::clone(&self.path), *rule))
    }

    /// Limits the collection by a label selector, in the syntax of kubectl's `-l`.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = selector.into();
        self
    }

    /// Limits the collection by a field selector, such as `metadata.name=cluster`.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = selector.into();
        self
    }

    /// Builds a GET request with these query parameters and the selectors.
    pub(super) fn request(&self, pairs: &[(&str, &str)]) -> Result<Request<Vec<u8>>, kube::Error> {
        let mut query = form(pairs);
        for (name, value) in [("labelSelector", &self.labels), ("fieldSelector", &self.fields)] {
            if !value.is_empty() {
                query.push('&');
                query.push_str(&form(&[(name, value)]));
            }
        }
        Request::get(format!("{}?{query}", self.path))
            .body(Vec::new())
            .map_err(kube::Error::HttpError)
    }
}

/// Encodes query parameters; all but unreserved characters are escaped.
fn form(pairs: &[(&str, &str)]) -> String {
    use std::fmt::Write as _;

    let mut text = String::new();
    for (name, value) in pairs {
        if !text.is_empty() {
            text.push('&');
        }
        text.push_str(name);
        text.push('=');
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(char::from(byte)),
                other => {
                    // Writing to a String cannot fail.
                    let _ = write!(text, "%{other:02X}");
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_escaped() {
        let source = Source::path("/api/v1/secrets")
            .labels("a in (b,c)")
            .fields("metadata.name=x");
        let request = source.request(&[("limit", "5")]).unwrap();
        assert_eq!(
            request.uri(),
            "/api/v1/secrets?limit=5&labelSelector=a%20in%20%28b%2Cc%29&fieldSelector=metadata.name%3Dx"
        );
    }
}
