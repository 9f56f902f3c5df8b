//! The first place at which two values differ.

use serde_json::Value;

/// The path of the first difference, with what stands there on each side.
pub(crate) fn first_difference(memory: &Value, real: &Value) -> Option<(String, Value, Value)> {
    let mut path = String::new();
    find(memory, real, &mut path).map(|(memory, real)| (path, memory, real))
}

fn find(memory: &Value, real: &Value, path: &mut String) -> Option<(Value, Value)> {
    match (memory, real) {
        (Value::Object(left), Value::Object(right)) => {
            let names: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).collect();
            // What went wrong tells more than what follows from it.
            let mut names: Vec<_> = names.into_iter().collect();
            names.sort_by_key(|name| !matches!(name.as_str(), "status" | "message"));
            let absent = Value::String("(absent)".to_owned());
            names.into_iter().find_map(|name| {
                let length = path.len();
                path.push('/');
                path.push_str(name);
                let found = find(
                    left.get(name).unwrap_or(&absent),
                    right.get(name).unwrap_or(&absent),
                    path,
                );
                if found.is_none() {
                    path.truncate(length);
                }
                found
            })
        }
        (Value::Array(left), Value::Array(right)) => {
            let pairs = left.iter().zip(right).enumerate();
            let inner = pairs.into_iter().find_map(|(index, (left, right))| {
                let length = path.len();
                path.push('/');
                path.push_str(&index.to_string());
                let found = find(left, right, path);
                if found.is_none() {
                    path.truncate(length);
                }
                found
            });
            inner.or_else(|| {
                (left.len() != right.len()).then(|| {
                    let end = left.len().min(right.len());
                    path.push('/');
                    path.push_str(&end.to_string());
                    let at = |items: &[Value]| items.get(end).cloned();
                    let absent = || Value::String("(absent)".to_owned());
                    (at(left).unwrap_or_else(absent), at(right).unwrap_or_else(absent))
                })
            })
        }
        _ => (memory != real).then(|| (memory.clone(), real.clone())),
    }
}
