//! Secrets that tools of the consumer would believe, planted by a provider whose claims concern one namespace of the consumer; and the
//! rights that such claims leave to the konnector.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{names, v1alpha2::APIServiceBinding};
use bindery_e2e::{
    Process, eventually, holds_for, rights, run,
    wildwest::{self, SOON},
};
use k8s_openapi::api::{
    authorization::v1::ResourceAttributes,
    core::v1::Secret,
    rbac::v1::{ClusterRole, Role, RoleBinding},
};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};

use super::{A_WHILE, Ranch, claims::refused, secret};
use crate::offers::SADDLES;

/// The name of its ServiceAccount, as the API server knows the konnector.
const KONNECTOR: &str = "system:serviceaccount:kube-bind:konnector";
/// What makes a GitOps tool read a Secret.
const ARGO_LABEL: &str = "argocd.argoproj.io/secret-type";
const HELM_TYPE: &str = "helm.sh/release.v1";

fn ours(ranch: &Ranch, namespace: &str) -> Api<Secret> {
    Api::namespaced(ranch.consumer.plane.client(), namespace)
}

fn theirs(ranch: &Ranch, namespace: &str) -> Api<Secret> {
    Api::namespaced(ranch.provider.plane.client(), &Ranch::space(SADDLES, namespace))
}

async fn put(secrets: &Api<Secret>, secret: &Secret) -> Result<()> {
    secrets.create(&PostParams::default(), secret).await?;
    Ok(())
}

/// Tries to bind for a namespace that does not exist. Nothing is written.
async fn is_refused_for_a_missing_namespace(
    ranch: &Ranch,
    bind: impl AsyncFn(&[&str]) -> Result<String>,
) -> Result<()> {
    let refused = bind(&["west", "nowhere"]).await.err().context("it was bound")?;
    let told = refused.to_string();
    ensure!(told.contains("namespace nowhere does not exist"), "{told}");
    let client = ranch.consumer.plane.client();
    let bindings: Api<APIServiceBinding> = Api::all(client.clone());
    let roles: Api<ClusterRole> = Api::all(client);
    let role = names::konnector_cluster_role(SADDLES.name);
    ensure!(bindings.get_opt(SADDLES.name).await?.is_none() && roles.get_opt(&role).await?.is_none());
    Ok(())
}

/// Asks what the konnector may do with Secrets, and tries it as the konnector: all in `west`, and nothing anywhere else.
async fn has_rights_in_west_alone(ranch: &Ranch) -> Result<()> {
    let right = |verb: &str, namespace: &str| ResourceAttributes {
        namespace: Some(namespace.to_owned()),
        verb: Some(verb.to_owned()),
        resource: Some("secrets".to_owned()),
        ..ResourceAttributes::default()
    };
    let plane = &ranch.consumer.plane;
    for verb in ["get", "list", "watch", "create", "patch", "delete"] {
        rights::wait_until(plane, KONNECTOR, &right(verb, "west"), true).await?;
        for elsewhere in ["east", "default", "kube-system", ""] {
            rights::wait_until(plane, KONNECTOR, &right(verb, elsewhere), false).await?;
        }
    }
    let kubeconfig = Kubeconfig::read_from(ranch.consumer.konnector_kubeconfig())?;
    let konnector = Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?;
    let west: Api<Secret> = Api::namespaced(konnector.clone(), "west");
    west.list(&ListParams::default()).await?;
    ensure!(west.get("ours").await?.data.is_some());
    let everywhere: Api<Secret> = Api::all(konnector.clone());
    let east: Api<Secret> = Api::namespaced(konnector, "east");
    let outcomes = [
        everywhere.list(&ListParams::default()).await.err(),
        east.list(&ListParams::default()).await.err(),
        east.get("ours").await.err(),
    ];
    for outcome in outcomes {
        let is_forbidden = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 403);
        ensure!(outcome.as_ref().is_some_and(is_forbidden), "{outcome:?}");
    }
    Ok(())
}

/// Plants Secrets, of which one comes down as it is, one without the label that a tool looks for, and two do not come.
async fn plants(ranch: &Ranch) -> Result<()> {
    let (west, east) = (ours(ranch, "west"), ours(ranch, "east"));
    put(&theirs(ranch, "west"), &secret("gift", "Opaque", "horse")).await?;
    let mut repository = secret("repository", "Opaque", "git");
    repository
        .labels_mut()
        .insert(ARGO_LABEL.to_owned(), "repository".to_owned());
    put(&theirs(ranch, "west"), &repository).await?;
    put(
        &theirs(ranch, "west"),
        &secret("sh.helm.release.v1.shop.v1", HELM_TYPE, "release"),
    )
    .await?;
    put(&theirs(ranch, "east"), &secret("gift", "Opaque", "horse")).await?;
    for name in ["gift", "repository"] {
        let copy = eventually(format!("west/{name} to come down"), SOON, async || {
            Ok(west.get_opt(name).await?)
        })
        .await?;
        ensure!(
            copy.labels().get("ranch").is_some_and(|value| value == "open"),
            "{copy:?}"
        );
        ensure!(!copy.labels().contains_key(ARGO_LABEL), "{copy:?}");
    }
    refused(ranch, SADDLES, &["east/gift", "spec.claimNamespaces"]).await?;
    holds_for("the others to stay away", A_WHILE, async || {
        ensure!(east.get_opt("gift").await?.is_none());
        ensure!(west.get_opt("sh.helm.release.v1.shop.v1").await?.is_none());
        Ok(())
    })
    .await?;
    theirs(ranch, "east").delete("gift", &DeleteParams::default()).await?;
    refused(ranch, SADDLES, &["west/sh.helm.release.v1.shop.v1", HELM_TYPE]).await?;
    let planted = theirs(ranch, "west");
    planted
        .delete("sh.helm.release.v1.shop.v1", &DeleteParams::default())
        .await?;
    Ok(())
}

#[test]
fn claims_of_one_namespace_reach_no_other_and_bring_no_secret_that_a_tool_believes() -> Result<()> {
    run(async {
        let ranch = &Box::pin(Ranch::start_as("planter", "planted", &[SADDLES])).await?;
        let told = Box::pin(one_namespace(ranch)).await;
        told.with_context(|| {
            let processes = ranch.provider.servers.iter().chain(&ranch.consumer.konnectors);
            processes.map(Process::tail).collect::<Vec<_>>().join("\n")
        })
    })
}

async fn one_namespace(ranch: &Ranch) -> Result<()> {
    let client = ranch.consumer.plane.client();
    for namespace in ["west", "east"] {
        wildwest::namespace(client.clone(), namespace).await?;
        put(&ours(ranch, namespace), &secret("ours", "Opaque", "hush")).await?;
    }
    let token = ranch.provider.principal("planters-client", &[SADDLES.name]).await?;
    let identity = format!("cluster-of-{}", SADDLES.name);
    let bind_with = async |namespaces: &[&str], wait: &str| {
        let mut args = vec![SADDLES.name, "--cluster-identity", &identity, wait];
        args.extend(namespaces.iter().flat_map(|namespace| ["--claim-namespace", namespace]));
        ranch.consumer.bind(&ranch.provider, &token, &args).await
    };
    let bind = async |namespaces: &[&str]| bind_with(namespaces, "--wait").await;
    // While the provider has an object that does not come down, the binding is not ready.
    let rebind = async |namespaces: &[&str]| bind_with(namespaces, "--wait=false").await;
    is_refused_for_a_missing_namespace(ranch, &bind).await?;
    bind(&["west"]).await?;
    has_rights_in_west_alone(ranch).await?;
    for namespace in ["west", "east"] {
        ranch.create(SADDLES, namespace, "first").await?;
    }
    eventually("our Secret of west to go up", SOON, async || {
        Ok(theirs(ranch, "west").get_opt("ours").await?)
    })
    .await?;
    plants(ranch).await?;
    ensure!(
        theirs(ranch, "east").get_opt("ours").await?.is_none(),
        "it went up from east"
    );

    // A second namespace, and then the first alone again: what came to the second goes, and its rights with the next bind.
    rebind(&["east", "west"]).await?;
    eventually("our Secret of east to go up", SOON, async || {
        Ok(theirs(ranch, "east").get_opt("ours").await?)
    })
    .await?;
    put(&theirs(ranch, "east"), &secret("later", "Opaque", "horse")).await?;
    eventually("east/later to come down", SOON, async || {
        Ok(ours(ranch, "east").get_opt("later").await?)
    })
    .await?;
    rebind(&["west"]).await?;
    eventually("the copies of east to go", SOON, async || {
        let up = theirs(ranch, "east").get_opt("ours").await?;
        let down = ours(ranch, "east").get_opt("later").await?;
        let bindings: Api<APIServiceBinding> = Api::all(client.clone());
        let status = bindings.get(SADDLES.name).await?.status;
        let listed = status.map(|status| status.claim_namespaces);
        Ok((up.is_none() && down.is_none() && listed == Some(vec!["west".to_owned()])).then_some(()))
    })
    .await?;
    ensure!(ours(ranch, "east").get_opt("ours").await?.is_some(), "our own Secret");
    ensure!(
        theirs(ranch, "east").get_opt("later").await?.is_some(),
        "the provider's own Secret"
    );
    rebind(&["west"]).await?;
    has_rights_in_west_alone(ranch).await?;

    // The konnector takes its rights away itself.
    let mut unbind = ranch.consumer.bind_command()?;
    unbind.args(["unbind", SADDLES.name, "--delete-objects", "--yes", "--wait=false"]);
    let output = tokio::process::Command::from(unbind).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let role = names::konnector_cluster_role(SADDLES.name);
    eventually("the roles to go", SOON, async || {
        let roles: Api<Role> = Api::namespaced(client.clone(), "west");
        let grants: Api<RoleBinding> = Api::namespaced(client.clone(), "west");
        let wide: Api<ClusterRole> = Api::all(client.clone());
        let left = (
            roles.get_opt(&role).await?.is_some(),
            grants.get_opt(&role).await?.is_some(),
        );
        Ok((left == (false, false) && wide.get_opt(&role).await?.is_none()).then_some(()))
    })
    .await?;
    ensure!(ours(ranch, "west").get_opt("gift").await?.is_none(), "a copy was left");
    ensure!(ours(ranch, "west").get_opt("ours").await?.is_some(), "our own Secret");
    Ok(())
}
