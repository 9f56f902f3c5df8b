//! Calls and lists by the name of their method.

use bindery_contract::proto_json;
use bindery_sdk::{Client, methods};
use serde_json::{Value, json};

use super::Failure;

/// Makes a call by the name of its method. Those for which the server may wait have methods of their own.
macro_rules! call {
    ($client:expr, $method:expr, $request:expr, { $($name:literal => $constant:ident,)+ }) => {
        match $method {
            $($name => {
                let request = proto_json::read(concat!($name, "Request"), $request)?;
                let answer = $client.call(methods::$constant, request).await?;
                Ok(proto_json::write(concat!($name, "Response"), &answer)?)
            })+
            other => Err(Failure::Runner(anyhow::anyhow!("there is no unary method {other}"))),
        }
    };
}

pub(super) async fn call(client: &Client, method: &str, request: &Value) -> Result<Value, Failure> {
    match method {
        "CreateBindableResourcesRequest" => {
            let request = proto_json::read("CreateBindableResourcesRequestRequest", request)?;
            let answer = client.create_bindable_resources_request(request).await?;
            return Ok(proto_json::write("CreateBindableResourcesRequestResponse", &answer)?);
        }
        "DeleteExport" => {
            let request = proto_json::read("DeleteExportRequest", request)?;
            return Ok(proto_json::write(
                "DeleteExportResponse",
                &client.delete_export(request).await?,
            )?);
        }
        "UnbindContract" => {
            let request = proto_json::read("UnbindContractRequest", request)?;
            let exports = client.unbind_contract(request).await?;
            let exports = exports.iter().map(|export| proto_json::write("UnboundExport", export));
            return Ok(json!({ "exports": exports.collect::<anyhow::Result<Vec<_>>>()? }));
        }
        _ => {}
    }
    call!(client, method, request, {
        "GetProvider" => GET_PROVIDER,
        "GetCaller" => GET_CALLER,
        "ListTemplates" => LIST_TEMPLATES,
        "GetTemplate" => GET_TEMPLATE,
        "ListCollections" => LIST_COLLECTIONS,
        "GetCollection" => GET_COLLECTION,
        "GetBindableResourcesRequest" => GET_BINDABLE_RESOURCES_REQUEST,
        "ListBindableResourcesRequests" => LIST_BINDABLE_RESOURCES_REQUESTS,
        "DeleteBindableResourcesRequest" => DELETE_BINDABLE_RESOURCES_REQUEST,
        "ListExports" => LIST_EXPORTS,
        "GetExport" => GET_EXPORT,
        "GetBoundSchema" => GET_BOUND_SCHEMA,
        "RenewKubeconfig" => RENEW_KUBECONFIG,
        "RevokeCredentials" => REVOKE_CREDENTIALS,
        "ListContracts" => LIST_CONTRACTS,
        "GetContract" => GET_CONTRACT,
        "ShareContract" => SHARE_CONTRACT,
        "RevokeContract" => REVOKE_CONTRACT,
    })
}

/// Reads all pages of a list by the name of its method.
macro_rules! list {
    ($client:expr, $method:expr, $request:expr, { $($name:literal => $function:ident of $item:literal,)+ }) => {
        match $method {
            $($name => {
                let request = proto_json::read(concat!($name, "Request"), $request)?;
                let items = $client.$function(request).await?;
                let items = items.iter().map(|item| proto_json::write($item, item));
                Ok(items.collect::<anyhow::Result<Vec<_>>>()?.into())
            })+
            other => Err(Failure::Runner(anyhow::anyhow!("there is no list {other}"))),
        }
    };
}

pub(super) async fn list(client: &Client, method: &str, request: &Value) -> Result<Value, Failure> {
    list!(client, method, request, {
        "ListTemplates" => list_templates of "Template",
        "ListCollections" => list_collections of "Collection",
        "ListBindableResourcesRequests" => list_bindable_resources_requests of "BindableResourcesRequest",
        "ListExports" => list_exports of "Export",
        "ListContracts" => list_contracts of "Contract",
    })
}
