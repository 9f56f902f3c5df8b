//! Deletes objects: preconditions, propagation, finalizers.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Call, Replied, Reply, Result};
use crate::{
    ApiServer, ObjectKey,
    built_in::prepare::namespace_finalizers,
    control::conditions,
    definition,
    endpoint::Endpoint,
    meta,
    request::{invalid_options, is_dry_run},
    status::{About, Cause, StatusError},
    store::Stored,
};

/// Options of a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) propagation: Option<String>,
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) dry_run: bool,
}

/// Outcome of a deletion.
#[derive(Debug)]
pub(crate) struct Deleted {
    /// The object, as it is now or was last.
    pub(crate) object: Arc<Stored>,
    /// If the object is gone.
    pub(crate) gone: bool,
    pub(crate) warnings: Vec<String>,
}

const POLICIES: [&str; 3] = ["Background", "Foreground", "Orphan"];

impl DeleteOptions {
    /// Reads the options from the body or, without one, from the query.
    pub(super) fn read(call: &Call) -> Result<Self> {
        let parameters = &call.parameters;
        if call.body.is_empty() {
            return Self {
                propagation: parameters.propagation.clone(),
                orphan_dependents: parameters.orphan_dependents,
                dry_run: parameters.is_dry_run("DeleteOptions")?,
                ..Self::default()
            }
            .checked();
        }
        let body = call.json("DeleteOptions")?;
        let kind = body["kind"].as_str().unwrap_or("DeleteOptions");
        if kind != "DeleteOptions" {
            let version = body["apiVersion"].as_str().unwrap_or_default();
            let message = format!("no kind {kind:?} is registered for version {version:?} in scheme");
            return Err(StatusError::bad_request(message));
        }
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let words = body["dryRun"].as_array().map(Vec::as_slice).unwrap_or_default();
        let words: Vec<String> = words.iter().filter_map(text).collect();
        Self {
            uid: text(&body["preconditions"]["uid"]),
            resource_version: text(&body["preconditions"]["resourceVersion"]),
            propagation: text(&body["propagationPolicy"]),
            orphan_dependents: body["orphanDependents"].as_bool(),
            dry_run: is_dry_run(&words, "DeleteOptions")?,
        }
        .checked()
    }

    fn checked(self) -> Result<Self> {
        let mut causes = Vec::new();
        if let Some(policy) = &self.propagation {
            if self.orphan_dependents.is_some() {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                causes.push(Cause::invalid("propagationPolicy", &policy.as_str().into(), detail));
            }
            if !POLICIES.contains(&policy.as_str()) {
                let allowed = ["Foreground", "Background", "Orphan", "nil"].map(Value::from);
                causes.push(Cause::not_supported(
                    "propagationPolicy",
                    &policy.as_str().into(),
                    &allowed,
                ));
            }
        }
        if causes.is_empty() {
            Ok(self)
        } else {
            Err(invalid_options("DeleteOptions", &causes))
        }
    }

    /// Options with a propagation policy.
    pub(crate) fn with(policy: &str) -> Self {
        Self {
            propagation: Some(policy.to_owned()),
            ..Self::default()
        }
    }

    fn wants(&self, policy: &str, present: bool) -> bool {
        match (self.orphan_dependents, &self.propagation) {
            (Some(orphan), _) => orphan && policy == "Orphan",
            (None, Some(wanted)) => wanted == policy,
            (None, None) => present,
        }
    }

    /// The finalizers of an object once the garbage collector's are as these options say.
    fn finalizers(&self, object: &Value, endpoint: &Endpoint) -> Vec<String> {
        let is_own = |finalizer: &&str| *finalizer != meta::ORPHAN && *finalizer != meta::FOREGROUND;
        let others = meta::texts(object, "finalizers").filter(is_own);
        let mut finalizers: Vec<String> = others.map(ToOwned::to_owned).collect();
        if endpoint.traits.no_garbage_collection {
            return finalizers;
        }
        let (orphan, foreground) = (
            meta::has_finalizer(object, meta::ORPHAN),
            meta::has_finalizer(object, meta::FOREGROUND),
        );
        if self.wants("Orphan", orphan) {
            finalizers.push(meta::ORPHAN.to_owned());
        }
        if self.wants("Foreground", foreground && !orphan) {
            finalizers.push(meta::FOREGROUND.to_owned());
        }
        finalizers
    }
}

impl ApiServer {
    pub(super) fn delete(&mut self, call: &Call, endpoint: &Arc<Endpoint>) -> Result<Replied> {
        let options = DeleteOptions::read(call)?;
        let deleted = self.delete_object(call, endpoint, &call.info.name, &options)?;
        let code = if !deleted.gone && options.orphan_dependents == Some(false) {
            202
        } else {
            200
        };
        let reply = if deleted.gone && !endpoint.traits.returns_deleted {
            Reply::Json(code, success(endpoint, &deleted.object.value))
        } else {
            Reply::Object(code, deleted.object, Arc::clone(endpoint))
        };
        Ok(Replied {
            reply,
            warnings: deleted.warnings,
        })
    }

    /// Deletes one object, or marks it as deleting.
    pub(crate) fn delete_object(
        &mut self,
        call: &Call,
        endpoint: &Arc<Endpoint>,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted> {
        let key = call.key_of(endpoint, name);
        let stored = self.store.get(&key).cloned();
        let stored = stored.ok_or_else(|| StatusError::not_found(About { name, ..call.about() }))?;
        let is_first = !meta::is_deleting(&stored.value);
        match (key.group.as_str(), key.resource.as_str()) {
            ("", "namespaces") => {
                check_early(call, &key, &stored.value, options)?;
                check_immortal(call, name)?;
                let warnings = self.admit_deletion(call, endpoint, &stored, options)?;
                if is_first {
                    let namespace = terminating_namespace(&stored.value, call, options);
                    return Ok(self.mark(call, &key, &stored, namespace, options, warnings));
                }
                if !namespace_finalizers(&stored.value).is_empty() {
                    return Ok(kept(&stored, warnings));
                }
            }
            (definition::GROUP, definition::RESOURCE) => {
                check_early(call, &key, &stored.value, options)?;
                if is_first {
                    let warnings = self.admit_deletion(call, endpoint, &stored, options)?;
                    let crd = terminating_definition(&stored.value, call);
                    return Ok(self.mark(call, &key, &stored, crd, options, warnings));
                }
            }
            _ => check_preconditions(endpoint, &stored.value, options)?,
        }
        let warnings = self.admit_deletion(call, endpoint, &stored, options)?;
        let finalizers = options.finalizers(&stored.value, endpoint);
        if finalizers.is_empty() {
            if options.dry_run {
                return Ok(Deleted {
                    object: stored,
                    gone: true,
                    warnings,
                });
            }
            self.commit(&call.author, &key, None);
            // The last state is that of the revision at which the object went.
            let mut last = Value::clone(&stored.value);
            meta::set(&mut last, "resourceVersion", self.store.revision().to_string().into());
            return Ok(Deleted {
                object: Arc::new(Stored::new(Arc::new(last), stored.schema)),
                gone: true,
                warnings,
            });
        }
        let object = deleting(&stored.value, call, finalizers);
        Ok(self.mark(call, &key, &stored, object, options, warnings))
    }

    /// Writes the state of an object that waits for its finalizers.
    fn mark(
        &mut self,
        call: &Call,
        key: &ObjectKey,
        stored: &Arc<Stored>,
        object: Value,
        options: &DeleteOptions,
        warnings: Vec<String>,
    ) -> Deleted {
        if object == *stored.value {
            return kept(stored, warnings);
        }
        if options.dry_run {
            let object = Arc::new(Stored::new(Arc::new(object), stored.schema));
            return kept(&object, warnings);
        }
        let written = self.commit(&call.author, key, Some((object, stored.schema)));
        kept(written.as_ref().unwrap_or(stored), warnings)
    }

    fn admit_deletion(
        &self,
        call: &Call,
        endpoint: &Endpoint,
        stored: &Stored,
        options: &DeleteOptions,
    ) -> Result<Vec<String>> {
        self.admit(call, endpoint, "DELETE", None, Some(&stored.value), options.dry_run)
    }
}

fn kept(object: &Arc<Stored>, warnings: Vec<String>) -> Deleted {
    Deleted {
        object: Arc::clone(object),
        gone: false,
        warnings,
    }
}

/// The Status that answers a complete deletion.
fn success(endpoint: &Endpoint, object: &Value) -> Value {
    let mut details = json!({"name": meta::name(object), "kind": endpoint.resource, "uid": meta::uid(object)});
    if !endpoint.info.group.is_empty() {
        details["group"] = endpoint.info.group.as_str().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// The object with the marks of a deletion that waits for finalizers.
fn deleting(object: &Value, call: &Call, finalizers: Vec<String>) -> Value {
    let mut object = object.clone();
    meta::set_finalizers(&mut object, finalizers);
    if !meta::is_deleting(&object) {
        let generation = meta::generation(&object);
        if generation > 0 {
            meta::set(&mut object, "generation", (generation + 1).into());
        }
        meta::set(&mut object, "deletionTimestamp", meta::time(call.now));
    }
    meta::set(&mut object, "deletionGracePeriodSeconds", 0.into());
    object
}

fn terminating_namespace(namespace: &Value, call: &Call, options: &DeleteOptions) -> Value {
    let mut namespace = namespace.clone();
    meta::set(&mut namespace, "deletionTimestamp", meta::time(call.now));
    namespace["status"]["phase"] = "Terminating".into();
    let is_own = |finalizer: &&str| *finalizer != meta::ORPHAN && *finalizer != meta::FOREGROUND;
    let mut finalizers: Vec<String> = meta::texts(&namespace, "finalizers")
        .filter(is_own)
        .map(ToOwned::to_owned)
        .collect();
    let has = |finalizer: &str| meta::has_finalizer(&namespace, finalizer);
    let wants = |policy: &str, present: bool| match (options.orphan_dependents, &options.propagation) {
        (Some(orphan), _) => orphan == (policy == "Orphan"),
        (None, Some(wanted)) => wanted == policy,
        (None, None) => present,
    };
    if wants("Orphan", has(meta::ORPHAN)) {
        finalizers.push(meta::ORPHAN.to_owned());
    }
    if wants("Foreground", has(meta::FOREGROUND)) {
        finalizers.push(meta::FOREGROUND.to_owned());
    }
    meta::set_finalizers(&mut namespace, finalizers);
    namespace
}

fn terminating_definition(definition: &Value, call: &Call) -> Value {
    let mut definition = definition.clone();
    meta::set(&mut definition, "deletionTimestamp", meta::time(call.now));
    if !meta::has_finalizer(&definition, definition::CLEANUP) {
        let mut finalizers: Vec<String> = meta::texts(&definition, "finalizers").map(ToOwned::to_owned).collect();
        finalizers.push(definition::CLEANUP.to_owned());
        meta::set_finalizers(&mut definition, finalizers);
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    conditions::set(
        &mut definition,
        call.now,
        "Terminating",
        "True",
        "InstanceDeletionPending",
        message,
    );
    definition
}

/// The namespaces that Kubernetes needs.
fn check_immortal(call: &Call, name: &str) -> Result<()> {
    if matches!(name, "default" | "kube-system" | "kube-public") {
        let about = About { name, ..call.about() };
        return Err(StatusError::forbidden(about, "this namespace may not be deleted"));
    }
    Ok(())
}

/// The preconditions of kinds that check them before anything else.
fn check_early(call: &Call, key: &ObjectKey, object: &Value, options: &DeleteOptions) -> Result<()> {
    let pairs = [
        ("UID", &options.uid, "uid"),
        ("ResourceVersion", &options.resource_version, "resourceVersion"),
    ];
    for (what, wanted, field) in pairs {
        let found = meta::text(object, field);
        if let Some(wanted) = wanted.as_ref().filter(|wanted| *wanted != found) {
            let about = About {
                name: &key.name,
                ..call.about()
            };
            let message =
                format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
            return Err(StatusError::conflict(about, &message));
        }
    }
    Ok(())
}

fn check_preconditions(endpoint: &Endpoint, object: &Value, options: &DeleteOptions) -> Result<()> {
    let about = About {
        group: &endpoint.info.group,
        resource: &endpoint.info.kind,
        name: meta::name(object),
    };
    let found = meta::uid(object);
    if let Some(wanted) = options.uid.as_ref().filter(|wanted| *wanted != found) {
        let message = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({found}). The object might have been deleted and \
             then recreated"
        );
        return Err(StatusError::conflict(about, &message));
    }
    let found = meta::text(object, "resourceVersion");
    if let Some(wanted) = options.resource_version.as_ref().filter(|wanted| *wanted != found) {
        let message = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({found}). The object might \
             have been modified"
        );
        return Err(StatusError::conflict(about, &message));
    }
    Ok(())
}
