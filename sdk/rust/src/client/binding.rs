//! Methods of BindingService: requests to bind templates.

use std::time::Duration;

use bindery_proto::v1alpha2::{
    BindableResourcesRequest, BindableResourcesRequestStatus, CreateBindableResourcesRequestRequest,
    CreateBindableResourcesRequestResponse, DeleteBindableResourcesRequestRequest, GetBindableResourcesRequestRequest,
    ListBindableResourcesRequestsRequest, Phase,
};
use tokio::time::Instant;

use super::Client;
use crate::bind::{BindRequest, Bound};
use crate::builder::TIMEOUT_MAX;
use crate::error::Error;
use crate::error::request::{PendingError, RequestFailed};
use crate::method::all as methods;
use crate::page::ListStream;

/// How long the server waits for its controller if a request does not say.
const SERVER_WAIT: Duration = Duration::from_secs(30);

/// Pause before another call if the server responds PENDING at once.
const PENDING_PAUSE: Duration = Duration::from_secs(1);

impl Client {
    /// Binds a template, with one call that may take as long as `wait` says. Phase PENDING is returned as it is: the same call
    /// again goes on waiting. Phase FAILED is [`Error::RequestFailed`].
    pub async fn create_bindable_resources_request(
        &self,
        request: CreateBindableResourcesRequestRequest,
    ) -> Result<CreateBindableResourcesRequestResponse, Error> {
        let wait = server_wait(request.wait.as_ref());
        let response = self
            .call_waiting(methods::CREATE_BINDABLE_RESOURCES_REQUEST, request, wait)
            .await?;
        match &response.bindable_resources_request {
            None => Err(self.missing("request")),
            Some(request) if phase(request) == Phase::Failed => Err(Error::RequestFailed(Box::new(RequestFailed {
                request: request.clone(),
            }))),
            Some(_) => Ok(response),
        }
    }

    /// Binds a template and waits for the result. Calls `progress` with the request each time that it is still pending.
    pub async fn bind(
        &self,
        bind: BindRequest,
        progress: impl FnMut(&BindableResourcesRequest),
    ) -> Result<Bound, Error> {
        self.bind_by_request(bind.to_message(), bind.patience, progress).await
    }

    /// Binds by a whole request and waits for the result, for `patience` at most: each call waits for no more than what is left of
    /// it, and with zero there is one call, which does not wait. Calls `progress` with the request each time that it is still
    /// pending. With `validate_only` it returns at once what would be the result.
    pub async fn bind_by_request(
        &self,
        mut request: CreateBindableResourcesRequestRequest,
        patience: Duration,
        mut progress: impl FnMut(&BindableResourcesRequest),
    ) -> Result<Bound, Error> {
        let start = Instant::now();
        let wait = server_wait(request.wait.as_ref());
        loop {
            let called = Instant::now();
            let left = whole_milliseconds(patience.saturating_sub(start.elapsed()));
            if left < wait {
                request.wait = prost_types::Duration::try_from(left).ok();
            }
            let response = self.create_bindable_resources_request(request.clone()).await?;
            let pending = response
                .bindable_resources_request
                .ok_or_else(|| self.missing("request"))?;
            match response.response {
                Some(response) => return Ok(Bound::new(&request, pending, response)),
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
            tokio::time::sleep_until(called + PENDING_PAUSE).await;
        }
    }

    /// Binds a template to the cluster of this identity, and waits for five minutes at most; see [`BindRequest::new`].
    pub async fn bind_template(
        &self,
        template: impl Into<String>,
        cluster_identity: impl Into<String>,
    ) -> Result<Bound, Error> {
        self.bind(BindRequest::new(template, cluster_identity), |_| ()).await
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
        let response = self.call(methods::GET_BINDABLE_RESOURCES_REQUEST, request).await?;
        let request = response.bindable_resources_request;
        request.ok_or_else(|| self.missing("request"))
    }

    /// Lists all of the caller's requests, from `page_token` on.
    pub fn list_bindable_resources_requests(
        &self,
        request: ListBindableResourcesRequestsRequest,
    ) -> ListStream<BindableResourcesRequest> {
        self.list(methods::LIST_BINDABLE_RESOURCES_REQUESTS, request, |page| {
            (page.bindable_resources_requests, page.next_page_token)
        })
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

/// Returns how long the server may wait before it responds, a day at most; 30 s if the duration is unset or not valid.
pub(crate) fn server_wait(wait: Option<&prost_types::Duration>) -> Duration {
    wait.and_then(|wait| Duration::try_from(*wait).ok())
        .unwrap_or(SERVER_WAIT)
        .min(TIMEOUT_MAX)
}

/// Rounds to milliseconds, so that a patience of as long as the wait does not become a little shorter before the first call.
fn whole_milliseconds(duration: Duration) -> Duration {
    let rounded = duration.saturating_add(Duration::from_micros(500));
    Duration::from_secs(rounded.as_secs()) + Duration::from_millis(rounded.subsec_millis().into())
}

fn phase(request: &BindableResourcesRequest) -> Phase {
    request
        .status
        .as_ref()
        .map_or(Phase::Unspecified, BindableResourcesRequestStatus::phase)
}
