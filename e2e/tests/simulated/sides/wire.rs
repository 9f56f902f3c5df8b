//! Puts the values of earlier answers into a request.

use std::sync::LazyLock;

use http::Method;
use regex::Regex;
use serde_json::Value;

use crate::generate::step::{Body, Call, User};

/// `${3/metadata/uid}`: number of the answer, and a JSON pointer.
static PLACEHOLDER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\$\{(\d+)((?:/[^/}]+)*)\}").expect("a valid pattern"));

/// A request as it goes to one API server.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) user: User,
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) uri: String,
    pub(crate) accept: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Option<String>,
}

/// The answers of one API server so far, by the numbers of their steps.
pub(crate) type Answers = Vec<Option<Value>>;

/// Makes the request. None if it refers to what an earlier answer lacks.
pub(crate) fn wire(call: &Call, answers: &Answers) -> Option<Wire> {
    let text = |text: &str| match fill(text, answers)? {
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    };
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in &call.query {
        query.append_pair(name, &text(value)?);
    }
    let query = query.finish();
    let path = text(&call.path)?;
    let body = match &call.body {
        Body::None => None,
        Body::Raw(text) => Some(text.clone()),
        Body::Json(value) => Some(filled(value, answers)?.to_string()),
        Body::Edited { answer, edit } => {
            let mut object = answers.get(*answer)?.clone()?;
            // What was refused cannot be changed.
            object.get("metadata")?.get("name")?;
            json_patch::merge(&mut object, &filled(edit, answers)?);
            Some(object.to_string())
        }
    };
    Some(Wire {
        user: match &call.user {
            User::Token(token) => User::Token(text(token)?),
            user => user.clone(),
        },
        method: call.method.clone(),
        uri: if query.is_empty() {
            path
        } else {
            format!("{path}?{query}")
        },
        accept: call.accept.unwrap_or("application/json"),
        content_type: call.content_type,
        body,
    })
}

fn filled(value: &Value, answers: &Answers) -> Option<Value> {
    Some(match value {
        Value::String(text) => fill(text, answers)?,
        Value::Array(items) => items.iter().map(|item| filled(item, answers)).collect::<Option<_>>()?,
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| Some((name.clone(), filled(value, answers)?)));
            fields.collect::<Option<_>>()?
        }
        other => other.clone(),
    })
}

fn fill(text: &str, answers: &Answers) -> Option<Value> {
    let value = |number: &str, pointer: &str| -> Option<&Value> {
        let answer = answers.get(number.parse::<usize>().ok()?)?.as_ref()?;
        answer.pointer(pointer).filter(|value| value.as_str() != Some(""))
    };
    let mut filled = String::new();
    let mut end = 0;
    for found in PLACEHOLDER.captures_iter(text) {
        let (whole, [number, pointer]) = (found.get(0)?, found.extract().1);
        let value = value(number, pointer)?;
        if whole.as_str() == text {
            return Some(value.clone());
        }
        filled.push_str(&text[end..whole.start()]);
        filled.push_str(value.as_str()?);
        end = whole.end();
    }
    filled.push_str(&text[end..]);
    Some(filled.into())
}
