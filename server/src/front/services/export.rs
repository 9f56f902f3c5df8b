//! ExportService: the exports of a contract, their schemas, and their deletion.

use std::sync::Arc;

use bindery_api::{names::ExportName, v1alpha2 as api};
use bindery_proto::v1alpha2::{
    DeleteExportRequest, DeleteExportResponse, ErrorReason, Export, GetBoundSchemaRequest, GetBoundSchemaResponse,
    GetExportRequest, GetExportResponse, ListExportsRequest, ListExportsResponse, WatchExportsRequest,
    export_service_server::ExportService,
};
use kube::{Api, Resource, ResourceExt as _, core::NamespaceResourceScope};
use tonic::{Request, Response, Status};

use crate::front::{
    Failure, Front, Outcome,
    auth::Caller,
    streams::{MessageStream, require_followed},
    transport::interceptor::Call,
    wire::{
        convert::{boundschema, export},
        page::Page,
        validate::{GetBoundSchema, GetExport, ListExports},
    },
};
use crate::writes;

pub(super) mod delete;
mod watch;

#[derive(Debug)]
pub(crate) struct Service(pub(crate) Arc<Front>);

#[tonic::async_trait]
impl ExportService for Service {
    type WatchExportsStream = MessageStream<bindery_proto::v1alpha2::WatchExportsResponse>;

    async fn list_exports(
        &self,
        request: Request<ListExportsRequest>,
    ) -> Result<Response<ListExportsResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.list_exports(call.caller()?, message).await?))
    }

    async fn get_export(&self, request: Request<GetExportRequest>) -> Result<Response<GetExportResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.get_export(call.caller()?, message).await?))
    }

    async fn watch_exports(
        &self,
        request: Request<WatchExportsRequest>,
    ) -> Result<Response<Self::WatchExportsStream>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.watch_exports(&call, message)?))
    }

    async fn get_bound_schema(
        &self,
        request: Request<GetBoundSchemaRequest>,
    ) -> Result<Response<GetBoundSchemaResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.get_bound_schema(call.caller()?, message).await?))
    }

    async fn delete_export(
        &self,
        request: Request<DeleteExportRequest>,
    ) -> Result<Response<DeleteExportResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.delete_export(&call, message).await?))
    }
}

impl Front {
    async fn list_exports(&self, caller: &Caller, message: ListExports) -> Outcome<ListExportsResponse> {
        let contract = message.contract.as_deref().unwrap_or_default();
        let page = Page::read(&message.page, &["exports", contract, message.selector.as_str()])?;
        let contracts = self.contracts.all(caller, message.contract.as_ref())?;
        self.require_followed_exports()?;
        let contracts = contracts.iter().map(|contract| contract.name_any());
        let exports = &self.state.caches.exports;
        let of_contracts = contracts.flat_map(|contract| exports.list_in(&contract));
        let found = of_contracts.filter(|export| message.selector.matches(export.labels()));
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

    async fn get_export(&self, caller: &Caller, message: GetExport) -> Outcome<GetExportResponse> {
        let contract = self.contracts.one(caller, message.contract.as_ref())?.name_any();
        let found = self
            .export(&contract, &message.name)
            .await?
            .ok_or_else(|| not_found(&contract, &message.name))?;
        Ok(GetExportResponse {
            export: Some(self.show(&found)),
        })
    }

    async fn get_bound_schema(&self, caller: &Caller, message: GetBoundSchema) -> Outcome<GetBoundSchemaResponse> {
        let contract = self.contracts.one(caller, message.contract.as_ref())?.name_any();
        let mut found = self.state.caches.bound_schemas.get(&contract, &message.name);
        if found.is_none() {
            found = self.read("read the schema", &contract, &message.name).await?;
        }
        let found = found.ok_or_else(|| {
            let text = format!(
                "contract {contract} has no schema {}; its exports name those it has",
                message.name
            );
            Failure::new(ErrorReason::BoundSchemaNotFound, text).with("boundSchema", &*message.name)
        })?;
        let unchanged = !message.known_hash.is_empty() && self.schemas.of(&found).hash == message.known_hash;
        Ok(GetBoundSchemaResponse {
            bound_schema: (!unchanged).then(|| boundschema::bound_schema(&found)),
            unchanged,
        })
    }

    /// The export of that name. If the cache has none, the API server is asked, for the cache may be behind.
    pub(super) async fn export(
        &self,
        contract: &str,
        name: &ExportName,
    ) -> Outcome<Option<Arc<api::APIServiceExport>>> {
        match self.state.caches.exports.get(contract, name) {
            Some(known) => Ok(Some(known)),
            None => self.export_now(contract, name).await,
        }
    }

    pub(super) async fn export_now(&self, contract: &str, name: &str) -> Outcome<Option<Arc<api::APIServiceExport>>> {
        self.read("read the export", contract, name).await
    }

    /// Reads an object of a contract from the API server. `doing` completes "cannot …" in errors.
    async fn read<K>(&self, doing: &str, contract: &str, name: &str) -> Outcome<Option<Arc<K>>>
    where
        K: writes::Object + Resource<Scope = NamespaceResourceScope>,
    {
        let api: Api<K> = Api::namespaced(self.state.clients.write.clone(), contract);
        let found = api.get_opt(name).await;
        Ok(found.map_err(|error| Failure::of_kube(doing, &error))?.map(Arc::new))
    }

    /// Refuses a call that needs all exports while this replica cannot follow their changes.
    pub(super) fn require_followed_exports(&self) -> Outcome<()> {
        let caches = &self.state.caches;
        require_followed("exports", &caches.exports.health())?;
        require_followed("schemas", &caches.bound_schemas.health())
    }

    /// The export as callers see it.
    fn show(&self, found: &api::APIServiceExport) -> Export {
        export::export(found, self.schemas.of_export(&self.state.caches, found))
    }
}

pub(super) fn not_found(contract: &str, name: &ExportName) -> Failure {
    let message = format!("contract {contract} has no export {name}");
    Failure::new(ErrorReason::ExportNotFound, message)
        .with("export", &**name)
        .with("contract", contract)
}
