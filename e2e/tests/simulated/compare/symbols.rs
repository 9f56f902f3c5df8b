//! Replaces what an API server chooses by numbers of first appearance, so that identity is compared and not the values.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

use super::nature::{FIELDS, Nature};

static UID: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").expect("a valid pattern")
});

static TOO_OLD: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"resource version: \d+ \(\d+\)").expect("a valid pattern"));

static TOO_LARGE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"Too large resource version: \d+, current: \d+").expect("a valid pattern"));

/// The kind of custom resources whose definitions end in sequences.
const ENDING_KIND: &str = "Thing";

/// Revisions in messages about preconditions.
static REVISION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"ResourceVersion in (the precondition|record) \((\d+)\)").expect("a valid pattern"));

/// What a parser of Go says about text that it cannot read, up to the end of the message.
static PARSER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?s)(json parse error|continue key is not valid|error decoding patch|error decoding YAML|cannot be handled as an? \w+: json): .*")
        .expect("a valid pattern")
});

/// What one API server has chosen during a sequence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols {
    /// By the kind of value, the numbers.
    numbers: BTreeMap<&'static str, BTreeMap<String, usize>>,
    /// Generated names and what is written instead.
    names: BTreeMap<String, String>,
    /// The URL of the API server, which it has as its issuer.
    issuer: String,
}

impl Symbols {
    pub(crate) fn new(issuer: &str) -> Self {
        Self {
            issuer: issuer.to_owned(),
            ..Self::default()
        }
    }

    /// The value with symbols.
    pub(crate) fn normal(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => self.object(fields),
            Value::Array(items) => items.iter().map(|item| self.normal(item)).collect(),
            Value::String(text) => self.text(text).into(),
            other => other.clone(),
        }
    }

    fn object(&mut self, fields: &Map<String, Value>) -> Value {
        self.learn_name(fields);
        let mut fields = fields.clone();
        let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
        if (kind.ends_with("Review") || kind == "TokenRequest")
            && let Some(Value::Object(metadata)) = fields.get_mut("metadata")
        {
            metadata.remove("managedFields");
        }
        fields
            .retain(|name, value| name != "metadata" || value.as_object().is_none_or(|metadata| !metadata.is_empty()));
        without_grace_period(&mut fields);
        unordered_causes(&mut fields);
        if fields.get("type").is_some_and(|it| it == "BOOKMARK")
            && let Some(object) = fields.get_mut("object")
        {
            *object = bookmark(object);
        }
        let fields = &fields;
        let is_list = fields.contains_key("items");
        let mut normal = Map::new();
        for (name, value) in fields {
            let value = match value {
                // The revision of a list.
                Value::Object(metadata) if is_list && name == "metadata" => self.list_metadata(metadata),
                value => self.field(name, value),
            };
            normal.insert(self.text(name), value);
        }
        normal.into()
    }

    fn list_metadata(&mut self, metadata: &Map<String, Value>) -> Value {
        let mut metadata = metadata.clone();
        if let Some(revision) = metadata.get_mut("resourceVersion") {
            *revision = "(revision)".into();
        }
        let fields = metadata.iter().map(|(name, value)| match name.as_str() {
            "resourceVersion" => (name.clone(), value.clone()),
            _ => (name.clone(), self.field(name, value)),
        });
        Value::Object(fields.collect())
    }

    fn field(&mut self, name: &str, value: &Value) -> Value {
        if name == "managedFields" {
            return self.managed_fields(value);
        }
        let nature = FIELDS
            .iter()
            .find(|(field, _)| *field == name)
            .map(|(_, nature)| *nature);
        match (nature, value) {
            (Some(Nature::Time), Value::String(time)) if is_recent(time) => "(time)".into(),
            (Some(Nature::Identity), Value::String(text)) => self.identity(name, text).into(),
            (Some(Nature::Opaque), Value::String(text)) if !text.is_empty() => "(opaque)".into(),
            (_, value) => self.normal(value),
        }
    }

    fn managed_fields(&mut self, value: &Value) -> Value {
        let Value::Array(entries) = value else {
            return self.normal(value);
        };
        let mut entries: Vec<_> = entries.iter().map(|entry| self.normal(entry)).collect();
        let key = |entry: &Value| -> Vec<String> {
            let fields = ["operation", "manager", "apiVersion", "subresource", "fieldsV1"];
            fields.iter().map(|field| entry[*field].to_string()).collect()
        };
        entries.sort_by_cached_key(key);
        entries.into()
    }

    /// An answer that holds an object with a generated name tells that name.
    fn learn_name(&mut self, fields: &Map<String, Value>) {
        let text = |field: &str| fields.get(field).and_then(Value::as_str);
        if let (Some(prefix), Some(name)) = (text("generateName"), text("name"))
            && name.len() > 5
            && !self.names.contains_key(name)
        {
            let cut = &name[..name.len() - 5];
            if prefix.starts_with(cut) {
                let symbol = format!("{cut}(generated {})", self.names.len() + 1);
                self.names.insert(name.to_owned(), symbol);
            }
        }
    }

    fn identity(&mut self, field: &str, text: &str) -> String {
        let kind = match field {
            "uid" => "uid",
            "token" => "token",
            _ => "revision",
        };
        if text.is_empty() {
            return String::new();
        }
        self.number(kind, text)
    }

    fn number(&mut self, kind: &'static str, text: &str) -> String {
        let numbers = self.numbers.entry(kind).or_default();
        let next = numbers.len() + 1;
        let number = *numbers.entry(text.to_owned()).or_insert(next);
        format!("({kind} {number})")
    }

    fn text(&mut self, text: &str) -> String {
        let mut normal = UID
            .replace_all(text, |found: &Captures<'_>| self.number("uid", &found[0]))
            .into_owned();
        normal = TOO_OLD
            .replace_all(&normal, "resource version: (old) (oldest)")
            .into_owned();
        normal = TOO_LARGE
            .replace_all(&normal, "Too large resource version: (ahead), current: (current)")
            .into_owned();
        normal = PARSER.replace_all(&normal, "$1: (words of a parser)").into_owned();
        if REVISION.is_match(&normal) {
            let number = |found: &Captures<'_>| {
                let revision = self.number("revision", &found[2]);
                format!("ResourceVersion in {} {revision}", &found[1])
            };
            normal = REVISION.replace_all(&normal, number).into_owned();
        }
        for (name, symbol) in &self.names {
            if normal.contains(name.as_str()) {
                normal = normal.replace(name.as_str(), symbol);
            }
        }
        if !self.issuer.is_empty() {
            normal = normal.replace(&self.issuer, "(issuer)");
        }
        normal
    }
}

/// Removes a grace period of 0 from an object whose definition may be ending.
fn without_grace_period(object: &mut Map<String, Value>) {
    if object.get("kind").is_some_and(|kind| kind == ENDING_KIND)
        && let Some(Value::Object(metadata)) = object.get_mut("metadata")
        && metadata
            .get("deletionGracePeriodSeconds")
            .is_some_and(|seconds| *seconds == 0)
    {
        metadata.remove("deletionGracePeriodSeconds");
    }
}

/// What is compared of the object of a bookmark.
fn bookmark(object: &Value) -> Value {
    json!({
        "kind": object["kind"], "apiVersion": object["apiVersion"], "annotations": object["metadata"]["annotations"],
    })
}

/// The API server finds the faults of an object in an order that differs from one time to the next.
fn unordered_causes(status: &mut Map<String, Value>) {
    let causes = status.get_mut("details").and_then(|details| details.get_mut("causes"));
    let Some(causes) = causes.and_then(Value::as_array_mut).filter(|causes| causes.len() > 1) else {
        return;
    };
    causes.sort_by_cached_key(ToString::to_string);
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some((before, _)) = message.split_once(" is invalid: [")
    {
        *message = format!("{before} is invalid: (its causes)");
    }
}

/// Whether it is a time that a clock of these days tells.
fn is_recent(time: &str) -> bool {
    let is_time = time.parse::<jiff::Timestamp>().is_ok();
    is_time && time > "2025"
}
