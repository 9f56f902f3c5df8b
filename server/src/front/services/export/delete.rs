//! Unbinding: the call deletes the export, and the controllers delete all that was made for it.

use bindery_api::v1alpha2 as api;
use bindery_proto::v1alpha2::{DeleteExportResponse, ErrorReason};
use bindery_runtime::cache::ObjectKey;
use kube::ResourceExt as _;

use crate::front::services::{credential::named, export::not_found};
use crate::{
    actions,
    front::{
        Failure, Front, Outcome, services::wait::until_shown, transport::interceptor::Call,
        wire::validate::DeleteExport,
    },
    leftovers::{self, Leftovers},
};

impl Front {
    pub(super) async fn delete_export(&self, call: &Call, message: DeleteExport) -> Outcome<DeleteExportResponse> {
        call.note.add(|noted| {
            noted.contract = named(message.contract.as_ref());
            noted.name = message.name.to_string();
            noted.dry_run = message.validate_only;
        });
        let contract = self
            .contracts
            .one(call.caller()?, message.contract.as_ref())?
            .name_any();
        call.note.add(|noted| noted.contract.clone_from(&contract));
        let Some(export) = self.export(&contract, &message.name).await? else {
            return if message.allow_missing {
                Ok(DeleteExportResponse::default())
            } else {
                Err(not_found(&contract, &message.name))
            };
        };
        if export.uid().as_deref() != Some(&*message.uid) {
            let text = format!(
                "export {} of contract {contract} has another UID, for it was made anew; read it again",
                message.name
            );
            return Err(Failure::new(ErrorReason::ObjectChanged, text)
                .with("export", &*message.name)
                .with("uid", export.uid().unwrap_or_default()));
        }
        let deleting = export.metadata.deletion_timestamp.is_some();
        let remaining = self.remaining(&export).await?;
        if remaining.count() > 0 && !message.force && !deleting {
            return Err(not_empty(&contract, &message.name, &remaining));
        }
        if message.validate_only {
            return Ok(DeleteExportResponse {
                export: Some(self.show(&export)),
                remaining_objects: count(&remaining),
            });
        }
        let deleted = actions::delete_export(&self.state, &export).await;
        deleted.map_err(|error| Failure::of_write("delete the export", &error))?;
        tracing::info!(contract, export = %message.name, force = message.force, "export deleted");

        let until = call.deadline.wait_until(message.wait);
        let is_deleted = |shown: Option<&api::APIServiceExport>| shown.is_none_or(|shown| shown.uid() != export.uid());
        let key = ObjectKey::of(&*export);
        until_shown(&self.state.caches.exports, &key, until, is_deleted).await;
        // A cache that has no export is no evidence that there is none.
        match self.export_now(&contract, &message.name).await? {
            Some(now) if now.uid() == export.uid() => Ok(DeleteExportResponse {
                remaining_objects: count(&self.remaining(&now).await?),
                export: Some(self.show(&now)),
            }),
            _ => Ok(DeleteExportResponse::default()),
        }
    }

    pub(in crate::front::services) async fn remaining(&self, export: &api::APIServiceExport) -> Outcome<Leftovers> {
        let remaining = leftovers::of_export(&self.state, export).await;
        remaining.map_err(|error| Failure::of_write("count the objects that are left", &error))
    }
}

pub(in crate::front::services) fn count(remaining: &Leftovers) -> i32 {
    i32::try_from(remaining.count()).unwrap_or(i32::MAX)
}

pub(in crate::front::services) fn not_empty(contract: &str, name: &str, remaining: &Leftovers) -> Failure {
    let text = format!(
        "export {name} of contract {contract}: {remaining}; delete them on the consumer, or set force to let them stay"
    );
    Failure::new(ErrorReason::ExportNotEmpty, text)
        .with("export", name)
        .with("contract", contract)
        .with("remainingObjects", remaining.count().to_string())
}
