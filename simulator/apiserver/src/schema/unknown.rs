//! Finds the fields of an object that a schema would prune.

use serde_json::Value;

use super::{Additional, Schema};

/// Fields of ObjectMeta that clients may send.
const METADATA: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

impl Schema {
    /// Adds the paths of unknown fields of a whole object, such as `spec.parts[0].color`.
    pub(crate) fn unknown(&self, object: &Value, paths: &mut Vec<String>) {
        for (name, value) in object.as_object().into_iter().flatten() {
            match name.as_str() {
                "apiVersion" | "kind" => {}
                "metadata" => {
                    let fields = value.as_object().into_iter().flatten();
                    let unknown = fields.filter(|(name, _)| !METADATA.contains(&name.as_str()));
                    paths.extend(unknown.map(|(name, _)| format!("metadata.{name}")));
                }
                name => self.unknown_field(name, value, name.to_owned(), paths),
            }
        }
    }

    fn unknown_field(&self, name: &str, value: &Value, path: String, paths: &mut Vec<String>) {
        match self.property(name) {
            Some(schema) => schema.unknown_below(value, &path, paths),
            None if self.preserve || matches!(self.additional, Additional::Anything) => {}
            None => paths.push(path),
        }
    }

    fn unknown_below(&self, value: &Value, path: &str, paths: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                let own = |name: &str| self.embedded && matches!(name, "apiVersion" | "kind" | "metadata");
                for (name, value) in fields.iter().filter(|(name, _)| !own(name)) {
                    self.unknown_field(name, value, format!("{path}.{name}"), paths);
                }
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for (index, item) in items.iter().enumerate() {
                        schema.unknown_below(item, &format!("{path}[{index}]"), paths);
                    }
                }
            }
            _ => {}
        }
    }
}
