//! Credentials that their owner took back.

use anyhow::{Context as _, Result, bail, ensure};
use bindery_api::{backend::Backend, holder::RecordedHolder, v1alpha2::ClusterBinding};
use bindery_e2e::{eventually, holds_for, wildwest};
use bindery_proto::v1alpha2::{ErrorReason, ListExportsRequest};
use bindery_sdk::{Client, Code, Renewed};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Config,
    api::{Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;

use crate::{
    expect::refused,
    world::{A_WHILE, Case, case},
};

/// The kubeconfig that a binding was made with.
async fn installed(case: &Case) -> Result<Kubeconfig> {
    let secrets: Api<Secret> = Api::namespaced(case.consumer().plane.client(), "kube-bind");
    let secret = secrets.get(&format!("kubeconfig-{}", case.name)).await?;
    let document = secret.data.and_then(|mut data| data.remove("kubeconfig"));
    Ok(serde_saphyr::from_slice(&document.context("a kubeconfig")?.0)?)
}

/// A client of the server that sends the token which a kubeconfig has for it.
fn binder(case: &Case, kubeconfig: &Kubeconfig) -> Result<Client> {
    let cluster = kubeconfig
        .clusters
        .first()
        .and_then(|named| named.cluster.as_ref())
        .context("a cluster")?;
    let backend = Backend::find(cluster.extensions.as_deref().unwrap_or_default())?;
    case.client(&backend.context("no extension")?.token)
}

/// Waits until the API server does not know the kubeconfig's token any more; it remembers good ones for seconds.
async fn refused_by_kubernetes(kubeconfig: Kubeconfig, contract: &str) -> Result<()> {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let namespaces: Api<Namespace> = Api::all(kube::Client::try_from(config)?);
    eventually("the token to be refused", wildwest::SOON, || async {
        match namespaces.get(contract).await {
            Err(kube::Error::Api(status)) if status.code == 401 => Ok(Some(())),
            Err(kube::Error::Api(status)) => bail!("{status}"),
            Err(error) => bail!("{error}"),
            Ok(_) => bail!("it still opens the contract"),
        }
    })
    .await
}

/// Checked: a new kubeconfig is refused at once.
async fn renews_nothing(binder: &Client) -> Result<()> {
    let Err(error) = binder.renew_kubeconfig("").await else {
        bail!("a revoked token was renewed");
    };
    let refusals = [ErrorReason::CredentialRevoked, ErrorReason::TokenInvalid];
    ensure!(
        error.reason().is_some_and(|reason| refusals.contains(&reason)),
        "{error:?}"
    );
    Ok(())
}

#[test]
fn revoked_credentials_open_nothing_until_the_owner_binds_again() -> Result<()> {
    case("withdrawn", async |case| {
        let offer = case.offer().await?;
        let owner = case.principal("withdrawn", &["withdrawn"]).await?;
        case.bind(&owner, &[]).await?;
        wildwest::namespace(case.consumer().plane.client(), "withdrawn").await?;
        let (ours, copies) = (case.ours(offer, "withdrawn"), case.copies(offer, "withdrawn"));
        ours.create(&PostParams::default(), &offer.widget("one", "red")).await?;
        wildwest::wait("the copy", &copies, "one", |_| true).await?;

        let kubeconfig = installed(case).await?;
        let binder = binder(case, &kubeconfig)?;
        binder.list_exports(ListExportsRequest::default()).await?;
        let revoked = owner.client.revoke_credentials(&case.contract(), "lost laptop").await?;
        ensure!(revoked.revoked_count >= 1, "{revoked:?}");
        let says = [case.contract(), "bind again".to_owned()];
        let says: Vec<&str> = says.iter().map(String::as_str).collect();
        // The answer to a token that was just checked is remembered for a moment; the record of the revocation is not.
        let outcome = binder.list_exports(ListExportsRequest::default()).await;
        refused(outcome, Code::Unauthenticated, ErrorReason::CredentialRevoked, &says)?;
        let outcome = binder.renew_kubeconfig("").await;
        refused(outcome, Code::Unauthenticated, ErrorReason::CredentialRevoked, &says)?;
        let outcome = owner.client.renew_kubeconfig(&case.contract()).await;
        refused(outcome, Code::FailedPrecondition, ErrorReason::RenewalStopped, &says)?;

        let says = ["kubectl bind renew withdrawn", "objects stay"];
        case.refused_binding("withdrawn", "SecretValid", "CredentialExpired", &says)
            .await?;
        refused_by_kubernetes(kubeconfig, &case.contract()).await?;
        let blue = Patch::Merge(json!({"spec": {"color": "blue"}}));
        ours.patch("one", &PatchParams::default(), &blue).await?;
        holds_for("nothing written", A_WHILE, async || {
            ensure!(copies.get("one").await?.data["spec"]["color"] == "red");
            Ok(())
        })
        .await?;

        let identity = case.identity();
        let renew = ["renew", "withdrawn", "--cluster-identity", &identity];
        case.consumer().bind(case.provider(), &owner.token, &renew).await?;
        wildwest::wait("the change", &copies, "one", |copy| {
            copy.data["spec"]["color"] == "blue"
        })
        .await?;
        // What was revoked stays so, from the very moment and for whatever lasts, also where its last check is remembered;
        // its successor works.
        renews_nothing(&binder).await?;
        case.ready_binding("withdrawn").await?;
        let successor = self::binder(case, &installed(case).await?)?;
        successor.list_exports(ListExportsRequest::default()).await?;
        eventually("the old token to be refused", wildwest::SOON, || async {
            let outcome = binder.list_exports(ListExportsRequest::default()).await;
            refused(
                outcome,
                Code::Unauthenticated,
                ErrorReason::TokenInvalid,
                &["refuses it"],
            )?;
            Ok(Some(()))
        })
        .await
    })
}

/// The record of the holder that the provider has of the case's contract.
async fn holder(case: &Case) -> Result<String> {
    let bindings: Api<ClusterBinding> = Api::namespaced(case.provider().plane.client(), &case.contract());
    let recorded = RecordedHolder::of(&bindings.get("cluster").await?);
    Ok(recorded.record.context("no record of a holder")?.to_string())
}

/// A client with the renewal token of a credential that was granted.
fn client_of(case: &Case, renewed: &Renewed) -> Result<Client> {
    let document = renewed.kubeconfig.clone().into_message().kubeconfig;
    binder(case, &serde_saphyr::from_slice(&document)?)
}

#[test]
fn a_token_that_is_used_again_locks_renewal_until_the_owner_binds_again() -> Result<()> {
    case("reused", async |case| {
        case.offer().await?;
        let owner = case.principal("reused", &["reused"]).await?;
        case.bind(&owner, &[]).await?;
        case.ready_binding("reused").await?;
        let contract = case.contract();
        let first = binder(case, &installed(case).await?)?;
        // A clone, whose record is not the provider's, gets nothing and locks nothing.
        let cloned = first.renew_kubeconfig_as_holder(&contract, "clone/1/x").await;
        refused(
            cloned,
            Code::Aborted,
            ErrorReason::ObjectChanged,
            &["kubectl bind accept"],
        )?;

        // A thief renews twice: the second time ends the token that the konnector has.
        let stolen = client_of(case, &first.renew_kubeconfig(&contract).await?)?;
        let stolen = client_of(case, &stolen.renew_kubeconfig(&contract).await?)?;
        let ended = first.renew_kubeconfig(&contract).await;
        refused(
            ended,
            Code::Unauthenticated,
            ErrorReason::CredentialRevoked,
            &[&contract],
        )?;
        let says = [contract.as_str(), "kubectl bind renew"];
        // A heartbeat may come between.
        eventually("the lock", wildwest::SOON, || async {
            let outcome = first.renew_kubeconfig_as_holder(&contract, &holder(case).await?).await;
            let error = outcome.err().context("a token that ended was renewed")?;
            Ok((error.reason() == Some(ErrorReason::RenewalLocked)).then_some(()))
        })
        .await?;
        let of_thief = stolen.renew_kubeconfig(&contract).await;
        refused(of_thief, Code::FailedPrecondition, ErrorReason::RenewalLocked, &says)?;
        let of_owner = owner.client.renew_kubeconfig(&contract).await;
        refused(of_owner, Code::FailedPrecondition, ErrorReason::RenewalLocked, &says)?;

        let identity = case.identity();
        let renew = ["renew", "reused", "--cluster-identity", &identity];
        case.consumer().bind(case.provider(), &owner.token, &renew).await?;
        case.ready_binding("reused").await?;
        let of_thief = stolen.renew_kubeconfig(&contract).await;
        refused(
            of_thief,
            Code::Unauthenticated,
            ErrorReason::CredentialRevoked,
            &[&contract],
        )?;
        let successor = binder(case, &installed(case).await?)?;
        ensure!(successor.renew_kubeconfig(&contract).await?.contract == contract);
        Ok(())
    })
}

#[test]
fn a_contract_that_is_transferred_is_lost_to_its_former_owner() -> Result<()> {
    case("transferred", async |case| {
        case.offer().await?;
        let squatter = case.principal("squatter", &["transferred"]).await?;
        let right = case.principal("right-owner", &["transferred"]).await?;
        let (identity, contract) = (case.identity(), case.contract());
        squatter.ask("transferred", &identity).await?;
        let says = ["kubectl bind provider transfer", contract.as_str()];
        let taken = right.ask("transferred", &identity).await;
        refused(taken, Code::PermissionDenied, ErrorReason::ClusterIdentityTaken, &says)?;

        let mut command = case.consumer().bind_command()?;
        command.args(["provider", "transfer", &contract, "--to", &right.username, "--yes"]);
        command
            .arg("--provider-kubeconfig")
            .arg(case.provider().plane.kubeconfig_path());
        let output = command.output()?;
        ensure!(output.status.success(), "{output:?}");
        eventually("the server to see it", wildwest::SOON, || async {
            let outcome = squatter.client.list_exports(ListExportsRequest::default()).await;
            Ok(outcome.is_ok_and(|exports| exports.is_empty()).then_some(()))
        })
        .await?;
        let denied = squatter.client.renew_kubeconfig(&contract).await;
        refused(
            denied,
            Code::PermissionDenied,
            ErrorReason::ContractDenied,
            &[&contract],
        )?;
        let lost = squatter.ask("transferred", &identity).await;
        refused(
            lost,
            Code::PermissionDenied,
            ErrorReason::ClusterIdentityTaken,
            &[&contract],
        )?;
        let revoked = right.client.renew_kubeconfig(&contract).await;
        refused(
            revoked,
            Code::FailedPrecondition,
            ErrorReason::RenewalStopped,
            &[&contract],
        )?;
        right.ask("transferred", &identity).await?;
        ensure!(right.client.renew_kubeconfig(&contract).await?.contract == contract);
        Ok(())
    })
}
