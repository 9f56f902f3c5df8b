//! The stream of a principal's requests.

use std::{collections::BTreeSet, sync::Arc};

use bindery_api::v1alpha2 as api;
use bindery_proto::v1alpha2::{
    BindableResourcesRequest, WatchBindableResourcesRequestsRequest, WatchBindableResourcesRequestsResponse,
    watch_bindable_resources_requests_response as response,
};
use kube::ResourceExt as _;

use crate::{
    controllers::request::request_name,
    front::{
        Front,
        convert::request,
        error::Outcome,
        gate::Call,
        stream::{Asked, Event, Feed, Filter, Now, Outgoing, Shown, followed, hub::Gone},
        validate::Validate as _,
    },
    principal::Principal,
};

const METHOD: &str = "/kubebind.v1alpha2.BindingService/WatchBindableResourcesRequests";

/// The requests of one principal that a filter admits.
struct Requests {
    front: Arc<Front>,
    principal: Principal,
    identity: String,
    names: BTreeSet<String>,
}

impl Front {
    pub(super) fn watch_requests(
        self: &Arc<Self>,
        call: &Call,
        message: &WatchBindableResourcesRequestsRequest,
    ) -> Outcome<Outgoing<WatchBindableResourcesRequestsResponse>> {
        message.validate()?;
        let feed = Requests {
            front: Arc::clone(self),
            principal: call.caller()?.principal(),
            identity: message.cluster_identity.clone(),
            names: message.names.iter().cloned().collect(),
        };
        let scope = feed.principal.to_json();
        let names = feed.names.iter().map(String::as_str);
        let parts: Vec<_> = ["requests", &scope, &message.cluster_identity]
            .into_iter()
            .chain(names)
            .collect();
        let asked = Asked {
            method: METHOD,
            scope: &scope,
            filter: Filter::of(&parts),
            resume_token: &message.resume_token,
        };
        self.streams.open(call, &asked, &self.feeds.requests, feed)
    }
}

impl Requests {
    fn admits(&self, found: &api::BindableResourcesRequest) -> bool {
        let identity = &found.spec.cluster_identity.identity;
        (self.identity.is_empty() || *identity == self.identity)
            && (self.names.is_empty() || self.names.contains(request_name(found)))
            && self.front.is_of(found, &self.principal)
    }

    fn shown(found: &api::BindableResourcesRequest) -> Shown<BindableResourcesRequest> {
        Shown {
            key: found.name_any().into(),
            identity: Gone {
                name: request_name(found).to_owned(),
                uid: found.uid().unwrap_or_default(),
            },
            object: request::request(found),
        }
    }
}

impl Feed for Requests {
    type Object = BindableResourcesRequest;
    type Message = WatchBindableResourcesRequestsResponse;

    fn all(&self) -> Vec<Shown<BindableResourcesRequest>> {
        let found = self.front.state.caches.requests.list(|found| self.admits(found));
        found.iter().map(|found| Self::shown(found)).collect()
    }

    fn now(&self, changed: &str) -> Vec<Now<BindableResourcesRequest>> {
        let found = self.front.state.caches.requests.get(&self.namespace(), changed);
        let found = found.filter(|found| self.admits(found));
        vec![(changed.into(), found.map(|found| Self::shown(&found)))]
    }

    fn namespace(&self) -> String {
        self.front.state.settings.namespace.clone()
    }

    fn may_go_on(&self) -> Outcome<()> {
        // The requests are the caller's own as long as its token is good.
        Ok(())
    }

    fn is_current(&self) -> Outcome<()> {
        followed("requests", &self.front.state.caches.requests.health())
    }

    fn message(event: Event<BindableResourcesRequest>, resume_token: String) -> Self::Message {
        let event = match event {
            Event::Begin(begin) => response::Event::SnapshotBegin(begin),
            Event::Applied(request) => response::Event::Applied(request),
            Event::Removed(removed) => response::Event::Removed(removed),
            Event::Complete(complete) => response::Event::SnapshotComplete(complete),
            Event::Heartbeat(heartbeat) => response::Event::Heartbeat(heartbeat),
        };
        WatchBindableResourcesRequestsResponse {
            event: Some(event),
            resume_token,
        }
    }
}
