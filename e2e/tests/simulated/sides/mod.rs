//! The two API servers, and how a step of a sequence becomes a request to one of them.

pub(crate) mod memory;
pub(crate) mod real;
pub(crate) mod wire;

use std::collections::BTreeMap;

use http::HeaderMap;
use serde_json::Value;

/// The headers that are compared.
const HEADERS: [&str; 4] = ["content-type", "location", "retry-after", "warning"];

/// What an API server answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<&'static str, Vec<String>>,
    /// JSON, or else the text as a string.
    pub(crate) body: Value,
}

impl Answer {
    fn new(status: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let value = serde_json::from_slice(body).unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned().into());
        let all = |name: &str| -> Vec<String> {
            let values = headers.get_all(name).iter();
            values
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
                .collect()
        };
        let headers = HEADERS.iter().map(|name| (*name, all(name)));
        Self {
            status,
            headers: headers.filter(|(_, values)| !values.is_empty()).collect(),
            body: value,
        }
    }

    /// The answer as one value, for comparison and for messages.
    pub(crate) fn value(&self) -> Value {
        serde_json::json!({"status": self.status, "headers": self.headers, "body": self.body})
    }
}
