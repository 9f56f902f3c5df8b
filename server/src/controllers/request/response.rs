//! The response to a request that was made as a resource: a Secret in the request's namespace. It has no owner, for whoever
//! uses it does so after the request has gone, and it is written only if it was made for this request or names it.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_api::{
    annotations, labels, names,
    v1alpha2::{API_VERSION, APIServiceExportRequestSpec, BindableResourcesRequest, LocalSecretKeyRef},
};
use bindery_runtime::errors;
use k8s_openapi::{
    ByteString,
    api::{
        core::v1::Secret,
        rbac::v1::{RoleBinding, RoleRef, Subject},
    },
};
use kube::{Api, Client, ResourceExt as _, api::ObjectMeta};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::plan::Refused;
use crate::{
    template::SERVER_LACKS_RIGHTS,
    writes::{self, WriteError},
};

/// The shipped role by which the server writes responses.
const ROLE: &str = "bindery-server-responses";
/// What a Secret is that is of no special type.
const OPAQUE: &str = "Opaque";

/// What is there in the place of a response.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Standing {
    Missing,
    /// It is the request's to write, and does not hold its response, or not whole. As it was seen, without what it holds.
    Open(Box<Secret>),
    /// It holds this request's response.
    Written,
    Foreign(String),
    /// It is the request's, and cannot be written.
    Stuck(String),
}

/// What a response says.
pub(super) struct Response<'a> {
    pub(super) request: &'a BindableResourcesRequest,
    pub(super) secret: &'a LocalSecretKeyRef,
    /// The contract namespace.
    pub(super) contract: &'a str,
    /// What is bound there under the request's name.
    pub(super) asked: &'a APIServiceExportRequestSpec,
    pub(super) kubeconfig: &'a SecretString,
}

/// Reads what is there; the outer refusal is for the provider's admin to mend.
pub(super) async fn read(
    client: &Client,
    request: &BindableResourcesRequest,
    secret: &LocalSecretKeyRef,
    server: &Subject,
) -> Result<Result<Standing, Refused>, WriteError> {
    let namespace = request.namespace().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    match api.get_opt(&secret.name).await {
        Ok(found) => Ok(Ok(standing(found, request, secret))),
        Err(error) => refused(error.into(), &namespace, server).map(Err),
    }
}

/// Writes the response in the place of what was read. Where that is another one by now, the caller comes again.
pub(super) async fn write(
    client: &Client,
    response: &Response<'_>,
    before: Option<&Secret>,
    server: &Subject,
) -> Result<Result<(), Refused>, WriteError> {
    let namespace = response.request.namespace().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let written = match before {
        None => {
            let params = kube::api::PostParams {
                field_manager: Some(writes::FIELD_MANAGER.to_owned()),
                ..kube::api::PostParams::default()
            };
            let created = api.create(&params, &response.render()).await;
            created.map_err(WriteError::from)
        }
        Some(before) => {
            let wanted = response.render();
            let mut metadata = writes::seen(before);
            metadata["labels"] = json!(wanted.metadata.labels);
            metadata["annotations"] = json!(wanted.metadata.annotations);
            let patch = json!({ "metadata": metadata, "data": wanted.data });
            writes::merge(&api, &response.secret.name, &patch).await
        }
    };
    match written {
        Ok(_) => Ok(Ok(())),
        Err(error) if error.is_stale() => Err(error),
        Err(error) => refused(error, &namespace, server).map(Err),
    }
}

/// Whose a Secret is, and whether it holds the response.
fn standing(found: Option<Secret>, request: &BindableResourcesRequest, secret: &LocalSecretKeyRef) -> Standing {
    let Some(found) = found else {
        return Standing::Missing;
    };
    let (namespace, name) = (request.namespace().unwrap_or_default(), request.name_any());
    let marks = found.annotations();
    let is_for = |named: &String| *named == name || *named == format!("{namespace}/{name}");
    if !marks.get(annotations::REQUEST).is_some_and(is_for) {
        return Standing::Foreign(format!(
            "Secret {namespace}/{} exists and was not written for this request; delete it, annotate it \
             {}={name}, or name another one in spec.kubeconfigSecretRef of a new request",
            secret.name,
            annotations::REQUEST,
        ));
    }
    if marks
        .get(annotations::AUTHOR)
        .is_some_and(|author| *author != request.spec.author)
    {
        return Standing::Foreign(format!(
            "Secret {namespace}/{} holds the response to a request of this name by another author; delete it, annotate it \
             {}={name} without {}, or name another one in spec.kubeconfigSecretRef of a new request",
            secret.name,
            annotations::REQUEST,
            annotations::AUTHOR,
        ));
    }
    if found.type_.as_deref().is_some_and(|type_| type_ != OPAQUE) {
        return Standing::Foreign(format!(
            "Secret {namespace}/{} is of type {}, which holds no response; delete it, or make it one of type {OPAQUE} with \
             annotation {}={name}",
            secret.name,
            found.type_.as_deref().unwrap_or_default(),
            annotations::REQUEST,
        ));
    }
    let has = |key: &str| {
        found
            .data
            .iter()
            .flatten()
            .any(|(other, value)| other == key && !value.0.is_empty())
    };
    let is_issued = found.labels().get(labels::REQUEST_UID) == request.metadata.uid.as_ref()
        && has(&secret.key)
        && has(names::BINDING_RESPONSE_KEY);
    let place = format!("Secret {namespace}/{}", secret.name);
    if found.metadata.deletion_timestamp.is_some() {
        Standing::Stuck(format!("{place} is being deleted; it is written anew when it has gone"))
    } else if is_issued {
        Standing::Written
    } else if found.immutable == Some(true) {
        Standing::Stuck(format!(
            "{place} is immutable, so that the response cannot be written; delete it"
        ))
    } else {
        Standing::Open(Box::new(Secret {
            metadata: found.metadata,
            ..Secret::default()
        }))
    }
}

/// A refusal of the API server that somebody else can mend; else the error.
fn refused(error: WriteError, namespace: &str, server: &Subject) -> Result<Refused, WriteError> {
    let WriteError::Api(cause) = &error else {
        return Err(error);
    };
    if errors::is_transient(cause) {
        return Err(error);
    }
    let said = errors::explain(cause);
    // Quotas and policies refuse with the same code.
    if errors::is_forbidden(cause) && said.contains(" cannot ") {
        let message = format!(
            "the server may not write Secrets in namespace {namespace}; its admin can apply:\n{}",
            manifest(namespace, server)
        );
        return Ok(Refused::new(SERVER_LACKS_RIGHTS, &message));
    }
    let message = format!("the response cannot be written: {said}");
    Ok(Refused::new("SecretCreationFailed", &message))
}

/// The RoleBinding by which the server may write responses in a namespace, ready to apply.
fn manifest(namespace: &str, server: &Subject) -> String {
    let binding = RoleBinding {
        metadata: ObjectMeta {
            name: Some(ROLE.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: ROLE.to_owned(),
        },
        subjects: Some(vec![server.clone()]),
    };
    serde_saphyr::to_string(&binding).unwrap_or_else(|_| json!(binding).to_string())
}

// === impl Response ===

impl Response<'_> {
    fn render(&self) -> Secret {
        let namespace = self.request.namespace().unwrap_or_default();
        let marks = [
            (annotations::REQUEST, format!("{namespace}/{}", self.request.name_any())),
            (annotations::AUTHOR, self.request.spec.author.clone()),
        ];
        let kubeconfig = self.kubeconfig.expose_secret().as_bytes();
        let data = [
            (self.secret.key.clone(), ByteString(kubeconfig.to_vec())),
            (
                names::BINDING_RESPONSE_KEY.to_owned(),
                ByteString(self.json().into_bytes()),
            ),
        ];
        Secret {
            metadata: ObjectMeta {
                name: Some(self.secret.name.clone()),
                namespace: Some(namespace),
                labels: self
                    .request
                    .uid()
                    .map(|uid| BTreeMap::from([(labels::REQUEST_UID.to_owned(), uid)])),
                annotations: Some(marks.map(|(key, value)| (key.to_owned(), value)).into()),
                ..ObjectMeta::default()
            },
            data: Some(data.into()),
            type_: Some(OPAQUE.to_owned()),
            ..Secret::default()
        }
    }

    /// What a client installs from, as kube-bind has it.
    fn json(&self) -> String {
        let name = self.request.name_any();
        json!({
            "kind": "BindingResourceResponse",
            "apiVersion": API_VERSION,
            "authentication": {},
            "kubeconfig": STANDARD.encode(self.kubeconfig.expose_secret()),
            "requests": [{
                "kind": "APIServiceExportRequest",
                "apiVersion": API_VERSION,
                "metadata": { "name": name },
                "spec": self.asked,
                "status": {},
            }],
            "providerNamespace": self.contract,
            "bindingName": name,
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests;
