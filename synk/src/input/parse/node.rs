//! Holds parsed values together with their lines.

use std::collections::BTreeMap;

use serde_json::Value;

/// A value and the line on which it, or its key, begins.
#[derive(Clone, Debug)]
pub(super) struct Located {
    pub(super) line: u64,
    pub(super) node: Node,
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    /// A value that is neither a list nor a map.
    Scalar(Value),
    List(Vec<Located>),
    Map(BTreeMap<String, Located>),
}

/// The size of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Approximate memory in bytes.
    pub(super) weight: usize,
    /// Depth of nested collections.
    pub(super) height: usize,
}

/// Approximate memory of a value beside its text, in bytes.
const VALUE: usize = 64;

// === impl Located ===

impl Located {
    pub(super) fn is_null(&self) -> bool {
        matches!(self.node, Node::Scalar(Value::Null))
    }

    /// Whether the value is a list or null, because null is sometimes written for an empty list.
    pub(super) fn is_list(&self) -> bool {
        self.is_null() || matches!(self.node, Node::List(_))
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.node {
            Node::Scalar(value) => value.as_str(),
            Node::List(_) | Node::Map(_) => None,
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match &self.node {
            Node::Map(entries) => entries.get(key),
            Node::Scalar(_) | Node::List(_) => None,
        }
    }

    /// Names the type of the value for errors, without its content.
    pub(super) fn what(&self) -> &'static str {
        match &self.node {
            Node::Scalar(Value::Null) => "null",
            Node::Scalar(Value::Bool(_)) => "a boolean",
            Node::Scalar(Value::Number(_)) => "a number",
            Node::Scalar(_) => "text",
            Node::List(_) => "a list",
            Node::Map(_) => "a mapping",
        }
    }

    pub(super) fn size(&self) -> Size {
        let text = |text: &str| VALUE + text.len();
        match &self.node {
            Node::Scalar(value) => Size {
                weight: value.as_str().map_or(VALUE, text),
                height: 0,
            },
            Node::List(items) => around(items.iter().map(Self::size)),
            Node::Map(entries) => around(entries.iter().map(|(key, value)| {
                let Size { weight, height } = value.size();
                Size {
                    weight: weight.saturating_add(text(key)),
                    height,
                }
            })),
        }
    }

    pub(super) fn into_value(self) -> Value {
        match self.node {
            Node::Scalar(value) => value,
            Node::List(items) => items.into_iter().map(Self::into_value).collect(),
            Node::Map(entries) => entries
                .into_iter()
                .map(|(key, value)| (key, value.into_value()))
                .collect(),
        }
    }
}

fn around(parts: impl Iterator<Item = Size>) -> Size {
    let none = Size {
        weight: VALUE,
        height: 0,
    };
    let all = parts.fold(none, |all, part| Size {
        weight: all.weight.saturating_add(part.weight),
        height: all.height.max(part.height),
    });
    Size {
        height: all.height + 1,
        ..all
    }
}
