//! CEL expressions: compiled once, and evaluated over values of JSON.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock},
};

use ::cel::{
    Env, Program,
    common::{
        types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString},
        value::Val,
    },
    extensions,
};
use parking_lot::Mutex;
use serde_json::Value;

use super::authorizer;

/// The functions of Kubernetes' CEL that the policies use.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut environment = Env::stdlib();
    // A function that cannot be declared is missing when an expression calls it, which fails that expression.
    let _ = environment.add_extension(extensions::strings);
    let _ = authorizer::declare(&mut environment);
    Arc::new(environment)
});

/// A compiled expression, or why it is none.
pub(super) type Compiled = Result<Arc<Program>, Arc<str>>;

/// Expressions that were compiled before. What an expression compiles to depends on its text only. All threads share them, for a seed
/// of the simulator runs on a thread of its own, in a fork of a process that has compiled them.
static COMPILED: Mutex<BTreeMap<String, Compiled>> = parking_lot::const_mutex(BTreeMap::new());

/// The environment of all expressions.
pub(super) fn environment() -> Arc<Env> {
    Arc::clone(&ENVIRONMENT)
}

/// Compiles an expression.
pub(super) fn compiled(expression: &str) -> Compiled {
    let mut compiled = COMPILED.lock();
    if let Some(known) = compiled.get(expression) {
        return known.clone();
    }
    let program = ENVIRONMENT.compile(expression).map(Arc::new).map_err(|errors| {
        let messages: Vec<_> = errors.errors.iter().map(|error| error.msg.as_str()).collect();
        Arc::from(format!("compilation error: {}", messages.join("; ")))
    });
    compiled.insert(expression.to_owned(), program.clone());
    program
}

/// A value of CEL.
pub(super) fn value(json: &Value) -> Box<dyn Val> {
    match json {
        Value::Null => Box::new(CelNull),
        Value::Bool(it) => Box::new(CelBool::from(*it)),
        Value::Number(it) => match it.as_i64() {
            Some(it) => Box::new(CelInt::from(it)),
            None => Box::new(CelDouble::from(it.as_f64().unwrap_or_default())),
        },
        Value::String(it) => Box::new(CelString::from(it.clone())),
        Value::Array(items) => Box::new(CelList::from(items.iter().map(value).collect::<Vec<_>>())),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, field)| (CelMapKey::from(name.clone()), value(field)));
            Box::new(CelMap::from(fields.collect::<HashMap<_, _>>()))
        }
    }
}
