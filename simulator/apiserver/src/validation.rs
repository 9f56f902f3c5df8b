//! Validates metadata as Kubernetes does for all kinds.

use serde_json::Value;

use crate::{meta, status::Cause};

mod names;

pub(crate) use names::{label_problems, label_value_problem, qualified_problems, subdomain_problems};

const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// How the names of a kind are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// A DNS subdomain, as most kinds have.
    Subdomain,
    /// A DNS label, as namespaces have.
    Label,
    /// What fits into a path, as roles have.
    Path,
}

impl Names {
    fn problems(self, name: &str, is_prefix: bool) -> Vec<String> {
        // A generated name gets a suffix, so that a prefix may end with a dash.
        let name = if is_prefix {
            name.strip_suffix('-').unwrap_or(name)
        } else {
            name
        };
        match self {
            Self::Subdomain => subdomain_problems(name),
            Self::Label => label_problems(name),
            Self::Path => names::path_problems(name),
        }
    }
}

/// Validates the metadata of an object that is about to be stored.
pub(crate) fn metadata(object: &Value, namespaced: bool, names: Names, causes: &mut Vec<Cause>) {
    let text = |field: &str| meta::text(object, field);
    let prefix = text("generateName");
    if !prefix.is_empty() {
        for problem in names.problems(prefix, true) {
            causes.push(Cause::invalid("metadata.generateName", &prefix.into(), &problem));
        }
    }
    let name = text("name");
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        for problem in names.problems(name, false) {
            causes.push(Cause::invalid("metadata.name", &name.into(), &problem));
        }
    }
    let namespace = text("namespace");
    if namespaced {
        if namespace.is_empty() {
            causes.push(Cause::required("metadata.namespace", ""));
        } else {
            for problem in label_problems(namespace) {
                causes.push(Cause::invalid("metadata.namespace", &namespace.into(), &problem));
            }
        }
    } else if !namespace.is_empty() {
        causes.push(Cause::forbidden("metadata.namespace", "not allowed on this type"));
    }
    metadata_content(object, causes);
}

fn finalizers(object: &Value, causes: &mut Vec<Cause>) {
    for finalizer in meta::texts(object, "finalizers") {
        for problem in qualified_problems(finalizer) {
            causes.push(Cause::invalid("metadata.finalizers", &finalizer.into(), &problem));
        }
    }
    if meta::has_finalizer(object, meta::FOREGROUND) && meta::has_finalizer(object, meta::ORPHAN) {
        let finalizers = meta::get(object, "finalizers").unwrap_or(&Value::Null);
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid("metadata.finalizers", finalizers, detail));
    }
}

/// Labels, annotations and owner references.
fn common(object: &Value, causes: &mut Vec<Cause>) {
    for (key, value) in entries(object, "labels") {
        for problem in qualified_problems(key) {
            causes.push(Cause::invalid("metadata.labels", &key.as_str().into(), &problem));
        }
        if let Some(problem) = names::label_value_problem(value.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid("metadata.labels", value, &problem));
        }
    }
    let mut bytes = 0;
    for (key, value) in entries(object, "annotations") {
        for problem in qualified_problems(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &key.as_str().into(), &problem));
        }
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATIONS_BYTES_MAX as u64));
    }
    let mut controller = None;
    for owner in meta::owners(object) {
        owner_reference(owner, causes);
        if owner["controller"] == true {
            let text = |field: &str| owner[field].as_str().unwrap_or_default();
            let this = format!("{}/{}", text("kind"), text("name"));
            if let Some(first) = controller.replace(this.clone()) {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                );
                let all: Vec<String> = meta::owners(object).iter().map(shown_owner).collect();
                let all = format!("[{}]", all.join(","));
                causes.push(Cause::invalid_shown("metadata.ownerReferences", &all, &detail));
            }
        }
    }
}

/// An owner reference as JSON, with its fields in the order of Go's type.
fn shown_owner(owner: &Value) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let fields = fields
        .iter()
        .filter_map(|field| Some(format!("\"{field}\":{}", owner.get(field)?)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn owner_reference(owner: &Value, causes: &mut Vec<Cause>) {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let path = |field: &str| format!("metadata.ownerReferences.{field}");
    let version = text("apiVersion").rsplit('/').next().unwrap_or_default();
    if version.is_empty() {
        let cause = Cause::invalid(
            &path("apiVersion"),
            &text("apiVersion").into(),
            "version must not be empty",
        );
        causes.push(cause);
    }
    if text("kind") == "Event" && matches!(text("apiVersion"), "v1" | "events.k8s.io/v1") {
        let (group, version) = text("apiVersion")
            .split_once('/')
            .unwrap_or_else(|| ("", text("apiVersion")));
        let detail = format!("{group}/{version}, Kind=Event is disallowed from being an owner");
        causes.push(Cause::invalid_shown(
            "metadata.ownerReferences",
            &shown_owner(owner),
            &detail,
        ));
    }
    for field in ["kind", "name", "uid"] {
        if text(field).is_empty() {
            causes.push(Cause::invalid(&path(field), &"".into(), "must not be empty"));
        }
    }
}

fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    meta::get(object, field)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

/// Validates what may not change from one version of an object to the next.
pub(crate) fn metadata_update(object: &Value, old: &Value, causes: &mut Vec<Cause>) {
    if meta::is_deleting(old) {
        let mut added: Vec<&str> = meta::texts(object, "finalizers")
            .filter(|finalizer| !meta::has_finalizer(old, finalizer))
            .collect();
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let added: Vec<String> = added.iter().map(|finalizer| format!("{finalizer:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &detail));
        }
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let (new, old) = (meta::get(object, field), meta::get(old, field));
        if new.filter(|value| !value.is_null()) != old.filter(|value| !value.is_null()) {
            let path = format!("metadata.{field}");
            causes.push(Cause::invalid(&path, new.unwrap_or(&Value::Null), "field is immutable"));
        }
    }
    common(object, causes);
}

/// Validates metadata besides names.
pub(crate) fn metadata_content(object: &Value, causes: &mut Vec<Cause>) {
    common(object, causes);
    finalizers(object, causes);
}

/// Validates the finalizers of Kubernetes' own kinds, which need a domain.
pub(crate) fn own_finalizers(object: &Value, causes: &mut Vec<Cause>) {
    for (index, finalizer) in meta::texts(object, "finalizers").enumerate() {
        if !finalizer.contains('/') && !["kubernetes", meta::ORPHAN, meta::FOREGROUND].contains(&finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            let path = format!("metadata.finalizers[{index}]");
            causes.push(Cause::invalid(&path, &finalizer.into(), detail));
        }
    }
}
