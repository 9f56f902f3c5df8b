//! A template with a claim that is installed by a program which knows the provider's answer and nothing else.

use anyhow::{Context as _, Result, ensure};
use bindery_api::names;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};

use crate::{
    Consumer, NAMESPACE, Provider, eventually_ok,
    offer::Offer,
    wildwest::{SOON, namespace},
};

/// Publishes an API whose template claims the Secrets with label `claims: yes`.
pub async fn publish(provider: &Provider, offer: Offer) -> Result<()> {
    let mut template = offer.template();
    let selector = json!({"labelSelector": {"matchLabels": {"claims": "yes"}}});
    template["spec"]["permissionClaims"] = json!([{"resource": "secrets", "selector": selector}]);
    offer.publish_template(provider, &template).await
}

/// Installs a binding with the kubeconfig and the rules of an answer, as they stand there.
pub async fn install(consumer: &Consumer, binding: &str, kubeconfig: &str, rules: &Value) -> Result<()> {
    ensure!(rules.is_array(), "the answer has no rules: {rules}");
    let name = names::konnector_cluster_role(binding);
    let secret = names::provider_kubeconfig_secret(binding);
    let reference = json!({"namespace": NAMESPACE, "name": secret, "key": names::KUBECONFIG_KEY});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": NAMESPACE},
            "stringData": {names::KUBECONFIG_KEY: kubeconfig},
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": rules,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "konnector"}],
        },
        {
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding", "metadata": {"name": binding},
            "spec": {"kubeconfigSecretRef": reference},
        },
    ]});
    consumer.plane.apply(&list.to_string()).await
}

/// Waits until an object is copied to the provider, and a claimed Secret in each direction.
pub async fn is_synced(provider: &Provider, consumer: &Consumer, contract: &str, offer: Offer) -> Result<()> {
    namespace(consumer.plane.client(), offer.name).await?;
    let namespace_there = names::provider_namespace(contract, offer.name);
    let widgets = |client: Client, namespace: &str| -> Api<DynamicObject> {
        Api::namespaced_with(client, namespace, &offer.resource())
    };
    let (ours, copies) = (
        widgets(consumer.plane.client(), offer.name),
        widgets(provider.plane.client(), &namespace_there),
    );
    eventually_ok("the API on the consumer", SOON, async || {
        Ok(ours
            .create(&PostParams::default(), &offer.widget("wagon", "red"))
            .await?)
    })
    .await?;
    eventually_ok("a copy on the provider", SOON, async || Ok(copies.get("wagon").await?)).await?;
    let (ours, theirs): (Api<Secret>, Api<Secret>) = (
        Api::namespaced(consumer.plane.client(), offer.name),
        Api::namespaced(provider.plane.client(), &namespace_there),
    );
    for (name, from, to) in [("from-consumer", &ours, &theirs), ("from-provider", &theirs, &ours)] {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"claims": "yes"}}, "stringData": {"a": "b"},
        }))?;
        from.create(&PostParams::default(), &secret).await?;
        eventually_ok(format!("a copy of Secret {name}"), SOON, async || {
            let copy = to.get(name).await?;
            let value = copy.data.as_ref().and_then(|data| data.get("a"));
            ensure!(value.context("no data")?.0 == b"b", "other data");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
