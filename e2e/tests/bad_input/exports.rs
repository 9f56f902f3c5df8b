//! Calls and objects that are sound in themselves, and do not fit what is there.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{Conditions as _, v1alpha2 as api};
use bindery_e2e::{eventually, wildwest};
use bindery_proto::v1alpha2::{
    DeleteBindableResourcesRequestRequest, DeleteExportRequest, ErrorReason, ListExportsRequest,
};
use bindery_sdk::Code;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Config, ResourceExt as _,
    api::{DeleteParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;

use crate::{
    expect::{is_false, refused, tells},
    world::{Case, case, kubeconfig},
};

#[test]
fn an_export_is_deleted_by_its_uid_and_when_it_is_empty() -> Result<()> {
    case("delete", async |case| {
        let offer = case.offer().await?;
        let owner = case.principal("delete", &["delete"]).await?;
        case.bind(&owner, &[]).await?;
        wildwest::namespace(case.consumer().plane.client(), "delete").await?;
        let widget = offer.widget("one", "red");
        case.ours(offer, "delete")
            .create(&PostParams::default(), &widget)
            .await?;
        wildwest::wait("the copy", &case.copies(offer, "delete"), "one", |_| true).await?;

        let client = &owner.client;
        let export = client.get_export("", "delete").await?.metadata.context("metadata")?;
        let delete = |name: &str, uid: &str| DeleteExportRequest {
            name: name.to_owned(),
            uid: uid.to_owned(),
            ..DeleteExportRequest::default()
        };
        let missing = delete("no-such", &export.uid);
        let says = ["no-such", &case.contract()];
        refused(
            client.delete_export(missing.clone()).await,
            Code::NotFound,
            ErrorReason::ExportNotFound,
            &says,
        )?;
        let allowed = DeleteExportRequest {
            allow_missing: true,
            ..missing
        };
        client.delete_export(allowed).await?;
        let outcome = client.delete_export(delete("delete", "0-1-2")).await;
        let error = refused(
            outcome,
            Code::Aborted,
            ErrorReason::ObjectChanged,
            &["export delete", "read it again"],
        )?;
        ensure!(error.metadata.get("uid") == Some(&export.uid), "{error:?}");
        let outcome = client.delete_export(delete("delete", &export.uid)).await;
        let says = ["export delete", "delete them on the consumer", "force"];
        let error = refused(outcome, Code::FailedPrecondition, ErrorReason::ExportNotEmpty, &says)?;
        ensure!(
            error.metadata.get("remainingObjects").map(String::as_str) == Some("1"),
            "{error:?}"
        );

        let record = DeleteBindableResourcesRequestRequest {
            name: "delete".to_owned(),
            cluster_identity: case.identity(),
            uid: "0-1-2".to_owned(),
            ..DeleteBindableResourcesRequestRequest::default()
        };
        let outcome = client.delete_bindable_resources_request(record).await;
        refused(
            outcome,
            Code::Aborted,
            ErrorReason::ObjectChanged,
            &["request delete", "read it again"],
        )?;

        let schema = client.get_bound_schema("", "no.such.example.dev", None).await;
        refused(
            schema,
            Code::NotFound,
            ErrorReason::BoundSchemaNotFound,
            &["no.such.example.dev"],
        )?;
        // Nothing of this has ended anything.
        ensure!(client.get_export("", "delete").await?.metadata.context("metadata")?.uid == export.uid);
        ensure!(case.copies(offer, "delete").get_opt("one").await?.is_some());
        case.ready_binding("delete").await
    })
}

#[test]
fn who_owns_several_contracts_must_name_one() -> Result<()> {
    case("several", async |case| {
        let owner = case.principal("several", &["cowboys"]).await?;
        let none = owner.client.get_export("", "cowboys").await;
        refused(
            none,
            Code::NotFound,
            ErrorReason::ContractNotFound,
            &["bind a template first"],
        )?;
        owner.bind("cowboys", &case.identity()).await?;
        owner.bind("cowboys", "another-cluster-of-several").await?;
        let ambiguous = owner.client.get_export("", "cowboys").await;
        let says = ["2 contracts", "name one of them"];
        refused(ambiguous, Code::InvalidArgument, ErrorReason::ContractAmbiguous, &says)?;
        owner.client.get_export(&case.contract(), "cowboys").await?;
        ensure!(owner.client.list_exports(ListExportsRequest::default()).await?.len() == 2);
        Ok(())
    })
}

#[test]
fn a_namespace_of_somebody_else_does_not_become_a_contract() -> Result<()> {
    case("squatted", async |case| {
        let provider = case.provider().plane.client();
        let namespaces: Api<Namespace> = Api::all(provider.clone());
        wildwest::namespace(provider, &case.contract()).await?;
        let before = namespaces.get(&case.contract()).await?;
        let owner = case.principal("squatted", &["cowboys"]).await?;
        let says = ["namespace", &case.contract(), "not managed by this server", "delete it"];
        // The replica that answers may not have seen the namespace yet, and a request may then have been begun.
        let outcome = owner.ask("cowboys", &case.identity()).await;
        if let Err(bindery_sdk::Error::RequestFailed(failed)) = &outcome {
            ensure!(failed.reason() == "ForeignNamespace", "{failed}");
        } else {
            refused(outcome, Code::FailedPrecondition, ErrorReason::PlacementConflict, &says)?;
        }
        let after = namespaces.get(&case.contract()).await?;
        ensure!(
            (after.resource_version(), after.uid()) == (before.resource_version(), before.uid()),
            "{after:?}"
        );
        Ok(())
    })
}

#[test]
fn a_contracts_own_kubeconfig_exports_nothing_that_was_not_granted() -> Result<()> {
    case("granted", async |case| {
        case.offer().await?;
        let owner = case.principal("granted", &["granted", "cowboys"]).await?;
        let document: Kubeconfig =
            serde_saphyr::from_str(&kubeconfig(&owner.bind("granted", &case.identity()).await?)?)?;
        let config = Config::from_custom_kubeconfig(document, &KubeConfigOptions::default()).await?;
        let binder = kube::Client::try_from(config)?;
        let requests: Api<api::APIServiceExportRequest> = Api::namespaced(binder, &case.contract());
        // Its owner may bind cowboys, and has not.
        let spec = serde_json::from_value(
            json!({"resources": [{"group": "wildwest.dev", "resource": "cowboys", "versions": ["v1alpha1"]}]}),
        )?;
        requests
            .create(
                &PostParams::default(),
                &api::APIServiceExportRequest::new("smuggled", spec),
            )
            .await?;
        is_false(
            &requests,
            "smuggled",
            "ExportsReady",
            "TemplateNotGranted",
            &["bind a template"],
        )
        .await?;
        let status = requests.get("smuggled").await?.status.context("a status")?;
        ensure!(status.phase == api::Phase::Failed, "{status:?}");
        tells(
            &status.terminal_message.unwrap_or_default(),
            &["no template that is granted"],
        )?;
        let exports: Api<api::APIServiceExport> = Api::namespaced(case.provider().plane.client(), &case.contract());
        ensure!(exports.get_opt("smuggled").await?.is_none());
        Ok(())
    })
}

/// A request made as a Kubernetes object; waits until its condition Ready is False for this reason.
async fn request(
    case: &Case,
    name: &str,
    spec: serde_json::Value,
    phase: api::Phase,
    reason: &str,
    says: &[&str],
) -> Result<()> {
    let api: Api<api::BindableResourcesRequest> = Api::namespaced(case.provider().plane.client(), "kube-bind");
    let spec = serde_json::from_value(spec)?;
    api.create(&PostParams::default(), &api::BindableResourcesRequest::new(name, spec))
        .await?;
    eventually(format!("request {name} to be {reason}"), wildwest::SOON, || async {
        let status = api.get(name).await?.status.context("no status")?;
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let ready = ready.filter(|ready| ready.reason == reason && ready.status == "False");
        let ready = ready.with_context(|| format!("{:?}", status.conditions))?;
        ensure!(status.phase == phase, "{status:?}");
        tells(&ready.message, says)?;
        Ok(Some(()))
    })
    .await?;
    api.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

#[test]
fn requests_made_as_kubernetes_objects_say_what_is_wrong_with_them() -> Result<()> {
    case("objects-of-requests", async |case| {
        let owner = case.principal("objects-of-requests", &["cowboys"]).await?;
        owner.bind("cowboys", &case.identity()).await?;
        let spec = |template: &str, identity: &str| json!({"templateRef": {"name": template}, "clusterIdentity": {"identity": identity}, "author": "somebody"});
        let (failed, pending) = (api::Phase::Failed, api::Phase::Pending);
        let says = ["no APIServiceExportTemplate ghost"];
        request(
            case,
            "r-ghost",
            spec("ghost", "cluster-of-r-ghost"),
            pending,
            "TemplateNotFound",
            &says,
        )
        .await?;
        let mut unnamed = spec("", "cluster-of-r-unnamed");
        unnamed["templateRef"] = serde_json::Value::Null;
        for (name, spec, says) in [
            ("r-unnamed", unnamed, "spec.templateRef.name is required"),
            (
                "r-nobody",
                spec("cowboys", ""),
                "spec.clusterIdentity.identity is required",
            ),
        ] {
            // These the admission policy refuses before there is an object to say it.
            let refused = request(case, name, spec, failed, "", &[]).await;
            let refused = refused.err().with_context(|| format!("{name} was made"))?;
            tells(&refused.to_string(), &[says])?;
        }
        let says = ["spec.clusterIdentity.identity", "kube-system"];
        request(
            case,
            "r-identity",
            spec("cowboys", " "),
            failed,
            "InvalidClusterIdentity",
            &says,
        )
        .await?;
        let says = ["another principal", "kubectl bind provider transfer", &case.contract()];
        request(
            case,
            "r-taken",
            spec("cowboys", &case.identity()),
            failed,
            "ClusterIdentityTaken",
            &says,
        )
        .await?;
        let export = Api::<api::APIServiceExport>::namespaced(case.provider().plane.client(), &case.contract());
        ensure!(export.get("cowboys").await?.is_condition_true("ProviderInSync"));
        Ok(())
    })
}
