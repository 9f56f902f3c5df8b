//! Paths of names, dots and `#`, and what they find in an object that refers to others.

use bindery_api::names::NAME_LENGTH_MAX;
use serde_json::{Map, Value, value::RawValue};

use crate::model::{labels::Marks, object::Object};

/// An object refers to no more than this many others by one path: what is beyond is not followed.
const FOUND_MAX: usize = 4096;

/// A path such as `spec.secretRefs.#.name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// A field; on a list, the element at a position.
    Name(Box<str>),
    /// Each element of a list.
    Each,
}

/// Where the name and perhaps the namespace of another object stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    name: Path,
    namespace: Option<Path>,
}

/// What an object refers to by name, and by namespace if it says one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Found {
    pub name: Box<str>,
    pub namespace: Option<Box<str>>,
}

// === impl Path ===

impl Path {
    /// Reads a path; `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_name = |part: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/');
            !part.is_empty() && part.bytes().all(is_plain)
        };
        let part = |part: &str| match part {
            "#" => Some(Part::Each),
            name if is_name(name) => Some(Part::Name(name.into())),
            _ => None,
        };
        let parts: Option<Vec<_>> = text.split('.').map(part).collect();
        parts
            .filter(|parts| parts.first() != Some(&Part::Each))
            .map(|parts| Self { parts })
    }

    fn root(&self) -> Option<&str> {
        match self.parts.first()? {
            Part::Name(name) => Some(name),
            Part::Each => None,
        }
    }
}

impl Part {
    /// What this part leads to.
    fn step<'a>(&self, value: &'a Value) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
        match (self, value) {
            (Self::Name(name), Value::Object(fields)) => Box::new(fields.get(&**name).into_iter()),
            (Self::Name(name), Value::Array(items)) => {
                let at = name.parse::<usize>().ok();
                Box::new(at.and_then(|at| items.get(at)).into_iter())
            }
            (Self::Each, Value::Array(items)) => Box::new(items.iter()),
            _ => Box::new(std::iter::empty()),
        }
    }
}

// === impl Reference ===

impl Reference {
    /// Reads the paths of a claim; `None` if one of them is no path. No namespace is read from what the provider writes: it
    /// would choose among all that the consumer has.
    pub(crate) fn parse(name: &str, namespace: Option<&str>) -> Option<Self> {
        let namespace = match namespace.filter(|path| !path.is_empty()) {
            None => None,
            Some(path) => Some(Path::parse(path)?).filter(|path| path.root() != Some("status")),
        };
        Some(Self {
            name: Path::parse(name)?,
            namespace,
        })
    }

    /// What an object refers to, each once. Name and namespace that stand in one element of a list belong together.
    pub(crate) fn evaluate(&self, object: &Object) -> Vec<Found> {
        let mut found = Vec::new();
        let Some((root, value)) = self.name.root().and_then(|root| Some((root, field(object, root)?))) else {
            return found;
        };
        match &self.namespace {
            None => join(&value, &self.name.parts[1..], None, &mut found),
            Some(path) if path.root() == Some(root) => {
                join(&value, &self.name.parts[1..], Some(&path.parts[1..]), &mut found);
            }
            Some(path) => {
                let mut namespaces = Vec::new();
                if let Some(value) = path.root().and_then(|root| field(object, root)) {
                    scalars(&value, &path.parts[1..], &mut namespaces);
                }
                let mut names = Vec::new();
                scalars(&value, &self.name.parts[1..], &mut names);
                cross(&names, &namespaces, &mut found);
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Follows both paths together as long as they are the same.
fn join(value: &Value, name: &[Part], namespace: Option<&[Part]>, found: &mut Vec<Found>) {
    if let (Some((part, name)), Some(Some((other, namespace)))) =
        (name.split_first(), namespace.map(<[Part]>::split_first))
        && part == other
    {
        for child in part.step(value) {
            join(child, name, Some(namespace), found);
        }
        return;
    }
    let (mut names, mut namespaces) = (Vec::new(), Vec::new());
    scalars(value, name, &mut names);
    if let Some(namespace) = namespace {
        scalars(value, namespace, &mut namespaces);
    }
    cross(&names, &namespaces, found);
}

fn cross(names: &[Box<str>], namespaces: &[Box<str>], found: &mut Vec<Found>) {
    for name in names {
        let said: Vec<_> = if namespaces.is_empty() {
            vec![None]
        } else {
            namespaces.iter().cloned().map(Some).collect()
        };
        let left = FOUND_MAX.saturating_sub(found.len());
        found.extend(said.into_iter().take(left).map(|namespace| Found {
            name: name.clone(),
            namespace,
        }));
    }
}

/// The scalars at the end of a path, and those in a list there, as names.
fn scalars(value: &Value, path: &[Part], into: &mut Vec<Box<str>>) {
    if let Some((part, rest)) = path.split_first() {
        part.step(value).for_each(|child| scalars(child, rest, into));
        return;
    }
    let items = match value {
        Value::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    for item in items {
        let text = match item {
            Value::String(text) => text.trim().to_owned(),
            Value::Number(number) => number.to_string(),
            Value::Bool(value) => value.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => continue,
        };
        if !text.is_empty() && text.len() <= NAME_LENGTH_MAX && into.len() < FOUND_MAX {
            into.push(text.into());
        }
    }
}

/// A top-level field of an object; of its metadata what its user wrote.
fn field(object: &Object, name: &str) -> Option<Value> {
    if name == "metadata" {
        return Some(metadata(object));
    }
    let text: &RawValue = if name == "status" {
        object.status.as_deref()?
    } else {
        object
            .body
            .iter()
            .find(|(key, _)| **key == *name)
            .map(|(_, text)| text)?
    };
    serde_json::from_str(text.get()).ok()
}

fn metadata(object: &Object) -> Value {
    let text = |text: &str| Value::String(text.to_owned());
    let map = |pairs: &Marks| {
        let pairs = pairs.iter().map(|(key, value)| (key.to_owned(), text(value)));
        Value::Object(pairs.collect())
    };
    let meta = &object.meta;
    let fields = [
        ("name", text(&meta.name)),
        ("namespace", text(&meta.namespace)),
        ("labels", map(&meta.labels)),
        ("annotations", map(&meta.annotations)),
    ];
    Value::Object(Map::from_iter(fields.map(|(key, value)| (key.to_owned(), value))))
}

#[cfg(test)]
#[path = "tests/path.rs"]
mod tests;
