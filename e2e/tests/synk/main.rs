//! `synk`, the command, against real control planes.

mod bad_input;
mod case;
mod continues;
mod counts;
mod document;
mod documents;
mod fixtures;
mod guards;
mod health;
mod killed;
mod life;
mod locking;
mod look;
mod output;
mod own_namespace;
mod plans;
mod replaced;
mod retries;
mod rollback;
mod shapes;
mod unchanged;
mod world;

use serde_json::{Value, json};

/// Manifests as one document.
pub(crate) fn list(manifests: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": manifests}).to_string()
}

/// A ConfigMap with one key.
pub(crate) fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
}
