//! One step of a path to a field, as `managedFields` write it.

use std::{cmp::Ordering, fmt};

use serde_json::{Number, Value};

/// A step from a value to one within it. The order is the one in which Kubernetes lists conflicts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Element {
    /// A field of a map, `f:`.
    Field(String),
    /// The item of a list with these key fields, `k:`.
    Key(Vec<(String, Scalar)>),
    /// The item of a set, `v:`.
    Value(Scalar),
    /// The item at a place of a list, `i:`.
    Index(i64),
}

/// A value without parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Number(Number),
    Text(String),
    Bool(bool),
    Null,
}

// === impl Element ===

impl Element {
    /// Reads a key of `fieldsV1`. Unknown kinds of elements are ignored, as Kubernetes does.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(rest.to_owned())),
            "v" => Scalar::of(&serde_json::from_str(rest).ok()?).map(Self::Value),
            "i" => rest.parse().ok().map(Self::Index),
            "k" => {
                let Value::Object(keys) = serde_json::from_str(rest).ok()? else {
                    return None;
                };
                let fields = keys
                    .iter()
                    .map(|(name, value)| Some((name.clone(), Scalar::of(value)?)));
                let mut fields: Vec<_> = fields.collect::<Option<_>>()?;
                fields.sort();
                Some(Self::Key(fields))
            }
            _ => None,
        }
    }

    /// The key of `fieldsV1`.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Value(value) => format!("v:{}", value.json()),
            Self::Index(index) => format!("i:{index}"),
            Self::Key(fields) => {
                let fields = fields.iter().map(|(name, value)| (name.clone(), value.json()));
                format!("k:{}", Value::Object(fields.collect()))
            }
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Value(value) => write!(f, "[={}]", value.json()),
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (place, (name, value)) in fields.iter().enumerate() {
                    let comma = if place == 0 { "" } else { "," };
                    write!(f, "{comma}{name}={}", value.json())?;
                }
                f.write_str("]")
            }
        }
    }
}

// === impl Scalar ===

impl Scalar {
    /// The scalar of a value, unless that is a list or a map.
    pub(super) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(Self::Null),
            Value::Bool(it) => Some(Self::Bool(*it)),
            Value::Number(it) => Some(Self::Number(it.clone())),
            Value::String(it) => Some(Self::Text(it.clone())),
            Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(it) => Value::Bool(*it),
            Self::Number(it) => Value::Number(it.clone()),
            Self::Text(it) => Value::String(it.clone()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Number(_) => 0,
            Self::Text(_) => 1,
            Self::Bool(_) => 2,
            Self::Null => 3,
        }
    }
}

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(one), Self::Number(two)) => {
                let float = |number: &Number| number.as_f64().unwrap_or_default();
                float(one)
                    .total_cmp(&float(two))
                    .then_with(|| one.to_string().cmp(&two.to_string()))
            }
            (Self::Text(one), Self::Text(two)) => one.cmp(two),
            (Self::Bool(one), Self::Bool(two)) => one.cmp(two),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
