//! Rules in CEL of a schema (`x-kubernetes-validations`).

use std::sync::OnceLock;

use cel::{Context, Program};
use serde_json::Value;

use crate::status::Cause;

/// A rule, compiled when it is first used.
#[derive(Debug)]
pub(super) struct Rule {
    text: String,
    message: String,
    reason: String,
    field_path: String,
    program: OnceLock<Option<Program>>,
}

impl Rule {
    pub(super) fn read(json: &Value) -> Option<Self> {
        let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        let rule = json["rule"].as_str()?;
        Some(Self {
            text: rule.to_owned(),
            message: text("message"),
            reason: text("reason"),
            field_path: text("fieldPath"),
            program: OnceLock::new(),
        })
    }

    /// If the rule compares with the value before, and so holds only for updates.
    fn is_transition(&self) -> bool {
        self.text.contains("oldSelf")
    }

    /// Judges a value at `path`.
    pub(super) fn check(&self, path: &str, value: &Value, old: Option<&Value>) -> Option<Cause> {
        if self.is_transition() && old.is_none() {
            return None;
        }
        let holds = match (self.text.trim(), old) {
            ("self == oldSelf", Some(old)) => Some(value == old),
            _ => self.evaluate(value, old),
        };
        if holds == Some(true) {
            return None;
        }
        let message = if self.message.is_empty() {
            format!("failed rule: {}", self.text)
        } else {
            self.message.clone()
        };
        let field = format!("{path}{}", self.field_path);
        let field = field.trim_start_matches('.');
        Some(match self.reason.as_str() {
            "FieldValueRequired" => Cause::required(field, &message),
            "FieldValueForbidden" => Cause::forbidden(field, &message),
            "FieldValueDuplicate" => Cause::duplicate(field, value),
            _ => Cause::invalid_shown(field, &shown(value), &message),
        })
    }

    fn evaluate(&self, value: &Value, old: Option<&Value>) -> Option<bool> {
        let program = self.program.get_or_init(|| Program::compile(&self.text).ok());
        let mut context = Context::default();
        context.add_variable("self", value).ok()?;
        if let Some(old) = old {
            context.add_variable("oldSelf", old).ok()?;
        }
        match program.as_ref()?.execute(&context) {
            Ok(cel::Value::Bool(holds)) => Some(holds),
            _ => None,
        }
    }
}

/// How a message shows the value that breaks a rule: by its type, if it is not a scalar.
fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "\"object\"".to_owned(),
        Value::Array(_) => "\"array\"".to_owned(),
        scalar => scalar.to_string(),
    }
}
