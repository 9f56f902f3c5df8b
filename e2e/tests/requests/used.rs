//! What a response is for: its Secret goes to the consumer as it is, and a binding or a bundle takes it from there.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    Conditions as _, names,
    v1alpha2::{
        APIServiceBinding, APIServiceBindingBundle, APIServiceBindingBundleSpec, APIServiceBindingSpec,
        ClusterSecretKeyRef,
    },
};
use bindery_e2e::{Consumer, NAMESPACE, claiming, eventually_ok, offer::Offer, wildwest, wildwest::SOON};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    case::{Case, case, default_secret},
    response::{RESPONSE_KEY, text},
    world::World,
};

/// Brings the Secret of a response to the consumer, where its name is the team's.
async fn carry(case: &Case<'_>, consumer: &Consumer, request: &str) -> Result<ClusterSecretKeyRef> {
    let given = case.secrets().get(&default_secret(request)).await?;
    let mut secret = Secret {
        data: given.data,
        type_: given.type_,
        ..Secret::default()
    };
    secret.metadata.name = Some(case.name.to_owned());
    let secrets = Api::namespaced(consumer.plane.client(), NAMESPACE);
    secrets.create(&PostParams::default(), &secret).await?;
    Ok(ClusterSecretKeyRef {
        name: case.name.to_owned(),
        namespace: NAMESPACE.to_owned(),
        key: names::KUBECONFIG_KEY.to_owned(),
    })
}

/// Gives the konnector its rights on an API, as whoever binds does.
async fn give_rights(consumer: &Consumer, offer: Offer) -> Result<()> {
    let name = format!("kube-bind-konnector-{}", offer.name);
    let group = offer.group();
    let manifest = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [
                {
                    "apiGroups": [group], "resources": ["widgets"],
                    "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
                },
                {"apiGroups": [group], "resources": ["widgets/status"], "verbs": ["get", "patch", "update"]},
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "konnector"}],
        },
    ]});
    consumer.plane.apply(&manifest.to_string()).await
}

/// An object goes to the provider, and its status comes back.
async fn flows(case: &Case<'_>, consumer: &Consumer, offer: Offer) -> Result<()> {
    wildwest::namespace(consumer.plane.client(), case.name).await?;
    let ours: Api<DynamicObject> = Api::namespaced_with(consumer.plane.client(), case.name, &offer.resource());
    let place = names::provider_namespace(&case.contract(), case.name);
    let copies: Api<DynamicObject> = Api::namespaced_with(case.provider.plane.client(), &place, &offer.resource());
    // An API that has just come may be missed for a moment.
    eventually_ok("the wagon", SOON, async || {
        Ok(ours
            .create(&PostParams::default(), &offer.widget("wagon", "red"))
            .await?)
    })
    .await?;
    eventually_ok("a copy on the provider", SOON, async || {
        let copy = copies.get("wagon").await?;
        ensure!(copy.data["spec"]["color"] == "red", "{}", copy.data);
        Ok(())
    })
    .await?;
    let status = Patch::Merge(json!({"status": {"color": "faded"}}));
    copies.patch_status("wagon", &PatchParams::default(), &status).await?;
    eventually_ok("the status on the consumer", SOON, async || {
        let object = ours.get("wagon").await?;
        ensure!(object.data["status"]["color"] == "faded", "{}", object.data);
        Ok(())
    })
    .await
}

/// Waits until a binding is ready.
async fn bound(consumer: &Consumer, name: &str) -> Result<APIServiceBinding> {
    let bindings: Api<APIServiceBinding> = Api::all(consumer.plane.client());
    let bundles: Api<APIServiceBindingBundle> = Api::all(consumer.plane.client());
    eventually_ok(format!("binding {name} to be ready"), SOON, async || {
        let bundle = bundles.get_opt(name).await?;
        let said = bundle
            .map(|bundle| format!("{:?}", bundle.conditions()))
            .unwrap_or_default();
        let binding = bindings.get_opt(name).await?.with_context(|| said.clone())?;
        ensure!(binding.is_condition_true("Ready"), "{:?} {said}", binding.conditions());
        Ok(binding)
    })
    .await
}

/// Offers an API, asks for it and brings the response to the consumer.
async fn answered(world: &World, case: &Case<'_>) -> Result<(Offer, ClusterSecretKeyRef)> {
    let offer = case.offer().await?;
    case.apply(&case.request(case.name)).await?;
    case.succeeds(case.name).await?;
    give_rights(&world.consumer, offer).await?;
    Ok((offer, carry(case, &world.consumer, case.name).await?))
}

#[test]
fn a_response_is_bound_by_hand() -> Result<()> {
    case("by-hand", async |world, case| {
        let (offer, kubeconfig_secret_ref) = answered(world, case).await?;
        let spec = APIServiceBindingSpec {
            kubeconfig_secret_ref,
            ..APIServiceBindingSpec::default()
        };
        let bindings: Api<APIServiceBinding> = Api::all(world.consumer.plane.client());
        let binding = APIServiceBinding::new(case.name, spec);
        bindings.create(&PostParams::default(), &binding).await?;
        bound(&world.consumer, case.name).await?;
        flows(case, &world.consumer, offer).await
    })
}

#[test]
fn a_response_is_bound_by_a_bundle() -> Result<()> {
    case("by-bundle", async |world, case| {
        let (offer, kubeconfig_secret_ref) = answered(world, case).await?;
        let spec = APIServiceBindingBundleSpec {
            kubeconfig_secret_ref,
            ..APIServiceBindingBundleSpec::default()
        };
        let bundles: Api<APIServiceBindingBundle> = Api::all(world.consumer.plane.client());
        let bundle = APIServiceBindingBundle::new(case.name, spec);
        let bundle = bundles.create(&PostParams::default(), &bundle).await?;
        let binding = bound(&world.consumer, case.name).await?;
        let owner = binding.owner_references().first().context("no owner")?;
        ensure!(Some(&owner.uid) == bundle.uid().as_ref(), "{owner:?}");
        flows(case, &world.consumer, offer).await
    })
}

#[test]
fn a_response_with_claims_is_installed_from_its_secret_alone() -> Result<()> {
    case("by-rules", async |world, case| {
        let offer = Offer::new(case.name);
        claiming::publish(case.provider, offer).await?;
        case.apply(&case.request(case.name)).await?;
        case.succeeds(case.name).await?;
        let secret = case.secrets().get(&default_secret(case.name)).await?;
        let response: Value = serde_json::from_str(&text(&secret, RESPONSE_KEY)?)?;
        let kubeconfig = text(&secret, names::KUBECONFIG_KEY)?;
        claiming::install(&world.consumer, case.name, &kubeconfig, &response["consumerRules"]).await?;
        bound(&world.consumer, case.name).await?;
        claiming::is_synced(case.provider, &world.consumer, &case.contract(), offer).await
    })
}

#[test]
fn a_response_is_what_the_command_for_installing_takes() -> Result<()> {
    case("by-command", async |world, case| {
        let offer = case.offer().await?;
        case.apply(&case.request(case.name)).await?;
        case.succeeds(case.name).await?;
        let secret = default_secret(case.name);
        let given = case.kubectl(&["get", "secret", &secret, "--output=yaml"], "").await?;
        world.deploy(&["--filename=-", "--bundle", case.name], given).await?;
        bound(&world.consumer, case.name).await?;
        flows(case, &world.consumer, offer).await
    })
}
