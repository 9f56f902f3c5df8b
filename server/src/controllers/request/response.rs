//! The response to a request that was made as a resource: a Secret in the request's namespace. The Secret has no owner
//! reference, so that it outlives the request. The server writes to it only if it was made for this request or names it.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_api::{
    annotations,
    consumer_rules::consumer_rules,
    labels, names,
    v1alpha2::{API_VERSION, APIServiceExportRequestSpec, BindableResourcesRequest, GroupResource, LocalSecretKeyRef},
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

use super::status::Refused;
use crate::{
    request::OutsideReason,
    rights,
    template::SERVER_LACKS_RIGHTS,
    writes::{self, Write, WriteError},
};

/// The shipped role by which the server writes responses.
const ROLE: &str = "bindery-server-responses";
/// The type of a Secret that holds anything.
const OPAQUE: &str = "Opaque";

/// The Secret of a request's response, as the server found it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ResponseSecret {
    /// There is no Secret of the name.
    Missing,
    /// The server may write the response into the Secret, which does not hold it completely yet. As it was seen, without data.
    Open(Box<Secret>),
    /// The Secret holds the response.
    Written,
    /// The Secret is somebody else's; the message says how to mend that.
    Foreign(String),
    /// The Secret is the request's, and cannot be written; the message says why.
    Stuck(String),
}

/// What a response consists of.
pub(super) struct Response<'a> {
    pub(super) request: &'a BindableResourcesRequest,
    pub(super) secret: &'a LocalSecretKeyRef,
    /// The contract namespace.
    pub(super) contract: &'a str,
    /// What is bound under the request's name.
    pub(super) requested: &'a APIServiceExportRequestSpec,
    pub(super) kubeconfig: &'a SecretString,
}

/// Reads the Secret for a response. The inner error is for the provider's admin to mend.
pub(super) async fn read(
    client: &Client,
    request: &BindableResourcesRequest,
    secret: &LocalSecretKeyRef,
    server: &Subject,
) -> Result<Result<ResponseSecret, Refused>, WriteError> {
    let namespace = request.namespace().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    match api.get_opt(&secret.name).await {
        Ok(found) => Ok(Ok(standing(found, request, secret))),
        Err(error) => refused(client, error.into(), "get", &namespace, server).await.map(Err),
    }
}

/// Writes the response into a Secret that was read before. Where the Secret has changed since, the error says that it is stale.
pub(super) async fn write(
    client: &Client,
    response: &Response<'_>,
    before: Option<&Secret>,
    server: &Subject,
) -> Result<Result<(), Refused>, WriteError> {
    let namespace = response.request.namespace().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let (verb, written) = match before {
        None => {
            let params = kube::api::PostParams {
                field_manager: Some(writes::FIELD_MANAGER.to_owned()),
                ..kube::api::PostParams::default()
            };
            let created = api.create(&params, &response.render()).await;
            ("create", created.map(drop).map_err(WriteError::from))
        }
        Some(before) => {
            let wanted = response.render();
            let patch = json!({
                "metadata": { "labels": wanted.metadata.labels, "annotations": wanted.metadata.annotations },
                "data": wanted.data,
            });
            let write = Write::patch("the response is issued", before, patch);
            ("patch", write.apply(client).await.map(drop))
        }
    };
    match written {
        Ok(()) => Ok(Ok(())),
        Err(error) if error.is_stale() => Err(error),
        Err(error) => refused(client, error, verb, &namespace, server).await.map(Err),
    }
}

/// Judges whose a Secret is, and whether it holds the response.
fn standing(found: Option<Secret>, request: &BindableResourcesRequest, secret: &LocalSecretKeyRef) -> ResponseSecret {
    let Some(found) = found else {
        return ResponseSecret::Missing;
    };
    let (namespace, name) = (request.namespace().unwrap_or_default(), request.name_any());
    let marks = found.annotations();
    let is_for = |named: &String| *named == name || *named == format!("{namespace}/{name}");
    if !marks.get(annotations::REQUEST).is_some_and(is_for) {
        return ResponseSecret::Foreign(format!(
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
        return ResponseSecret::Foreign(format!(
            "Secret {namespace}/{} holds the response to a request of this name by another author; delete it, annotate it \
             {}={name} without {}, or name another one in spec.kubeconfigSecretRef of a new request",
            secret.name,
            annotations::REQUEST,
            annotations::AUTHOR,
        ));
    }
    if found.type_.as_deref().is_some_and(|type_| type_ != OPAQUE) {
        return ResponseSecret::Foreign(format!(
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
        ResponseSecret::Stuck(format!("{place} is being deleted; it is written anew when it has gone"))
    } else if is_issued {
        ResponseSecret::Written
    } else if found.immutable == Some(true) {
        ResponseSecret::Stuck(format!(
            "{place} is immutable, so that the response cannot be written; delete it"
        ))
    } else {
        ResponseSecret::Open(Box::new(Secret {
            metadata: found.metadata,
            ..Secret::default()
        }))
    }
}

/// What a failed request for a Secret means to the author of the request; the error itself if it is transient. Admission and
/// quotas refuse with the same status as a lack of rights, so that the API server is asked whether the server has the right.
async fn refused(
    client: &Client,
    error: WriteError,
    verb: &'static str,
    namespace: &str,
    server: &Subject,
) -> Result<Refused, WriteError> {
    let WriteError::Api(cause) = &error else {
        return Err(error);
    };
    if errors::is_transient(cause) {
        return Err(error);
    }
    let secrets = GroupResource::new("", "secrets");
    if errors::is_forbidden(cause) && !rights::is_allowed(client, verb, &secrets, Some(namespace), None).await? {
        let message = format!(
            "the server may not write Secrets in namespace {namespace}; its admin can apply:\n{}",
            manifest(namespace, server)
        );
        return Ok(Refused::new(SERVER_LACKS_RIGHTS, &message));
    }
    let message = format!("the response cannot be written: {}", errors::explain(cause));
    Ok(Refused::new(OutsideReason::SecretCreationFailed.as_str(), &message))
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

    /// The BindingResourceResponse that a client installs from, in the format of kube-bind.
    fn json(&self) -> String {
        let name = self.request.name_any();
        let resources = self.requested.resources.iter().map(|resource| &resource.group_resource);
        let claims = self
            .requested
            .permission_claims
            .iter()
            .map(|claim| &claim.group_resource);
        json!({
            "kind": "BindingResourceResponse",
            "apiVersion": API_VERSION,
            "authentication": {},
            "kubeconfig": STANDARD.encode(self.kubeconfig.expose_secret()),
            "requests": [{
                "kind": "APIServiceExportRequest",
                "apiVersion": API_VERSION,
                "metadata": { "name": name },
                "spec": self.requested,
                "status": {},
            }],
            "providerNamespace": self.contract,
            "bindingName": name,
            // kube-bind has no such field, and its clients ignore it.
            "consumerRules": consumer_rules(resources, claims),
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests;
