//! Creates objects.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Call, Replied, Reply, Result, unknown::check_fields};
use crate::{
    ApiServer, ObjectKey,
    admission::{self, AdmissionRequest},
    endpoint::Endpoint,
    fields, meta, present,
    status::{About, StatusError},
    store::{Objects, Stored},
    strategy,
};

impl Call {
    /// The key of the request's object.
    pub(super) fn key(&self, endpoint: &Endpoint) -> ObjectKey {
        self.key_of(endpoint, &self.info.name)
    }

    pub(super) fn key_of(&self, endpoint: &Endpoint, name: &str) -> ObjectKey {
        let namespace = if endpoint.namespaced {
            self.info.namespace.as_str()
        } else {
            ""
        };
        ObjectKey::new(&endpoint.storage_group, &endpoint.resource, namespace, name)
    }

    /// The object in the body of the request, normalized, and in the namespace of the request.
    pub(super) fn object(&self, endpoint: &Endpoint, options: &str) -> Result<Value> {
        self.check_content_type()?;
        let mut object = self.json(&endpoint.info.kind)?;
        check_type(endpoint, &object)?;
        check_fields(endpoint, &object)?;
        self.warn_of_unknown(endpoint, &object, options)?;
        self.check_namespace(endpoint, &mut object)?;
        strategy::drop_nulls(endpoint, &mut object);
        strategy::normalize(endpoint, &mut object);
        Ok(object)
    }

    fn check_content_type(&self) -> Result<()> {
        const ACCEPTED: [&str; 3] = [
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
        ];
        if self.content_type.is_empty() || ACCEPTED.contains(&self.content_type.as_str()) {
            return Ok(());
        }
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            ACCEPTED.join(", ")
        );
        Err(StatusError::plain(415, "UnsupportedMediaType", message))
    }

    /// Gives an object the namespace of the request, and refuses one with another.
    pub(super) fn check_namespace(&self, endpoint: &Endpoint, object: &mut Value) -> Result<()> {
        if !endpoint.namespaced {
            meta::remove(object, "namespace");
            return Ok(());
        }
        let namespace = meta::namespace(object);
        if namespace.is_empty() {
            meta::set(object, "namespace", self.info.namespace.as_str().into());
        } else if namespace != self.info.namespace {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(StatusError::bad_request(message));
        }
        Ok(())
    }

    /// The object as errors of reason `Invalid` name it.
    pub(super) fn kind_about<'a>(endpoint: &'a Endpoint, name: &'a str) -> About<'a> {
        About {
            group: &endpoint.info.group,
            resource: &endpoint.info.kind,
            name,
        }
    }
}

/// Refuses an object of another kind or version than the endpoint's.
pub(super) fn check_type(endpoint: &Endpoint, object: &Value) -> Result<()> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (kind, version) = (text("kind"), text("apiVersion"));
    let wanted = endpoint.info.api_version();
    if !object.is_object() {
        let message = format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: no object",
            endpoint.info.kind
        );
        return Err(StatusError::bad_request(message));
    }
    if endpoint.custom.is_some() && kind.is_empty() {
        let text = object.to_string();
        let start: String = text.chars().take(30).collect();
        let rest = if start == text { "" } else { " ..." };
        let message = format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{text}' ({start}{rest})",
            endpoint.info.kind
        );
        return Err(StatusError::bad_request(message));
    }
    let is_other = endpoint.custom.is_none() && version == "v1" && kind != endpoint.info.kind;
    if endpoint.custom.is_none() && !version.is_empty() && version != wanted && !is_other {
        let known = &endpoint.info.kind;
        return Err(StatusError::bad_request(format!(
            "{known} in version {:?} cannot be handled as a {known}: no kind {kind:?} is registered for version {version:?} in scheme \
             \"pkg/runtime/scheme.go:110\"",
            endpoint.info.version
        )));
    }
    if endpoint.custom.is_some() && version != wanted {
        let message =
            format!("the API version in the data ({version}) does not match the expected API version ({wanted})");
        return Err(StatusError::bad_request(message));
    }
    if !kind.is_empty() && kind != endpoint.info.kind {
        let known = &endpoint.info.kind;
        let message = if endpoint.custom.is_some() {
            return Err(StatusError::invalid(
                About {
                    group: &endpoint.info.group,
                    resource: kind,
                    name: meta::name(object),
                },
                &[crate::status::Cause::invalid(
                    "kind",
                    &kind.into(),
                    &format!("must be {known}"),
                )],
            ));
        } else {
            format!(
                "{kind} in version {:?} cannot be handled as a {known}: converting ({}.{kind}) to ({}.{known}): unknown conversion",
                version.rsplit('/').next().unwrap_or_default(),
                version.rsplit('/').next().unwrap_or_default(),
                package(&endpoint.info.group)
            )
        };
        return Err(StatusError::bad_request(message));
    }
    Ok(())
}

/// Go's package of the internal types of a group.
fn package(group: &str) -> &str {
    match group.split('.').next() {
        Some(first) if !first.is_empty() => first,
        _ => "core",
    }
}

/// Metadata that only the API server sets.
const SYSTEM_FIELDS: [&str; 4] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

impl ApiServer {
    pub(super) fn create(&mut self, call: &Call, endpoint: &Arc<Endpoint>) -> Result<Replied> {
        let dry_run = call.parameters.is_dry_run("CreateOptions")?;
        let mut object = call.object(endpoint, "CreateOptions")?;
        for field in SYSTEM_FIELDS {
            meta::remove(&mut object, field);
        }
        let (stored, warnings) = self.insert(call, endpoint, object, dry_run, true)?;
        Ok(Replied {
            reply: Reply::Object(201, stored, Arc::clone(endpoint)),
            warnings,
        })
    }

    /// Stores an object that does not exist yet. `track` notes the fields for the manager of the request.
    pub(crate) fn insert(
        &mut self,
        call: &Call,
        endpoint: &Arc<Endpoint>,
        mut object: Value,
        dry_run: bool,
        track: bool,
    ) -> Result<(Arc<Stored>, Vec<String>)> {
        self.check_lifecycle(call, endpoint, meta::name(&object))?;
        // What the API server itself sets belongs to no manager.
        if track {
            fields::track_update(None, &mut object, &call.manager, "", &endpoint.info, call.now);
        }
        if meta::name(&object).is_empty() && !meta::text(&object, "generateName").is_empty() {
            let name = self.ids.name(meta::text(&object, "generateName"));
            meta::set(&mut object, "name", name.into());
            strategy::normalize(endpoint, &mut object);
        }
        meta::set(&mut object, "uid", self.ids.uid().into());
        meta::set(&mut object, "creationTimestamp", meta::time(call.now));
        strategy::prepare_create(endpoint, &mut object);
        self.check_grants(call, endpoint, "CREATE", &object, None)?;
        let causes = strategy::validate(endpoint, "", &object, None);
        if !causes.is_empty() {
            return Err(StatusError::invalid(
                Call::kind_about(endpoint, meta::name(&object)),
                &causes,
            ));
        }
        let mut warnings = self.admit(call, endpoint, "CREATE", Some(&object), None, dry_run)?;
        warnings.extend(strategy::warnings(endpoint, &object, None));
        let version = meta::text(&object, "resourceVersion");
        if track && !version.is_empty() && version != "0" {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(StatusError::plain(500, "", message));
        }
        meta::remove(&mut object, "resourceVersion");
        let key = call.key_of(endpoint, meta::name(&object));
        if let Some(existing) = self.store.get(&key) {
            return Err(already_exists(call, &key, &existing.value));
        }
        let (object, schema) = present::to_store(object, endpoint);
        if dry_run {
            return Ok((Arc::new(Stored::new(Arc::new(object), schema)), warnings));
        }
        let stored = self.commit(&call.author, &key, Some((object, schema)));
        Ok((stored.ok_or_else(lost)?, warnings))
    }

    /// Refuses to create what nothing may be created in: an absent or terminating namespace, or a terminating CRD.
    pub(super) fn check_lifecycle(&self, call: &Call, endpoint: &Endpoint, name: &str) -> Result<()> {
        if endpoint.custom.as_ref().is_some_and(|custom| custom.terminating) {
            let message = "create not allowed while custom resource definition is terminating";
            return Err(StatusError::forbidden(About { name, ..call.about() }, message));
        }
        if !endpoint.namespaced {
            return Ok(());
        }
        let namespace = call.info.namespace.as_str();
        let stored = self.check_namespace_exists(namespace)?;
        if stored.value.pointer("/status/phase").and_then(Value::as_str) != Some("Terminating") {
            return Ok(());
        }
        let about = About { name, ..call.about() };
        let message = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut error = StatusError::forbidden(about, &message);
        error.details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        Err(error)
    }

    /// Asks admission about a write.
    pub(super) fn admit(
        &self,
        call: &Call,
        endpoint: &Endpoint,
        operation: &'static str,
        object: Option<&Value>,
        old_object: Option<&Value>,
        dry_run: bool,
    ) -> Result<Vec<String>> {
        if !call.admitted {
            return Ok(Vec::new());
        }
        if operation == "UPDATE" && endpoint.namespaced {
            self.check_namespace_exists(&call.info.namespace)?;
        }
        self.judge(
            call,
            endpoint,
            operation,
            (object, old_object),
            dry_run,
            admission::admit,
        )
    }

    fn check_namespace_exists(&self, namespace: &str) -> Result<&Arc<Stored>> {
        let key = ObjectKey::new("", "namespaces", "", namespace);
        self.store.get(&key).ok_or_else(|| {
            StatusError::not_found(About {
                group: "",
                resource: "namespaces",
                name: namespace,
            })
        })
    }

    /// Refuses roles and bindings that give more than their author has, before anything else is validated.
    pub(super) fn check_grants(
        &self,
        call: &Call,
        endpoint: &Endpoint,
        operation: &'static str,
        object: &Value,
        old_object: Option<&Value>,
    ) -> Result<()> {
        let objects = (Some(object), old_object);
        self.judge(call, endpoint, operation, objects, false, admission::check_grants)
    }

    fn judge<T>(
        &self,
        call: &Call,
        endpoint: &Endpoint,
        operation: &'static str,
        (object, old_object): (Option<&Value>, Option<&Value>),
        dry_run: bool,
        judge: impl FnOnce(&dyn Objects, &AdmissionRequest<'_>) -> Result<T>,
    ) -> Result<T> {
        // A deletion of many objects names none.
        let of_object = object.map(meta::name).unwrap_or_default();
        let name = if call.info.name.is_empty() {
            of_object
        } else {
            &call.info.name
        };
        let namespace = if endpoint.resource == "namespaces" {
            name
        } else {
            &call.info.namespace
        };
        judge(
            &self.store,
            &AdmissionRequest {
                user: &call.user,
                operation,
                kind: &endpoint.info,
                resource: &endpoint.resource,
                subresource: &call.info.subresource,
                namespace,
                name,
                object,
                old_object,
                options: &Value::Null,
                dry_run,
                now: call.now,
                policy_delay: self.policy_delay,
            },
        )
    }
}

fn already_exists(call: &Call, key: &ObjectKey, existing: &Value) -> StatusError {
    let about = About {
        name: &key.name,
        ..call.about()
    };
    let mut error = StatusError::already_exists(about);
    if meta::is_deleting(existing) {
        error.message = format!("object is being deleted: {}", error.message);
    }
    error
}

/// The error of a write after which the store lacks the object, which is a bug of this crate.
pub(super) fn lost() -> StatusError {
    StatusError::plain(
        500,
        "InternalError",
        "Internal error occurred: the written object is gone",
    )
}
