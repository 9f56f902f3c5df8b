//! Schemas that cannot, or must not, be installed on a consumer.

use anyhow::{Context as _, Result, ensure};
use bindery_api::v1alpha2 as api;
use bindery_e2e::{holds_for, process::run, wildwest};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    expect::tells,
    offer::Offer,
    world::{A_WHILE, Case, case, kubeconfig, wish},
};

/// Puts a schema in place of what the provider exports, as its admin could.
async fn plant_schema(case: &Case, offer: Offer, schema: &Value) -> Result<()> {
    let schemas: Api<api::BoundSchema> = Api::namespaced(case.provider().plane.client(), &case.contract());
    let mut versions = serde_json::to_value(schemas.get(&offer.crd_name()).await?.spec.versions)?;
    versions[0]["schema"] = json!({"openAPIV3Schema": schema});
    let patch = Patch::Merge(json!({"spec": {"versions": versions}}));
    schemas
        .patch(&offer.crd_name(), &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

async fn crd(case: &Case, name: &str) -> Result<Option<CustomResourceDefinition>> {
    Ok(Api::all(case.consumer().plane.client()).get_opt(name).await?)
}

#[test]
fn an_invalid_schema_is_a_condition_and_the_mended_one_is_installed() -> Result<()> {
    case("schema", async |case| {
        let offer = case.offer().await?;
        let principal = case.principal("schema", &["schema"]).await?;
        principal.bind("schema", &case.identity()).await?;
        let name = offer.crd_name();

        // One that no API server takes.
        plant_schema(
            case,
            offer,
            &json!({"type": "object", "properties": {"spec": {"type": "nonsense"}}}),
        )
        .await?;
        case.bind(&principal, &["--wait=false"]).await?;
        let says = [name.as_str(), "nonsense"];
        case.refused_binding("schema", "Connected", "CustomResourceDefinitionCreateFailed", &says)
            .await?;
        case.refused_binding("schema", "SchemaInSync", "CustomResourceDefinitionCreateFailed", &says)
            .await?;
        ensure!(crd(case, &name).await?.is_none());

        // One that is no schema at all.
        plant_schema(case, offer, &json!({"type": ["object", 5]})).await?;
        case.refused_binding(
            "schema",
            "Connected",
            "BoundSchemaInvalid",
            &[&name, "v1", "no OpenAPI v3 schema"],
        )
        .await?;
        ensure!(crd(case, &name).await?.is_none());

        let good = offer.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
        plant_schema(case, offer, &good).await?;
        case.ready_binding("schema").await?;
        ensure!(crd(case, &name).await?.is_some());

        // A later one that is invalid leaves what is installed as it was, and in sync.
        let mut spoiled = good;
        spoiled["properties"]["spec"]["properties"]["mood"] = json!({"type": "nonsense"});
        let before = crd(case, &name).await?.context("the CRD")?;
        plant_schema(case, offer, &spoiled).await?;
        case.refused_binding("schema", "Connected", "CustomResourceDefinitionUpdateFailed", &says)
            .await?;
        let after = crd(case, &name).await?.context("the CRD")?;
        ensure!(after.spec == before.spec, "the CRD was changed");
        wildwest::namespace(case.consumer().plane.client(), "schema").await?;
        let ours = case.ours(offer, "schema");
        ours.create(&PostParams::default(), &offer.widget("still", "red"))
            .await?;
        let copies = case.copies(offer, "schema");
        wildwest::wait("the copy", &copies, "still", |copy| copy.data["spec"]["color"] == "red").await?;
        Ok(())
    })
}

#[test]
fn a_foreign_crd_of_the_same_name_is_left_alone() -> Result<()> {
    case("foreign", async |case| {
        let offer = case.offer().await?;
        let principal = case.principal("foreign", &["foreign"]).await?;
        let consumer = case.consumer();
        consumer.plane.apply(&offer.crd().to_string()).await?;
        consumer
            .plane
            .kubectl(&["wait", "--for=condition=Established", "crd", &offer.crd_name()])
            .await?;
        wildwest::namespace(consumer.plane.client(), "foreign").await?;
        let own = case.ours(offer, "foreign");
        own.create(&PostParams::default(), &offer.widget("mine", "red")).await?;
        let versions = async || -> Result<_> {
            let crd = crd(case, &offer.crd_name()).await?.context("the CRD")?;
            Ok((crd.resource_version(), own.get("mine").await?.resource_version()))
        };
        let before = versions().await?;

        // kubectl-bind sees it before anything is made on either side.
        let identity = case.identity();
        let mut command = consumer.bind_command_for(case.provider(), &principal.token)?;
        command.args(["foreign", "--cluster-identity", &identity]);
        let output = run(command, wildwest::SOON).await?;
        ensure!(output.status.code() == Some(1), "{output:?}");
        tells(
            &String::from_utf8_lossy(&output.stderr),
            &[&offer.crd_name(), "belongs to somebody else", "another cluster"],
        )?;
        case.nothing_written(&principal, &identity).await?;

        // A binding that is made all the same is refused by the konnector.
        let bound = principal.bind("foreign", &identity).await?;
        case.plant_binding("foreign", &kubeconfig(&bound)?).await?;
        let says = [
            offer.crd_name(),
            "was not made by this binding".to_owned(),
            "delete it".to_owned(),
        ];
        let says: Vec<_> = says.iter().map(String::as_str).collect();
        case.refused_binding("foreign", "Connected", "ForeignCustomResourceDefinition", &says)
            .await?;
        holds_for("the foreign CRD and its object as they were", A_WHILE, async || {
            let now = versions().await?;
            ensure!(now == before, "{before:?} became {now:?}");
            Ok(())
        })
        .await?;
        let exports: Api<api::APIServiceNamespace> = Api::namespaced(case.provider().plane.client(), &case.contract());
        ensure!(exports.list(&kube::api::ListParams::default()).await?.items.is_empty());
        // Unbinding takes what the binding made, which is not this.
        case.unbind("foreign").await?;
        ensure!(versions().await? == before);
        Ok(())
    })
}

#[test]
fn an_api_is_bound_once() -> Result<()> {
    case("once", async |case| {
        let offer = case.offer().await?;
        let principal = case.principal("once", &["once"]).await?;
        case.bind(&principal, &[]).await?;
        let consumer = case.consumer();
        let mut command = consumer.bind_command_for(case.provider(), &principal.token)?;
        command.args(["once", "--name", "twice", "--cluster-identity", &case.identity()]);
        let output = run(command, wildwest::SOON).await?;
        ensure!(output.status.code() == Some(1), "{output:?}");
        let says = [
            &offer.crd_name(),
            "belongs to APIServiceBinding once",
            "end that binding first",
        ];
        tells(&String::from_utf8_lossy(&output.stderr), &says)?;

        let identity = case.identity();
        let wish = wish("twice", "once", &identity);
        let bound = principal.client.bind_by_request(wish, wildwest::SOON, |_| ()).await?;
        case.plant_binding("twice", &kubeconfig(&bound)?).await?;
        let says = [
            &offer.crd_name(),
            "belongs to APIServiceBinding once",
            "unbind that first",
        ];
        case.refused_binding("twice", "Connected", "ForeignCustomResourceDefinition", &says)
            .await?;
        // The end of the second takes nothing of the first.
        case.unbind("twice").await?;
        case.ready_binding("once").await?;
        wildwest::namespace(consumer.plane.client(), "once").await?;
        let ours = case.ours(offer, "once");
        ours.create(&PostParams::default(), &offer.widget("one", "red")).await?;
        wildwest::wait("the copy", &case.copies(offer, "once"), "one", |_| true).await?;
        Ok(())
    })
}

#[test]
fn apis_of_kubernetes_itself_do_not_come_from_a_provider() -> Result<()> {
    case("protected-group", async |case| {
        case.offer().await?;
        let principal = case.principal("protected-group", &["protected-group"]).await?;
        let bound = principal.bind("protected-group", &case.identity()).await?;
        let (plane, contract) = (&case.provider().plane, case.contract());
        let mut items = Vec::new();
        let groups = [
            ("p-k8s", "apps.k8s.io"),
            ("p-kubernetes", "apps.kubernetes.io"),
            ("p-own", "kube-bind.io"),
            ("p-plain", "apps"),
        ];
        for (name, group) in groups {
            let resource = json!({"group": group, "resource": "widgets", "versions": ["v1"]});
            items.push(json!({
                "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExport",
                "metadata": {"name": name, "namespace": contract},
                "spec": {"resources": [resource], "informerScope": "Namespaced", "isolation": "Prefixed"},
            }));
            let mut spec = Offer::new(case.name).crd()["spec"].clone();
            spec["group"] = json!(group);
            spec["informerScope"] = json!("Namespaced");
            items.push(json!({
                "apiVersion": "kube-bind.io/v1alpha2", "kind": "BoundSchema",
                "metadata": {"name": format!("widgets.{group}"), "namespace": contract}, "spec": spec,
            }));
        }
        plane
            .apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())
            .await?;
        for (name, group) in groups {
            case.plant_binding(name, &kubeconfig(&bound)?).await?;
            let crd_name = format!("widgets.{group}");
            case.refused_binding(
                name,
                "Connected",
                "ProtectedGroup",
                &[&crd_name, "never from a provider"],
            )
            .await?;
            ensure!(crd(case, &crd_name).await?.is_none());
        }
        Ok(())
    })
}
