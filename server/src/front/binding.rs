//! BindingService: requests to bind, each belonging to the principal that made it.

use std::sync::Arc;

use bindery_api::{names, v1alpha2 as api};
use bindery_proto::v1alpha2::{
    CreateBindableResourcesRequestRequest, CreateBindableResourcesRequestResponse,
    DeleteBindableResourcesRequestRequest, DeleteBindableResourcesRequestResponse, ErrorReason,
    GetBindableResourcesRequestRequest, GetBindableResourcesRequestResponse, ListBindableResourcesRequestsRequest,
    ListBindableResourcesRequestsResponse, WatchBindableResourcesRequestsRequest,
    WatchBindableResourcesRequestsResponse, binding_service_server::BindingService,
};
use bindery_runtime::errors;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Preconditions},
};
use tonic::{Request, Response, Status};

use super::{
    Front,
    auth::Caller,
    convert::request,
    error::{Failure, Outcome},
    gate::Call,
    page::Page,
    stream::Outgoing,
    validate::Validate as _,
};
use crate::{controllers, principal::Principal};

mod answer;
mod create;
mod watch;

#[derive(Debug)]
pub(super) struct Service(pub(super) Arc<Front>);

/// The key of a request: who made it, for which cluster, under which name.
#[derive(Clone, Debug)]
struct Key {
    /// Name of the object: a hash of the others.
    object: String,
    principal: Principal,
    identity: String,
    name: String,
}

/// What became of deleting a request.
enum Deleted {
    Done,
    Missing,
    /// It is another one by now.
    Changed,
}

#[tonic::async_trait]
impl BindingService for Service {
    type WatchBindableResourcesRequestsStream = Outgoing<WatchBindableResourcesRequestsResponse>;

    async fn create_bindable_resources_request(
        &self,
        request: Request<CreateBindableResourcesRequestRequest>,
    ) -> Result<Response<CreateBindableResourcesRequestResponse>, Status> {
        let call = Call::of(&request)?;
        Ok(Response::new(
            Box::pin(self.0.create_request(&call, request.get_ref())).await?,
        ))
    }

    async fn get_bindable_resources_request(
        &self,
        request: Request<GetBindableResourcesRequestRequest>,
    ) -> Result<Response<GetBindableResourcesRequestResponse>, Status> {
        let call = Call::of(&request)?;
        Ok(Response::new(
            self.0.get_request(call.caller()?, request.get_ref()).await?,
        ))
    }

    async fn list_bindable_resources_requests(
        &self,
        request: Request<ListBindableResourcesRequestsRequest>,
    ) -> Result<Response<ListBindableResourcesRequestsResponse>, Status> {
        let call = Call::of(&request)?;
        Ok(Response::new(
            self.0.list_requests(call.caller()?, request.get_ref()).await?,
        ))
    }

    async fn watch_bindable_resources_requests(
        &self,
        request: Request<WatchBindableResourcesRequestsRequest>,
    ) -> Result<Response<Self::WatchBindableResourcesRequestsStream>, Status> {
        let call = Call::of(&request)?;
        Ok(Response::new(self.0.watch_requests(&call, request.get_ref())?))
    }

    async fn delete_bindable_resources_request(
        &self,
        request: Request<DeleteBindableResourcesRequestRequest>,
    ) -> Result<Response<DeleteBindableResourcesRequestResponse>, Status> {
        let call = Call::of(&request)?;
        Ok(Response::new(
            self.0.delete_request(call.caller()?, request.get_ref()).await?,
        ))
    }
}

impl Front {
    async fn get_request(
        &self,
        caller: &Caller,
        message: &GetBindableResourcesRequestRequest,
    ) -> Outcome<GetBindableResourcesRequestResponse> {
        message.validate()?;
        let key = Key::new(caller, &message.cluster_identity, &message.name);
        let found = self.request(&key).await?.ok_or_else(|| key.not_found())?;
        Ok(GetBindableResourcesRequestResponse {
            bindable_resources_request: Some(request::request(&found)),
        })
    }

    async fn list_requests(
        &self,
        caller: &Caller,
        message: &ListBindableResourcesRequestsRequest,
    ) -> Outcome<ListBindableResourcesRequestsResponse> {
        message.validate()?;
        let page = Page::read(
            message.page_size,
            &message.page_token,
            &["requests", &message.cluster_identity],
        )?;
        let principal = caller.principal();
        let found = self.state.caches.requests.list(|request| {
            let identity = &request.spec.cluster_identity.identity;
            (message.cluster_identity.is_empty() || *identity == message.cluster_identity)
                && self.is_of(request, &principal)
        });
        let mut keyed: Vec<_> = found
            .into_iter()
            // No identity holds a control character, so that the order is that of identity and name.
            .map(|found| {
                (
                    format!(
                        "{}\0{}",
                        found.spec.cluster_identity.identity,
                        controllers::request::request_name(&found)
                    ),
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
        message: &DeleteBindableResourcesRequestRequest,
    ) -> Outcome<DeleteBindableResourcesRequestResponse> {
        message.validate()?;
        let key = Key::new(caller, &message.cluster_identity, &message.name);
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
        let deleted = match self.delete_as_seen(&key, message, &found).await? {
            // The cache may show one that was made anew since, which is meant as well where none is named.
            Deleted::Changed => match self.request_now(&key).await? {
                Some(now) => self.delete_as_seen(&key, message, &now).await?,
                None => Deleted::Missing,
            },
            deleted => deleted,
        };
        match deleted {
            Deleted::Done => Ok(DeleteBindableResourcesRequestResponse {}),
            Deleted::Missing => missing(),
            Deleted::Changed => Err(key.changed()),
        }
    }

    async fn delete_as_seen(
        &self,
        key: &Key,
        message: &DeleteBindableResourcesRequestRequest,
        found: &api::BindableResourcesRequest,
    ) -> Outcome<Deleted> {
        if !is_meant(message, found) {
            return Ok(Deleted::Changed);
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: found.uid(),
                resource_version: Some(message.resource_version.clone()).filter(|version| !version.is_empty()),
            }),
            ..DeleteParams::default()
        };
        match self.requests().delete(&key.object, &params).await {
            Ok(_) => Ok(Deleted::Done),
            Err(error) if errors::is_not_found(&error) => Ok(Deleted::Missing),
            Err(error) if errors::is_conflict(&error) => Ok(Deleted::Changed),
            Err(error) => Err(Failure::of_kube("delete the request", &error)),
        }
    }

    /// The caller's request, as it stands: not every replica has seen it yet.
    async fn request(&self, key: &Key) -> Outcome<Option<Arc<api::BindableResourcesRequest>>> {
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

    async fn request_now(&self, key: &Key) -> Outcome<Option<Arc<api::BindableResourcesRequest>>> {
        let found = self.requests().get_opt(&key.object).await;
        let found = found.map_err(|error| Failure::of_kube("read the request", &error))?;
        Ok(found.filter(|found| self.is_of(found, &key.principal)).map(Arc::new))
    }

    /// Whether a call of a principal made the request, by the server's own record. Those that were made as resources are seen
    /// in Kubernetes.
    fn is_of(&self, request: &api::BindableResourcesRequest, principal: &Principal) -> bool {
        let home = &self.state.settings.namespace;
        controllers::request::is_grpc(request, home) && controllers::request::principal(request, home) == *principal
    }

    fn requests(&self) -> Api<api::BindableResourcesRequest> {
        Api::namespaced(self.state.clients.write.clone(), &self.state.settings.namespace)
    }
}

/// Whether a request is the one that a call to delete names, as far as it does.
fn is_meant(message: &DeleteBindableResourcesRequestRequest, found: &api::BindableResourcesRequest) -> bool {
    let is = |wanted: &str, actual: Option<String>| wanted.is_empty() || actual.as_deref() == Some(wanted);
    is(&message.uid, found.uid()) && is(&message.resource_version, found.resource_version())
}

// === impl Key ===

impl Key {
    fn new(caller: &Caller, identity: &str, name: &str) -> Self {
        let principal = caller.principal();
        Self {
            object: names::bind_request(&principal.to_json(), identity, name),
            principal,
            identity: identity.to_owned(),
            name: name.to_owned(),
        }
    }

    fn not_found(&self) -> Failure {
        let text = format!("you have no request {} for cluster {}", self.name, self.identity);
        Failure::new(ErrorReason::RequestNotFound, text).with("request", &self.name)
    }

    fn changed(&self) -> Failure {
        let text = format!(
            "request {} changed meanwhile, or was made anew; read it again",
            self.name
        );
        Failure::new(ErrorReason::ObjectChanged, text).with("request", &self.name)
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
            uid: uid.to_owned(),
            resource_version: version.to_owned(),
            ..DeleteBindableResourcesRequestRequest::default()
        };
        assert_eq!(is_meant(&message, &found), expect);
    }

    #[test]
    fn a_delete_means_what_it_names() {
        check_meant("", "", true);
        check_meant("u1", "7", true);
        check_meant("u2", "", false);
        check_meant("", "8", false);
    }
}
