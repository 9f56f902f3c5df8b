//! Times that others may write. What passes the schema as a time need not be one, and must not hide the object around it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A time, or the beginning of times.
pub(crate) fn or_epoch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    Ok(or_absent(deserializer)?.unwrap_or(Time(Timestamp::UNIX_EPOCH)))
}

/// A time, or none.
pub(crate) fn or_absent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Time>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value.as_str().and_then(|text| text.parse().ok()).map(Time))
}
