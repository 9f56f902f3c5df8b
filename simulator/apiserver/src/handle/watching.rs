//! Opens watches.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::Value;

use super::{Call, Reply, Result};
use crate::{
    ApiServer,
    endpoint::Endpoint,
    selector::Selector,
    status::{Cause, StatusError},
    watch::Scope,
};

impl ApiServer {
    pub(super) fn watch(&mut self, call: &Call, endpoint: &Arc<Endpoint>) -> Result<Reply> {
        let parameters = &call.parameters;
        let selector = Selector::read(&parameters.labels, &parameters.fields, endpoint)?;
        let initial = parameters.initial_events == Some(true);
        if initial && parameters.resource_version_match != "NotOlderThan" {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            let cause = Cause::forbidden("resourceVersionMatch", detail);
            return Err(crate::request::invalid_options("ListOptions", &[cause]));
        }
        let version = parameters.resource_version.as_str();
        let from = match version {
            "" | "0" => None,
            version => Some(version.parse().map_err(|_| unreadable(version))?),
        };
        let revision = self.store.revision();
        let shows_all = initial || from.is_none() && parameters.initial_events != Some(false);
        let namespace = Some(call.info.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let namespace = namespace.filter(|_| endpoint.namespaced).map(ToOwned::to_owned);
        let deadline = parameters.timeout_seconds.filter(|seconds| *seconds > 0);
        let deadline = deadline.and_then(|seconds| call.now.checked_add(SignedDuration::from_secs(seconds)).ok());
        let id = self.watches.open(Scope {
            endpoint: Arc::clone(endpoint),
            namespace: namespace.clone(),
            selector: selector.clone(),
            metadata_only: call.metadata_only,
            bookmarks: parameters.bookmarks,
            deadline,
            from: from.unwrap_or(revision),
        });
        if shows_all {
            let of = self
                .store
                .of(&endpoint.storage_group, &endpoint.resource, namespace.as_deref());
            for (_, stored) in of.filter(|(_, stored)| selector.matches(&stored.value, endpoint)) {
                self.watches.show(id, stored);
            }
            if initial {
                self.watches.initial_end(id, revision);
            }
        } else if let Some(from) = from {
            if from < self.store.compacted() {
                let message = format!("too old resource version: {from} ({})", self.store.compacted());
                let status: Value = StatusError::plain(410, "Expired", message).body();
                self.watches.fail(id, &status);
            } else {
                for write in self.store.past_after(from) {
                    if endpoint.stores(&write.key.group, &write.key.resource) {
                        self.watches.show_past(id, write);
                    }
                }
            }
        }
        Ok(Reply::Watch(id))
    }
}

fn unreadable(version: &str) -> StatusError {
    let message =
        format!("resourceVersion: Invalid value: {version:?}: strconv.ParseUint: parsing {version:?}: invalid syntax");
    StatusError::plain(500, "", message)
}
