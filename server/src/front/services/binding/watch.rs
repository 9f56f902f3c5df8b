//! The stream of a principal's requests.

use std::{collections::BTreeSet, sync::Arc};

use bindery_api::{names::RequestName, v1alpha2 as api};
use bindery_proto::v1alpha2::{
    BindableResourcesRequest, WatchBindableResourcesRequestsResponse,
    watch_bindable_resources_requests_response as response,
};
use kube::ResourceExt as _;

use crate::{
    front::{
        Front, Outcome,
        streams::{
            CurrentObject, Filter, MessageStream, SentObject, StreamEvent, StreamRequest, StreamSource,
            hub::RemovedObject, require_followed,
        },
        transport::interceptor::Call,
        wire::{convert::request, validate::WatchRequests},
    },
    principal::Principal,
    request::request_name,
};

const METHOD: &str = "/kubebind.v1alpha2.BindingService/WatchBindableResourcesRequests";

/// Source of the requests of one principal, for one cluster or all, and of some names or all.
struct Requests {
    front: Arc<Front>,
    principal: Principal,
    identity: String,
    names: BTreeSet<RequestName>,
}

impl Front {
    pub(super) fn watch_requests(
        self: &Arc<Self>,
        call: &Call,
        message: WatchRequests,
    ) -> Outcome<MessageStream<WatchBindableResourcesRequestsResponse>> {
        let source = Requests {
            front: Arc::clone(self),
            principal: call.caller()?.principal(),
            identity: message.identity,
            names: message.names,
        };
        let scope = source.principal.to_json();
        let names = source.names.iter().map(|name| &**name);
        let parts: Vec<_> = ["requests", &scope, &source.identity]
            .into_iter()
            .chain(names)
            .collect();
        let request = StreamRequest {
            method: METHOD,
            scopes: vec![scope.clone()],
            filter: Filter::of(&parts),
            resume_token: &message.resume_token,
        };
        self.streams.open(call, request, &self.hubs.requests, source)
    }
}

impl Requests {
    fn admits(&self, found: &api::BindableResourcesRequest) -> bool {
        let identity = &found.spec.cluster_identity.identity;
        (self.identity.is_empty() || *identity == self.identity)
            && (self.names.is_empty() || self.names.iter().any(|name| **name == *request_name(found)))
            && self.front.is_of(found, &self.principal)
    }

    fn current(found: &api::BindableResourcesRequest) -> SentObject<BindableResourcesRequest> {
        SentObject {
            key: found.name_any().into(),
            identity: RemovedObject {
                name: request_name(found).to_owned(),
                uid: found.uid().unwrap_or_default(),
            },
            object: request::request(found),
        }
    }
}

impl StreamSource for Requests {
    type Object = BindableResourcesRequest;
    type Message = WatchBindableResourcesRequestsResponse;

    fn all(&self) -> Vec<SentObject<BindableResourcesRequest>> {
        let found = self.front.state.caches.requests.list(|found| self.admits(found));
        found.iter().map(|found| Self::current(found)).collect()
    }

    fn now(&self, changed: &str) -> Vec<CurrentObject<BindableResourcesRequest>> {
        let found = self.front.state.caches.requests.get(&self.namespace(), changed);
        let found = found.filter(|found| self.admits(found));
        vec![(changed.into(), found.map(|found| Self::current(&found)))]
    }

    fn namespace(&self) -> String {
        self.front.state.settings.namespace.clone()
    }

    fn may_go_on(&self) -> Outcome<()> {
        // Requests stay their principal's; the stream checks the token itself.
        Ok(())
    }

    fn is_current(&self) -> Outcome<()> {
        require_followed("requests", &self.front.state.caches.requests.health())
    }

    fn message(event: StreamEvent<BindableResourcesRequest>, resume_token: String) -> Self::Message {
        let event = match event {
            StreamEvent::Begin(begin) => response::Event::SnapshotBegin(begin),
            StreamEvent::Applied(request) => response::Event::Applied(request),
            StreamEvent::Removed(removed) => response::Event::Removed(removed),
            StreamEvent::Complete(complete) => response::Event::SnapshotComplete(complete),
            StreamEvent::Heartbeat(heartbeat) => response::Event::Heartbeat(heartbeat),
        };
        WatchBindableResourcesRequestsResponse {
            event: Some(event),
            resume_token,
        }
    }
}
