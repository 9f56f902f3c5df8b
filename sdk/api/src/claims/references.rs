//! Reference paths: where a bound object names the claimed objects that it refers to.

use std::{borrow::Cow, sync::Arc};

use serde_json::{Map, Value};

use crate::{names::NAME_LENGTH_MAX, v1alpha2::ReferencePath};

/// The most references of one object by one path; those beyond are not followed.
pub const REFERENCES_MAX: usize = 4096;

/// Where a bound object names another object, and perhaps its namespace: a [`ReferencePath`], parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferencePaths {
    name: Path,
    namespace: Option<Path>,
}

/// An object that a bound object refers to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReferencedObject {
    /// Its namespace on the consumer; `None` if the reference means every namespace.
    pub namespace: Option<Arc<str>>,
    /// Its name.
    pub name: Arc<str>,
}

/// A path such as `spec.secretRefs.#.name`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Path {
    /// The top-level field of the object.
    root: Box<str>,
    /// The steps from there.
    rest: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// To the field of this name; in a list, to the element at this position.
    Name(Box<str>),
    /// To each element of a list.
    Each,
}

type Names = Vec<Box<str>>;
type Found = Vec<(Box<str>, Option<Box<str>>)>;

/// Tells whether a text is a path: names, dots and `#`, with a name first.
pub fn is_reference_path(text: &str) -> bool {
    Path::parse(text).is_some()
}

/// Builds the value of an object's field `metadata` as reference paths see it: what its user wrote.
pub fn referrer_metadata<'a>(
    (namespace, name): (&str, &str),
    labels: impl Iterator<Item = (&'a str, &'a str)>,
    annotations: impl Iterator<Item = (&'a str, &'a str)>,
) -> Value {
    fn map<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
        pairs
            .map(|(key, value)| (key.to_owned(), value.into()))
            .collect::<Map<_, _>>()
            .into()
    }
    let fields = [
        ("name", name.into()),
        ("namespace", namespace.into()),
        ("labels", map(labels)),
        ("annotations", map(annotations)),
    ];
    Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

// === impl ReferencePaths ===

impl ReferencePaths {
    /// Parses the paths of a claim; `None` if one of them is no path. A path to a namespace in `status` is left out: the provider
    /// writes the status, and would choose among all namespaces of the consumer.
    pub fn parse(paths: &ReferencePath) -> Option<Self> {
        let namespace = match paths.namespace.as_deref() {
            None | Some("") => None,
            Some(path) => Some(Path::parse(path)?).filter(|path| &*path.root != "status"),
        };
        Some(Self {
            name: Path::parse(&paths.name)?,
            namespace,
        })
    }

    /// Lists what a bound object refers to, each object once and sorted. Name and namespace that stand in one element of a list
    /// belong together. A reference without a namespace means the namespace of the bound object, or, for a cluster-scoped one,
    /// the `cluster_scoped_namespace` of its export. `field` reads a top-level field of the bound object.
    pub fn evaluate<'a>(
        &self,
        namespace: &Arc<str>,
        cluster_scoped_namespace: Option<&Arc<str>>,
        field: impl Fn(&str) -> Option<Cow<'a, Value>>,
    ) -> Vec<ReferencedObject> {
        let default = [Some(namespace), cluster_scoped_namespace];
        let default = default.into_iter().flatten().find(|namespace| !namespace.is_empty());
        let mut found = self.find(field);
        found.sort_unstable();
        found.dedup();
        let referenced = found.into_iter().map(|(name, namespace)| ReferencedObject {
            namespace: namespace.map(Into::into).or_else(|| default.cloned()),
            name: name.into(),
        });
        referenced.collect()
    }

    fn find<'a>(&self, field: impl Fn(&str) -> Option<Cow<'a, Value>>) -> Found {
        let mut found = Found::new();
        let Some(value) = field(&self.name.root) else {
            return found;
        };
        match &self.namespace {
            None => join(&value, &self.name.rest, None, &mut found),
            Some(path) if path.root == self.name.root => {
                join(&value, &self.name.rest, Some(&path.rest), &mut found);
            }
            Some(path) => {
                let namespaces = field(&path.root).map(|value| scalars(&value, &path.rest));
                let names = scalars(&value, &self.name.rest);
                cross(&names, &namespaces.unwrap_or_default(), &mut found);
            }
        }
        found
    }
}

/// Follows both paths together as long as they are the same.
fn join(value: &Value, name: &[Step], namespace: Option<&[Step]>, found: &mut Found) {
    if let (Some((step, name)), Some(Some((other, namespace)))) =
        (name.split_first(), namespace.map(<[Step]>::split_first))
        && step == other
    {
        for child in step.follow(value) {
            join(child, name, Some(namespace), found);
        }
        return;
    }
    let namespaces = namespace.map(|path| scalars(value, path)).unwrap_or_default();
    cross(&scalars(value, name), &namespaces, found);
}

/// Joins each name with each namespace, or with none if there is none. It stops at [`REFERENCES_MAX`] without making
/// further pairs: an object with thousands of names and of namespaces has millions of them.
fn cross(names: &[Box<str>], namespaces: &[Box<str>], found: &mut Found) {
    let namespaces: Vec<_> = if namespaces.is_empty() {
        vec![None]
    } else {
        namespaces.iter().map(Some).collect()
    };
    let pairs = names
        .iter()
        .flat_map(|name| namespaces.iter().map(move |namespace| (name, *namespace)));
    let room = REFERENCES_MAX.saturating_sub(found.len());
    found.extend(
        pairs
            .take(room)
            .map(|(name, namespace)| (name.clone(), namespace.cloned())),
    );
}

/// The scalars at the end of a path, and those in a list there, as names.
fn scalars(value: &Value, path: &[Step]) -> Names {
    let mut names = Names::new();
    collect_scalars(value, path, &mut names);
    names
}

fn collect_scalars(value: &Value, path: &[Step], names: &mut Names) {
    if let Some((step, rest)) = path.split_first() {
        step.follow(value).for_each(|child| collect_scalars(child, rest, names));
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
        if !text.is_empty() && text.len() <= NAME_LENGTH_MAX && names.len() < REFERENCES_MAX {
            names.push(text.into());
        }
    }
}

// === impl ReferencedObject ===

impl ReferencedObject {
    /// Tells whether this is the object of a namespace and name.
    pub fn is(&self, namespace: &str, name: &str) -> bool {
        *self.name == *name && self.namespace.as_deref().is_none_or(|meant| meant == namespace)
    }
}

// === impl Path ===

impl Path {
    /// Parses a path; `None` if the text is none.
    fn parse(text: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/');
        let step = |step: &str| match step {
            "#" => Some(Step::Each),
            name if !name.is_empty() && name.bytes().all(is_plain) => Some(Step::Name(name.into())),
            _ => None,
        };
        let mut steps = text.split('.').map(step);
        let Some(Some(Step::Name(root))) = steps.next() else {
            return None;
        };
        Some(Self {
            root,
            rest: steps.collect::<Option<_>>()?,
        })
    }
}

// === impl Step ===

impl Step {
    /// What this step leads to from a value.
    fn follow<'a>(&self, value: &'a Value) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
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
