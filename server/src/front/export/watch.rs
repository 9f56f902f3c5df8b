//! The stream of a contract's exports.

use std::sync::Arc;

use bindery_api::{names, v1alpha2 as api};
use bindery_proto::v1alpha2::{Export, WatchExportsRequest, WatchExportsResponse, watch_exports_response};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;

use crate::front::{
    Front,
    auth::Caller,
    catalog::selector,
    error::Outcome,
    feeds::SCHEMA,
    gate::Call,
    selector::LabelSelector,
    stream::{Asked, Event, Feed, Filter, Now, Outgoing, Shown, hub::Gone},
    validate::Validate as _,
};

const METHOD: &str = "/kubebind.v1alpha2.ExportService/WatchExports";

/// The exports of one contract that a selector selects.
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
        message: &WatchExportsRequest,
    ) -> Outcome<Outgoing<WatchExportsResponse>> {
        message.validate()?;
        let caller = call.caller()?;
        let contract = self.contracts.one(caller, &message.contract)?;
        let name = contract.name_any();
        let uid = contract.uid().unwrap_or_default();
        let feed = Exports {
            front: Arc::clone(self),
            caller: Arc::clone(caller),
            contract,
            name: name.clone(),
            selector: selector(&message.label_selector)?,
        };
        let asked = Asked {
            method: METHOD,
            scope: &name,
            filter: Filter::of(&["exports", caller.username(), &uid, &message.label_selector]),
            resume_token: &message.resume_token,
        };
        self.streams.open(call, &asked, &self.feeds.exports, feed)
    }
}

impl Exports {
    fn shown(&self, export: &api::APIServiceExport) -> Shown<Export> {
        Shown {
            key: export.name_any().into(),
            identity: Gone {
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

impl Feed for Exports {
    type Object = Export;
    type Message = WatchExportsResponse;

    fn all(&self) -> Vec<Shown<Export>> {
        let exports = self.of_contract();
        let selected = exports.iter().filter(|export| self.is_selected(export));
        selected.map(|export| self.shown(export)).collect()
    }

    fn now(&self, changed: &str) -> Vec<Now<Export>> {
        let Some(schema) = changed.strip_prefix(SCHEMA) else {
            let export = self
                .front
                .state
                .caches
                .exports
                .get(&self.name, changed)
                .filter(|export| self.is_selected(export));
            return vec![(changed.into(), export.map(|export| self.shown(&export)))];
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
            .map(|export| (export.name_any().into(), Some(self.shown(export))))
            .collect()
    }

    fn namespace(&self) -> String {
        self.name.clone()
    }

    fn may_go_on(&self) -> Outcome<()> {
        self.front.contracts.still(&self.caller, &self.contract)
    }

    fn is_current(&self) -> Outcome<()> {
        self.front.follows_exports()
    }

    fn message(event: Event<Export>, resume_token: String) -> WatchExportsResponse {
        use watch_exports_response::Event as Wrapped;
        let event = match event {
            Event::Begin(begin) => Wrapped::SnapshotBegin(begin),
            Event::Applied(export) => Wrapped::Applied(export),
            Event::Removed(removed) => Wrapped::Removed(removed),
            Event::Complete(complete) => Wrapped::SnapshotComplete(complete),
            Event::Heartbeat(heartbeat) => Wrapped::Heartbeat(heartbeat),
        };
        WatchExportsResponse {
            event: Some(event),
            resume_token,
        }
    }
}
