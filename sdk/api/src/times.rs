//! Deserializes times leniently: what passes a schema as a time may be none, and must not make the whole object unreadable.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Deserializes a time; an invalid one becomes 1970-01-01.
pub(crate) fn or_epoch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    Ok(or_absent(deserializer)?.unwrap_or(Time(Timestamp::UNIX_EPOCH)))
}

/// Deserializes a time; an invalid one becomes `None`.
pub(crate) fn or_absent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Time>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value.as_str().and_then(|text| text.parse().ok()).map(Time))
}
