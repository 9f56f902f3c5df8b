//! What a bind asks for, and what comes of it.

use std::time::Duration;

use bindery_proto::v1alpha2::{
    BindableResourcesRequest, BindableResourcesRequestSpec, BindingResourceResponse, ClusterIdentity,
    CreateBindableResourcesRequestRequest, NameRef, ObjectMeta,
};

use crate::kubeconfig::SecretKubeconfig;
use crate::manifests::offer::Refusal;
use crate::manifests::{ManifestOptions, Manifests};

/// How long a bind waits unless it says otherwise.
const PATIENCE: Duration = Duration::from_mins(5);

/// A template to bind, and the cluster to bind it to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct BindRequest {
    /// Name of the template.
    pub template: String,
    /// Identity of the consumer cluster, preferably the UID of its namespace `kube-system`.
    pub cluster_identity: String,
    /// Name of the binding; that of the template if empty.
    pub name: String,
    /// Name of the consumer cluster for people; may be empty.
    pub pretty_name: String,
    /// How long the server may wait for its controller in one call; `None` leaves that to the server, which waits for 30 s.
    pub wait: Option<Duration>,
    /// How long the client waits for the result in all; with zero there is one call, which does not wait.
    pub patience: Duration,
    /// Asks what a bind would install. The server writes nothing and gives no kubeconfig.
    pub validate_only: bool,
    /// After this time the server deletes the record of the finished request; `None` keeps it.
    pub ttl_after_finished: Option<Duration>,
}

/// A fulfilled request, and what to install for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The request in phase SUCCEEDED, as the server returned it.
    pub request: BindableResourcesRequest,
    /// What to install on the consumer, without the kubeconfig.
    pub response: BindingResourceResponse,
    /// The kubeconfig for the consumer; `None` with `validate_only`.
    pub kubeconfig: Option<SecretKubeconfig>,
    /// Name and template that were asked for.
    name: Option<String>,
    template: Option<String>,
}

impl BindRequest {
    /// Makes the request to bind a template to the cluster of this identity, preferably the UID of its namespace `kube-system`. The
    /// binding gets the name of the template, and the bind waits for five minutes at most.
    pub fn new(template: impl Into<String>, cluster_identity: impl Into<String>) -> Self {
        Self {
            template: template.into(),
            cluster_identity: cluster_identity.into(),
            name: String::new(),
            pretty_name: String::new(),
            wait: None,
            patience: PATIENCE,
            validate_only: false,
            ttl_after_finished: None,
        }
    }

    /// Sets the name of the binding.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the name of the consumer cluster for people.
    pub fn pretty_name(mut self, name: impl Into<String>) -> Self {
        self.pretty_name = name.into();
        self
    }

    /// Sets how long the server may wait for its controller in one call.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets how long the client waits for the result in all.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Asks what a bind would install, and binds nothing.
    pub fn validate_only(mut self) -> Self {
        self.validate_only = true;
        self
    }

    /// Sets after which time the server deletes the record of the finished request.
    pub fn ttl_after_finished(mut self, ttl: Duration) -> Self {
        self.ttl_after_finished = Some(ttl);
        self
    }

    /// Makes the request message, for [`Client::bind_by_request`](crate::Client::bind_by_request).
    pub fn to_message(&self) -> CreateBindableResourcesRequestRequest {
        let name = if self.name.is_empty() {
            &self.template
        } else {
            &self.name
        };
        let spec = BindableResourcesRequestSpec {
            template_ref: Some(NameRef {
                name: self.template.clone(),
            }),
            cluster_identity: Some(ClusterIdentity {
                identity: self.cluster_identity.clone(),
                pretty_name: self.pretty_name.clone(),
            }),
            ttl_after_finished: self.ttl_after_finished.map(duration),
            ..BindableResourcesRequestSpec::default()
        };
        CreateBindableResourcesRequestRequest {
            bindable_resources_request: Some(BindableResourcesRequest {
                metadata: Some(ObjectMeta {
                    name: name.clone(),
                    ..ObjectMeta::default()
                }),
                spec: Some(spec),
                status: None,
            }),
            wait: self.wait.map(duration),
            validate_only: self.validate_only,
        }
    }
}

impl Bound {
    /// Notes what was asked for, and takes the kubeconfig out of the response.
    pub(crate) fn new(
        asked: &CreateBindableResourcesRequestRequest,
        request: BindableResourcesRequest,
        mut response: BindingResourceResponse,
    ) -> Self {
        let asked = asked.bindable_resources_request.as_ref();
        let metadata = asked.and_then(|asked| asked.metadata.as_ref());
        let template = asked.and_then(|asked| asked.spec.as_ref()?.template_ref.as_ref());
        let named = |name: &String| Some(name.clone()).filter(|name| !name.is_empty());
        Self {
            request,
            kubeconfig: response.kubeconfig.take().map(SecretKubeconfig::new),
            response,
            name: metadata.and_then(|metadata| named(&metadata.name)),
            template: template.and_then(|template| named(&template.name)),
        }
    }

    /// Judges the response and makes the objects that the consumer applies. Unless the options say otherwise, name and template are
    /// those that were asked for: a response for another binding is refused, and the binding names its template.
    pub fn manifests(&self, options: &ManifestOptions) -> Result<Manifests, Refusal> {
        let options = ManifestOptions {
            name: options.name.clone().or_else(|| self.name.clone()),
            template: options.template.clone().or_else(|| self.template.clone()),
            ..options.clone()
        };
        Manifests::of_response(&self.to_response(), &options)
    }

    /// Returns the response as the server sent it: with the kubeconfig.
    pub fn to_response(&self) -> BindingResourceResponse {
        BindingResourceResponse {
            kubeconfig: self.kubeconfig.clone().map(SecretKubeconfig::into_message),
            ..self.response.clone()
        }
    }
}

/// Converts a duration; one that a message cannot hold becomes the longest.
fn duration(duration: Duration) -> prost_types::Duration {
    /// Limit of `google.protobuf.Duration`: ten thousand years.
    const SECONDS_MAX: u64 = 315_576_000_000;
    let duration = duration.min(Duration::from_secs(SECONDS_MAX));
    prost_types::Duration {
        seconds: duration.as_secs().cast_signed(),
        nanos: duration.subsec_nanos().cast_signed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound() -> Bound {
        let response = BindingResourceResponse {
            provider_namespace: "kube-bind-x".to_owned(),
            binding_name: "west".to_owned(),
            kubeconfig: Some(bindery_proto::v1alpha2::Kubeconfig {
                kubeconfig: prost::bytes::Bytes::from_static(b"hunter2"),
                ..Default::default()
            }),
            requests: vec![bindery_proto::v1alpha2::ExportRequest {
                name: "west".to_owned(),
                resources: vec![bindery_proto::v1alpha2::Resource {
                    group: "wildwest.dev".to_owned(),
                    resource: "cowboys".to_owned(),
                    versions: vec!["v1".to_owned()],
                }],
                ..Default::default()
            }],
            ..BindingResourceResponse::default()
        };
        let asked = BindRequest::new("cowboys", "uid").name("west").to_message();
        // The server's copy of the request says something else, which nothing relies on.
        Bound::new(&asked, BindableResourcesRequest::default(), response)
    }

    #[test]
    fn a_message_has_what_was_asked_for_and_nothing_else() {
        let message = BindRequest::new("cowboys", "uid").to_message();
        let request = message.bindable_resources_request.unwrap();
        assert_eq!(request.metadata.unwrap().name, "cowboys");
        assert_eq!((message.wait, message.validate_only), (None, false));
        let message = BindRequest::new("cowboys", "uid")
            .name("west")
            .pretty_name("the west")
            .wait(Duration::from_millis(1500))
            .ttl_after_finished(Duration::MAX)
            .validate_only()
            .to_message();
        let request = message.bindable_resources_request.unwrap();
        let spec = request.spec.unwrap();
        assert_eq!(request.metadata.unwrap().name, "west");
        assert_eq!(spec.cluster_identity.unwrap().pretty_name, "the west");
        assert_eq!(message.wait.unwrap().nanos, 500_000_000);
        assert_eq!(spec.ttl_after_finished.unwrap().seconds, 315_576_000_000);
        assert!(message.validate_only);
    }

    #[test]
    fn manifests_are_for_what_was_asked() {
        let manifests = bound().manifests(&ManifestOptions::default()).unwrap();
        let canonical = manifests.canonical().unwrap();
        assert!(
            canonical.contains(r#""kube-bind.io/template":"cowboys""#),
            "{canonical}"
        );
        let mut other = bound();
        other.name = Some("east".to_owned());
        let refusal = other.manifests(&ManifestOptions::default()).unwrap_err();
        assert_eq!(refusal.reason(), "OtherBinding");
    }

    #[test]
    fn debug_shows_no_kubeconfig() {
        let bound = bound();
        let shown = format!("{bound:?} {:?}", bound.manifests(&ManifestOptions::default()));
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(bound.kubeconfig.as_ref().unwrap().expose(), b"hunter2");
        assert_eq!(bound.to_response().kubeconfig.unwrap().kubeconfig, "hunter2");
    }
}
