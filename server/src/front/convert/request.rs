//! BindableResourcesRequest.

use bindery_api::v1alpha2 as api;
use bindery_proto::v1alpha2 as proto;

use super::{condition::kubernetes_conditions, enums, meta};
use crate::controllers::request::request_name;

/// A request, under the name that its caller gave it.
pub fn request(request: &api::BindableResourcesRequest) -> proto::BindableResourcesRequest {
    let mut metadata = meta::metadata(&request.metadata);
    request_name(request).clone_into(&mut metadata.name);
    proto::BindableResourcesRequest {
        metadata: Some(metadata),
        spec: Some(spec(&request.spec)),
        status: Some(status(request.status.clone().unwrap_or_default())),
    }
}

/// What a caller asks for, as a CRD. What only the server may write is dropped without an error.
pub fn wanted(spec: &proto::BindableResourcesRequestSpec, author: String) -> api::BindableResourcesRequestSpec {
    let cluster = spec.cluster_identity.clone().unwrap_or_default();
    api::BindableResourcesRequestSpec {
        template_ref: spec
            .template_ref
            .as_ref()
            .map(|template| api::NameRef::new(&template.name)),
        cluster_identity: api::ClusterIdentity {
            identity: cluster.identity,
            pretty_name: Some(cluster.pretty_name).filter(|name| !name.is_empty()),
        },
        author,
        kubeconfig_secret_ref: None,
        ttl_after_finished: crate::front::validate::duration(spec.ttl_after_finished.as_ref()).map(Into::into),
        compatibility: enums::compatibility_of(spec.compatibility),
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

    #[test]
    fn what_is_wanted_comes_back_and_the_author_is_the_server_s_word() {
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
        let back = spec(&wanted(&sent, "alice".to_owned()));
        let expected = proto::BindableResourcesRequestSpec {
            author: "alice".to_owned(),
            kubeconfig_secret_ref: None,
            ..sent
        };
        assert_eq!(back, expected);
    }
}
