//! Formats results as texts and documents. Pure.

mod history;
mod plan;
mod report;
mod status;

use bindery_runtime::terminal;
use bindery_synk::ObjectRef;
use serde_json::{Map, Value, json};

pub(super) use history::history;
pub(super) use plan::plan;
pub(super) use report::{deleted, init, report, version};
pub(super) use status::{sets, status};

const API_VERSION: &str = "synk.cloudrobotics.com/v1";

/// The style of a text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Style {
    /// True to print everything, not only differences.
    pub(super) verbose: bool,
    /// True to print colours.
    pub(super) colours: bool,
}

impl Style {
    /// Wraps a text in an ANSI colour.
    fn paint(self, colour: u8, text: &str) -> String {
        if self.colours {
            format!("\u{1b}[{colour}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Names an object as kubectl does, with its namespace if that is not the set's.
pub(super) fn named(object: &ObjectRef, set_namespace: &str) -> String {
    let short = terminal::printable(&object.short());
    match &object.namespace {
        Some(namespace) if namespace != set_namespace => {
            format!("{short} in namespace {}", terminal::printable(namespace))
        }
        _ => short,
    }
}

/// Makes a document with apiVersion and kind.
pub(super) fn document(kind: &str, rest: Value) -> Map<String, Value> {
    let mut document = Map::from_iter([
        ("apiVersion".to_owned(), json!(API_VERSION)),
        ("kind".to_owned(), json!(kind)),
    ]);
    if let Value::Object(rest) = rest {
        document.extend(rest);
    }
    document
}

/// Adds fields to the names of an object.
fn about(object: &ObjectRef, more: Value) -> Value {
    let mut about = json!(object);
    if let (Value::Object(about), Value::Object(more)) = (&mut about, more) {
        about.extend(more);
    }
    about
}

/// Returns a text such as `2 created, 1 pruned`, without counts of zero.
fn counted(counts: &[(usize, &str)]) -> String {
    let some = counts.iter().filter(|(count, _)| *count > 0);
    let texts: Vec<_> = some.map(|(count, what)| format!("{count} {what}")).collect();
    texts.join(", ")
}

/// Returns `1 object` or `2 objects`.
pub(super) fn objects(count: usize) -> String {
    format!("{count} object{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use bindery_synk::{
        Gvk,
        input::Origin,
        plan::{Decision, Plan, Step},
    };

    use super::*;

    pub(super) fn object(api_version: &str, kind: &str, name: &str) -> ObjectRef {
        ObjectRef {
            gvk: Gvk::new(api_version, kind),
            namespace: Some("shop".to_owned()),
            name: name.to_owned(),
        }
    }

    pub(super) fn step(api_version: &str, kind: &str, name: &str, decision: Decision) -> Step {
        Step {
            object: object(api_version, kind, name),
            origin: Origin {
                file: "web.yaml".to_owned(),
                document: 1,
                line: 1,
            },
            decision,
            changes: Vec::new(),
            uid: None,
            fingerprint: String::new(),
        }
    }

    pub(super) fn plan() -> Plan {
        Plan {
            set: "web".parse().unwrap(),
            namespace: "shop".to_owned(),
            current: None,
            next: None,
            steps: Vec::new(),
            prune: Vec::new(),
            released: Vec::new(),
            refusals: Vec::new(),
        }
    }
}
