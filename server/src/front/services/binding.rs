//! BindingService: requests to bind, each of which belongs to the principal that made it.

use std::sync::Arc;

use bindery_api::{
    names::{self, ClusterIdentity, RequestName},
    v1alpha2 as api,
};
use bindery_proto::v1alpha2::{
    CreateBindableResourcesRequestRequest, CreateBindableResourcesRequestResponse,
    DeleteBindableResourcesRequestRequest, DeleteBindableResourcesRequestResponse, ErrorReason,
    GetBindableResourcesRequestRequest, GetBindableResourcesRequestResponse, ListBindableResourcesRequestsRequest,
    ListBindableResourcesRequestsResponse, WatchBindableResourcesRequestsRequest,
    WatchBindableResourcesRequestsResponse, binding_service_server::BindingService,
};
use bindery_runtime::{
    errors,
    preconditions::{same_uid, unchanged},
};
use kube::{Api, ResourceExt as _, api::DeleteParams};
use tonic::{Request, Response, Status};

use crate::front::{
    Failure, Front, Outcome,
    auth::Caller,
    streams::MessageStream,
    transport::interceptor::Call,
    wire::{
        convert::request,
        page::Page,
        validate::{DeleteRequest, GetRequest, ListRequests},
    },
};
use crate::{
    principal::Principal,
    request::{self as requests, request_name},
};

mod answer;
mod create;
mod watch;

#[derive(Debug)]
pub(crate) struct Service(pub(crate) Arc<Front>);

/// The key of a request: the principal that made it, the cluster that it is for, and its name.
#[derive(Clone, Debug)]
struct RequestKey {
    /// Name of the request's object: a hash of the other fields.
    object: String,
    principal: Principal,
    identity: ClusterIdentity,
    name: RequestName,
}

/// The outcome of deleting a request.
enum Deletion {
    Done,
    Missing,
    /// The request has another UID or version than the caller named, or than was read.
    Changed,
}

#[tonic::async_trait]
impl BindingService for Service {
    type WatchBindableResourcesRequestsStream = MessageStream<WatchBindableResourcesRequestsResponse>;

    async fn create_bindable_resources_request(
        &self,
        request: Request<CreateBindableResourcesRequestRequest>,
    ) -> Result<Response<CreateBindableResourcesRequestResponse>, Status> {
        let call = Call::of(&request)?;
        let create = self.0.create_request(&call, request.into_inner());
        Ok(Response::new(Box::pin(create).await?))
    }

    async fn get_bindable_resources_request(
        &self,
        request: Request<GetBindableResourcesRequestRequest>,
    ) -> Result<Response<GetBindableResourcesRequestResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.get_request(call.caller()?, message).await?))
    }

    async fn list_bindable_resources_requests(
        &self,
        request: Request<ListBindableResourcesRequestsRequest>,
    ) -> Result<Response<ListBindableResourcesRequestsResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.list_requests(call.caller()?, message).await?))
    }

    async fn watch_bindable_resources_requests(
        &self,
        request: Request<WatchBindableResourcesRequestsRequest>,
    ) -> Result<Response<Self::WatchBindableResourcesRequestsStream>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.watch_requests(&call, message)?))
    }

    async fn delete_bindable_resources_request(
        &self,
        request: Request<DeleteBindableResourcesRequestRequest>,
    ) -> Result<Response<DeleteBindableResourcesRequestResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.delete_request(call.caller()?, message).await?))
    }
}

impl Front {
    async fn get_request(&self, caller: &Caller, message: GetRequest) -> Outcome<GetBindableResourcesRequestResponse> {
        let key = RequestKey::new(caller, message.identity, message.name);
        let found = self.request(&key).await?.ok_or_else(|| key.not_found())?;
        Ok(GetBindableResourcesRequestResponse {
            bindable_resources_request: Some(request::request(&found)),
        })
    }

    async fn list_requests(
        &self,
        caller: &Caller,
        message: ListRequests,
    ) -> Outcome<ListBindableResourcesRequestsResponse> {
        let page = Page::read(&message.page, &["requests", &message.identity])?;
        let principal = caller.principal();
        let found = self.state.caches.requests.list(|request| {
            let identity = &request.spec.cluster_identity.identity;
            (message.identity.is_empty() || *identity == message.identity) && self.is_of(request, &principal)
        });
        let mut keyed: Vec<_> = found
            .into_iter()
            // No identity holds a control character, so that this sorts by identity, then by name.
            .map(|found| {
                (
                    format!("{}\0{}", found.spec.cluster_identity.identity, request_name(&found)),
                    found,
                )
            })
            .collect();
        keyed.sort_by(|(one, _), (other, _)| one.cmp(other));
        let filled = page
            .fill(keyed, |found| async move { Ok(Some(request::request(&found))) })
            .await?;
        Ok(ListBindableResourcesRequestsResponse {
            bindable_resources_requests: filled.entries,
            next_page_token: filled.next_page_token,
        })
    }

    async fn delete_request(
        &self,
        caller: &Caller,
        message: DeleteRequest,
    ) -> Outcome<DeleteBindableResourcesRequestResponse> {
        let key = RequestKey::new(caller, message.identity.clone(), message.name.clone());
        let missing = || {
            if message.allow_missing {
                Ok(DeleteBindableResourcesRequestResponse {})
            } else {
                Err(key.not_found())
            }
        };
        let Some(found) = self.request(&key).await? else {
            return missing();
        };
        let deleted = match self.delete_as_seen(&key, &message, &found).await? {
            // The cache may lag behind a request that was made anew, which a caller that names no UID means as well.
            Deletion::Changed => match self.request_now(&key).await? {
                Some(now) => self.delete_as_seen(&key, &message, &now).await?,
                None => Deletion::Missing,
            },
            deleted => deleted,
        };
        match deleted {
            Deletion::Done => Ok(DeleteBindableResourcesRequestResponse {}),
            Deletion::Missing => missing(),
            Deletion::Changed => Err(key.changed()),
        }
    }

    async fn delete_as_seen(
        &self,
        key: &RequestKey,
        message: &DeleteRequest,
        found: &api::BindableResourcesRequest,
    ) -> Outcome<Deletion> {
        if !is_meant(message, found) {
            return Ok(Deletion::Changed);
        }
        let preconditions = if message.resource_version.is_empty() {
            same_uid(found.uid().unwrap_or_default())
        } else {
            unchanged(&found.metadata)
        };
        let params = DeleteParams::default().preconditions(preconditions);
        match self.requests().delete(&key.object, &params).await {
            Ok(_) => Ok(Deletion::Done),
            Err(error) if errors::is_not_found(&error) => Ok(Deletion::Missing),
            Err(error) if errors::is_conflict(&error) => Ok(Deletion::Changed),
            Err(error) => Err(Failure::of_kube("delete the request", &error)),
        }
    }

    /// The caller's request. If the cache has none, the API server is asked, for the cache may be behind.
    async fn request(&self, key: &RequestKey) -> Outcome<Option<Arc<api::BindableResourcesRequest>>> {
        let cached = self
            .state
            .caches
            .requests
            .get(&self.state.settings.namespace, &key.object);
        match cached {
            Some(found) => Ok(Some(found).filter(|found| self.is_of(found, &key.principal))),
            None => self.request_now(key).await,
        }
    }

    async fn request_now(&self, key: &RequestKey) -> Outcome<Option<Arc<api::BindableResourcesRequest>>> {
        let found = self.requests().get_opt(&key.object).await;
        let found = found.map_err(|error| Failure::of_kube("read the request", &error))?;
        Ok(found.filter(|found| self.is_of(found, &key.principal)).map(Arc::new))
    }

    /// Whether a gRPC call of this principal made the request, by the server's own record. Requests that were made as resources
    /// are not shown over gRPC.
    fn is_of(&self, request: &api::BindableResourcesRequest, principal: &Principal) -> bool {
        let own_namespace = &self.state.settings.namespace;
        request.is_grpc(own_namespace) && requests::principal(request, own_namespace) == *principal
    }

    fn requests(&self) -> Api<api::BindableResourcesRequest> {
        Api::namespaced(self.state.clients.write.clone(), &self.state.settings.namespace)
    }
}

/// Whether a request has the UID and the version that the call names, if it names any.
fn is_meant(message: &DeleteRequest, found: &api::BindableResourcesRequest) -> bool {
    let is = |wanted: &str, actual: Option<String>| wanted.is_empty() || actual.as_deref() == Some(wanted);
    is(message.uid.as_deref().unwrap_or_default(), found.uid())
        && is(&message.resource_version, found.resource_version())
}

// === impl RequestKey ===

impl RequestKey {
    fn new(caller: &Caller, identity: ClusterIdentity, name: RequestName) -> Self {
        let principal = caller.principal();
        Self {
            object: names::bind_request(&principal.to_json(), &identity, &name),
            principal,
            identity,
            name,
        }
    }

    fn not_found(&self) -> Failure {
        let text = format!("you have no request {} for cluster {}", self.name, self.identity);
        Failure::new(ErrorReason::RequestNotFound, text).with("request", &*self.name)
    }

    fn changed(&self) -> Failure {
        let text = format!(
            "request {} changed meanwhile, or was made anew; read it again",
            self.name
        );
        Failure::new(ErrorReason::ObjectChanged, text).with("request", &*self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_meant(uid: &str, version: &str, expect: bool) {
        let mut found = api::BindableResourcesRequest::new("req-1", api::BindableResourcesRequestSpec::default());
        found.metadata.uid = Some("u1".to_owned());
        found.metadata.resource_version = Some("7".to_owned());
        let message = DeleteBindableResourcesRequestRequest {
            name: "west".to_owned(),
            cluster_identity: "id".to_owned(),
            uid: uid.to_owned(),
            resource_version: version.to_owned(),
            ..DeleteBindableResourcesRequestRequest::default()
        };
        let message = DeleteRequest::try_from(message).expect("a valid request");
        assert_eq!(is_meant(&message, &found), expect);
    }

    #[test]
    fn a_delete_is_for_the_uid_and_version_that_it_names() {
        check_meant("", "", true);
        check_meant("u1", "7", true);
        check_meant("u2", "", false);
        check_meant("", "8", false);
    }
}
