//! Errors as Kubernetes answers them: objects of kind Status.

use serde_json::{Map, Value, json};

/// An answer of kind Status that reports a failure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StatusError {
    /// Code of HTTP.
    pub(crate) code: u16,
    /// Reason, such as `NotFound`; empty for some failures of the generic server.
    pub(crate) reason: &'static str,
    /// Message for humans.
    pub(crate) message: String,
    /// Details; [`Value::Null`] if there are none.
    pub(crate) details: Value,
    /// Metadata of the Status, `{}` for most.
    pub(crate) metadata: Value,
}

/// One cause of an error of reason `Invalid`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// Path of the field.
    pub(crate) field: String,
    /// Reason, such as `FieldValueRequired`.
    pub(crate) reason: &'static str,
    /// Message without the field's path.
    pub(crate) message: String,
}

impl Cause {
    fn new(field: &str, reason: &'static str, message: String) -> Self {
        Self {
            field: field.to_owned(),
            reason,
            message,
        }
    }

    /// The value is malformed.
    pub(crate) fn invalid(field: &str, value: &Value, detail: &str) -> Self {
        Self::invalid_shown(field, &value.to_string(), detail)
    }

    /// The value is malformed; the caller says how it is shown.
    pub(crate) fn invalid_shown(field: &str, shown: &str, detail: &str) -> Self {
        Self::new(field, "FieldValueInvalid", format!("Invalid value: {shown}: {detail}"))
    }

    /// The value has another type.
    pub(crate) fn type_invalid(field: &str, value: &Value, detail: &str) -> Self {
        let shown = match value {
            Value::Null => "\"null\"".to_owned(),
            Value::Array(_) => "\"array\"".to_owned(),
            Value::Object(_) => "\"object\"".to_owned(),
            Value::Bool(_) => "\"boolean\"".to_owned(),
            Value::String(_) => "\"string\"".to_owned(),
            Value::Number(number) if number.is_f64() => "\"number\"".to_owned(),
            Value::Number(_) => "\"integer\"".to_owned(),
        };
        Self::new(
            field,
            "FieldValueTypeInvalid",
            format!("Invalid value: {shown}: {detail}"),
        )
    }

    /// The value is missing.
    pub(crate) fn required(field: &str, detail: &str) -> Self {
        Self::new(field, "FieldValueRequired", with_detail("Required value", detail))
    }

    /// The value is not permitted here.
    pub(crate) fn forbidden(field: &str, detail: &str) -> Self {
        Self::new(field, "FieldValueForbidden", with_detail("Forbidden", detail))
    }

    /// The value is there twice.
    pub(crate) fn duplicate(field: &str, value: &Value) -> Self {
        Self::new(field, "FieldValueDuplicate", format!("Duplicate value: {value}"))
    }

    /// The value is none of the allowed ones.
    pub(crate) fn not_supported(field: &str, value: &Value, allowed: &[Value]) -> Self {
        let allowed: Vec<String> = allowed
            .iter()
            .map(|value| {
                value
                    .as_str()
                    .map_or_else(|| format!("{:?}", value.to_string()), |text| format!("{text:?}"))
            })
            .collect();
        let message = format!("Unsupported value: {value}: supported values: {}", allowed.join(", "));
        Self::new(field, "FieldValueNotSupported", message)
    }

    /// The text is longer than this number of bytes.
    pub(crate) fn too_long(field: &str, max: u64) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        let message = format!("Too long: may not be more than {max} {unit}");
        Self::new(field, "FieldValueTooLong", message)
    }

    /// The list has more than this number of items.
    pub(crate) fn too_many(field: &str, count: u64, max: u64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let message = format!("Too many: {count}: must have at most {max} {unit}");
        Self::new(field, "FieldValueTooMany", message)
    }
}

fn with_detail(words: &str, detail: &str) -> String {
    if detail.is_empty() {
        words.to_owned()
    } else {
        format!("{words}: {detail}")
    }
}

/// The object that an error is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    /// API group, empty for core kinds.
    pub(crate) group: &'a str,
    /// Plural name of the resource, or its kind for errors of reason `Invalid`.
    pub(crate) resource: &'a str,
    /// Name of the object, empty if the request had none.
    pub(crate) name: &'a str,
}

impl About<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        for (key, text) in [("name", self.name), ("group", self.group), ("kind", self.resource)] {
            if !text.is_empty() {
                details.insert(key.to_owned(), json!(text));
            }
        }
        details
    }
}

impl StatusError {
    /// An error without details.
    pub(crate) fn plain(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
            metadata: json!({}),
        }
    }

    /// 400: the request cannot be read.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::plain(400, "BadRequest", message)
    }

    /// 403 with the message of an authorizer or an admission plugin.
    pub(crate) fn forbidden(about: About<'_>, message: &str) -> Self {
        let text = if about.name.is_empty() {
            format!("{} is forbidden: {message}", about.qualified())
        } else {
            format!("{} \"{}\" is forbidden: {message}", about.qualified(), about.name)
        };
        Self {
            code: 403,
            reason: "Forbidden",
            message: text,
            details: Value::Object(about.details()),
            metadata: json!({}),
        }
    }

    /// 404 of an object.
    pub(crate) fn not_found(about: About<'_>) -> Self {
        Self {
            code: 404,
            reason: "NotFound",
            message: format!("{} \"{}\" not found", about.qualified(), about.name),
            details: Value::Object(about.details()),
            metadata: json!({}),
        }
    }

    /// 409 of an object that exists already.
    pub(crate) fn already_exists(about: About<'_>) -> Self {
        Self {
            code: 409,
            reason: "AlreadyExists",
            message: format!("{} \"{}\" already exists", about.qualified(), about.name),
            details: Value::Object(about.details()),
            metadata: json!({}),
        }
    }

    /// 409 of an object that changed.
    pub(crate) fn conflict(about: About<'_>, message: &str) -> Self {
        Self {
            code: 409,
            reason: "Conflict",
            message: format!(
                "Operation cannot be fulfilled on {} \"{}\": {message}",
                about.qualified(),
                about.name
            ),
            details: Value::Object(about.details()),
            metadata: json!({}),
        }
    }

    /// 422 with its causes. [`About::resource`] is the kind here.
    pub(crate) fn invalid(about: About<'_>, causes: &[Cause]) -> Self {
        // Causes that were found twice are told once.
        let mut words: Vec<String> = Vec::new();
        for cause in causes {
            let told = format!("{}: {}", cause.field, cause.message);
            if !words.contains(&told) {
                words.push(told);
            }
        }
        let sentence = match words.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut details = about.details();
        if !causes.is_empty() {
            let causes: Vec<Value> = causes
                .iter()
                .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
                .collect();
            details.insert("causes".to_owned(), Value::Array(causes));
        }
        Self {
            code: 422,
            reason: "Invalid",
            message: format!("{} \"{}\" is invalid: {sentence}", about.qualified(), about.name),
            details: Value::Object(details),
            metadata: json!({}),
        }
    }

    /// The body of the answer.
    pub(crate) fn body(&self) -> Value {
        let mut body = Map::new();
        body.insert("kind".to_owned(), json!("Status"));
        body.insert("apiVersion".to_owned(), json!("v1"));
        body.insert("metadata".to_owned(), self.metadata.clone());
        body.insert("status".to_owned(), json!("Failure"));
        body.insert("message".to_owned(), json!(self.message));
        if !self.reason.is_empty() {
            body.insert("reason".to_owned(), json!(self.reason));
        }
        if !self.details.is_null() {
            body.insert("details".to_owned(), self.details.clone());
        }
        body.insert("code".to_owned(), json!(self.code));
        Value::Object(body)
    }
}
