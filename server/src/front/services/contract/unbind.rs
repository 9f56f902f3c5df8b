//! Unbinding a contract: the call deletes its exports, and the controllers delete all that was made for them.

use std::{collections::BTreeSet, sync::Arc};

use bindery_api::{names::ExportName, v1alpha2 as api};
use bindery_proto::v1alpha2::{UnbindContractResponse, UnboundExport};
use bindery_runtime::cache::ObjectKey;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::ResourceExt as _;

use super::require_uid;
use crate::{
    actions,
    front::{
        Failure, Front, Outcome,
        access::ContractVerb,
        services::{
            export::{
                delete::{count, not_empty},
                not_found,
            },
            wait::until_shown,
        },
        transport::interceptor::Call,
        wire::validate::UnbindContract,
    },
    leftovers::Leftovers,
};

/// Exports whose leftovers are counted at the same time.
const CONCURRENT: usize = 4;

/// An export that is to be unbound, and the objects of it that are left.
struct Unbound {
    export: Arc<api::APIServiceExport>,
    remaining: Leftovers,
}

impl Front {
    pub(super) async fn unbind_contract(
        &self,
        call: &Call,
        message: UnbindContract,
    ) -> Outcome<UnbindContractResponse> {
        let contract = &message.contract;
        call.note.add(|noted| {
            noted.contract = contract.to_string();
            noted.name = message.exports.iter().map(|name| &**name).collect::<Vec<_>>().join(",");
            noted.dry_run = message.validate_only;
        });
        let found = self
            .contracts
            .one_by(call.caller()?, contract, ContractVerb::Delete)
            .await?;
        require_uid(&found, message.uid.as_ref())?;
        let exports = self.unbound_exports(contract, &message.exports).await?;
        let unbound = self.counted(exports).await?;
        let blocked = unbound.iter().find(|unbound| {
            !message.force && unbound.remaining.count() > 0 && unbound.export.metadata.deletion_timestamp.is_none()
        });
        if let Some(blocked) = blocked {
            return Err(not_empty(contract, &blocked.export.name_any(), &blocked.remaining));
        }
        if message.validate_only {
            let exports = unbound.iter().map(Unbound::message).collect();
            return Ok(UnbindContractResponse { exports });
        }
        for Unbound { export, .. } in &unbound {
            let deleted = actions::delete_export(&self.state, export).await;
            deleted.map_err(|error| Failure::of_write("delete the export", &error))?;
            tracing::info!(contract = %contract, export = export.name_any(), force = message.force, "export deleted");
        }

        let until = call.deadline.wait_until(message.wait);
        let mut left = Vec::new();
        for Unbound { export, .. } in unbound {
            let is_deleted =
                |shown: Option<&api::APIServiceExport>| shown.is_none_or(|shown| shown.uid() != export.uid());
            until_shown(&self.state.caches.exports, &ObjectKey::of(&*export), until, is_deleted).await;
            // A cache that has no export is no evidence that there is none.
            let now = self.export_now(contract, &export.name_any()).await?;
            left.extend(now.filter(|now| now.uid() == export.uid()));
        }
        let left = self.counted(left).await?;
        Ok(UnbindContractResponse {
            exports: left.iter().map(Unbound::message).collect(),
        })
    }

    /// The named exports of a contract, or all that it has.
    async fn unbound_exports(
        &self,
        contract: &str,
        names: &BTreeSet<ExportName>,
    ) -> Outcome<Vec<Arc<api::APIServiceExport>>> {
        if names.is_empty() {
            self.require_followed_exports()?;
            return Ok(self.state.caches.exports.list_in(contract));
        }
        let mut exports = Vec::with_capacity(names.len());
        for name in names {
            let found = self.export(contract, name).await?;
            exports.push(found.ok_or_else(|| not_found(contract, name))?);
        }
        Ok(exports)
    }

    async fn counted(&self, exports: Vec<Arc<api::APIServiceExport>>) -> Outcome<Vec<Unbound>> {
        stream::iter(exports)
            .map(|export| async move {
                let remaining = self.remaining(&export).await?;
                Ok(Unbound { export, remaining })
            })
            .buffered(CONCURRENT)
            .try_collect()
            .await
    }
}

impl Unbound {
    fn message(&self) -> UnboundExport {
        UnboundExport {
            name: self.export.name_any(),
            remaining_objects: count(&self.remaining),
        }
    }
}
