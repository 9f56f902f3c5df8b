//! Methods of ExportService: exports and their schemas.

use bindery_proto::v1alpha2::{
    BoundSchema, DeleteExportRequest, DeleteExportResponse, Export, GetBoundSchemaRequest, GetExportRequest,
    ListExportsRequest,
};

use super::Client;
use super::binding::server_wait;
use crate::error::Error;
use crate::method::all as methods;
use crate::page::ListStream;

impl Client {
    /// Lists all exports of one contract, or of all of the caller's, from `page_token` on.
    pub fn list_exports(&self, request: ListExportsRequest) -> ListStream<Export> {
        self.list(methods::LIST_EXPORTS, request, |page| {
            (page.exports, page.next_page_token)
        })
    }

    /// Returns one export. `contract` may be empty if the caller has only one.
    pub async fn get_export(&self, contract: &str, name: &str) -> Result<Export, Error> {
        let request = GetExportRequest {
            contract: contract.to_owned(),
            name: name.to_owned(),
        };
        let response = self.call(methods::GET_EXPORT, request).await?;
        response.export.ok_or_else(|| self.missing("export"))
    }

    /// Returns one schema; `None` if `known_hash` is current. `contract` may be empty if the caller has only one.
    pub async fn get_bound_schema(
        &self,
        contract: &str,
        name: &str,
        known_hash: Option<&str>,
    ) -> Result<Option<BoundSchema>, Error> {
        let request = GetBoundSchemaRequest {
            contract: contract.to_owned(),
            name: name.to_owned(),
            known_hash: known_hash.unwrap_or_default().to_owned(),
        };
        let response = self.call(methods::GET_BOUND_SCHEMA, request).await?;
        match response.bound_schema {
            Some(schema) => Ok(Some(schema)),
            None if response.unchanged && known_hash.is_some() => Ok(None),
            None => Err(self.missing("bound schema")),
        }
    }

    /// Unbinds an export, and returns the number of leftovers. The call may take as long as `wait` says.
    pub async fn delete_export(&self, request: DeleteExportRequest) -> Result<DeleteExportResponse, Error> {
        let wait = server_wait(request.wait.as_ref());
        self.call_waiting(methods::DELETE_EXPORT, request, wait).await
    }
}
