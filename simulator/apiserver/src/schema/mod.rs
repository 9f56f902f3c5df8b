//! Structural schemas of custom resources: pruning, defaults and validation.

use std::{collections::BTreeMap, sync::OnceLock};

use regex::Regex;
use serde_json::Value;

mod prune;
mod rules;
mod unknown;
mod validate;

use rules::Rule;
pub(crate) use validate::is_blocking;

/// One node of a schema, read once per CRD.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "a CRD has as many")]
pub(crate) struct Schema {
    kind: Option<Kind>,
    nullable: bool,
    properties: BTreeMap<String, Self>,
    additional: Additional,
    items: Option<Box<Self>>,
    required: Vec<String>,
    allowed: Option<Vec<Value>>,
    pattern: Option<Pattern>,
    bounds: Bounds,
    format: String,
    default: Option<Value>,
    /// Unknown fields are kept.
    preserve: bool,
    int_or_string: bool,
    /// The value is an object with `apiVersion`, `kind` and `metadata` of its own.
    embedded: bool,
    list: ListType,
    rules: Vec<Rule>,
    all_of: Vec<Self>,
    any_of: Vec<Self>,
    one_of: Vec<Self>,
    not: Option<Box<Self>>,
    /// Something below has a default, so that defaulting has to go there.
    has_defaults: bool,
    /// There are rules here or below.
    has_rules: bool,
}

/// Type of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// What properties without a schema of their own may be.
#[derive(Debug, Default)]
enum Additional {
    #[default]
    Nothing,
    Anything,
    Like(Box<Schema>),
}

/// How the items of a list are told apart.
#[derive(Debug, Default)]
enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

#[derive(Debug)]
struct Pattern {
    text: String,
    regex: OnceLock<Option<Regex>>,
}

#[derive(Debug, Default)]
struct Bounds {
    minimum: Option<f64>,
    maximum: Option<f64>,
    above: bool,
    below: bool,
    multiple_of: Option<f64>,
    length: (Option<u64>, Option<u64>),
    items: (Option<u64>, Option<u64>),
    properties: (Option<u64>, Option<u64>),
    unique: bool,
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        let regex = self.regex.get_or_init(|| Regex::new(&self.text).ok());
        regex.as_ref().is_none_or(|regex| regex.is_match(text))
    }
}

impl Schema {
    /// Reads `openAPIV3Schema`. `preserve` keeps all unknown fields, as `preserveUnknownFields` of a CRD does.
    pub(crate) fn compile(json: &Value, preserve: bool) -> Self {
        let mut schema = Self::node(json);
        schema.preserve |= preserve || !json.is_object();
        schema
    }

    fn node(json: &Value) -> Self {
        let flag = |name: &str| json[name] == true;
        let number = |name: &str| json[name].as_f64();
        let limit = |name: &str| json[name].as_u64();
        let list = |name: &str| -> Vec<Self> {
            let list = json[name].as_array().map(Vec::as_slice).unwrap_or_default();
            list.iter().map(Self::node).collect()
        };
        let texts = |name: &str| -> Vec<String> {
            let list = json[name].as_array().map(Vec::as_slice).unwrap_or_default();
            list.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
        };
        let properties: BTreeMap<String, Self> = json["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, json)| (name.clone(), Self::node(json)))
            .collect();
        let additional = match &json["additionalProperties"] {
            Value::Bool(true) => Additional::Anything,
            like @ Value::Object(_) => Additional::Like(Box::new(Self::node(like))),
            _ => Additional::Nothing,
        };
        let items = json["items"].is_object().then(|| Box::new(Self::node(&json["items"])));
        let default = json.get("default").cloned();
        let below = match &additional {
            Additional::Like(like) => like.has_defaults,
            _ => false,
        };
        let has_defaults = default.is_some()
            || below
            || properties.values().any(|property| property.has_defaults)
            || items.as_ref().is_some_and(|items| items.has_defaults);
        let rules = json["x-kubernetes-validations"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let rules_below = match &additional {
            Additional::Like(like) => like.has_rules,
            _ => false,
        };
        let has_rules = !rules.is_empty()
            || rules_below
            || properties.values().any(|property| property.has_rules)
            || items.as_ref().is_some_and(|items| items.has_rules);
        Self {
            kind: kind(json["type"].as_str().unwrap_or_default()),
            nullable: flag("nullable"),
            properties,
            additional,
            items,
            required: texts("required"),
            allowed: json["enum"].as_array().cloned(),
            pattern: json["pattern"].as_str().map(|text| Pattern {
                text: text.to_owned(),
                regex: OnceLock::new(),
            }),
            bounds: Bounds {
                minimum: number("minimum"),
                maximum: number("maximum"),
                above: flag("exclusiveMinimum"),
                below: flag("exclusiveMaximum"),
                multiple_of: number("multipleOf"),
                length: (limit("minLength"), limit("maxLength")),
                items: (limit("minItems"), limit("maxItems")),
                properties: (limit("minProperties"), limit("maxProperties")),
                unique: flag("uniqueItems"),
            },
            format: json["format"].as_str().unwrap_or_default().to_owned(),
            default,
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            embedded: flag("x-kubernetes-embedded-resource"),
            list: match json["x-kubernetes-list-type"].as_str() {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map(texts("x-kubernetes-list-map-keys")),
                _ => ListType::Atomic,
            },
            rules: rules.iter().filter_map(Rule::read).collect(),
            all_of: list("allOf"),
            any_of: list("anyOf"),
            one_of: list("oneOf"),
            not: json["not"].is_object().then(|| Box::new(Self::node(&json["not"]))),
            has_defaults,
            has_rules,
        }
    }

    /// The schema of a property, if it has one.
    fn property(&self, name: &str) -> Option<&Self> {
        match (self.properties.get(name), &self.additional) {
            (Some(property), _) => Some(property),
            (None, Additional::Like(like)) => Some(like),
            (None, _) => None,
        }
    }
}

fn kind(name: &str) -> Option<Kind> {
    Some(match name {
        "object" => Kind::Object,
        "array" => Kind::Array,
        "string" => Kind::String,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        "boolean" => Kind::Boolean,
        _ => return None,
    })
}
