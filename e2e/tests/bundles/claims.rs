//! Claims: only those that the bundle covers take effect.

use anyhow::{Result, ensure};
use bindery_api::names;
use bindery_e2e::{
    bundle::{rights, tells},
    eventually_ok, holds_for,
    offer::Offer,
    wildwest::SOON,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, Resource, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    contract::{Contract, Credential},
    world::{A_WHILE, Case, case},
};

const CLAIMING: Offer = Offer { name: "claiming" };

/// A claim on the objects of a resource that [`create`] makes.
pub(crate) fn claim(resource: &str) -> Value {
    json!({"resource": resource, "selector": {"labelSelector": {"matchLabels": {"claims": "yes"}}}})
}

pub(crate) async fn only_the_claims_that_a_bundle_covers_take_effect() -> Result<()> {
    case("claims", async |case| {
        let contract = case.contract(&case.world.p, &[CLAIMING]).await?;
        let claims = json!([claim("configmaps"), claim("secrets")]);
        let credential = exported(case, &contract, CLAIMING, claims).await?;
        let role = rights("bundles-claims-claim", &[("", "configmaps"), ("", "secrets")]);
        case.world.consumer.plane.apply(&role.to_string()).await?;
        let bundle = case.bundle("");
        bundle.give(&credential.yaml()?).await?;

        // None accepted: the API is synced, and nothing else.
        bundle.apply(json!({})).await?;
        let pair = case.object(&contract, CLAIMING, "one").await?;
        let client = case.world.consumer.plane.client();
        create::<ConfigMap>(&client, case.name, json!({"data": {"a": "b"}})).await?;
        create::<Secret>(&client, case.name, json!({"stringData": {"a": "b"}})).await?;
        ensure!(bundle.accepted(CLAIMING.name).await? == json!([]));
        let mend = ["spec.acceptedClaims", "APIServiceBindingBundle claims"];
        bundle
            .binding_is(CLAIMING.name, "PermissionClaimsInSync", |found| {
                found.reason == "ClaimNotAccepted" && tells(&found.message, &mend).is_ok()
            })
            .await?;
        let (maps, secrets) = (copies::<ConfigMap>(case, &contract), copies::<Secret>(case, &contract));
        holds_for("nothing else to be copied", A_WHILE, async || {
            ensure!(maps.get_opt("claimed").await?.is_none(), "a ConfigMap was copied");
            ensure!(secrets.get_opt("claimed").await?.is_none(), "a Secret was copied");
            Ok(())
        })
        .await?;

        bundle.apply(json!({"acceptedClaims": [claim("configmaps")]})).await?;
        eventually_ok("the ConfigMap to be copied", SOON, async || {
            maps.get("claimed").await?;
            Ok(())
        })
        .await?;
        ensure!(bundle.accepted(CLAIMING.name).await? == json!([claim("configmaps")]));
        holds_for("no Secret to be copied", A_WHILE, async || {
            ensure!(secrets.get_opt("claimed").await?.is_none(), "a Secret was copied");
            Ok(())
        })
        .await?;
        pair.works("green").await?;

        // More than is claimed covers what is.
        let all = json!({"resource": "secrets", "selector": {"labelSelector": {}}});
        bundle
            .apply(json!({"acceptedClaims": [claim("configmaps"), all]}))
            .await?;
        eventually_ok("the Secret to be copied", SOON, async || {
            secrets.get("claimed").await?;
            Ok(())
        })
        .await?;
        bundle.binds(&[CLAIMING.name]).await?;

        // Taken back, it has no effect any more; the consumer's own is left alone.
        bundle.apply(json!({"acceptedClaims": [claim("secrets")]})).await?;
        eventually_ok("the binding to say it", SOON, async || {
            ensure!(bundle.accepted(CLAIMING.name).await? == json!([claim("secrets")]));
            Ok(())
        })
        .await?;
        let ours: Api<ConfigMap> = Api::namespaced(client, case.name);
        ensure!(ours.get("claimed").await?.metadata.deletion_timestamp.is_none());
        pair.works("blue").await
    })
    .await
}

/// Exports an API with these claims.
pub(crate) async fn exported(case: &Case, contract: &Contract, offer: Offer, claims: Value) -> Result<Credential> {
    let mut template = offer.template();
    template["spec"]["permissionClaims"] = claims;
    case.world.p.plane.apply(&template.to_string()).await?;
    offer.ready(&case.world.p).await?;
    // The server may see the template's change a moment later.
    eventually_ok("an export that claims", SOON, async || {
        let credential = contract.export(offer).await?;
        let export = contract.exports().get(offer.name).await?;
        ensure!(!export.spec.permission_claims.is_empty());
        Ok(credential)
    })
    .await
}

/// Creates the object that is claimed.
pub(crate) async fn create<K>(client: &Client, namespace: &str, mut content: Value) -> Result<()>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Serialize
        + DeserializeOwned
        + std::fmt::Debug,
{
    content["metadata"] = json!({"name": "claimed", "labels": {"claims": "yes"}});
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &serde_json::from_value(content)?)
        .await?;
    Ok(())
}

/// The copies of the objects of the case.
pub(crate) fn copies<K>(case: &Case, contract: &Contract) -> Api<K>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    let place = names::provider_namespace(&contract.namespace, case.name);
    Api::namespaced(case.world.p.plane.client(), &place)
}
