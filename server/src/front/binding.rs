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
mod key;
mod watch;

use key::Key;

#[derive(Debug)]
pub(super) struct Service(pub(super) Front);

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
            (message.cluster_identity.is_empty() || *identity == message.cluster_identity) && is_of(request, &principal)
        });
        let mut keyed: Vec<_> = found
            .into_iter()
            // No identity holds a control character, so that the order is that of identity and name.
            .map(|found| {
                (
                    format!("{}\0{}", found.spec.cluster_identity.identity, request::name(&found)),
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
        let differs = |wanted: &str, actual: Option<String>| !wanted.is_empty() && actual.as_deref() != Some(wanted);
        if differs(&message.uid, found.uid()) || differs(&message.resource_version, found.resource_version()) {
            return Err(key.changed());
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: found.uid(),
                resource_version: Some(message.resource_version.clone()).filter(|version| !version.is_empty()),
            }),
            ..DeleteParams::default()
        };
        match self.requests().delete(&key.object, &params).await {
            Ok(_) => Ok(DeleteBindableResourcesRequestResponse {}),
            Err(error) if bindery_runtime::errors::is_not_found(&error) => missing(),
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
        let found = if cached.is_some() {
            cached
        } else {
            let found = self.requests().get_opt(&key.object).await;
            found
                .map_err(|error| Failure::of_kube("read the request", &error))?
                .map(Arc::new)
        };
        Ok(found.filter(|found| is_of(found, &key.principal)))
    }

    fn requests(&self) -> Api<api::BindableResourcesRequest> {
        Api::namespaced(self.state.clients.write.clone(), &self.state.settings.namespace)
    }
}

/// Whether a request was made by a principal, by the server's own record. One that was made as a Kubernetes object has
/// only its author's word.
fn is_of(request: &api::BindableResourcesRequest, principal: &Principal) -> bool {
    controllers::request::is_grpc(request) && controllers::request::principal(request) == *principal
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
