//! Turns documents into objects: splits lists, and reports documents that are no objects.

use serde_json::Value;

use super::{
    Problem,
    node::{Located, Node},
};
use crate::{
    input::{Manifest, Origin},
    object::{Gvk, ObjectRef},
    wire::HELM_HOOK,
};

/// Returns the objects of a document. An empty document has none.
pub(super) fn manifests(root: Located, origin: &Origin) -> Result<Vec<Manifest>, Vec<Problem>> {
    let mut collector = Collector {
        origin,
        manifests: Vec::new(),
        problems: Vec::new(),
    };
    if !root.is_null() {
        collector.object(root, "");
    }
    if collector.problems.is_empty() {
        Ok(collector.manifests)
    } else {
        Err(collector.problems)
    }
}

struct Collector<'a> {
    origin: &'a Origin,
    manifests: Vec<Manifest>,
    problems: Vec<Problem>,
}

// === impl Collector ===

impl Collector<'_> {
    /// Adds an object. `path` leads from the root of the document to the object, through the lists around it.
    fn object(&mut self, mut object: Located, path: &str) {
        if !matches!(object.node, Node::Map(_)) {
            let what = object.what();
            let text = format!("{path}an object is a mapping with apiVersion, kind and metadata, not {what}");
            return self.problems.push(Problem::new(object.line, text));
        }
        if let Some(items) = items(&mut object) {
            return self.list(&object, items, path);
        }
        if is_test(&object) {
            return;
        }
        let line = object.line;
        if let Some(reference) = self.reference(&object, path)
            && let Value::Object(body) = object.into_value()
        {
            let origin = Origin {
                line,
                ..self.origin.clone()
            };
            self.manifests.push(Manifest {
                object: reference,
                body,
                origin,
            });
        }
    }

    fn list(&mut self, list: &Located, items: Located, path: &str) {
        let what = items.what();
        let Located { line, node } = items;
        let items = match node {
            Node::List(items) => items,
            Node::Scalar(Value::Null) => Vec::new(),
            _ => {
                return self
                    .problems
                    .push(Problem::new(line, format!("{path}items is {what}, not a list")));
            }
        };
        for (item, index) in items.into_iter().zip(0..) {
            self.object(of_list(item, list), &format!("{path}items[{index}]: "));
        }
    }

    fn reference(&mut self, object: &Located, path: &str) -> Option<ObjectRef> {
        let before = self.problems.len();
        let api_version = self.text(object, "apiVersion", "apiVersion", path);
        if let Some(text) = api_version
            && !is_api_version(text)
        {
            let line = object.get("apiVersion").unwrap_or(object).line;
            self.wrong(line, path, "apiVersion has to be VERSION or GROUP/VERSION");
        }
        let kind = self.text(object, "kind", "kind", path);
        let (name, namespace) = match object.get("metadata") {
            Some(metadata @ Located { node: Node::Map(_), .. }) => self.names(metadata, path),
            Some(metadata) if !metadata.is_null() => {
                self.wrong(
                    metadata.line,
                    path,
                    &format!("metadata is {}, not a mapping", metadata.what()),
                );
                (None, None)
            }
            _ => {
                self.wrong(object.line, path, "metadata.name is missing");
                (None, None)
            }
        };
        if self.problems.len() > before {
            return None;
        }
        Some(ObjectRef {
            gvk: Gvk::new(api_version?, kind?),
            namespace: namespace.map(str::to_owned),
            name: name?.to_owned(),
        })
    }

    fn names<'o>(&mut self, metadata: &'o Located, path: &str) -> (Option<&'o str>, Option<&'o str>) {
        let is_generated = metadata.get("generateName").is_some_and(|prefix| !prefix.is_null());
        let name = if is_generated && metadata.get("name").is_none_or(Located::is_null) {
            let text = "metadata.generateName makes a new object each time: objects of a set need metadata.name";
            self.wrong(metadata.line, path, text);
            None
        } else {
            self.text(metadata, "name", "metadata.name", path)
        };
        let namespace = match metadata.get("namespace") {
            None => None,
            Some(namespace) if namespace.is_null() || namespace.text() == Some("") => None,
            Some(_) => self.text(metadata, "namespace", "metadata.namespace", path),
        };
        (name, namespace)
    }

    /// Returns the text of a required field.
    fn text<'o>(&mut self, of: &'o Located, key: &str, field: &str, path: &str) -> Option<&'o str> {
        match of.get(key) {
            Some(value) if !value.is_null() && value.text().is_none() => {
                self.wrong(
                    value.line,
                    path,
                    &format!("{field} is {}, not text: put it in quotes", value.what()),
                );
                None
            }
            value => {
                let text = value.and_then(Located::text).filter(|text| !text.is_empty());
                if text.is_none() {
                    self.wrong(value.unwrap_or(of).line, path, &format!("{field} is missing"));
                }
                text
            }
        }
    }

    fn wrong(&mut self, line: u64, path: &str, text: &str) {
        self.problems.push(Problem::new(line, format!("{path}{text}")));
    }
}

/// Takes the items out of a list of objects. Returns `None` if the object is no list.
fn items(object: &mut Located) -> Option<Located> {
    let kind = object.get("kind").and_then(Located::text)?;
    let is_list = kind == "List" || kind.ends_with("List") && object.get("items").is_some_and(Located::is_list);
    if !is_list {
        return None;
    }
    let line = object.line;
    let Node::Map(entries) = &mut object.node else {
        return None;
    };
    let none = Located {
        line,
        node: Node::List(Vec::new()),
    };
    Some(entries.remove("items").unwrap_or(none))
}

/// Fills in kind and apiVersion of a list item, which the API server leaves out of typed lists such as ConfigMapList.
fn of_list(mut item: Located, list: &Located) -> Located {
    let line = item.line;
    let kind = list
        .get("kind")
        .and_then(Located::text)
        .and_then(|kind| kind.strip_suffix("List"));
    if let (Some(kind), Some(version), Node::Map(entries)) = (kind, list.get("apiVersion"), &mut item.node)
        && !kind.is_empty()
        && !entries.contains_key("kind")
    {
        let kind = Node::Scalar(Value::from(kind));
        entries.insert("kind".to_owned(), Located { line, node: kind });
        entries
            .entry("apiVersion".to_owned())
            .or_insert_with(|| version.clone());
    }
    item
}

fn is_test(object: &Located) -> bool {
    let hook = object
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations")?.get(HELM_HOOK)?.text());
    hook.is_some_and(|hook| hook.starts_with("test-"))
}

fn is_api_version(text: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && !part.contains(char::is_whitespace);
    match text.split_once('/') {
        None => is_part(text),
        Some((group, version)) => is_part(group) && is_part(version) && !version.contains('/'),
    }
}
