//! Methods of BindingService: requests to bind templates.

use std::time::Duration;

use bindery_proto::v1alpha2::{
    BindableResourcesRequest, BindableResourcesRequestSpec, BindableResourcesRequestStatus, BindingResourceResponse,
    ClusterIdentity, CreateBindableResourcesRequestRequest, CreateBindableResourcesRequestResponse,
    DeleteBindableResourcesRequestRequest, GetBindableResourcesRequestRequest, ListBindableResourcesRequestsRequest,
    NameRef, ObjectMeta, Phase,
};
use tokio::time::Instant;

use super::Client;
use crate::error::Error;
use crate::error::request::{PendingError, RequestFailed};
use crate::{method::all as methods, page};

/// How long the server waits for its controller if a request does not say.
const SERVER_WAIT: Duration = Duration::from_secs(30);

/// Pause before another call if the server responds PENDING at once.
const PENDING_PAUSE: Duration = Duration::from_secs(1);

/// How long [`Client::bind_template`] waits.
const PATIENCE: Duration = Duration::from_mins(5);

/// A fulfilled request, and what to install for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The request in phase SUCCEEDED.
    pub request: BindableResourcesRequest,
    /// What to install on the consumer.
    pub response: BindingResourceResponse,
}

impl Client {
    /// Binds a template, with one call that may take as long as `wait` says. Phase PENDING is returned as it is: the same call
    /// again goes on waiting. Phase FAILED is [`Error::RequestFailed`].
    pub async fn create_bindable_resources_request(
        &self,
        request: CreateBindableResourcesRequestRequest,
    ) -> Result<CreateBindableResourcesRequestResponse, Error> {
        let wait = server_wait(request.wait.as_ref());
        let answer = self
            .call_waiting(methods::CREATE_BINDABLE_RESOURCES_REQUEST, request, wait)
            .await?;
        match &answer.bindable_resources_request {
            None => Err(self.missing("request")),
            Some(request) if phase(request) == Phase::Failed => Err(Error::RequestFailed(Box::new(RequestFailed {
                request: request.clone(),
            }))),
            Some(_) => Ok(answer),
        }
    }

    /// Binds a template and waits for the result, for `patience` at most. Calls `progress` with the request each time that it is
    /// still pending. With `validate_only` it returns at once what would be the result.
    pub async fn bind(
        &self,
        request: CreateBindableResourcesRequestRequest,
        patience: Duration,
        mut progress: impl FnMut(&BindableResourcesRequest),
    ) -> Result<Bound, Error> {
        let start = Instant::now();
        loop {
            let asked = Instant::now();
            let answer = self.create_bindable_resources_request(request.clone()).await?;
            let pending = answer
                .bindable_resources_request
                .ok_or_else(|| self.missing("request"))?;
            match answer.response {
                Some(response) => {
                    return Ok(Bound {
                        request: pending,
                        response,
                    });
                }
                None if phase(&pending) == Phase::Succeeded || request.validate_only => {
                    return Err(self.missing("response"));
                }
                None => progress(&pending),
            }
            if start.elapsed() >= patience {
                let waited = start.elapsed();
                return Err(Error::Pending(Box::new(PendingError {
                    request: pending,
                    waited,
                })));
            }
            tokio::time::sleep_until(asked + PENDING_PAUSE).await;
        }
    }

    /// Binds a template to the cluster of this identity, and waits for five minutes at most; see [`bind_request`].
    pub async fn bind_template(
        &self,
        template: impl Into<String>,
        cluster_identity: impl Into<String>,
    ) -> Result<Bound, Error> {
        self.bind(bind_request(template, cluster_identity), PATIENCE, |_| ())
            .await
    }

    /// Returns one of the caller's requests.
    pub async fn get_bindable_resources_request(
        &self,
        name: &str,
        cluster_identity: &str,
    ) -> Result<BindableResourcesRequest, Error> {
        let request = GetBindableResourcesRequestRequest {
            name: name.to_owned(),
            cluster_identity: cluster_identity.to_owned(),
        };
        let answer = self.call(methods::GET_BINDABLE_RESOURCES_REQUEST, request).await?;
        answer.bindable_resources_request.ok_or_else(|| self.missing("request"))
    }

    /// Returns all of the caller's requests, from `page_token` on.
    pub async fn list_bindable_resources_requests(
        &self,
        request: ListBindableResourcesRequestsRequest,
    ) -> Result<Vec<BindableResourcesRequest>, Error> {
        let page = async |page_token| {
            let request = ListBindableResourcesRequestsRequest {
                page_token,
                ..request.clone()
            };
            let answer = self.call(methods::LIST_BINDABLE_RESOURCES_REQUESTS, request).await?;
            Ok((answer.bindable_resources_requests, answer.next_page_token))
        };
        page::all(self.address(), request.page_token.clone(), page).await
    }

    /// Removes the record of a request. The export stays bound.
    pub async fn delete_bindable_resources_request(
        &self,
        request: DeleteBindableResourcesRequestRequest,
    ) -> Result<(), Error> {
        self.call(methods::DELETE_BINDABLE_RESOURCES_REQUEST, request)
            .await
            .map(|_| ())
    }
}

/// Makes the request to bind a template to the cluster of this identity, preferably the UID of its namespace `kube-system`. The
/// binding gets the name of the template.
pub fn bind_request(
    template: impl Into<String>,
    cluster_identity: impl Into<String>,
) -> CreateBindableResourcesRequestRequest {
    let template = template.into();
    let metadata = ObjectMeta {
        name: template.clone(),
        ..ObjectMeta::default()
    };
    let spec = BindableResourcesRequestSpec {
        template_ref: Some(NameRef { name: template }),
        cluster_identity: Some(ClusterIdentity {
            identity: cluster_identity.into(),
            ..ClusterIdentity::default()
        }),
        ..BindableResourcesRequestSpec::default()
    };
    CreateBindableResourcesRequestRequest {
        bindable_resources_request: Some(BindableResourcesRequest {
            metadata: Some(metadata),
            spec: Some(spec),
            status: None,
        }),
        ..CreateBindableResourcesRequestRequest::default()
    }
}

/// Returns how long the server may wait before it responds; 30 s if the duration is unset or not valid.
pub(crate) fn server_wait(wait: Option<&prost_types::Duration>) -> Duration {
    wait.and_then(|wait| Duration::try_from(*wait).ok())
        .unwrap_or(SERVER_WAIT)
}

fn phase(request: &BindableResourcesRequest) -> Phase {
    request
        .status
        .as_ref()
        .map_or(Phase::Unspecified, BindableResourcesRequestStatus::phase)
}
