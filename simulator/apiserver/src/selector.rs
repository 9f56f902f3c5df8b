//! Label and field selectors.

use serde_json::Value;

mod labels;

use crate::{
    endpoint::Endpoint,
    json::{list, text},
    meta,
    status::StatusError,
};

/// Limits a list or a watch to some objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<(String, bool, String)>,
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    needs: Needs,
}

#[derive(Clone, Debug)]
enum Needs {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

impl Selector {
    /// Reads both selectors. Fields that the resource cannot be selected by are refused.
    pub(crate) fn read(labels: &str, fields: &str, endpoint: &Endpoint) -> Result<Self, StatusError> {
        Ok(Self {
            labels: labels::requirements(labels)?,
            fields: field_terms(fields, endpoint)?,
        })
    }

    /// If every object matches.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value, endpoint: &Endpoint) -> bool {
        let fields = self.fields.iter().all(|(path, equal, value)| {
            let found = field(object, path, endpoint);
            (found == *value) == *equal
        });
        fields && self.labels.iter().all(|requirement| requirement.matches(object))
    }
}

/// If an object has the labels that a LabelSelector, as objects hold it, asks for. An empty selector selects every object.
pub(crate) fn selects(selector: &Value, object: &Value) -> bool {
    let mut labels = selector["matchLabels"].as_object().into_iter().flatten();
    labels.all(|(key, value)| meta::label(object, key) == value.as_str())
        && list(selector, "matchExpressions").iter().all(|expression| {
            let found = meta::label(object, text(expression, "key"));
            let is_listed = found.is_some_and(|found| list(expression, "values").iter().any(|value| value == found));
            match text(expression, "operator") {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

impl Requirement {
    fn matches(&self, object: &Value) -> bool {
        let value = meta::label(object, &self.key);
        match &self.needs {
            Needs::In(values) => value.is_some_and(|value| values.iter().any(|other| other == value)),
            Needs::NotIn(values) => value.is_none_or(|value| !values.iter().any(|other| other == value)),
            Needs::Exists => value.is_some(),
            Needs::Absent => value.is_none(),
            Needs::Above(limit) => value.and_then(number).is_some_and(|number| number > *limit),
            Needs::Below(limit) => value.and_then(number).is_some_and(|number| number < *limit),
        }
    }
}

fn number(value: &str) -> Option<i64> {
    value.parse().ok()
}

fn field_terms(text: &str, endpoint: &Endpoint) -> Result<Vec<(String, bool, String)>, StatusError> {
    let mut found = Vec::new();
    for term in text.split(',').filter(|term| !term.is_empty()) {
        let (path, equal, value) = if let Some((path, value)) = term.split_once("!=") {
            (path, false, value)
        } else if let Some((path, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            (path, true, value)
        } else {
            let message = format!("invalid selector: '{text}'; can't understand '{term}'");
            return Err(StatusError::bad_request(message));
        };
        if !is_selectable(path, endpoint) {
            let message = match endpoint.custom {
                Some(_) => format!("field label not supported: {path}"),
                None if !special(endpoint).is_empty() => format!("field label not supported: {path}"),
                None => {
                    format!("\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
                }
            };
            return Err(StatusError::bad_request(message));
        }
        found.push((path.to_owned(), equal, value.to_owned()));
    }
    Ok(found)
}

/// Fields beside those of metadata by which objects of some built-in kinds are selected.
fn special(endpoint: &Endpoint) -> &'static [&'static str] {
    match (endpoint.info.group.as_str(), endpoint.resource.as_str()) {
        ("", "secrets") => &["type"],
        ("", "namespaces") => &["status.phase", "name"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "type",
            "source",
            "reportingComponent",
        ],
        ("events.k8s.io", "events") => &[
            "reason",
            "type",
            "reportingController",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
        ],
        ("", "pods") => &["spec.nodeName", "status.phase"],
        _ => &[],
    }
}

fn is_selectable(path: &str, endpoint: &Endpoint) -> bool {
    let special = special(endpoint);
    let selectable = endpoint.custom.iter().flat_map(|custom| &custom.selectable);
    path == "metadata.name"
        || path == "metadata.namespace" && (endpoint.namespaced || endpoint.custom.is_some())
        || special.contains(&path)
        || selectable.into_iter().any(|field| field == path)
}

/// The text of a field by which objects are selected; empty if absent.
fn field<'a>(object: &'a Value, path: &str, endpoint: &Endpoint) -> std::borrow::Cow<'a, str> {
    let path = match (endpoint.resource.as_str(), path) {
        ("namespaces", "name") => "metadata.name",
        ("events", "reportingController") => "reportingComponent",
        ("events", path) if path.starts_with("regarding.") => {
            return field_at(object, &path.replace("regarding", "involvedObject"));
        }
        (_, path) => path,
    };
    field_at(object, path)
}

fn field_at<'a>(object: &'a Value, path: &str) -> std::borrow::Cow<'a, str> {
    let found = path.split('.').try_fold(object, |value, part| value.get(part));
    match found {
        Some(Value::String(text)) => text.as_str().into(),
        None | Some(Value::Null) => "".into(),
        Some(other) => other.to_string().into(),
    }
}
