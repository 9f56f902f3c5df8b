//! Contracts of others: what is taken is refused, and nothing of it is told.

use anyhow::{Context as _, Result, ensure};
use bindery_api::backend::Backend;
use bindery_proto::v1alpha2::{
    CreateBindableResourcesRequestRequest, ErrorReason, ListBindableResourcesRequestsRequest, ListExportsRequest,
    ListTemplatesRequest, WatchExportsRequest,
};
use bindery_sdk::{Client, Code, Error};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _, config::Kubeconfig};
use secrecy::ExposeSecret as _;

use crate::{
    expect::{refused, tells},
    world::{Principal, case, kubeconfig, wish},
};

const DENIED: (Code, ErrorReason) = (Code::PermissionDenied, ErrorReason::ContractDenied);

/// All that a caller may try with a contract by name; every one is refused, and in the same words.
async fn contract_is_denied(client: &Client, contract: &str) -> Result<String> {
    let (code, reason) = DENIED;
    let exports = ListExportsRequest {
        contract: contract.to_owned(),
        ..ListExportsRequest::default()
    };
    let watch = WatchExportsRequest {
        contract: contract.to_owned(),
        ..WatchExportsRequest::default()
    };
    let delete = bindery_proto::v1alpha2::DeleteExportRequest {
        contract: contract.to_owned(),
        name: "cowboys".to_owned(),
        uid: "0".to_owned(),
        ..bindery_proto::v1alpha2::DeleteExportRequest::default()
    };
    let watched = client
        .watch_exports(watch)
        .next()
        .await
        .context("the watch ended without a word")?;
    let texts = [
        refused(client.list_exports(exports).await, code, reason, &[contract])?.message,
        refused(client.get_export(contract, "cowboys").await, code, reason, &[contract])?.message,
        refused(
            client.get_bound_schema(contract, "cowboys.wildwest.dev", None).await,
            code,
            reason,
            &[contract],
        )?
        .message,
        refused(client.delete_export(delete).await, code, reason, &[contract])?.message,
        refused(client.renew_kubeconfig(contract).await, code, reason, &[contract])?.message,
        refused(watched, code, reason, &[contract])?.message,
    ];
    ensure!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    Ok(texts[0].replace(contract, "X"))
}

#[test]
fn an_identity_of_another_principal_is_refused_and_nothing_of_it_leaks() -> Result<()> {
    case("identity", async |case| {
        let owner = case.principal("identity-owner", &["cowboys"]).await?;
        let other = case.principal("identity-other", &["cowboys"]).await?;
        let (identity, contract) = (case.identity(), case.contract());
        let mut asked = wish("secret-project", "cowboys", &identity);
        let spec = asked
            .bindable_resources_request
            .as_mut()
            .and_then(|request| request.spec.as_mut());
        let cluster = spec
            .and_then(|spec| spec.cluster_identity.as_mut())
            .context("a cluster")?;
        "Crown Jewels".clone_into(&mut cluster.pretty_name);
        owner
            .client
            .bind_by_request(asked, std::time::Duration::from_mins(2), |_| ())
            .await?;
        let namespaces: Api<Namespace> = Api::all(case.provider().plane.client());
        let before = namespaces.get(&contract).await?;

        let taken = ErrorReason::ClusterIdentityTaken;
        let mend = ["another principal", "kubectl bind provider transfer", &contract];
        let error = refused(
            other.ask("cowboys", &identity).await,
            Code::PermissionDenied,
            taken,
            &mend,
        )?;
        for secret in [
            owner.username.as_str(),
            "identity-owner",
            "secret-project",
            "Crown Jewels",
        ] {
            ensure!(!format!("{error:?}").contains(secret), "{secret} leaks: {error:?}");
        }
        let validate = CreateBindableResourcesRequestRequest {
            validate_only: true,
            ..wish("cowboys", "cowboys", &identity)
        };
        let planned = other.client.create_bindable_resources_request(validate).await;
        refused(planned, Code::PermissionDenied, taken, &mend)?;

        let (exports, requests) = (
            ListExportsRequest::default(),
            ListBindableResourcesRequestsRequest::default(),
        );
        let listed = other.client.list_exports(exports).await?;
        ensure!(listed.is_empty(), "{listed:?}");
        let listed = other.client.list_bindable_resources_requests(requests).await?;
        ensure!(listed.is_empty(), "{listed:?}");
        let got = other
            .client
            .get_bindable_resources_request("secret-project", &identity)
            .await;
        refused(got, Code::NotFound, ErrorReason::RequestNotFound, &["secret-project"])?;
        let theirs = contract_is_denied(&other.client, &contract).await?;
        let nobodys = contract_is_denied(&other.client, "kube-bind-nobody").await?;
        ensure!(
            theirs == nobodys,
            "the words tell that the contract exists: {theirs:?} {nobodys:?}"
        );
        refused(
            other.client.revoke_credentials(&contract, "").await,
            DENIED.0,
            DENIED.1,
            &[&contract],
        )?;

        ensure!(case.requests(&other).await?.is_empty());
        let after = namespaces.get(&contract).await?;
        ensure!(
            after.resource_version() == before.resource_version(),
            "the contract was written"
        );
        Ok(())
    })
}

#[test]
fn a_name_that_is_taken_is_refused_and_keeps_what_it_has() -> Result<()> {
    case("taken", async |case| {
        case.offer().await?;
        let owner = case.principal("taken", &["cowboys", "taken"]).await?;
        let identity = case.identity();
        owner.bind("cowboys", &identity).await?;
        let before = case.requests(&owner).await?;
        let create = |message| owner.client.create_bindable_resources_request(message);

        let mut renamed = wish("cowboys", "cowboys", &identity);
        let spec = renamed
            .bindable_resources_request
            .as_mut()
            .and_then(|request| request.spec.as_mut());
        let cluster = spec
            .and_then(|spec| spec.cluster_identity.as_mut())
            .context("a cluster")?;
        "Another name for people".clone_into(&mut cluster.pretty_name);
        let (code, says) = (
            Code::AlreadyExists,
            ["request cowboys", "pretty_name", "choose another name"],
        );
        let error = refused(create(renamed).await, code, ErrorReason::RequestNameTaken, &says)?;
        let field = error.metadata.get("field").map(String::as_str);
        ensure!(field == Some("spec.cluster_identity.pretty_name"), "{error:?}");

        let says = ["export cowboys", "template cowboys", "choose another name"];
        let other_template = wish("cowboys", "taken", &identity);
        refused(
            create(other_template.clone()).await,
            code,
            ErrorReason::ExportNameTaken,
            &says,
        )?;
        // Another owner comes with a request of another key: the export decides all the same.
        let second = case.principal("taken-second", &["taken"]).await?;
        add_owner(&case.contract(), &second, &Api::all(case.provider().plane.client())).await?;
        let outcome = second
            .client
            .bind_by_request(other_template, std::time::Duration::from_mins(2), |_| ())
            .await;
        refused(outcome, code, ErrorReason::ExportNameTaken, &says)?;
        ensure!(case.requests(&second).await?.is_empty());

        ensure!(case.requests(&owner).await? == before, "the request was written");
        let export = owner.client.get_export("", "cowboys").await?;
        let resources = export.spec.context("a spec")?.resources;
        ensure!(
            resources.len() == 1 && resources[0].group == "wildwest.dev",
            "{resources:?}"
        );
        Ok(())
    })
}

/// Adds an owner to a contract, as the provider's admin may, and waits until the server knows.
async fn add_owner(contract: &str, owner: &Principal, namespaces: &Api<Namespace>) -> Result<()> {
    let namespace = namespaces.get(contract).await?;
    let key = bindery_api::annotations::OWNERS;
    let mut owners: Vec<serde_json::Value> = serde_json::from_str(namespace.annotations().get(key).context("owners")?)?;
    owners.push(serde_json::json!({"username": owner.username}));
    let patch = serde_json::json!({"metadata": {"annotations": {key: serde_json::to_string(&owners)?}}});
    namespaces
        .patch(
            contract,
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(&patch),
        )
        .await?;
    bindery_e2e::eventually("the server to know the owner", bindery_e2e::wildwest::SOON, || async {
        let listed = owner.client.list_exports(ListExportsRequest::default()).await?;
        Ok((!listed.is_empty()).then_some(()))
    })
    .await
}

#[test]
fn a_contracts_own_token_opens_its_exports_and_nothing_else() -> Result<()> {
    case("binder", async |case| {
        let owner = case.principal("binder", &["cowboys"]).await?;
        let bound = owner.bind("cowboys", &case.identity()).await?;
        let stranger = case.principal("binder-stranger", &["cowboys"]).await?;
        let foreign = stranger
            .bind("cowboys", "cluster-of-binder-stranger")
            .await?
            .response
            .provider_namespace;
        let kubeconfig: Kubeconfig = serde_saphyr::from_str(&kubeconfig(&bound)?)?;
        let cluster = kubeconfig
            .clusters
            .first()
            .and_then(|named| named.cluster.as_ref())
            .context("a cluster")?;
        let backend = Backend::find(cluster.extensions.as_deref().unwrap_or_default())?.context("no extension")?;
        let binder = case.client(&backend.token)?;

        let denied = |outcome: Result<(), Error>| {
            let says = ["ServiceAccount of a contract", "call with the token of a principal"];
            refused(outcome, Code::PermissionDenied, ErrorReason::MethodDenied, &says).map(drop)
        };
        denied(
            binder
                .create_bindable_resources_request(wish("more", "cowboys", &case.identity()))
                .await
                .map(drop),
        )?;
        denied(
            binder
                .get_bindable_resources_request("cowboys", &case.identity())
                .await
                .map(drop),
        )?;
        denied(
            binder
                .list_bindable_resources_requests(ListBindableResourcesRequestsRequest::default())
                .await
                .map(drop),
        )?;
        denied(binder.list_templates(ListTemplatesRequest::default()).await.map(drop))?;
        denied(binder.revoke_credentials(&case.contract(), "").await.map(drop))?;

        let of_other = contract_is_denied(&binder, &foreign).await?;
        let of_nobody = contract_is_denied(&binder, "kube-bind-nobody").await?;
        ensure!(
            of_other == of_nobody,
            "the words tell that the contract exists: {of_other:?} {of_nobody:?}"
        );

        // Its own it may see and renew.
        let listed = binder.list_exports(ListExportsRequest::default()).await?;
        ensure!(listed.len() == 1, "{listed:?}");
        ensure!(binder.renew_kubeconfig("").await?.contract == case.contract());

        // The other token of the kubeconfig is for the API server alone.
        let user = kubeconfig
            .auth_infos
            .first()
            .and_then(|named| named.auth_info.as_ref())
            .context("a user")?;
        let token = user.token.as_ref().context("a token")?;
        let outcome = case
            .client(token.expose_secret())?
            .list_exports(ListExportsRequest::default())
            .await;
        let error = refused(outcome, Code::Unauthenticated, ErrorReason::TokenAudienceWrong, &[])?;
        tells(&error.message, &[&case.provider().address()])
    })
}
