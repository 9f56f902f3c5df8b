//! The stream of a contract's exports.

use std::sync::Arc;

use bindery_api::{names, v1alpha2 as api};
use bindery_proto::v1alpha2::{Export, WatchExportsResponse, watch_exports_response};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;

use crate::front::{
    Front, Outcome,
    auth::Caller,
    streams::{
        CurrentObject, Filter, MessageStream, SentObject, StreamEvent, StreamRequest, StreamSource,
        changes::SCHEMA_PREFIX, hub::RemovedObject,
    },
    transport::interceptor::Call,
    wire::{selector::LabelSelector, validate::WatchExports},
};

const METHOD: &str = "/kubebind.v1alpha2.ExportService/WatchExports";

/// Source of the exports of one contract that a selector selects.
struct Exports {
    front: Arc<Front>,
    caller: Arc<Caller>,
    contract: Arc<Namespace>,
    name: String,
    selector: LabelSelector,
}

impl Front {
    pub(super) fn watch_exports(
        self: &Arc<Self>,
        call: &Call,
        message: WatchExports,
    ) -> Outcome<MessageStream<WatchExportsResponse>> {
        let caller = call.caller()?;
        let contract = self.contracts.one(caller, message.contract.as_ref())?;
        let name = contract.name_any();
        let uid = contract.uid().unwrap_or_default();
        let selector = message.selector.as_str().to_owned();
        let source = Exports {
            front: Arc::clone(self),
            caller: Arc::clone(caller),
            contract,
            name: name.clone(),
            selector: message.selector,
        };
        let request = StreamRequest {
            method: METHOD,
            scopes: vec![name],
            filter: Filter::of(&["exports", caller.username(), &uid, &selector]),
            resume_token: &message.resume_token,
        };
        self.streams.open(call, request, &self.hubs.exports, source)
    }
}

impl Exports {
    fn current(&self, export: &api::APIServiceExport) -> SentObject<Export> {
        SentObject {
            key: export.name_any().into(),
            identity: RemovedObject {
                name: export.name_any(),
                uid: export.uid().unwrap_or_default(),
            },
            object: self.front.show(export),
        }
    }

    fn is_selected(&self, export: &api::APIServiceExport) -> bool {
        self.selector.matches(export.labels())
    }

    fn of_contract(&self) -> Vec<Arc<api::APIServiceExport>> {
        self.front.state.caches.exports.list_in(&self.name)
    }
}

impl StreamSource for Exports {
    type Object = Export;
    type Message = WatchExportsResponse;

    fn all(&self) -> Vec<SentObject<Export>> {
        let exports = self.of_contract();
        let selected = exports.iter().filter(|export| self.is_selected(export));
        selected.map(|export| self.current(export)).collect()
    }

    fn now(&self, changed: &str) -> Vec<CurrentObject<Export>> {
        let Some(schema) = changed.strip_prefix(SCHEMA_PREFIX) else {
            let export = self
                .front
                .state
                .caches
                .exports
                .get(&self.name, changed)
                .filter(|export| self.is_selected(export));
            return vec![(changed.into(), export.map(|export| self.current(&export)))];
        };
        let holds = |export: &api::APIServiceExport| {
            export
                .spec
                .resources
                .iter()
                .any(|resource| names::bound_schema(&resource.group_resource) == schema)
        };
        let exports = self.of_contract();
        let concerned = exports
            .iter()
            .filter(|export| self.is_selected(export) && holds(export));
        concerned
            .map(|export| (export.name_any().into(), Some(self.current(export))))
            .collect()
    }

    fn namespace(&self) -> String {
        self.name.clone()
    }

    fn may_go_on(&self) -> Outcome<()> {
        self.front.contracts.still(&self.caller, &self.contract)
    }

    fn is_current(&self) -> Outcome<()> {
        self.front.require_followed_exports()
    }

    fn message(event: StreamEvent<Export>, resume_token: String) -> WatchExportsResponse {
        use watch_exports_response::Event as Wrapped;
        let event = match event {
            StreamEvent::Begin(begin) => Wrapped::SnapshotBegin(begin),
            StreamEvent::Applied(export) => Wrapped::Applied(export),
            StreamEvent::Removed(removed) => Wrapped::Removed(removed),
            StreamEvent::Complete(complete) => Wrapped::SnapshotComplete(complete),
            StreamEvent::Heartbeat(heartbeat) => Wrapped::Heartbeat(heartbeat),
        };
        WatchExportsResponse {
            event: Some(event),
            resume_token,
        }
    }
}
