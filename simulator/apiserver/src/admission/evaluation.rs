//! The variables of a policy's expressions, each made when an expression first asks for it.

use std::{fmt, sync::OnceLock};

use cel::{
    Context, ExecutionError, Program,
    common::{
        traits::Indexer,
        types::{CelString, Type},
        value::{CowVal, Val},
    },
    context::VariableResolver,
};
use serde_json::{Map, Value, json};

use super::{
    AdmissionRequest,
    authorizer::Authorizer,
    cel::{compiled, environment, value},
};
use crate::{UserInfo, auth::user_json};

static VARIABLES: Type = Type::new_unspecified_type("kubernetes.variables");
/// Marks the failure of a variable among the errors of an expression.
const COMPOSITED: &str = "variables";

/// What a variable evaluated to, or why it did not.
type Evaluated = Result<Box<dyn Val>, String>;

/// One request, as all policies see it.
pub(super) struct Input<'a> {
    request: &'a AdmissionRequest<'a>,
    namespace: Option<&'a Value>,
    /// What the author may do; absent until a policy needs it.
    pub(super) authorizer: OnceLock<Authorizer>,
    request_value: OnceLock<Box<dyn Val>>,
    object: OnceLock<Box<dyn Val>>,
    old_object: OnceLock<Box<dyn Val>>,
    namespace_object: OnceLock<Box<dyn Val>>,
}

/// The variables of one policy for one request.
pub(super) struct Scope<'a> {
    input: &'a Input<'a>,
    variables: Vec<(&'a str, &'a str, OnceLock<Evaluated>)>,
}

/// What one expression sees: the variables that are declared before it.
#[derive(Clone, Copy)]
struct View<'a> {
    scope: &'a Scope<'a>,
    variables: usize,
}

// === impl Input ===

impl<'a> Input<'a> {
    /// `namespace` is the Namespace of the object, if it is in one.
    pub(super) fn new(request: &'a AdmissionRequest<'a>, namespace: Option<&'a Value>) -> Self {
        Self {
            request,
            namespace,
            authorizer: OnceLock::new(),
            request_value: OnceLock::new(),
            object: OnceLock::new(),
            old_object: OnceLock::new(),
            namespace_object: OnceLock::new(),
        }
    }

    /// Who asks.
    pub(super) fn user(&self) -> &'a UserInfo {
        self.request.user
    }

    fn get(&self, variable: &str) -> Option<&dyn Val> {
        let of = |json: Option<&Value>| value(json.unwrap_or(&Value::Null));
        let found = match variable {
            "request" => self.request_value.get_or_init(|| value(&self.request_json())),
            "object" => self.object.get_or_init(|| of(self.request.object)),
            "oldObject" => self.old_object.get_or_init(|| of(self.request.old_object)),
            "namespaceObject" => self.namespace_object.get_or_init(|| of(self.namespace)),
            "authorizer" => return self.authorizer.get().map(|authorizer| authorizer as &dyn Val),
            _ => return None,
        };
        Some(&**found)
    }

    /// The AdmissionRequest, without fields that are empty.
    fn request_json(&self) -> Value {
        let request = self.request;
        let kind = request.kind;
        let of_kind = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let resource = json!({"group": kind.group, "version": kind.version, "resource": request.resource});
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        for (name, text) in [
            ("subResource", request.subresource),
            ("requestSubResource", request.subresource),
            ("name", request.name),
            ("namespace", request.namespace),
        ] {
            if !text.is_empty() {
                put(name, json!(text));
            }
        }
        put("requestKind", of_kind.clone());
        put("kind", of_kind);
        put("requestResource", resource.clone());
        put("resource", resource);
        put("uid", json!(""));
        put("operation", json!(request.operation));
        put("userInfo", user_json(request.user));
        put("dryRun", json!(request.dry_run));
        put("options", request.options.clone());
        Value::Object(fields)
    }
}

// === impl Scope ===

impl<'a> Scope<'a> {
    /// The variables of a policy by names and expressions, in the order of their declaration.
    pub(super) fn new(input: &'a Input<'a>, variables: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let variables = variables.map(|(name, expression)| (name, expression, OnceLock::new()));
        let variables = variables.collect();
        Self { input, variables }
    }

    /// Evaluates an expression, or says why that fails.
    pub(super) fn evaluate(&self, expression: &str) -> Result<cel::Value, String> {
        let program = compiled(expression).map_err(|error| error.to_string())?;
        let view = View {
            scope: self,
            variables: self.variables.len(),
        };
        let found = view.execute(&program);
        found.map_err(|error| format!("expression '{expression}' resulted in error: {error}"))
    }

    fn variable(&self, name: &str, before: usize) -> Option<&Evaluated> {
        let place = self.variables[..before].iter().position(|(own, ..)| *own == name)?;
        let (name, expression, evaluated) = &self.variables[place];
        Some(evaluated.get_or_init(|| {
            let failed = |word: &str, error: &str| format!("composited variable {name:?} fails to {word}: {error}");
            let program = compiled(expression).map_err(|error| failed("compile", &error))?;
            let view = View {
                scope: self,
                variables: place,
            };
            let found = view.execute(&program).map_err(|error| failed("evaluate", &error))?;
            found.try_into().map_err(|_| failed("evaluate", "unsupported type"))
        }))
    }
}

// === impl View ===

impl View<'_> {
    fn execute(&self, program: &Program) -> Result<cel::Value, String> {
        let mut context = Context::with_env(environment());
        context.set_variable_resolver(self);
        program.execute(&context).map_err(|error| match error {
            ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
            ExecutionError::FunctionError { function, message } if function == COMPOSITED => message,
            other => other.to_string(),
        })
    }
}

impl VariableResolver for View<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        if variable == "variables" {
            return Some(CowVal::owned(*self));
        }
        // A whole path, so that large values are not copied.
        if let Some(name) = variable.strip_prefix("variables.") {
            let found = self.scope.variable(name, self.variables)?.as_ref().ok()?;
            return Some(CowVal::Borrowed(&**found));
        }
        self.scope.input.get(variable).map(CowVal::Borrowed)
    }
}

impl Indexer for View<'_> {
    fn get<'b, 'v>(&'b self, name: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let name = name.downcast_ref::<CelString<'_>>().map_or("", CelString::inner);
        match self.scope.variable(name, self.variables) {
            Some(Ok(value)) => Ok(CowVal::Borrowed(&**value)),
            Some(Err(error)) => Err(ExecutionError::FunctionError {
                function: COMPOSITED.to_owned(),
                message: error.clone(),
            }),
            None => Err(ExecutionError::no_such_key(name)),
        }
    }

    fn steal<'v>(self: Box<Self>, name: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(name).map(CowVal::into_owned)
    }
}

impl Val for View<'_> {
    fn get_type(&self) -> &Type {
        &VARIABLES
    }

    fn cel_type() -> &'static Type {
        &VARIABLES
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(*self)
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("variables", &self.variables)
            .finish_non_exhaustive()
    }
}
