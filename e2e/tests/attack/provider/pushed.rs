//! Objects that a provider would push down by a claim that was accepted: those that it may, and all others.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{annotations, labels, v1alpha2 as api};
use bindery_e2e::{eventually, holds_for, wildwest::SOON};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{A_WHILE, HATS, Ranch, betray, secret};

const TOKEN: &str = "kubernetes.io/service-account-token";
const OPAQUE: &str = "Opaque";

/// A Secret of the provider's in the provider namespace of one of the consumer's.
async fn plant(ranch: &Ranch, namespace: &str, planted: &Secret) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(ranch.provider.plane.client(), namespace);
    secrets
        .create(&PostParams::default(), planted)
        .await
        .with_context(|| format!("{namespace}: {planted:?}"))?;
    Ok(())
}

/// A Secret that no claim selects.
fn unlabelled(name: &str, text: &str) -> Secret {
    let mut secret = secret(name, OPAQUE, text);
    secret.metadata.labels = None;
    secret
}

/// The consumer's Secrets.
fn ours(ranch: &Ranch, namespace: &str) -> Api<Secret> {
    Api::namespaced(ranch.consumer.plane.client(), namespace)
}

async fn arrives(ranch: &Ranch, name: &str) -> Result<Secret> {
    let ours = ours(ranch, HATS.name);
    eventually(format!("Secret {name} to arrive"), SOON, || async {
        Ok(ours.get_opt(name).await?)
    })
    .await
}

/// What a cluster puts into each of its namespaces; nobody does so here.
async fn root_certificates(client: Client, namespace: &str, text: &str) -> Result<()> {
    let mut map = ConfigMap {
        data: Some([("ca.crt".to_owned(), text.to_owned())].into()),
        ..ConfigMap::default()
    };
    map.metadata.name = Some("kube-root-ca.crt".to_owned());
    Api::namespaced(client, namespace)
        .create(&PostParams::default(), &map)
        .await?;
    Ok(())
}

/// Has the server map a namespace that the consumer never asked for.
async fn plant_mapping(ranch: &Ranch, name: &str) -> Result<()> {
    let client = ranch.provider.plane.client();
    let namespaces: Api<api::APIServiceNamespace> = Api::namespaced(client, &Ranch::contract(HATS));
    let mut planted = api::APIServiceNamespace::new(name, api::APIServiceNamespaceSpec {});
    // So that no konnector gives it back.
    planted.metadata.labels = Some([(labels::OWNER.to_owned(), "provider".to_owned())].into());
    if namespaces.get_opt(name).await?.is_none() {
        namespaces.create(&PostParams::default(), &planted).await?;
    }
    eventually(format!("a provider namespace for {name}"), SOON, || async {
        Ok(namespaces.get(name).await?.status.and_then(|status| status.namespace))
    })
    .await?;
    Ok(())
}

/// All that a provider could think of to push, beside what it may.
async fn plant_all(ranch: &Ranch, unrelated: &str) -> Result<()> {
    let space = Ranch::space(HATS, HATS.name);
    let mut token = secret("token", TOKEN, "x");
    token.metadata.annotations = Some([("kubernetes.io/service-account.name".to_owned(), "default".to_owned())].into());
    // It says that it is the copy of a Secret of the consumer's with another name.
    let mut forged = secret("forged", OPAQUE, "x");
    let marks = [
        (annotations::CLUSTER_NAMESPACE, Ranch::contract(HATS)),
        (annotations::CONSUMER_NAMESPACE, HATS.name.to_owned()),
        (annotations::CONSUMER_UID, unrelated.to_owned()),
        (annotations::CONSUMER_NAME, "unrelated".to_owned()),
    ];
    forged.metadata.annotations = Some(marks.map(|(key, value)| (key.to_owned(), value)).into());
    forged
        .metadata
        .labels
        .get_or_insert_default()
        .insert(labels::OWNER.to_owned(), "consumer".to_owned());
    for planted in [
        &token,
        &unlabelled("unlabelled", "x"),
        &forged,
        &secret("mine", OPAQUE, "overwritten"),
    ] {
        plant(ranch, &space, planted).await?;
    }
    for namespace in ["kube-system", "kube-bind", "ghost-town"] {
        plant_mapping(ranch, namespace).await?;
        plant(ranch, &Ranch::space(HATS, namespace), &secret("gift", OPAQUE, "x")).await?;
    }
    // Beside the consumer's namespaces.
    plant(ranch, "default", &secret("gift-of-default", OPAQUE, "x")).await?;
    plant(ranch, &Ranch::contract(HATS), &secret("gift-of-contract", OPAQUE, "x")).await?;
    // What every namespace has of its own.
    let client = ranch.provider.plane.client();
    let label = Patch::Merge(json!({"metadata": {"labels": {"ranch": "open", "planted": "yes"}}}));
    root_certificates(client.clone(), &space, "forged").await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &space);
    maps.patch("kube-root-ca.crt", &PatchParams::default(), &label).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client, &space);
    accounts.patch("default", &PatchParams::default(), &label).await?;
    Ok(())
}

#[test]
fn a_provider_pushes_what_was_accepted_and_nothing_else() -> Result<()> {
    betray(async |ranch| {
        ranch.bind(HATS, &[]).await?;
        ranch.create(HATS, HATS.name, "first").await?;
        let create = PostParams::default();
        root_certificates(ranch.consumer.plane.client(), HATS.name, "own").await?;
        let mine = ours(ranch, HATS.name)
            .create(&create, &unlabelled("mine", "mine"))
            .await?;
        let unrelated = unlabelled("unrelated", "mine");
        let unrelated = ours(ranch, HATS.name).create(&create, &unrelated).await?;
        // The konnector's own credentials are nobody's to share, though a selector reaches them.
        let label = Patch::Merge(json!({"metadata": {"labels": {"ranch": "open"}}}));
        ours(ranch, "kube-bind")
            .patch("kubeconfig-hats", &PatchParams::default(), &label)
            .await?;
        let credentials = ours(ranch, "kube-bind").list(&ListParams::default()).await?;

        // An accepted claim works, and takes nothing along that ties an object to its cluster.
        let mut gift = secret("gift", OPAQUE, "x");
        gift.metadata.finalizers = Some(vec!["wildwest.dev/stays".to_owned()]);
        plant(ranch, &Ranch::space(HATS, HATS.name), &gift).await?;
        let copy = arrives(ranch, "gift").await?;
        ensure!(
            copy.finalizers().is_empty() && copy.owner_references().is_empty(),
            "{copy:?}"
        );

        plant_all(ranch, &unrelated.uid().context("a UID")?).await?;
        plant(ranch, &Ranch::space(HATS, HATS.name), &secret("gift-2", OPAQUE, "x")).await?;
        arrives(ranch, "gift-2").await?;
        ranch.round_trip(HATS, HATS.name, "last").await?;

        let everywhere: Api<Secret> = Api::all(ranch.consumer.plane.client());
        let namespaces: Api<Namespace> = Api::all(ranch.consumer.plane.client());
        holds_for("nothing else to arrive", A_WHILE, async || {
            let names: Vec<_> = ours(ranch, HATS.name)
                .list(&ListParams::default())
                .await?
                .iter()
                .map(ResourceExt::name_any)
                .collect();
            ensure!(names == ["gift", "gift-2", "mine", "unrelated"], "{names:?}");
            for was in [&mine, &unrelated] {
                let now = ours(ranch, HATS.name).get(&was.name_any()).await?;
                ensure!(
                    (now.uid(), &now.data) == (was.uid(), &was.data),
                    "{}: {now:?}",
                    was.name_any()
                );
            }
            for secret in everywhere.list(&ListParams::default()).await? {
                let namespace = secret.namespace().unwrap_or_default();
                let gift = secret.name_any().starts_with("gift") && namespace != HATS.name;
                ensure!(!gift, "{namespace}/{}", secret.name_any());
            }
            let known: Vec<_> = credentials.iter().map(ResourceExt::uid).collect();
            let lost = ours(ranch, "kube-bind").list(&ListParams::default()).await?;
            ensure!(
                known.iter().all(|uid| lost.iter().any(|now| now.uid() == *uid)),
                "credentials are gone"
            );
            ensure!(namespaces.get_opt("ghost-town").await?.is_none());
            Ok(())
        })
        .await?;
        nothing_of_every_namespace(ranch).await?;
        nothing_of_the_system_is_taken(ranch).await
    })
}

/// What each namespace has of its own stays as it is on the consumer.
async fn nothing_of_every_namespace(ranch: &Ranch) -> Result<()> {
    let client = ranch.consumer.plane.client();
    let map = Api::<ConfigMap>::namespaced(client.clone(), HATS.name)
        .get("kube-root-ca.crt")
        .await?;
    let account = Api::<ServiceAccount>::namespaced(client, HATS.name)
        .get("default")
        .await?;
    ensure!(map.data.is_some_and(|data| data["ca.crt"] == "own"));
    for labels in [&map.metadata.labels, &account.metadata.labels].into_iter().flatten() {
        ensure!(!labels.contains_key("planted"), "{labels:?}");
    }
    Ok(())
}

/// The consumer's own namespaces are nobody's to claim from, though the provider has them mapped.
async fn nothing_of_the_system_is_taken(ranch: &Ranch) -> Result<()> {
    for namespace in ["kube-system", "kube-bind"] {
        let secrets: Api<Secret> = Api::namespaced(ranch.provider.plane.client(), &Ranch::space(HATS, namespace));
        let names: Vec<_> = secrets
            .list(&ListParams::default())
            .await?
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        ensure!(names == ["gift"], "{namespace}: {names:?}");
    }
    Ok(())
}
