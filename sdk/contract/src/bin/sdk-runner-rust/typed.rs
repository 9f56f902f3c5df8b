//! Calls by the client's own method for each method of the API.

use bindery_contract::proto_json::{self, write};
use bindery_proto::v1alpha2::{
    DeleteBindableResourcesRequestRequest, DeleteExportRequest, GetTemplateResponse, RenewKubeconfigResponse,
    RevokeContractRequest, ShareContractRequest,
};
use bindery_sdk::Client;
use serde_json::{Value, json};

use super::{Failure, calls};

/// Calls the method of the client with the arguments that the request has, and returns what it returns as proto JSON.
pub(super) async fn call(
    client: &Client,
    method: &str,
    request: &Value,
    shown: &mut Vec<String>,
) -> Result<Value, Failure> {
    let text = |key: &str| request[key].as_str().unwrap_or_default();
    let result = match method {
        "GetProvider" => write("Provider", &client.get_provider().await?),
        "GetCaller" => write("Caller", &client.get_caller().await?),
        "GetTemplate" => {
            let details = client.get_template(text("name")).await?;
            let response = GetTemplateResponse {
                template: Some(details.template),
                schemas: details.schemas,
            };
            write("GetTemplateResponse", &response)
        }
        "GetCollection" => write("Collection", &client.get_collection(text("name")).await?),
        "GetBindableResourcesRequest" => {
            let found = client.get_bindable_resources_request(text("name"), text("clusterIdentity"));
            write("BindableResourcesRequest", &found.await?)
        }
        "DeleteBindableResourcesRequest" => {
            let request: DeleteBindableResourcesRequestRequest =
                proto_json::read("DeleteBindableResourcesRequestRequest", request)?;
            client.delete_bindable_resources_request(request).await?;
            Ok(json!({}))
        }
        "GetExport" => write("Export", &client.get_export(text("contract"), text("name")).await?),
        "GetBoundSchema" => {
            let known = request["knownHash"].as_str();
            match client.get_bound_schema(text("contract"), text("name"), known).await? {
                Some(schema) => write("BoundSchema", &schema),
                None => Ok(json!({ "unchanged": true })),
            }
        }
        "DeleteExport" => {
            let request: DeleteExportRequest = proto_json::read("DeleteExportRequest", request)?;
            write("DeleteExportResponse", &client.delete_export(request).await?)
        }
        "RenewKubeconfig" => {
            let renewed = client.renew_kubeconfig(text("contract")).await?;
            shown.push(format!("{renewed:?}"));
            let response = RenewKubeconfigResponse {
                contract: renewed.contract,
                kubeconfig: Some(renewed.kubeconfig.into_message()),
            };
            write("RenewKubeconfigResponse", &response)
        }
        "RevokeCredentials" => {
            let revoked = client.revoke_credentials(text("contract"), text("reason"));
            write("RevokeCredentialsResponse", &revoked.await?)
        }
        "GetContract" => write("Contract", &client.get_contract(text("contract")).await?),
        "ShareContract" => {
            let request: ShareContractRequest = proto_json::read("ShareContractRequest", request)?;
            write("Contract", &client.share_contract(request).await?)
        }
        "RevokeContract" => {
            let request: RevokeContractRequest = proto_json::read("RevokeContractRequest", request)?;
            write("RevokeContractResponse", &client.revoke_contract(request).await?)
        }
        // These have no other method than the one that takes the whole message.
        "CreateBindableResourcesRequest" | "UnbindContract" => return calls::call(client, method, request).await,
        _ => return calls::list(client, method, request).await,
    };
    Ok(result?)
}
