//! Fields that a kind does not know: warnings for the client, or a refusal if the client asks for strictness.

use std::sync::LazyLock;

use serde_json::Value;

use super::{Call, Result};
use crate::{
    endpoint::Endpoint,
    fields::resolve,
    request::invalid_options,
    status::{Cause, StatusError},
};

impl Call {
    /// Warns of the unknown fields of an object that was sent or patched. Refuses it if `fieldValidation` is `Strict`.
    pub(super) fn warn_of_unknown(&self, endpoint: &Endpoint, object: &Value, options: &str) -> Result<()> {
        let mode = self.parameters.field_validation.as_str();
        match mode {
            "" | "Warn" | "Strict" => {}
            "Ignore" => return Ok(()),
            other => {
                let allowed = ["", "Ignore", "Strict", "Warn"].map(Value::from);
                let cause = Cause::not_supported("fieldValidation", &other.into(), &allowed);
                return Err(invalid_options(options, &[cause]));
            }
        }
        let mut paths = Vec::new();
        match &endpoint.custom {
            Some(custom) => {
                custom.schema.unknown(object, &mut paths);
                paths.sort();
            }
            None => {
                if let Some(schema) = endpoint.info.schema.as_deref() {
                    walk(resolve(schema), object, "", &mut paths);
                }
            }
        }
        let problems: Vec<String> = paths.iter().map(|path| format!("unknown field {path:?}")).collect();
        if mode == "Strict" && !problems.is_empty() {
            let (kind, version) = (&endpoint.info.kind, &endpoint.info.version);
            let problems = problems.join(", ");
            return Err(StatusError::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {problems}"
            )));
        }
        self.warned.borrow_mut().extend(problems);
        Ok(())
    }
}

fn walk(schema: &Value, value: &Value, path: &str, paths: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let additional = schema.get("additionalProperties");
            if properties.is_none() && additional.is_none() {
                return;
            }
            for (name, value) in fields {
                let at = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                match properties.and_then(|properties| properties.get(name)).or(additional) {
                    Some(schema) => walk(resolve(schema), value, &at, paths),
                    None => paths.push(at),
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for (index, item) in items.iter().enumerate() {
                    walk(resolve(schema), item, &format!("{path}[{index}]"), paths);
                }
            }
        }
        _ => {}
    }
}

/// Refuses an object whose metadata, or any field of a built-in kind, has another type than Go's.
pub(super) fn check_fields(endpoint: &Endpoint, object: &Value) -> Result<()> {
    let fits = match (&endpoint.custom, endpoint.info.schema.as_deref()) {
        (None, Some(schema)) => fits(resolve(schema), object),
        _ => object
            .get("metadata")
            .is_none_or(|metadata| fits(resolve(&METADATA), metadata)),
    };
    if fits {
        return Ok(());
    }
    let (kind, version) = (&endpoint.info.kind, &endpoint.info.version);
    Err(StatusError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {kind}: json: cannot unmarshal a value into a Go struct field"
    )))
}

static METADATA: LazyLock<Value> = LazyLock::new(|| serde_json::json!({"$ref": "meta.v1.ObjectMeta"}));

fn fits(schema: &Value, value: &Value) -> bool {
    let is_number_too = schema.get("format").is_some_and(|format| format == "int-or-string");
    match (schema.get("type").and_then(Value::as_str), value) {
        (_, Value::Null)
        | (None, _)
        | (Some("string"), Value::String(_))
        | (Some("number"), Value::Number(_))
        | (Some("boolean"), Value::Bool(_)) => true,
        (Some("string"), Value::Number(_)) => is_number_too,
        (Some("integer"), Value::Number(number)) => number.is_i64() || number.is_u64(),
        (Some("array"), Value::Array(items)) => {
            let of_items = schema.get("items").map(resolve);
            of_items.is_none_or(|schema| items.iter().all(|item| fits(schema, item)))
        }
        (Some("object"), Value::Object(fields)) => fields.iter().all(|(name, value)| {
            let declared = schema.get("properties").and_then(|properties| properties.get(name));
            let declared = declared.or_else(|| schema.get("additionalProperties"));
            declared.is_none_or(|schema| fits(resolve(schema), value))
        }),
        _ => false,
    }
}
