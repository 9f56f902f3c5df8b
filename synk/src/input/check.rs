//! Checks a set as a whole.

mod clean;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use serde_json::Value;

use super::{InputError, InputErrors, Manifest, Origin};
use crate::{kinds::Kinds, object::Identity, order};

/// Namespace in which charts may have objects beside the set's own namespace.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// Fills in namespaces, removes fields that only an API server writes, and refuses objects that a set cannot contain.
/// Returns the manifests in the order of their application.
pub fn resolve(
    manifests: &[Manifest],
    kinds: &Kinds,
    namespace: &str,
    allowed: &[String],
) -> Result<Vec<Manifest>, InputErrors> {
    let mut errors = Vec::new();
    let mut seen: HashMap<Identity, &Origin> = HashMap::new();
    let mut resolved = Vec::with_capacity(manifests.len());
    for given in manifests {
        let mut manifest = given.clone();
        place(&mut manifest, kinds, namespace);
        clean::strip(&mut manifest.body);
        let mut problems = clean::secret(&mut manifest);
        problems.extend(bad_name(&manifest));
        problems.extend(foreign(&manifest, namespace, allowed));
        if let Some(first) = seen.get(&manifest.object.identity()) {
            problems.push(format!("is given twice, first in {first}"));
        } else {
            seen.insert(manifest.object.identity(), &given.origin);
        }
        errors.extend(problems.into_iter().map(|problem| InputError {
            origin: given.origin.clone(),
            problem: format!("{} {problem}", manifest.object),
        }));
        resolved.push(manifest);
    }
    if !errors.is_empty() {
        return Err(InputErrors(errors));
    }
    resolved.sort_by_key(|manifest| order::key(&manifest.object));
    Ok(resolved)
}

/// Fills in the namespace of an object. An object of an unknown kind keeps its own namespace, or none.
fn place(manifest: &mut Manifest, kinds: &Kinds, namespace: &str) {
    let Some(resource) = kinds.get(&manifest.object.gvk) else {
        return;
    };
    let object = &mut manifest.object;
    if resource.namespaced {
        object.namespace.get_or_insert_with(|| namespace.to_owned());
    } else {
        object.namespace = None;
    }
    let Some(Value::Object(metadata)) = manifest.body.get_mut("metadata") else {
        return;
    };
    match &object.namespace {
        Some(namespace) => drop(metadata.insert("namespace".to_owned(), namespace.as_str().into())),
        None => drop(metadata.remove("namespace")),
    }
}

fn foreign(manifest: &Manifest, namespace: &str, allowed: &[String]) -> Option<String> {
    let own = manifest.object.namespace.as_deref()?;
    let is_allowed = own == namespace || own == SYSTEM_NAMESPACE || allowed.iter().any(|allowed| allowed == own);
    (!is_allowed).then(|| {
        format!(
            "is in neither {namespace}, the namespace of the set, nor {SYSTEM_NAMESPACE}: move it, or say \
             --allow-namespace {own}"
        )
    })
}

/// Returns errors for names that no API server accepts, or that would change the path of a request.
fn bad_name(manifest: &Manifest) -> Vec<String> {
    let object = &manifest.object;
    let limit = match (object.gvk.group.as_str(), object.gvk.kind.as_str()) {
        ("", "Namespace" | "Service") => 63,
        _ => 253,
    };
    let mut problems = Vec::new();
    if object.name.len() > limit {
        let length = object.name.len();
        problems.push(format!(
            "has a name of {length} characters: at most {limit} are allowed"
        ));
    }
    if matches!(object.name.as_str(), "." | "..") || object.name.contains(['/', '%']) {
        problems.push("has a name that cannot be part of a path: `/`, `%`, `.` and `..` are not allowed".to_owned());
    }
    if object
        .namespace
        .as_deref()
        .is_some_and(|namespace| !is_label(namespace))
    {
        problems.push("is in a namespace that cannot exist: at most 63 of a-z, 0-9 and '-'".to_owned());
    }
    problems
}

fn is_label(text: &str) -> bool {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|byte| is_alphanumeric(byte) || *byte == b'-')
        && bytes.first().is_some_and(is_alphanumeric)
        && bytes.last().is_some_and(is_alphanumeric)
}
