//! A provider changes its CRD under those who bound it: what follows, what stays, and where it is said.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{Condition, Conditions as _, annotations, hash, v1alpha2 as api};
use bindery_e2e::{eventually, holds_for, wildwest};
use bindery_proto::v1alpha2::DeleteExportRequest;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    expect::tells,
    offer::Offer,
    world::{A_WHILE, Case, case},
};

const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";

/// The fields of a widget's spec in the first version, from now on.
async fn offer_spec(case: &Case, offer: Offer, properties: Value) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(case.provider().plane.client());
    let mut crd = json!(definitions.get(&offer.crd_name()).await?);
    *crd.pointer_mut(&format!("{SPEC}/properties")).context("a schema")? = properties;
    change(
        case,
        offer,
        &Patch::Merge(json!({"spec": {"versions": crd["spec"]["versions"]}})),
    )
    .await
}

async fn change(case: &Case, offer: Offer, patch: &Patch<Value>) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(case.provider().plane.client());
    definitions
        .patch(&offer.crd_name(), &PatchParams::default(), patch)
        .await?;
    Ok(())
}

fn policy(name: &str, offer: Offer, policy: &str, versions: &[&str]) -> Value {
    let mut template = offer.template();
    template["metadata"]["name"] = json!(name);
    template["spec"]["schemaUpdatePolicy"] = json!(policy);
    template["spec"]["resources"][0]["versions"] = json!(versions);
    template
}

/// Waits until the export says this of its schemas.
async fn export_says(case: &Case, name: &str, wanted: (bool, &str), says: &[&str]) -> Result<Condition> {
    let exports: Api<api::APIServiceExport> = Api::namespaced(case.provider().plane.client(), &case.contract());
    eventually(format!("export {name} to say {wanted:?}"), wildwest::SOON, || async {
        let export = exports.get(name).await?;
        let said = export.condition("SchemaInSync").context("no condition SchemaInSync")?;
        ensure!((said.is_true(), said.reason.as_str()) == wanted, "{said:?}");
        tells(&said.message, says)?;
        ensure!(export.is_condition_true("ProviderInSync"), "{:?}", export.conditions());
        Ok(Some(said.clone()))
    })
    .await
}

async fn schema(case: &Case, offer: Offer) -> Result<api::BoundSchema> {
    let schemas: Api<api::BoundSchema> = Api::namespaced(case.provider().plane.client(), &case.contract());
    Ok(schemas.get(&offer.crd_name()).await?)
}

async fn installed(case: &Case, offer: Offer) -> Result<CustomResourceDefinition> {
    let definitions: Api<CustomResourceDefinition> = Api::all(case.consumer().plane.client());
    Ok(definitions.get(&offer.crd_name()).await?)
}

fn spec_of(crd: &CustomResourceDefinition) -> Result<Value> {
    Ok(json!(crd).pointer(SPEC).context("a schema")?.clone())
}

/// Waits until the consumer's CRD has, or has not, a field of the spec.
async fn installs(case: &Case, offer: Offer, field: &str) -> Result<()> {
    let what = format!("the consumer's CRD to have {field}");
    eventually(what, wildwest::SOON, || async {
        let spec = spec_of(&installed(case, offer).await?)?;
        ensure!(spec["properties"].get(field).is_some(), "{spec}");
        Ok(Some(()))
    })
    .await
}

/// Neither the schema nor the consumer's CRD changes for a while.
async fn nothing_follows(case: &Case, offer: Offer) -> Result<()> {
    let (schema_before, crd_before) = (schema(case, offer).await?, installed(case, offer).await?);
    holds_for("schema and CRD as they were", A_WHILE, async || {
        ensure!(
            schema(case, offer).await?.spec == schema_before.spec,
            "the schema changed"
        );
        ensure!(installed(case, offer).await?.spec == crd_before.spec, "the CRD changed");
        Ok(())
    })
    .await
}

/// The objects of a case, which go on being synced whatever becomes of the schema.
struct Widgets {
    offer: Offer,
    ours: Api<DynamicObject>,
    copies: Api<DynamicObject>,
}

impl Widgets {
    async fn of(case: &Case, offer: Offer) -> Result<Self> {
        wildwest::namespace(case.consumer().plane.client(), case.name).await?;
        Ok(Self {
            offer,
            ours: case.ours(offer, case.name),
            copies: case.copies(offer, case.name),
        })
    }

    async fn syncs(&self, name: &str, spec: Value) -> Result<()> {
        let object = DynamicObject::new(name, &self.offer.resource()).data(json!({"spec": spec}));
        // An API server takes a moment to serve the CRD that it has.
        let params = PatchParams::apply("user").validation_strict();
        let what = format!("{name} to be taken with {spec}");
        eventually(what, wildwest::SOON, || async {
            self.ours.patch(name, &params, &Patch::Apply(&object)).await?;
            Ok(Some(()))
        })
        .await?;
        let what = format!("the copy of {name} with {spec}");
        eventually(what, wildwest::SOON, || async {
            let copy = self.copies.get_opt(name).await?;
            ensure!(
                copy.as_ref().is_some_and(|copy| copy.data["spec"] == spec),
                "{copy:?}; of {:?}",
                self.ours.get(name).await?
            );
            Ok(Some(()))
        })
        .await
    }
}

#[test]
fn a_compatible_change_arrives_and_an_incompatible_one_is_refused_and_shown() -> Result<()> {
    case("follows", async |case| {
        let offer = case.offer().await?;
        let template = policy("follows", offer, "Always", &["v1"]);
        case.provider().plane.apply(&template.to_string()).await?;
        let principal = case.principal("follows", &["follows"]).await?;
        case.bind(&principal, &[]).await?;
        let widgets = Widgets::of(case, offer).await?;
        widgets.syncs("before", json!({"color": "red"})).await?;
        export_says(case, "follows", (true, ""), &[]).await?;

        let (text, number) = (
            json!({"type": "string", "maxLength": 20}),
            json!({"type": "integer", "maximum": 10}),
        );
        offer_spec(case, offer, json!({"color": {"type": "string"}, "size": number})).await?;
        installs(case, offer, "size").await?;
        widgets.syncs("sized", json!({"color": "red", "size": 3})).await?;
        export_says(case, "follows", (true, ""), &[]).await?;
        let bound = schema(case, offer).await?;
        let hash = bound.annotations().get(annotations::SOURCE_SPEC_HASH);
        ensure!(hash == Some(&hash::schema_hash(&bound.spec)), "{hash:?}");
        // Nothing more is written once it is there.
        holds_for("the schema as it is", A_WHILE, async || {
            let now = schema(case, offer).await?;
            ensure!(
                now.metadata.resource_version == bound.metadata.resource_version,
                "{now:?}"
            );
            Ok(())
        })
        .await?;

        // Fewer values are allowed, and one field is gone.
        offer_spec(case, offer, json!({"color": text})).await?;
        let says = [
            offer.crd_name(),
            "v1: spec.color: maxLength 20 added, and one more change".to_owned(),
            "unbind and bind again".to_owned(),
        ];
        let says: Vec<_> = says.iter().map(String::as_str).collect();
        export_says(case, "follows", (false, "IncompatibleSchema"), &says).await?;
        case.refused_binding("follows", "SchemaInSync", "IncompatibleSchema", &says)
            .await?;
        nothing_follows(case, offer).await?;
        widgets.syncs("after", json!({"color": "blue"})).await?;

        offer_spec(case, offer, json!({"color": {"type": "string"}, "size": number})).await?;
        export_says(case, "follows", (true, ""), &[]).await?;
        case.ready_binding("follows").await?;

        // One that is not offered any more is said too, and goes on.
        let label = |value: Value| Patch::Merge(json!({"metadata": {"labels": {"kube-bind.io/exported": value}}}));
        change(case, offer, &label(Value::Null)).await?;
        let name = offer.crd_name();
        export_says(
            case,
            "follows",
            (false, "SchemaNotFound"),
            &[&name, "stays as it was bound"],
        )
        .await?;
        widgets.syncs("unoffered", json!({"color": "green"})).await?;
        change(case, offer, &label(json!("true"))).await?;
        export_says(case, "follows", (true, ""), &[]).await?;
        case.ready_binding("follows").await
    })
}

#[test]
fn a_schema_that_is_never_updated_stays_until_it_is_bound_again() -> Result<()> {
    case("stays", async |case| {
        let offer = case.offer().await?;
        let principal = case.principal("stays", &["stays"]).await?;
        case.bind(&principal, &[]).await?;
        let widgets = Widgets::of(case, offer).await?;
        widgets.syncs("before", json!({"color": "red"})).await?;
        export_says(case, "stays", (true, ""), &[]).await?;
        offer_spec(
            case,
            offer,
            json!({"color": {"type": "string"}, "size": {"type": "integer"}}),
        )
        .await?;
        let says = [
            &*offer.crd_name(),
            "schemaUpdatePolicy Never of export stays",
            "bind again",
        ];
        let said = export_says(case, "stays", (false, "SchemaChanged"), &says).await?;
        ensure!(said.severity == bindery_api::Severity::Info, "{said:?}");
        nothing_follows(case, offer).await?;
        case.ready_binding("stays").await?;
        widgets.syncs("after", json!({"color": "blue"})).await?;

        // Another policy of the template is taken by binding again, and no sooner.
        let follows = policy("stays", offer, "Always", &["v1"]);
        case.provider().plane.apply(&follows.to_string()).await?;
        nothing_follows(case, offer).await?;
        case.bind(&principal, &[]).await?;
        installs(case, offer, "size").await?;
        export_says(case, "stays", (true, ""), &[]).await?;
        widgets.syncs("sized", json!({"color": "blue", "size": 3})).await
    })
}

#[test]
fn a_shared_schema_follows_when_none_of_its_exports_keeps_it() -> Result<()> {
    case("shared", async |case| {
        let offer = case.offer().await?;
        let plane = &case.provider().plane;
        let keeper = policy("shared-keeper", offer, "Never", &["v1"]);
        let list =
            json!({"apiVersion": "v1", "kind": "List", "items": [policy("shared", offer, "Always", &["v1"]), keeper]});
        plane.apply(&list.to_string()).await?;
        let principal = case.principal("shared", &["shared", "shared-keeper"]).await?;
        for name in ["shared", "shared-keeper"] {
            principal.bind(name, &case.identity()).await?;
        }
        offer_spec(
            case,
            offer,
            json!({"color": {"type": "string"}, "size": {"type": "integer"}}),
        )
        .await?;
        for name in ["shared", "shared-keeper"] {
            export_says(case, name, (false, "SchemaChanged"), &["Never of export shared-keeper"]).await?;
        }
        let export = principal.client.get_export("", "shared-keeper").await?;
        let delete = DeleteExportRequest {
            name: "shared-keeper".to_owned(),
            uid: export.metadata.context("metadata")?.uid,
            ..DeleteExportRequest::default()
        };
        principal.client.delete_export(delete).await?;
        export_says(case, "shared", (true, ""), &[]).await?;
        let spec = serde_json::to_value(schema(case, offer).await?.spec)?;
        let spec = spec.pointer(SPEC.trim_start_matches("/spec")).context("a schema")?;
        ensure!(spec["properties"]["size"]["type"] == "integer", "{spec}");
        Ok(())
    })
}

#[test]
fn a_crd_that_a_webhook_converts_is_offered_without_it_and_may_not_begin_to() -> Result<()> {
    case("converts", async |case| {
        let offer = Offer::new(case.name);
        let versions = |count: usize| -> Value {
            let first = offer.crd()["spec"]["versions"][0].clone();
            let names = ["v1", "v2"].iter().take(count);
            names
                .map(|name| {
                    let mut version = first.clone();
                    version["name"] = json!(name);
                    version["storage"] = json!(*name == "v1");
                    version
                })
                .collect()
        };
        let both = Patch::Merge(json!({"spec": {"versions": versions(2)}}));
        let webhook = json!({
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/convert"},
        });
        let converts = |strategy: &str, webhook: Value| {
            Patch::Merge(json!({"spec": {"conversion": {"strategy": strategy, "webhook": webhook}}}))
        };
        offer.publish(case.provider()).await?;
        change(case, offer, &both).await?;
        change(case, offer, &converts("Webhook", webhook.clone())).await?;
        let template = policy("converts", offer, "Always", &[]);
        case.provider().plane.apply(&template.to_string()).await?;
        offer.ready(case.provider()).await?;
        let principal = case.principal("converts", &["converts"]).await?;
        case.bind(&principal, &[]).await?;
        let served = async || -> Result<Vec<String>> {
            let crd = installed(case, offer).await?;
            let conversion = crd.spec.conversion.context("a conversion")?;
            ensure!(
                conversion.strategy == "None" && conversion.webhook.is_none(),
                "{conversion:?}"
            );
            Ok(crd.spec.versions.into_iter().map(|version| version.name).collect())
        };
        ensure!(served().await? == ["v1"], "{:?}", served().await?);
        let widgets = Widgets::of(case, offer).await?;
        widgets.syncs("one", json!({"color": "red"})).await?;

        // Without the webhook there is one version more, which the webhook would take away again.
        change(case, offer, &converts("None", Value::Null)).await?;
        eventually("v2 on the consumer", wildwest::SOON, || async {
            let served = served().await?;
            ensure!(served == ["v1", "v2"], "{served:?}");
            Ok(Some(()))
        })
        .await?;
        export_says(case, "converts", (true, ""), &[]).await?;
        change(case, offer, &converts("Webhook", webhook)).await?;
        let says = [&*offer.crd_name(), "v2: version is no longer offered"];
        export_says(case, "converts", (false, "IncompatibleSchema"), &says).await?;
        case.refused_binding("converts", "SchemaInSync", "IncompatibleSchema", &says)
            .await?;
        nothing_follows(case, offer).await?;
        widgets.syncs("two", json!({"color": "blue"})).await
    })
}
