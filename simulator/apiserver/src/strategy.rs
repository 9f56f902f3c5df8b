//! What becomes of an object on its way into the store, by its kind.

use serde_json::{Map, Value};

use crate::{
    built_in::{decode, prepare, validate},
    endpoint::Endpoint,
    meta,
    schema::is_blocking,
    status::Cause,
    validation::{self, Names},
};

/// Fields of metadata. Others are dropped.
const METADATA_FIELDS: [&str; 14] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Brings an object that a client sent, or that a patch made, into the form that is stored.
pub(crate) fn normalize(endpoint: &Endpoint, object: &mut Value) {
    whole_numbers(object);
    normalize_metadata(object);
    match &endpoint.custom {
        Some(custom) => custom.schema.prune_and_default(object),
        None => decode::normalize(endpoint, object),
    }
}

/// Drops nulls of fields that cannot be null, as decoding does; the result of a server-side apply keeps them.
pub(crate) fn drop_nulls(endpoint: &Endpoint, object: &mut Value) {
    if let Some(custom) = &endpoint.custom {
        custom.schema.drop_all_nulls(object);
    }
}

/// Writes numbers without a fraction as integers, as Go does.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or(0.0);
            #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
            if float.fract() == 0.0 && float.abs() < 1e15 {
                *value = Value::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

fn normalize_metadata(object: &mut Value) {
    let Some(metadata) = meta::of_mut(object) else {
        return;
    };
    metadata.retain(|field, value| METADATA_FIELDS.contains(&field.as_str()) && !is_empty(value));
    for field in ["labels", "annotations"] {
        if let Some(Value::Object(entries)) = metadata.get_mut(field) {
            for value in entries.values_mut() {
                if value.is_null() {
                    *value = Value::String(String::new());
                }
            }
        }
    }
}

/// If Go leaves a value out with `omitempty`.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Removes what clients may not set on creation.
pub(crate) fn prepare_create(endpoint: &Endpoint, object: &mut Value) {
    if endpoint.traits.generation {
        meta::set(object, "generation", 1.into());
    }
    match &endpoint.custom {
        Some(custom) if endpoint.info.status => {
            drop_field(object, "status");
            custom.schema.prune_and_default(object);
        }
        Some(_) => {}
        None => prepare::create(endpoint, object),
    }
}

/// Keeps what clients may not change on an update of the object or of a subresource.
pub(crate) fn prepare_update(endpoint: &Endpoint, subresource: &str, object: &mut Value, old: &Value) {
    meta::copy(object, old, "generation");
    match (&endpoint.custom, subresource) {
        (Some(_), "status") => {
            let status = object.get("status").cloned();
            let fields = meta::get(object, "managedFields").cloned();
            *object = old.clone();
            put_field(object, "status", status);
            match fields {
                Some(fields) => meta::set(object, "managedFields", fields),
                None => meta::remove(object, "managedFields"),
            }
        }
        (Some(_), _) => {
            if endpoint.info.status {
                put_field(object, "status", old.get("status").cloned());
            }
            if content(object) != content(old) {
                meta::set(object, "generation", (meta::generation(old) + 1).into());
            }
        }
        (None, subresource) => {
            prepare::update(endpoint, subresource, object, old);
            let spec = if endpoint.info.group == "admissionregistration.k8s.io" && object.get("webhooks").is_some() {
                "webhooks"
            } else {
                "spec"
            };
            if endpoint.traits.generation && object.get(spec) != old.get(spec) {
                meta::set(object, "generation", (meta::generation(old) + 1).into());
            }
        }
    }
    if meta::uid(object).is_empty() {
        meta::copy(object, old, "uid");
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if meta::get(old, field).is_some() {
            meta::copy(object, old, field);
        }
    }
}

/// The fields of an object besides its metadata.
fn content(object: &Value) -> Vec<(&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(|(name, _)| *name != "metadata").collect()
}

/// Validates an object that is about to be stored.
pub(crate) fn validate(endpoint: &Endpoint, subresource: &str, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    match old {
        None => {
            validation::metadata(object, endpoint.namespaced, names(endpoint), &mut causes);
            if is_kubernetes(endpoint) {
                validation::own_finalizers(object, &mut causes);
            }
        }
        Some(old) => {
            // The generic server and the kind's own strategy both check this, so that the answer of Kubernetes has each cause twice.
            validation::metadata_content(object, &mut causes);
            validation::metadata_update(object, old, &mut causes);
            validation::metadata_update(object, old, &mut causes);
            if is_kubernetes(endpoint) {
                validation::own_finalizers(object, &mut causes);
            }
            if endpoint.custom.is_none() && !matches!(endpoint.info.kind.as_str(), "Namespace" | "Lease") {
                validation::metadata(object, endpoint.namespaced, names(endpoint), &mut causes);
                if is_kubernetes(endpoint) {
                    validation::own_finalizers(object, &mut causes);
                }
            }
        }
    }
    let blocked = causes.iter().any(is_blocking);
    match &endpoint.custom {
        Some(custom) if subresource == "status" => causes.extend(custom.schema.validate_status(object, old, blocked)),
        Some(custom) => causes.extend(custom.schema.validate(object, old, blocked)),
        None => validate::check(endpoint, subresource, object, old, &mut causes),
    }
    causes
}

/// If the finalizers of a kind need a domain: all of Kubernetes' own kinds, but not Leases and CRDs.
fn is_kubernetes(endpoint: &Endpoint) -> bool {
    endpoint.custom.is_none()
        && !matches!(
            endpoint.info.group.as_str(),
            "apiextensions.k8s.io" | "coordination.k8s.io"
        )
}

fn names(endpoint: &Endpoint) -> Names {
    if endpoint.traits.path_names {
        Names::Path
    } else if endpoint.resource == "namespaces" && endpoint.info.group.is_empty() {
        Names::Label
    } else {
        Names::Subdomain
    }
}

pub(crate) fn drop_field(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// Sets a field of an object, or removes it.
pub(crate) fn put_field(object: &mut Value, field: &str, value: Option<Value>) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    match value {
        Some(value) => {
            fields.insert(field.to_owned(), value);
        }
        None => {
            fields.remove(field);
        }
    }
}

/// If two objects are equal but for resource version and the times of field managers.
pub(crate) fn is_unchanged(object: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (object.as_object(), old.as_object()) else {
        return object == old;
    };
    let rest = |fields: &Map<String, Value>| fields.iter().filter(|(name, _)| *name != "metadata").count();
    let same_rest = rest(new) == rest(old)
        && new
            .iter()
            .filter(|(name, _)| *name != "metadata")
            .all(|(name, value)| old.get(name) == Some(value));
    same_rest && is_same_metadata(new.get("metadata"), old.get("metadata"))
}

fn is_same_metadata(new: Option<&Value>, old: Option<&Value>) -> bool {
    let (Some(Value::Object(new)), Some(Value::Object(old))) = (new, old) else {
        return new == old;
    };
    let is_plain = |name: &&String| *name != "managedFields" && *name != "resourceVersion";
    let same = new.keys().filter(is_plain).count() == old.keys().filter(is_plain).count()
        && new.keys().filter(is_plain).all(|name| new.get(name) == old.get(name));
    same && is_same_fields(new.get("managedFields"), old.get("managedFields"))
}

fn is_same_fields(new: Option<&Value>, old: Option<&Value>) -> bool {
    let list = |fields: Option<&Value>| -> Vec<Value> {
        let mut list = fields.and_then(Value::as_array).cloned().unwrap_or_default();
        for entry in &mut list {
            drop_field(entry, "time");
        }
        list
    };
    new == old || list(new) == list(old)
}

/// What the API server warns of in an object that it stores: new finalizers of custom resources without a domain.
pub(crate) fn warnings(endpoint: &Endpoint, object: &Value, old: Option<&Value>) -> Vec<String> {
    if endpoint.custom.is_none() {
        return Vec::new();
    }
    let finalizers = meta::texts(object, "finalizers").filter(|finalizer| {
        let is_new = old.is_none_or(|old| !meta::has_finalizer(old, finalizer));
        is_new && !finalizer.contains('/') && *finalizer != meta::ORPHAN && *finalizer != meta::FOREGROUND
    });
    let warning = |finalizer: &str| {
        format!(
            "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name to avoid accidental conflicts with other \
             finalizer writers"
        )
    };
    finalizers.map(warning).collect()
}
