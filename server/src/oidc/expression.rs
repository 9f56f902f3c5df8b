//! CEL expressions of the configuration, over the claims of a token or over the user that was read from them.
//!
//! The API server checks the types of an expression when it reads the file. The crate has no such checker, so [`Expression`]
//! checks what can be told from the syntax: names, functions, the fields of `user`, and the kind of the outermost operator.

use std::sync::{Arc, LazyLock};

use cel::{Context, Env, ExecutionError, Program, Value, extensions};
use serde_json::{Map, Value as Json};

mod syntax;

/// Longest expression, in bytes: the parser and the interpreter use the stack.
const BYTES_MAX: usize = 4 * 1024;

/// The functions of CEL's standard library, of its strings and of its optional values.
static ENVIRONMENT: LazyLock<Option<Arc<Env>>> = LazyLock::new(|| {
    let mut environment = Env::stdlib();
    environment.add_extension(extensions::strings).ok()?;
    Some(Arc::new(environment))
});

/// The one variable of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    /// `claims`: the claims of the token.
    Claims,
    /// `user`: `username`, `uid`, `groups` and `extra`.
    User,
}

/// What an expression must evaluate to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Bool,
    String,
    /// A string, a list of strings, or null.
    Strings,
}

/// A parsed expression.
#[derive(Debug)]
pub(super) struct Expression {
    source: String,
    program: Program,
    variable: Variable,
}

/// The value of a variable, made once for all expressions over it.
#[derive(Clone, Debug)]
pub(super) struct Input(Value);

// === impl Expression ===

impl Expression {
    /// Parses an expression, or says in words why it cannot be evaluated.
    pub(super) fn parse(source: &str, variable: Variable, expected: Expected) -> Result<Self, String> {
        if source.len() > BYTES_MAX {
            return Err(format!("is longer than {BYTES_MAX} bytes"));
        }
        let environment = ENVIRONMENT.as_ref().ok_or("cannot be evaluated by this server")?;
        let program = environment.compile(source).map_err(|errors| {
            let messages: Vec<_> = errors.errors.iter().map(|error| error.msg.as_str()).collect();
            format!("is no CEL expression: {}", messages.join("; "))
        })?;
        syntax::check(program.expression(), variable, expected)?;
        Ok(Self {
            source: source.to_owned(),
            program,
            variable,
        })
    }

    /// The expression as it is written.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// Whether the expression reads this claim by its name, as in `claims.email` or `claims.?email`.
    pub(super) fn reads_claim(&self, claim: &str) -> bool {
        syntax::reads(self.program.expression(), self.variable.name(), claim)
    }

    /// Evaluates to a truth value.
    pub(super) fn is_true(&self, input: &Input) -> Result<bool, String> {
        match self.evaluate(input)? {
            Value::Bool(value) => Ok(value),
            other => Err(self.of_type(&other, "true or false")),
        }
    }

    /// Evaluates to a string.
    pub(super) fn string(&self, input: &Input) -> Result<String, String> {
        match self.evaluate(input)? {
            Value::String(value) => Ok(value.to_string()),
            other => Err(self.of_type(&other, "a string")),
        }
    }

    /// Evaluates to strings: one, a list, or none for null. Empty ones are left out.
    pub(super) fn strings(&self, input: &Input) -> Result<Vec<String>, String> {
        let mut found = match self.evaluate(input)? {
            Value::Null => Vec::new(),
            Value::String(value) => vec![value.to_string()],
            Value::List(values) => {
                let one = |value: &Value| match value {
                    Value::String(value) => Ok(value.to_string()),
                    other => Err(self.of_type(other, "a string in each place of its list")),
                };
                values.iter().map(one).collect::<Result<_, _>>()?
            }
            other => return Err(self.of_type(&other, "a string or a list of strings")),
        };
        found.retain(|value| !value.is_empty());
        Ok(found)
    }

    /// Evaluates the expression. An error never holds a value of the token.
    fn evaluate(&self, input: &Input) -> Result<Value, String> {
        let environment = ENVIRONMENT
            .as_ref()
            .ok_or("expressions cannot be evaluated by this server")?;
        let mut context = Context::with_env(Arc::clone(environment));
        context.add_variable_from_value(self.variable.name(), input.0.clone());
        self.program.execute(&context).map_err(|error| match error {
            // A key may itself be a value of the token, unless the expression spells it.
            ExecutionError::NoSuchKey(key) if self.source.contains(key.as_str()) => {
                format!("the expression {} needs {key:?}, which is missing", self.source)
            }
            _ => format!("the expression {} cannot be evaluated for it", self.source),
        })
    }

    fn of_type(&self, value: &Value, expected: &str) -> String {
        let source = &self.source;
        format!(
            "the expression {source} must give {expected}, and gives a {}",
            value.type_of()
        )
    }
}

impl Variable {
    /// The name of the variable.
    fn name(self) -> &'static str {
        match self {
            Self::Claims => "claims",
            Self::User => "user",
        }
    }
}

// === impl Input ===

impl Input {
    /// The value of a variable with these fields.
    pub(super) fn new(fields: &Map<String, Json>) -> Self {
        Self(object(fields))
    }
}

fn object(fields: &Map<String, Json>) -> Value {
    let fields = fields.iter().map(|(name, field)| (name.clone(), value(field)));
    fields.collect::<std::collections::HashMap<_, _>>().into()
}

/// Numbers are doubles, as in the API server.
fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(value) => Value::Float(value.as_f64().unwrap_or(f64::NAN)),
        Json::String(value) => value.as_str().into(),
        Json::Array(values) => values.iter().map(value).collect::<Vec<_>>().into(),
        Json::Object(fields) => object(fields),
    }
}

#[cfg(test)]
mod tests;
