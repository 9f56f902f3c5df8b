//! Validates objects against a schema, in the words of Kubernetes.

use serde_json::{Map, Value};

use super::{Bounds, Kind, ListType, Schema};
use crate::status::Cause;

/// What was found so far. Paths begin with a dot; that of the root is empty.
#[derive(Default)]
struct Findings {
    causes: Vec<Cause>,
}

impl Schema {
    /// Validates an object. On updates, what did not change is not judged again.
    /// `blocked` says that rules are not checked, because of faults in the metadata.
    pub(crate) fn validate(&self, object: &Value, old: Option<&Value>, blocked: bool) -> Vec<Cause> {
        let mut findings = Findings::default();
        self.check("", object, old, &mut findings);
        self.judged(object, old, findings, blocked)
    }

    /// Validates only the status of an object.
    pub(crate) fn validate_status(&self, object: &Value, old: Option<&Value>, blocked: bool) -> Vec<Cause> {
        let mut findings = Findings::default();
        if let (Some(schema), Some(status)) = (self.property("status"), object.get("status")) {
            schema.check("", status, old.and_then(|old| old.get("status")), &mut findings);
            for cause in &mut findings.causes {
                // The messages name the field as it is called inside of the status.
                let field = format!("status.{}", cause.field);
                field.trim_end_matches('.').clone_into(&mut cause.field);
            }
        }
        self.judged(object, old, findings, blocked)
    }

    /// Checks the rules of an object whose values have the right types and sizes; of others it says that rules were not checked.
    fn judged(&self, object: &Value, old: Option<&Value>, mut findings: Findings, blocked: bool) -> Vec<Cause> {
        if !self.has_rules {
            return findings.causes;
        }
        if !blocked && !findings.causes.iter().any(is_blocking) {
            self.check_rules("", object, old, &mut findings.causes);
        } else {
            findings.causes.push(Cause::invalid_shown(
                "<nil>",
                "null",
                "some validation rules were not checked because the object was invalid; correct the existing errors to \
                 complete validation",
            ));
        }
        findings.causes
    }

    fn check(&self, path: &str, value: &Value, old: Option<&Value>, found: &mut Findings) {
        if old == Some(value) {
            return;
        }
        let mut add = |cause: Cause| found.causes.push(cause);
        let name = path.trim_start_matches('.');
        if value.is_null() && (self.nullable || self.kind.is_none()) {
            return;
        }
        if let Some(kind) = self.kind
            && !kind.holds(value)
        {
            add(Cause::type_invalid(name, value, &type_message(name, kind, value)));
            if let Some(allowed) = &self.allowed {
                add(Cause::not_supported(name, value, allowed));
            }
            return;
        }
        if self.int_or_string && !value.is_string() && !is_integer(value) {
            let message = type_message_named(name, "integer,string", value);
            add(Cause::type_invalid(name, value, &message));
            return;
        }
        if let Some(allowed) = &self.allowed
            && !allowed.contains(value)
        {
            add(Cause::not_supported(name, value, allowed));
        }
        match value {
            Value::String(text) => self.check_text(name, text, &mut add),
            Value::Number(number) => self
                .bounds
                .check_number(name, number.as_f64().unwrap_or(0.0), value, &mut add),
            Value::Array(items) => self.check_items(path, items, old, found),
            Value::Object(fields) => self.check_fields(path, fields, old, found),
            _ => {}
        }
        self.check_junctions(path, value, found);
    }

    fn check_text(&self, name: &str, text: &str, add: &mut impl FnMut(Cause)) {
        let length = text.chars().count() as u64;
        if let Some(max) = self.bounds.length.1.filter(|max| length > *max) {
            add(Cause::too_long(name, max));
        }
        if let Some(min) = self.bounds.length.0.filter(|min| length < *min) {
            let detail = format!("{name} in body should be at least {min} chars long");
            add(Cause::invalid(name, &text.into(), &detail));
        }
        if let Some(pattern) = &self.pattern
            && !pattern.matches(text)
        {
            let detail = format!("{name} in body should match '{}'", pattern.text);
            add(Cause::invalid(name, &text.into(), &detail));
        }
        if self.format == "date-time" && text.parse::<jiff::Timestamp>().is_err() {
            let detail = format!("{name} in body must be of type date-time: {text:?}");
            add(Cause {
                reason: "FieldValueTypeInvalid",
                ..Cause::invalid(name, &text.into(), &detail)
            });
        }
    }

    fn check_items(&self, path: &str, items: &[Value], old: Option<&Value>, found: &mut Findings) {
        let name = path.trim_start_matches('.');
        let count = items.len() as u64;
        if let Some(max) = self.bounds.items.1.filter(|max| count > *max) {
            found.causes.push(Cause::too_many(name, count, max));
        }
        if let Some(min) = self.bounds.items.0.filter(|min| count < *min) {
            let detail = format!("{name} in body should have at least {min} items");
            found.causes.push(Cause::invalid(name, &count.into(), &detail));
        }
        let old = old.and_then(Value::as_array);
        let Some(schema) = &self.items else {
            return;
        };
        for (index, item) in items.iter().enumerate() {
            let before = self.correlated(item, old);
            schema.check(&format!("{path}[{index}]"), item, before, found);
        }
        let is_first = |index: usize, same: &dyn Fn(&Value) -> bool| !items[..index].iter().any(same);
        for (index, item) in items.iter().enumerate() {
            match &self.list {
                ListType::Set if !is_first(index, &|other| other == item) => {
                    found.causes.push(Cause::duplicate(&format!("{name}[{index}]"), item));
                }
                ListType::Map(keys) if !is_first(index, &|other| has_same(keys, other, item)) => {
                    let key: Map<String, Value> = keys
                        .iter()
                        .filter_map(|key| Some((key.clone(), item.get(key)?.clone())))
                        .collect();
                    let cause = Cause::duplicate(&format!("{name}[{index}]"), &Value::Object(key));
                    found.causes.push(cause);
                }
                _ => {}
            }
        }
        if self.bounds.unique && (0..items.len()).any(|index| !is_first(index, &|other| *other == items[index])) {
            let detail = format!("{name} in body shouldn't contain duplicates");
            found.causes.push(Cause::invalid(name, &Value::Null, &detail));
        }
    }

    /// The item of the old list with the same keys, in a list that is a map.
    fn correlated<'a>(&self, item: &Value, old: Option<&'a Vec<Value>>) -> Option<&'a Value> {
        let ListType::Map(keys) = &self.list else {
            return None;
        };
        old?.iter().find(|other| has_same(keys, other, item))
    }

    fn check_fields(&self, path: &str, fields: &Map<String, Value>, old: Option<&Value>, found: &mut Findings) {
        let name = path.trim_start_matches('.');
        let count = fields.len() as u64;
        if let Some(max) = self.bounds.properties.1.filter(|max| count > *max) {
            found.causes.push(Cause::too_many(name, count, max));
        }
        if let Some(min) = self.bounds.properties.0.filter(|min| count < *min) {
            let detail = format!("{name} in body should have at least {min} properties");
            found.causes.push(Cause::invalid(name, &count.into(), &detail));
        }
        for required in &self.required {
            if !fields.contains_key(required) {
                let field = format!("{path}.{required}");
                found.causes.push(Cause::required(field.trim_start_matches('.'), ""));
            }
        }
        for (field, value) in fields {
            if let Some(schema) = self.property(field) {
                let before = old.and_then(|old| old.get(field));
                schema.check(&format!("{path}.{field}"), value, before, found);
            }
        }
    }

    fn check_junctions(&self, path: &str, value: &Value, found: &mut Findings) {
        let name = path.trim_start_matches('.');
        let fits = |schema: &Self| {
            let mut inner = Findings::default();
            schema.check(path, value, None, &mut inner);
            inner.causes.is_empty()
        };
        let mut add = |detail: String| found.causes.push(Cause::invalid(name, &Value::from(""), &detail));
        if !self.any_of.is_empty() && !self.any_of.iter().any(fits) {
            add(format!("\"{name}\" must validate at least one schema (anyOf)"));
        }
        let matching = self.one_of.iter().filter(|schema| fits(schema)).count();
        if !self.one_of.is_empty() && matching != 1 {
            let counted = if matching == 0 {
                "none".to_owned()
            } else {
                matching.to_string()
            };
            add(format!(
                "\"{name}\" must validate one and only one schema (oneOf). Found {counted} valid"
            ));
        }
        if self.not.as_ref().is_some_and(|not| fits(not)) {
            add(format!("\"{name}\" must not validate the schema (not)"));
        }
        if !self.all_of.iter().all(fits) {
            add(format!("\"{name}\" must validate all the schemas (allOf)"));
        }
    }

    fn check_rules(&self, path: &str, value: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
        if old == Some(value) {
            return;
        }
        causes.extend(self.rules.iter().filter_map(|rule| rule.check(path, value, old)));
        match value {
            Value::Object(fields) => {
                for (field, value) in fields {
                    if let Some(schema) = self.property(field) {
                        let before = old.and_then(|old| old.get(field));
                        schema.check_rules(&format!("{path}.{field}"), value, before, causes);
                    }
                }
            }
            Value::Array(items) => {
                let old = old.and_then(Value::as_array);
                for (index, item) in items.iter().enumerate() {
                    if let Some(schema) = &self.items {
                        let before = self.correlated(item, old);
                        schema.check_rules(&format!("{path}[{index}]"), item, before, causes);
                    }
                }
            }
            _ => {}
        }
    }
}

/// If rules cannot be evaluated on a value with this fault.
pub(crate) fn is_blocking(cause: &Cause) -> bool {
    !matches!(
        cause.reason,
        "FieldValueInvalid" | "FieldValueDuplicate" | "FieldValueForbidden"
    )
}

fn has_same(keys: &[String], one: &Value, other: &Value) -> bool {
    keys.iter().all(|key| one.get(key) == other.get(key))
}

impl Kind {
    fn holds(self, value: &Value) -> bool {
        match self {
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
            Self::String => value.is_string(),
            Self::Integer => is_integer(value),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn type_message(name: &str, kind: Kind, value: &Value) -> String {
    type_message_named(name, kind.name(), value)
}

fn type_message_named(name: &str, kind: &str, value: &Value) -> String {
    let shown = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("{name} in body must be of type {kind}: \"{shown}\"")
}

impl Bounds {
    fn check_number(&self, name: &str, number: f64, value: &Value, add: &mut impl FnMut(Cause)) {
        let low = self.minimum.filter(|min| number < *min || self.above && number <= *min);
        if let Some(min) = low {
            let words = if self.above {
                "greater than"
            } else {
                "greater than or equal to"
            };
            add(Cause::invalid(
                name,
                value,
                &format!("{name} in body should be {words} {min}"),
            ));
        }
        let high = self.maximum.filter(|max| number > *max || self.below && number >= *max);
        if let Some(max) = high {
            let words = if self.below {
                "less than"
            } else {
                "less than or equal to"
            };
            add(Cause::invalid(
                name,
                value,
                &format!("{name} in body should be {words} {max}"),
            ));
        }
        if let Some(factor) = self.multiple_of.filter(|factor| number % factor != 0.0) {
            add(Cause::invalid(
                name,
                value,
                &format!("{name} in body should be a multiple of {factor}"),
            ));
        }
    }
}
