//! How a kind's OpenAPI schema says which values merge, and by what keys.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::element::{Element, Scalar};

/// Definitions of the built-in kinds, without what merging does not need. `x-always` names structs that the API server keeps
/// although they are empty.
static DEFINITIONS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let text = include_str!("built_in.json");
    serde_json::from_str(text).unwrap_or_default()
});

/// The type of a value within an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type<'a> {
    /// The schema; without one, maps merge by key and lists are replaced, all the way down.
    schema: Option<&'a Value>,
    /// If undeclared fields are kept, here and below.
    preserves: bool,
    /// If `apiVersion`, `kind` and `metadata` are declared, although the schema does not say so.
    object: bool,
    /// If the place where the type is used makes its values atomic, or its items are untyped.
    atomic: bool,
}

/// What a value is, for the walks over two versions of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Map,
    List,
    Scalar,
    /// Null where several shapes are allowed. Treated as a map.
    Any,
}

/// A type whose value is a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapType<'a>(Type<'a>);

/// A type whose value is a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListType<'a>(Type<'a>);

/// The definition of a built-in kind.
pub(super) fn definition(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    let group = match group.split_once('.') {
        None if group.is_empty() => "core",
        None => group,
        Some((first, rest)) if rest.ends_with("k8s.io") => first,
        Some(_) => return None,
    };
    let name = format!("{group}.{version}.{kind}");
    DEFINITIONS.get_key_value(&name).map(|(name, _)| name.as_str())
}

/// The schema with this name among the definitions of built-in kinds.
pub(crate) fn resolve(mut schema: &Value) -> &Value {
    while let Some(Value::String(name)) = schema.get("$ref") {
        match DEFINITIONS.get(name) {
            Some(found) => schema = found,
            None => break,
        }
    }
    schema
}

fn is_true(schema: &Value, key: &str) -> bool {
    schema.get(key).is_some_and(|value| *value == Value::Bool(true))
}

// === impl Type ===

impl<'a> Type<'a> {
    /// A value of which nothing is known.
    pub(super) const UNKNOWN: Self = Self {
        schema: None,
        preserves: true,
        object: false,
        atomic: false,
    };

    /// The type of a whole object of a kind.
    pub(super) fn root(schema: Option<&'a Value>) -> Self {
        match schema {
            Some(schema) => Self {
                object: true,
                ..Self::of(schema, false)
            },
            None => Self {
                object: true,
                ..Self::UNKNOWN
            },
        }
    }

    fn of(schema: &'a Value, preserves: bool) -> Self {
        let atomic = schema.get("x-kubernetes-map-type").is_some_and(|it| it == "atomic");
        let named = schema.get("$ref").is_some();
        let schema = resolve(schema);
        Self {
            schema: Some(schema),
            preserves: (preserves && !named) || is_true(schema, "x-kubernetes-preserve-unknown-fields"),
            object: is_true(schema, "x-kubernetes-embedded-resource"),
            atomic,
        }
    }

    fn kind(&self) -> &'a str {
        self.schema
            .and_then(|schema| schema.get("type"))
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// The type's map, if its values may be maps.
    pub(super) fn as_map(self) -> Option<MapType<'a>> {
        matches!(self.kind(), "object" | "").then_some(MapType(self))
    }

    /// The type's list, if its values may be lists.
    pub(super) fn as_list(self) -> Option<ListType<'a>> {
        matches!(self.kind(), "array" | "").then_some(ListType(self))
    }

    /// The shape of a value of this type. A type that is declared wins over the value.
    pub(super) fn shape(self, value: Option<&Value>) -> Shape {
        match (self.kind(), value) {
            ("object", _) | ("", Some(Value::Object(_))) => Shape::Map,
            ("array", _) | ("", Some(Value::Array(_))) => Shape::List,
            ("", None | Some(Value::Null)) => Shape::Any,
            _ => Shape::Scalar,
        }
    }

    /// Why a scalar is not of this type, in the words of Kubernetes.
    pub(super) fn refuses(self, value: &Value) -> Option<String> {
        let expected = match (self.kind(), value) {
            (_, Value::Null)
            | ("integer" | "number" | "", Value::Number(_))
            | ("string" | "", Value::String(_))
            | ("boolean" | "", Value::Bool(_)) => return None,
            ("integer" | "number", _) => {
                return Some(format!("expected numeric (int or float), got {}", go_type(value)));
            }
            ("string", _) => {
                return Some(format!(
                    "expected string, got &value.valueUnstructured{{Value:{}}}",
                    go(value)
                ));
            }
            ("boolean", _) => "boolean",
            _ => "any scalar",
        };
        Some(format!("expected {expected}, got &{{{}}}", go_plain(value)))
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

fn go(value: &Value) -> String {
    value.to_string()
}

/// A value as Go prints it with `%v`.
pub(super) fn go_plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(go_plain).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(key, value)| format!("{key}:{}", go_plain(value)))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

// === impl MapType ===

impl<'a> MapType<'a> {
    /// If the map is owned and replaced as a whole.
    pub(super) fn is_atomic(self) -> bool {
        let of = self.0;
        of.atomic
            || of
                .schema
                .and_then(|schema| schema.get("x-kubernetes-map-type"))
                .is_some_and(|it| it == "atomic")
    }

    /// The type of a field, if the map may have it; and if the schema declares it by name.
    pub(super) fn field(self, name: &str) -> (Option<Type<'a>>, bool) {
        let of = self.0;
        if of.object {
            match name {
                "metadata" => {
                    return (
                        DEFINITIONS.get("meta.v1.ObjectMeta").map(|it| Type::of(it, false)),
                        true,
                    );
                }
                "apiVersion" | "kind" => return (DEFINITIONS.get("meta.v1.Time").map(|it| Type::of(it, false)), true),
                _ => {}
            }
        }
        let Some(schema) = of.schema else {
            return (Some(Type::UNKNOWN), false);
        };
        let properties = schema.get("properties");
        if let Some(field) = properties.and_then(|properties| properties.get(name)) {
            return (Some(Type::of(field, of.preserves)), true);
        }
        let no_properties = properties.and_then(Value::as_object).is_none_or(Map::is_empty);
        let element = match schema.get("additionalProperties") {
            None | Some(Value::Null) => (of.preserves || no_properties).then_some(Type::UNKNOWN),
            Some(Value::Bool(allowed)) => allowed.then_some(Type::UNKNOWN),
            Some(schema) => Some(Type::of(schema, of.preserves)),
        };
        (element, false)
    }

    /// Fields that are there even if the object does not have them.
    pub(super) fn always(self) -> impl Iterator<Item = &'a str> {
        let names = self.0.schema.and_then(|schema| schema.get("x-always"));
        names
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
    }
}

// === impl ListType ===

impl<'a> ListType<'a> {
    /// If the items of the list have owners of their own.
    pub(super) fn is_associative(self) -> bool {
        matches!(self.relation(), "set" | "map")
    }

    fn relation(self) -> &'a str {
        self.text("x-kubernetes-list-type")
    }

    fn text(self, key: &str) -> &'a str {
        let found = self.0.schema.and_then(|schema| schema.get(key));
        found.and_then(Value::as_str).unwrap_or_default()
    }

    /// The type of the items.
    pub(super) fn items(self) -> Type<'a> {
        let items = self.0.schema.and_then(|schema| schema.get("items"));
        items.map_or(Type::UNKNOWN, |items| Type::of(items, self.0.preserves))
    }

    /// What identifies an item, or why nothing does.
    pub(super) fn element(self, item: &Value) -> Result<Element, String> {
        if self.relation() == "set" {
            return match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                scalar => Scalar::of(scalar).map(Element::Value).ok_or_else(String::new),
            };
        }
        match item {
            Value::Object(fields) => self.key(fields),
            Value::Null => Err("associative list with keys may not have a null element".to_owned()),
            _ => Err("associative list with keys may not have non-map elements".to_owned()),
        }
    }

    fn key(self, fields: &Map<String, Value>) -> Result<Element, String> {
        let names = self
            .0
            .schema
            .and_then(|schema| schema.get("x-kubernetes-list-map-keys"));
        let names = names.and_then(Value::as_array).into_iter().flatten();
        let names: Vec<&str> = names.filter_map(Value::as_str).collect();
        let declared = self.items().schema.and_then(|items| items.get("properties"));
        let default = |name: &str| {
            declared
                .and_then(|fields| fields.get(name))
                .and_then(|field| field.get("default"))
        };
        let key = names.iter().filter_map(|name| {
            let value = fields.get(*name).or_else(|| default(name))?;
            Some(((*name).to_owned(), Scalar::of(value)?))
        });
        let mut key: Vec<_> = key.collect();
        if key.is_empty() {
            let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values \
                 for any key fields)",
                quoted.join(" ")
            ));
        }
        key.sort();
        Ok(Element::Key(key))
    }
}
