//! Replaces and patches objects.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Call, Replied, Reply, Result,
    create::{check_type, lost},
    unknown::check_fields,
};
use crate::{
    ApiServer,
    endpoint::Endpoint,
    fields, meta, patch, present,
    request::invalid_options,
    status::{Cause, StatusError},
    store::Stored,
    strategy,
};

const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

impl ApiServer {
    pub(super) fn update(&mut self, call: &Call, endpoint: &Arc<Endpoint>) -> Result<Replied> {
        if call.info.name.is_empty() {
            return Err(match endpoint.custom {
                Some(_) => StatusError::bad_request("name must be provided"),
                None => Self::not_allowed(),
            });
        }
        let dry_run = call.parameters.is_dry_run("UpdateOptions")?;
        let object = call.object(endpoint, "UpdateOptions")?;
        check_name(call, &object)?;
        let key = call.key(endpoint);
        let Some(stored) = self.store.get(&key).cloned() else {
            if !endpoint.traits.create_on_update || !call.info.subresource.is_empty() {
                return Err(StatusError::not_found(call.about()));
            }
            self.authorize_create(call)?;
            let (stored, warnings) = self.insert(call, endpoint, object, dry_run, true)?;
            return Ok(Replied {
                reply: Reply::Object(201, stored, Arc::clone(endpoint)),
                warnings,
            });
        };
        let (wanted, found) = (meta::uid(&object), meta::uid(&stored.value));
        if !wanted.is_empty() && wanted != found {
            return Err(StatusError::conflict(
                call.about(),
                &precondition(&key, "UID", wanted, found),
            ));
        }
        self.replace(call, endpoint, &stored, object, dry_run, true)
    }

    pub(super) fn patch(&mut self, call: &Call, endpoint: &Arc<Endpoint>) -> Result<Replied> {
        let is_apply = call.content_type == "application/apply-patch+yaml";
        let mut causes = Vec::new();
        if is_apply && call.parameters.field_manager.is_empty() {
            causes.push(Cause::required("fieldManager", "is required for apply patch"));
        }
        if !is_apply && call.parameters.force.is_some() {
            causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
        }
        if !causes.is_empty() {
            return Err(invalid_options("PatchOptions", &causes));
        }
        let dry_run = call.parameters.is_dry_run("PatchOptions")?;
        let stored = self.store.get(&call.key(endpoint)).cloned();
        let live = stored.as_ref().map(|stored| present::value(stored, endpoint));
        if is_apply {
            return self.apply(call, endpoint, stored.as_ref(), live.as_deref(), dry_run);
        }
        check_patch_type(call, endpoint)?;
        let (Some(stored), Some(live)) = (stored, live) else {
            return Err(StatusError::not_found(call.about()));
        };
        let body = call.patch()?;
        let mut object = match call.content_type.as_str() {
            "application/json-patch+json" => patch::json(&live, &body)?,
            "application/merge-patch+json" => patch::merge(&live, &body)?,
            _ => patch::strategic(&live, &body, &endpoint.info)?,
        };
        check_type(endpoint, &object)?;
        check_fields(endpoint, &object)?;
        call.warn_of_unknown(endpoint, &object, "PatchOptions")?;
        if call.content_type == "application/strategic-merge-patch+json" {
            patch::drop_directives(&mut object);
        }
        call.check_namespace(endpoint, &mut object)?;
        strategy::drop_nulls(endpoint, &mut object);
        strategy::normalize(endpoint, &mut object);
        check_name(call, &object)?;
        self.replace(call, endpoint, &stored, object, dry_run, true)
    }

    fn apply(
        &mut self,
        call: &Call,
        endpoint: &Arc<Endpoint>,
        stored: Option<&Arc<Stored>>,
        live: Option<&Value>,
        dry_run: bool,
    ) -> Result<Replied> {
        if stored.is_none() && !call.info.subresource.is_empty() {
            return Err(StatusError::not_found(call.about()));
        }
        let mut applied = call.patch()?;
        if !applied.is_object() {
            return Err(StatusError::bad_request(
                "error decoding YAML: the patch is not an object",
            ));
        }
        check_type(endpoint, &applied)?;
        let uid = meta::uid(&applied).to_owned();
        if stored.is_none() && !uid.is_empty() {
            let message =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(StatusError::conflict(call.about(), &message));
        }
        let is_named = !meta::name(&applied).is_empty();
        if !is_named {
            meta::set(&mut applied, "name", call.info.name.as_str().into());
        }
        call.check_namespace(endpoint, &mut applied.clone())?;
        check_name(call, &applied)?;
        let force = call.parameters.force == Some(true);
        let (manager, subresource) = (&call.parameters.field_manager, &call.info.subresource);
        let mut object = fields::apply(live, &applied, manager, force, subresource, &endpoint.info, call.now)?;
        // A version or UID that the client states is a condition of the write.
        for field in ["resourceVersion", "uid"] {
            if meta::get(&applied, field).is_some() {
                meta::copy(&mut object, &applied, field);
            } else if let Some(live) = live {
                meta::copy(&mut object, live, field);
            }
        }
        call.check_namespace(endpoint, &mut object)?;
        strategy::normalize(endpoint, &mut object);
        match stored {
            Some(stored) => self.replace(call, endpoint, stored, object, dry_run, false),
            None if !is_named => Err(StatusError::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                call.info.name
            ))),
            None => {
                self.authorize_create(call)?;
                let (stored, warnings) = self.insert(call, endpoint, object, dry_run, false)?;
                Ok(Replied {
                    reply: Reply::Object(201, stored, Arc::clone(endpoint)),
                    warnings,
                })
            }
        }
    }

    /// Writes a new state of an existing object. `track` notes the fields for the manager of the request.
    pub(crate) fn replace(
        &mut self,
        call: &Call,
        endpoint: &Arc<Endpoint>,
        stored: &Arc<Stored>,
        mut object: Value,
        dry_run: bool,
        track: bool,
    ) -> Result<Replied> {
        let subresource = call.info.subresource.as_str();
        let old = present::value(stored, endpoint);
        check_version(call, endpoint, &mut object, &old)?;
        // The manager is noted before fields are reset: it owns metadata that a write to a subresource does not store.
        if track {
            fields::track_update(
                Some(&old),
                &mut object,
                &call.manager,
                subresource,
                &endpoint.info,
                call.now,
            );
        }
        strategy::prepare_update(endpoint, subresource, &mut object, &old);
        self.check_grants(call, endpoint, "UPDATE", &object, Some(&old))?;
        let causes = strategy::validate(endpoint, subresource, &object, Some(&old));
        if !causes.is_empty() {
            return Err(StatusError::invalid(
                Call::kind_about(endpoint, meta::name(&object)),
                &causes,
            ));
        }
        let is_unchanged = strategy::is_unchanged(&object, &old);
        if is_unchanged {
            object = Value::clone(&old);
        }
        let mut warnings = self.admit(call, endpoint, "UPDATE", Some(&object), Some(&old), dry_run)?;
        warnings.extend(strategy::warnings(endpoint, &object, Some(&old)));
        let reply = |stored| Replied {
            reply: Reply::Object(200, stored, Arc::clone(endpoint)),
            warnings,
        };
        let key = call.key_of(endpoint, meta::name(&old));
        if ends(endpoint, &object, &old) {
            let (object, schema) = present::to_store(object, endpoint);
            if !dry_run {
                self.commit(&call.author, &key, None);
            }
            return Ok(reply(Arc::new(Stored::new(Arc::new(object), schema))));
        }
        let is_migrated = endpoint.custom.as_ref().is_none_or(|custom| {
            stored.value.get("apiVersion").and_then(Value::as_str) == Some(&custom.storage_api_version)
        });
        if is_unchanged && is_migrated && *old == *present::value(stored, endpoint) && !is_repruned(endpoint, stored) {
            return Ok(reply(Arc::clone(stored)));
        }
        let (object, schema) = present::to_store(object, endpoint);
        if dry_run {
            return Ok(reply(Arc::new(Stored::new(Arc::new(object), schema))));
        }
        let stored = self.commit(&call.author, &key, Some((object, schema)));
        Ok(reply(stored.ok_or_else(lost)?))
    }

    /// A write that creates an object needs the right to create it, whatever its verb.
    fn authorize_create(&self, call: &Call) -> Result<()> {
        let info = &call.info;
        let wants = crate::auth::Attributes {
            verb: "create",
            group: &info.group,
            resource: &info.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: &info.name,
            path: "",
        };
        crate::auth::authorize(&self.store, &call.user, &wants)
    }
}

impl Call {
    fn patch(&self) -> Result<Value> {
        serde_json::from_slice(&self.body)
            .map_err(|error| StatusError::bad_request(format!("error decoding patch: {error}")))
    }
}

/// If the stored form of an object changes although its contents do not: it was pruned by an older schema.
fn is_repruned(endpoint: &Endpoint, stored: &Stored) -> bool {
    let Some(custom) = &endpoint.custom else {
        return false;
    };
    custom.stamp != stored.schema && {
        let mut pruned = Value::clone(&stored.value);
        custom.schema.prune_and_default(&mut pruned);
        pruned != *stored.value
    }
}

/// If an update leaves no finalizer on an object that is being deleted.
fn ends(endpoint: &Endpoint, object: &Value, old: &Value) -> bool {
    let is_namespace = endpoint.resource == "namespaces" && endpoint.info.group.is_empty();
    if is_namespace && !crate::built_in::prepare::namespace_finalizers(object).is_empty() {
        return false;
    }
    let grace = meta::get(old, "deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    meta::is_deleting(old) && grace == 0 && !meta::has_finalizers(object)
}

/// The words of the store for a precondition that does not hold.
pub(super) fn precondition(key: &crate::ObjectKey, what: &str, wanted: &str, found: &str) -> String {
    // Kinds of Kubernetes itself are stored without their group.
    let is_own = key.group.ends_with(".k8s.io") && key.group != "apiextensions.k8s.io";
    let group = if key.group.contains('.') && !is_own {
        format!("{}/", key.group)
    } else {
        String::new()
    };
    let namespace = if key.namespace.is_empty() {
        String::new()
    } else {
        format!("{}/", key.namespace)
    };
    let path = format!("/registry/{group}{}/{namespace}{}", key.resource, key.name);
    format!(
        "StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in \
         precondition: {wanted}, {what} in object meta: {found}"
    )
}

fn check_name(call: &Call, object: &Value) -> Result<()> {
    let name = meta::name(object);
    let message = if name.is_empty() {
        "name must be provided".to_owned()
    } else if name != call.info.name {
        let wanted = &call.info.name;
        format!("the name of the object ({name}) does not match the name on the URL ({wanted})")
    } else {
        return Ok(());
    };
    Err(StatusError::bad_request(message))
}

/// Compares the resource version of an update with that of the stored object.
fn check_version(call: &Call, endpoint: &Endpoint, object: &mut Value, old: &Value) -> Result<()> {
    let (wanted, found) = (
        meta::text(object, "resourceVersion"),
        meta::text(old, "resourceVersion"),
    );
    let wanted = if wanted == "0" { "" } else { wanted };
    if wanted.is_empty() {
        if endpoint.traits.unconditional_update {
            meta::copy(object, old, "resourceVersion");
            return Ok(());
        }
        let cause = Cause::invalid_shown("metadata.resourceVersion", "0", "must be specified for an update");
        return Err(StatusError::invalid(call.about(), &[cause]));
    }
    if wanted.parse::<u64>().is_err() {
        let message = format!("strconv.ParseUint: parsing {wanted:?}: invalid syntax");
        return Err(StatusError::plain(500, "", message));
    }
    if wanted != found {
        return Err(StatusError::conflict(call.about(), MODIFIED));
    }
    Ok(())
}

fn check_patch_type(call: &Call, endpoint: &Endpoint) -> Result<()> {
    const CUSTOM: &[&str] = &[
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/apply-patch+yaml",
    ];
    const BUILT_IN: &[&str] = &[
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ];
    if endpoint.custom.is_none() && call.content_type == "application/json" {
        return Err(StatusError {
            details: serde_json::json!({}),
            ..StatusError::plain(415, "UnsupportedMediaType", "415: Unsupported Media Type")
        });
    }
    let accepted = if endpoint.custom.is_some() { CUSTOM } else { BUILT_IN };
    if accepted.contains(&call.content_type.as_str()) {
        return Ok(());
    }
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        accepted.join(", ")
    );
    Err(StatusError::plain(415, "UnsupportedMediaType", message))
}
