//! Checks that an applied configuration is of its kind's type.

use serde_json::Value;

use super::types::{Shape, Type, go_plain};

/// What is wrong with a configuration, in the words of Kubernetes; `None` if nothing is.
pub(super) fn fault(applied: &Value, of: Type<'_>) -> Option<String> {
    let mut faults = Vec::new();
    check(applied, of, "", &mut faults);
    match faults.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => {
            let lines: Vec<_> = many.iter().map(|fault| format!("\n  {fault}")).collect();
            Some(format!("errors:{}", lines.concat()))
        }
    }
}

fn check(value: &Value, of: Type<'_>, path: &str, faults: &mut Vec<String>) {
    let at = |path: &str, fault: &str| {
        if path.is_empty() {
            fault.to_owned()
        } else {
            format!("{path}: {fault}")
        }
    };
    match (of.shape(Some(value)), value) {
        (Shape::Any, _) | (_, Value::Null) => {}
        (Shape::Scalar, _) => faults.extend(of.refuses(value).map(|fault| at(path, &fault))),
        (Shape::Map, Value::Object(fields)) => {
            let Some(map) = of.as_map() else { return };
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                let Some(inner) = map.field(name).0 else {
                    faults.push(at(&path, "field not declared in schema"));
                    return;
                };
                check(value, inner, &path, faults);
            }
        }
        (Shape::List, Value::Array(items)) => {
            let Some(list) = of.as_list() else { return };
            let inner = list.items();
            let mut seen = Vec::new();
            for (index, item) in items.iter().enumerate() {
                if !list.is_associative() {
                    check(item, inner, &format!("{path}[{index}]"), faults);
                    continue;
                }
                match list.element(item) {
                    Ok(element) => {
                        let inside = format!("{path}{element}");
                        if seen.contains(&element) {
                            faults.push(at(path, &format!("duplicate entries for key {element}")));
                        }
                        seen.push(element);
                        check(item, inner, &inside, faults);
                    }
                    Err(fault) => {
                        faults.push(at(path, &format!("element {index}: {fault}")));
                        return;
                    }
                }
            }
        }
        (Shape::Map, other) => faults.push(at(path, &format!("expected map, got &{{{}}}", go_plain(other)))),
        (Shape::List, other) => faults.push(at(path, &format!("expected list, got &{{{}}}", go_plain(other)))),
    }
}
