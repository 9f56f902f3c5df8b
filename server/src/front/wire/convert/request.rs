//! Conversion of BindableResourcesRequests.

use bindery_api::v1alpha2 as api;
use bindery_proto::v1alpha2 as proto;

use crate::{
    front::wire::{
        convert::{condition::kubernetes_conditions, enums, meta},
        validate::BindRequest,
    },
    request::request_name,
};

/// The message of a request, under the name that its author gave it. The object of a request by gRPC is named by a hash
/// and has that name in an annotation.
pub(crate) fn request(request: &api::BindableResourcesRequest) -> proto::BindableResourcesRequest {
    let mut metadata = meta::metadata(&request.metadata);
    request_name(request).clone_into(&mut metadata.name);
    proto::BindableResourcesRequest {
        metadata: Some(metadata),
        spec: Some(spec(&request.spec)),
        status: Some(status(request.status.clone().unwrap_or_default())),
    }
}

/// The CRD's spec of a validated request by gRPC. The server sets the author. The spec never names a Secret, because no
/// kubeconfig is stored for such a request.
pub(crate) fn spec_of(request: &BindRequest, author: String) -> api::BindableResourcesRequestSpec {
    api::BindableResourcesRequestSpec {
        template_ref: Some(api::NameRef::new(&*request.template)),
        cluster_identity: api::ClusterIdentity {
            identity: request.identity.to_string(),
            pretty_name: Some(request.pretty_name.clone()).filter(|name| !name.is_empty()),
        },
        author,
        kubeconfig_secret_ref: None,
        ttl_after_finished: request.ttl_after_finished.map(Into::into),
        // Set if kube-bind's own konnector is to be served.
        compatibility: request.compatibility,
    }
}

fn spec(spec: &api::BindableResourcesRequestSpec) -> proto::BindableResourcesRequestSpec {
    let ttl = spec.ttl_after_finished.as_ref().and_then(|ttl| ttl.parse().ok());
    proto::BindableResourcesRequestSpec {
        template_ref: spec.template_ref.as_ref().map(|template| proto::NameRef {
            name: template.name.clone(),
        }),
        cluster_identity: Some(proto::ClusterIdentity {
            identity: spec.cluster_identity.identity.clone(),
            pretty_name: spec.cluster_identity.pretty_name.clone().unwrap_or_default(),
        }),
        author: spec.author.clone(),
        kubeconfig_secret_ref: spec.kubeconfig_secret_ref.as_ref().map(meta::secret_key),
        ttl_after_finished: ttl.map(meta::duration),
        compatibility: spec.compatibility.map_or(0, enums::compatibility),
    }
}

fn status(status: api::BindableResourcesRequestStatus) -> proto::BindableResourcesRequestStatus {
    proto::BindableResourcesRequestStatus {
        phase: enums::phase(status.phase),
        // The contract namespace.
        namespace: status.namespace.unwrap_or_default(),
        kubeconfig_secret_ref: status.kubeconfig_secret_ref.as_ref().map(meta::secret_key),
        completion_time: status.completion_time.as_ref().map(meta::time),
        conditions: kubernetes_conditions(&status.conditions),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::front::wire::validate::CreateRequest;

    #[test]
    fn a_spec_is_read_back_and_the_server_sets_its_author() {
        let sent = proto::BindableResourcesRequestSpec {
            template_ref: Some(proto::NameRef {
                name: "cowboys".to_owned(),
            }),
            cluster_identity: Some(proto::ClusterIdentity {
                identity: "id".to_owned(),
                pretty_name: "Ranch".to_owned(),
            }),
            author: "mallory".to_owned(),
            kubeconfig_secret_ref: Some(proto::LocalSecretKeyRef::default()),
            ttl_after_finished: Some(meta::duration(Duration::from_secs(90))),
            compatibility: proto::Compatibility::KubeBind.into(),
        };
        let create = proto::CreateBindableResourcesRequestRequest {
            bindable_resources_request: Some(proto::BindableResourcesRequest {
                metadata: Some(proto::ObjectMeta {
                    name: "west".to_owned(),
                    ..proto::ObjectMeta::default()
                }),
                spec: Some(sent.clone()),
                status: None,
            }),
            ..proto::CreateBindableResourcesRequestRequest::default()
        };
        let valid = CreateRequest::try_from(create).expect("a valid request");
        let back = spec(&spec_of(&valid.request, "alice".to_owned()));
        let expected = proto::BindableResourcesRequestSpec {
            author: "alice".to_owned(),
            kubeconfig_secret_ref: None,
            ..sent
        };
        assert_eq!(back, expected);
    }
}
