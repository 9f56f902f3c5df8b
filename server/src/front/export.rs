//! ExportService: what is bound, its schemas, and its end.

use std::sync::Arc;

use bindery_api::v1alpha2 as api;
use bindery_proto::v1alpha2::{
    DeleteExportRequest, DeleteExportResponse, ErrorReason, Export, GetBoundSchemaRequest, GetBoundSchemaResponse,
    GetExportRequest, GetExportResponse, ListExportsRequest, ListExportsResponse, WatchExportsRequest,
    export_service_server::ExportService,
};
use kube::{Api, Resource, ResourceExt as _, core::NamespaceResourceScope};
use tonic::{Request, Response, Status};

use super::{
    Front,
    auth::Caller,
    catalog::selector,
    convert::{boundschema, export},
    error::{Failure, Outcome},
    gate::Call,
    page::Page,
    stream::{Outgoing, followed},
    validate::Validate as _,
};
use crate::writes;

mod delete;
mod watch;

#[derive(Debug)]
pub(super) struct Service(pub(super) Arc<Front>);

#[tonic::async_trait]
impl ExportService for Service {
    type WatchExportsStream = Outgoing<bindery_proto::v1alpha2::WatchExportsResponse>;

    async fn list_exports(
        &self,
        request: Request<ListExportsRequest>,
    ) -> Result<Response<ListExportsResponse>, Status> {
        let call = Call::of(&request)?;
        Ok(Response::new(
            self.0.list_exports(call.caller()?, request.get_ref()).await?,
        ))
    }

    async fn get_export(&self, request: Request<GetExportRequest>) -> Result<Response<GetExportResponse>, Status> {
        let call = Call::of(&request)?;
        Ok(Response::new(
            self.0.get_export(call.caller()?, request.get_ref()).await?,
        ))
    }

    async fn watch_exports(
        &self,
        request: Request<WatchExportsRequest>,
    ) -> Result<Response<Self::WatchExportsStream>, Status> {
        let call = Call::of(&request)?;
        Ok(Response::new(self.0.watch_exports(&call, request.get_ref())?))
    }

    async fn get_bound_schema(
        &self,
        request: Request<GetBoundSchemaRequest>,
    ) -> Result<Response<GetBoundSchemaResponse>, Status> {
        let call = Call::of(&request)?;
        Ok(Response::new(
            self.0.get_bound_schema(call.caller()?, request.get_ref()).await?,
        ))
    }

    async fn delete_export(
        &self,
        request: Request<DeleteExportRequest>,
    ) -> Result<Response<DeleteExportResponse>, Status> {
        let call = Call::of(&request)?;
        Ok(Response::new(self.0.delete_export(&call, request.get_ref()).await?))
    }
}

impl Front {
    async fn list_exports(&self, caller: &Caller, message: &ListExportsRequest) -> Outcome<ListExportsResponse> {
        message.validate()?;
        let arguments = ["exports", &message.contract, &message.label_selector];
        let page = Page::read(message.page_size, &message.page_token, &arguments)?;
        let selector = selector(&message.label_selector)?;
        let contracts = self.contracts.all(caller, &message.contract)?;
        self.follows_exports()?;
        let contracts = contracts.iter().map(|contract| contract.name_any());
        let exports = &self.state.caches.exports;
        let of_contracts = contracts.flat_map(|contract| exports.list_in(&contract));
        let found = of_contracts.filter(|export| selector.matches(export.labels()));
        let mut keyed: Vec<_> = found
            .map(|export| {
                (
                    format!("{}/{}", export.namespace().unwrap_or_default(), export.name_any()),
                    export,
                )
            })
            .collect();
        keyed.sort_by(|(one, _), (other, _)| one.cmp(other));
        let filled = page
            .fill(keyed, |found| async move { Ok(Some(self.show(&found))) })
            .await?;
        Ok(ListExportsResponse {
            exports: filled.entries,
            next_page_token: filled.next_page_token,
        })
    }

    async fn get_export(&self, caller: &Caller, message: &GetExportRequest) -> Outcome<GetExportResponse> {
        message.validate()?;
        let contract = self.contracts.one(caller, &message.contract)?.name_any();
        let found = self
            .export(&contract, &message.name)
            .await?
            .ok_or_else(|| not_found(&contract, &message.name))?;
        Ok(GetExportResponse {
            export: Some(self.show(&found)),
        })
    }

    async fn get_bound_schema(
        &self,
        caller: &Caller,
        message: &GetBoundSchemaRequest,
    ) -> Outcome<GetBoundSchemaResponse> {
        message.validate()?;
        let contract = self.contracts.one(caller, &message.contract)?.name_any();
        let mut found = self.state.caches.bound_schemas.get(&contract, &message.name);
        if found.is_none() {
            found = self.read("read the schema", &contract, &message.name).await?;
        }
        let found = found.ok_or_else(|| {
            let text = format!(
                "contract {contract} has no schema {}; its exports name those it has",
                message.name
            );
            Failure::new(ErrorReason::BoundSchemaNotFound, text).with("boundSchema", &message.name)
        })?;
        let unchanged = !message.known_hash.is_empty() && self.schemas.of(&found).hash == message.known_hash;
        Ok(GetBoundSchemaResponse {
            bound_schema: (!unchanged).then(|| boundschema::bound_schema(&found)),
            unchanged,
        })
    }

    /// An export, also where this replica has not seen it yet: that it is missing in a cache is no evidence.
    async fn export(&self, contract: &str, name: &str) -> Outcome<Option<Arc<api::APIServiceExport>>> {
        match self.state.caches.exports.get(contract, name) {
            Some(known) => Ok(Some(known)),
            None => self.export_now(contract, name).await,
        }
    }

    async fn export_now(&self, contract: &str, name: &str) -> Outcome<Option<Arc<api::APIServiceExport>>> {
        self.read("read the export", contract, name).await
    }

    /// An object of a contract, as the API server has it.
    async fn read<K>(&self, doing: &str, contract: &str, name: &str) -> Outcome<Option<Arc<K>>>
    where
        K: writes::Object + Resource<Scope = NamespaceResourceScope>,
    {
        let api: Api<K> = Api::namespaced(self.state.clients.write.clone(), contract);
        let found = api.get_opt(name).await;
        Ok(found.map_err(|error| Failure::of_kube(doing, &error))?.map(Arc::new))
    }

    /// Refuses to say what all exports are while this replica cannot follow their changes.
    fn follows_exports(&self) -> Outcome<()> {
        let caches = &self.state.caches;
        followed("exports", &caches.exports.health())?;
        followed("schemas", &caches.bound_schemas.health())
    }

    /// An export as callers see it.
    fn show(&self, found: &api::APIServiceExport) -> Export {
        export::export(found, self.schemas.of_export(&self.state.caches, found))
    }
}

fn not_found(contract: &str, name: &str) -> Failure {
    let message = format!("contract {contract} has no export {name}");
    Failure::new(ErrorReason::ExportNotFound, message)
        .with("export", name)
        .with("contract", contract)
}
