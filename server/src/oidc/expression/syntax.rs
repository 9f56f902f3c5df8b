//! What can be told of an expression from its syntax, when the configuration is read.

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use super::{Expected, Variable};

/// The fields of the variable `user`.
const USER_FIELDS: [&str; 4] = ["username", "uid", "groups", "extra"];

/// The functions that expressions may call. The operators beside them have names with signs, such as `_+_`.
const FUNCTIONS: [&str; 32] = [
    "bool",
    "bytes",
    "charAt",
    "contains",
    "double",
    "dyn",
    "endsWith",
    "format",
    "hasValue",
    "indexOf",
    "int",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "matches",
    "optional.none",
    "optional.of",
    "optional.ofNonZeroValue",
    "or",
    "orValue",
    "replace",
    "size",
    "split",
    "startsWith",
    "string",
    "strings.quote",
    "substring",
    "trim",
    "type",
    "uint",
    "upperAscii",
    "value",
];

/// Names that stand for functions of theirs, and names of types.
const NAMESPACES: [&str; 2] = ["optional", "strings"];
const TYPES: [&str; 10] = [
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
];

/// The kind of value that an expression gives, where its outermost operator tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    String,
    List,
    Null,
    Other,
}

/// Refuses names and functions that do not exist, and an expression that never gives what is expected of it.
pub(super) fn check(expression: &IdedExpr, variable: Variable, expected: Expected) -> Result<(), String> {
    walk(
        expression,
        &mut Names {
            variable,
            bound: Vec::new(),
        },
    )?;
    let fits = match (kind(expression), expected) {
        (None, _)
        | (Some(Kind::Bool), Expected::Bool)
        | (Some(Kind::String), Expected::String)
        | (Some(Kind::String | Kind::List | Kind::Null), Expected::Strings) => true,
        (Some(_), _) => false,
    };
    if fits {
        return Ok(());
    }
    Err(match expected {
        Expected::Bool => "must evaluate to true or false",
        Expected::String => "must evaluate to a string",
        Expected::Strings => "must evaluate to a string or a list of strings",
    }
    .to_owned())
}

/// Whether an expression reads `variable.field` or `variable.?field`.
pub(super) fn reads(expression: &IdedExpr, variable: &str, field: &str) -> bool {
    let is_variable = |operand: &IdedExpr| matches!(&operand.expr, Expr::Ident(name) if name == variable);
    let here = match &expression.expr {
        Expr::Select(select) => is_variable(&select.operand) && select.field == field,
        Expr::Call(call)
            if [operators::OPT_SELECT, operators::INDEX, operators::OPT_INDEX].contains(&call.func_name.as_str()) =>
        {
            matches!(&call.args[..], [operand, key] if is_variable(operand) && text(key) == Some(field))
        }
        _ => false,
    };
    here || children(expression)
        .into_iter()
        .any(|child| reads(child, variable, field))
}

/// The names that an expression may use at a place of it.
struct Names<'a> {
    variable: Variable,
    /// Variables of the macros around it.
    bound: Vec<&'a str>,
}

fn walk<'a>(expression: &'a IdedExpr, names: &mut Names<'a>) -> Result<(), String> {
    match &expression.expr {
        Expr::Ident(name) => return names.check(name),
        Expr::Struct(value) => return Err(format!("makes a {}, which is no type here", value.type_name)),
        Expr::Comprehension(comprehension) => {
            walk(&comprehension.iter_range, names)?;
            walk(&comprehension.accu_init, names)?;
            let outside = names.bound.len();
            names.bound.push(&comprehension.accu_var);
            names.bound.push(&comprehension.iter_var);
            names.bound.extend(comprehension.iter_var2.as_deref());
            for inner in [
                &comprehension.loop_cond,
                &comprehension.loop_step,
                &comprehension.result,
            ] {
                walk(inner, names)?;
            }
            names.bound.truncate(outside);
            return Ok(());
        }
        Expr::Call(call) => {
            let namespace = call.target.as_deref().and_then(|target| names.namespace(target));
            let function = match namespace {
                Some(namespace) => format!("{namespace}.{}", call.func_name),
                None => call.func_name.clone(),
            };
            let is_operator = !function.starts_with(|first: char| first.is_ascii_alphabetic());
            if !is_operator && !FUNCTIONS.contains(&function.as_str()) {
                return Err(format!("calls {function}(), a function that this server does not have"));
            }
            if let ([operand, key], operators::OPT_SELECT) = (&call.args[..], call.func_name.as_str()) {
                names.check_field(operand, text(key))?;
            }
            if namespace.is_some() {
                return call.args.iter().try_for_each(|argument| walk(argument, names));
            }
        }
        Expr::Select(select) => names.check_field(&select.operand, Some(&select.field))?,
        _ => {}
    }
    children(expression)
        .into_iter()
        .try_for_each(|child| walk(child, names))
}

impl Names<'_> {
    fn check(&self, name: &str) -> Result<(), String> {
        let variable = self.variable.name();
        if name == variable || self.bound.contains(&name) || TYPES.contains(&name) || name.starts_with('@') {
            return Ok(());
        }
        Err(format!(
            "uses {name}, which does not exist here; the only variable is {variable}"
        ))
    }

    /// Refuses a field that `user` does not have.
    fn check_field(&self, operand: &cel::IdedExpr, field: Option<&str>) -> Result<(), String> {
        let is_user = matches!(&operand.expr, Expr::Ident(name) if name == Variable::User.name());
        match field {
            Some(field) if is_user && self.variable == Variable::User && !USER_FIELDS.contains(&field) => Err(format!(
                "reads user.{field}, and user has username, uid, groups and extra only"
            )),
            _ => Ok(()),
        }
    }

    fn namespace(&self, target: &IdedExpr) -> Option<&'static str> {
        let Expr::Ident(name) = &target.expr else {
            return None;
        };
        let is_bound = self.bound.contains(&name.as_str());
        NAMESPACES.into_iter().find(|namespace| !is_bound && namespace == name)
    }
}

fn text(expression: &IdedExpr) -> Option<&str> {
    match &expression.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

/// The direct parts of an expression.
fn children(expression: &IdedExpr) -> Vec<&IdedExpr> {
    match &expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(all) => {
            vec![
                &all.iter_range,
                &all.accu_init,
                &all.loop_cond,
                &all.loop_step,
                &all.result,
            ]
        }
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Map(map) => map.entries.iter().flat_map(|entry| parts(&entry.expr)).collect(),
        Expr::Struct(value) => value.entries.iter().flat_map(|entry| parts(&entry.expr)).collect(),
    }
}

fn parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

fn kind(expression: &IdedExpr) -> Option<Kind> {
    match &expression.expr {
        Expr::Literal(LiteralValue::Boolean(_)) => Some(Kind::Bool),
        Expr::Literal(LiteralValue::String(_)) => Some(Kind::String),
        Expr::Literal(LiteralValue::Null) => Some(Kind::Null),
        Expr::Literal(_) | Expr::Map(_) | Expr::Struct(_) => Some(Kind::Other),
        Expr::List(_) => Some(Kind::List),
        Expr::Select(select) if select.test => Some(Kind::Bool),
        Expr::Call(call) => match (call.func_name.as_str(), &call.args[..]) {
            (operators::CONDITIONAL, [_, yes, no]) => kind(yes).filter(|yes| kind(no) == Some(*yes)),
            // Both may be strings, lists or numbers; one side tells.
            (operators::ADD, [one, other]) => kind(one).or_else(|| kind(other)),
            (name, _) => kind_of_function(name),
        },
        _ => None,
    }
}

fn kind_of_function(name: &str) -> Option<Kind> {
    match name {
        operators::LOGICAL_AND
        | operators::LOGICAL_OR
        | operators::LOGICAL_NOT
        | operators::EQUALS
        | operators::NOT_EQUALS
        | operators::GREATER
        | operators::GREATER_EQUALS
        | operators::LESS
        | operators::LESS_EQUALS
        | operators::IN
        | "bool"
        | "contains"
        | "endsWith"
        | "hasValue"
        | "matches"
        | "startsWith" => Some(Kind::Bool),
        "charAt" | "format" | "join" | "lowerAscii" | "replace" | "string" | "strings.quote" | "substring" | "trim"
        | "upperAscii" => Some(Kind::String),
        "split" => Some(Kind::List),
        "size" | "indexOf" | "lastIndexOf" | "int" | "uint" | "double" | "bytes" | "type" => Some(Kind::Other),
        _ => None,
    }
}
