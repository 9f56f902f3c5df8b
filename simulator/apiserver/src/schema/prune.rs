//! Removes fields that a schema does not know, and fills in defaults.

use serde_json::{Map, Value};

use super::{Additional, Schema};

/// Fields that the root of an object and of an embedded object always have.
const ROOT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    /// Prunes a whole object, and then fills in defaults.
    pub(crate) fn prune_and_default(&self, object: &mut Value) {
        self.prune(object, true);
        self.drop_nulls(object);
        if self.has_defaults {
            self.fill_in(object, true);
        }
    }

    fn prune(&self, value: &mut Value, is_root: bool) {
        match value {
            Value::Object(fields) => {
                let is_object = is_root || self.embedded;
                let anything = self.preserve || matches!(self.additional, Additional::Anything);
                fields.retain(|name, value| {
                    if is_object && ROOT_FIELDS.contains(&name.as_str()) {
                        return true;
                    }
                    match self.property(name) {
                        Some(property) => {
                            property.prune(value, false);
                            true
                        }
                        None => anything,
                    }
                });
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for item in items {
                        schema.prune(item, false);
                    }
                }
            }
            _ => {}
        }
    }

    /// Removes nulls of fields that are not nullable and have a default, so that the default takes their place.
    fn drop_nulls(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, value| {
                    let Some(property) = self.property(name) else {
                        return true;
                    };
                    if value.is_null() && !property.nullable && property.default.is_some() {
                        return false;
                    }
                    property.drop_nulls(value);
                    true
                });
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for item in items {
                        schema.drop_nulls(item);
                    }
                }
            }
            _ => {}
        }
    }

    /// Removes nulls of fields that are not nullable.
    pub(crate) fn drop_all_nulls(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => fields.retain(|name, value| match self.property(name) {
                Some(property) if value.is_null() => property.nullable,
                Some(property) => {
                    property.drop_all_nulls(value);
                    true
                }
                None => true,
            }),
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for item in items {
                        schema.drop_all_nulls(item);
                    }
                }
            }
            _ => {}
        }
    }

    fn fill_in(&self, value: &mut Value, is_root: bool) {
        match value {
            Value::Object(fields) => self.fill_in_fields(fields, is_root),
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for item in items {
                        schema.fill_in(item, false);
                    }
                }
            }
            _ => {}
        }
    }

    fn fill_in_fields(&self, fields: &mut Map<String, Value>, is_root: bool) {
        for (name, property) in &self.properties {
            if is_root && ROOT_FIELDS.contains(&name.as_str()) {
                continue;
            }
            if let Some(default) = &property.default
                && !fields.contains_key(name)
            {
                fields.insert(name.clone(), default.clone());
            }
        }
        for (name, value) in fields.iter_mut() {
            if let Some(property) = self.property(name)
                && property.has_defaults
            {
                property.fill_in(value, false);
            }
        }
    }
}
