//! A server without certificate files: it makes a CA, keeps it in a Secret, and never loses it while a replica runs.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_e2e::{
    Consumer, Provider, TLS_SECRET,
    bound::{Bound, free_lease},
    eventually_ok, holds_for, http, lease, run,
    wildwest::SOON,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::peer::{secrets, served, stored};

#[test]
fn a_server_makes_its_ca_and_keeps_it() -> Result<()> {
    run(async {
        let (provider, consumer) = tokio::try_join!(
            Provider::start_managed("tls-p", &lease::PATIENT),
            Consumer::start_with("tls-c", &lease::PATIENT)
        )?;
        let mut bound = Bound::between(provider, consumer).await?;
        // `kubectl bind` trusts the server by the CA that its admin reads from the Secret.
        bound.bind(&["cowboys"]).await?;
        bound.create(["billy".to_owned()]).await?;
        bound.converged().await?;
        let ca = bound.provider.fetch_ca().await?;
        the_konnector_gets_the_ca(&bound, &ca).await?;
        all_names_are_served(&bound.provider, &ca).await?;
        expiry_is_measured(&bound.provider).await?;

        a_restart_changes_nothing(&mut bound.provider, &ca).await?;
        let earlier = secrets(&bound.provider).get(TLS_SECRET).await?;
        replicas_that_begin_together_agree(&mut bound.provider).await?;
        let ca = bound.provider.fetch_ca().await?;
        what_was_deleted_is_written_back(&bound.provider, &ca).await?;
        what_was_put_back_joins_what_is_served(&bound.provider, &earlier, &ca).await?;
        let ca = bound.provider.fetch_ca().await?;
        what_was_damaged_is_told_of(&mut bound.provider, &ca).await?;
        what_is_not_ours_is_left_alone(&bound.provider, &ca).await
    })
}

async fn the_konnector_gets_the_ca(bound: &Bound, ca: &str) -> Result<()> {
    let kubeconfigs = bound.kubeconfigs().await?;
    let data = kubeconfigs.first().and_then(|secret| secret.data.as_ref());
    let kubeconfig = data.and_then(|data| data.get("kubeconfig")).context("no kubeconfig")?;
    let text = String::from_utf8(kubeconfig.0.clone())?;
    ensure!(text.contains(&STANDARD.encode(ca)), "the CA is not in {text}");
    streams(&bound.provider).await
}

/// Waits until the konnector has opened its stream at the server.
pub(crate) async fn streams(provider: &Provider) -> Result<()> {
    eventually_ok("the konnector's stream", SOON, async || {
        let (_, text) = http::get(provider.admin_port(), "/metrics").await?;
        let mut streams = text.lines().filter(|line| line.starts_with("bindery_grpc_streams{"));
        let open = streams.find(|line| line.contains("WatchExports\""));
        ensure!(open.is_some_and(|line| line.ends_with(" 1")), "{open:?}");
        Ok(())
    })
    .await
}

async fn all_names_are_served(provider: &Provider, ca: &str) -> Result<()> {
    for name in [
        "127.0.0.1",
        "localhost",
        "bindery-server.kube-bind.svc",
        "bindery-server.kube-bind.svc.cluster.local",
    ] {
        served(&provider.address(), name, ca).await.context(name)?;
    }
    ensure!(served(&provider.address(), "elsewhere.example.com", ca).await.is_err());
    ensure!(
        served(&provider.address(), "localhost", &provider.plane.ca_pem())
            .await
            .is_err()
    );
    Ok(())
}

async fn expiry_is_measured(provider: &Provider) -> Result<()> {
    let (_, text) = http::get(provider.admin_port(), "/metrics").await?;
    for (certificate, days) in [("serving", 90), ("ca", 3650)] {
        let name = format!("bindery_tls_expires_in_seconds{{certificate=\"{certificate}\"}} ");
        let left = text
            .lines()
            .find_map(|line| line.strip_prefix(&name))
            .context(name.clone())?;
        let left: i64 = left.parse()?;
        let all = days * 24 * 3600;
        ensure!((all - 3600..=all).contains(&left), "{name} {left}");
    }
    Ok(())
}

async fn a_restart_changes_nothing(provider: &mut Provider, ca: &str) -> Result<()> {
    let before = secrets(provider).get(TLS_SECRET).await?;
    let certificate = served(&provider.address(), "localhost", ca).await?;
    provider.servers[0].terminate(SOON).await?;
    provider.restart_server().await?;
    ensure!(served(&provider.address(), "localhost", ca).await? == certificate);
    let after = secrets(provider).get(TLS_SECRET).await?;
    ensure!(
        before.resource_version() == after.resource_version(),
        "the Secret was written"
    );
    Ok(())
}

/// Without a Secret, and without a replica that remembers it, two replicas make a CA at the same time: one wins.
async fn replicas_that_begin_together_agree(provider: &mut Provider) -> Result<()> {
    for round in 0..3 {
        for server in &mut provider.servers {
            server.kill9()?;
            server.hush();
        }
        provider.servers.truncate(1);
        free_lease(provider.plane.client(), "bindery-server").await?;
        secrets(provider).delete(TLS_SECRET, &DeleteParams::default()).await?;
        provider.spawn_server()?;
        provider.start_server().await?;
        provider.keep_server_up().await?;
        let ca = provider.fetch_ca().await?;
        let last = provider.replica_count() - 1;
        let first = served(&provider.address(), "localhost", &ca).await?;
        let second = served(&provider.replica_address(last), "localhost", &ca).await?;
        ensure!(first == second, "round {round}: two certificates");
    }
    Ok(())
}

async fn what_was_deleted_is_written_back(provider: &Provider, ca: &str) -> Result<()> {
    let before = secrets(provider).get(TLS_SECRET).await?;
    let certificate = served(&provider.address(), "localhost", ca).await?;
    secrets(provider).delete(TLS_SECRET, &DeleteParams::default()).await?;
    let after = eventually_ok("the Secret to come back", SOON, async || {
        Ok(secrets(provider).get(TLS_SECRET).await?)
    })
    .await?;
    ensure!(after.uid() != before.uid() && after.data == before.data, "another CA");
    // An empty one counts as deleted.
    let empty = Secret { data: None, ..after };
    secrets(provider)
        .replace(TLS_SECRET, &PostParams::default(), &empty)
        .await?;
    eventually_ok("the Secret to be filled", SOON, async || {
        let filled = secrets(provider).get(TLS_SECRET).await?;
        ensure!(filled.data == before.data, "{:?}", filled.data.map(|data| data.len()));
        Ok(())
    })
    .await?;
    ensure!(served(&provider.address(), "localhost", ca).await? == certificate);
    Ok(())
}

/// The Secret of an earlier installation is restored just after a new one made its CA: the earlier CA signs again, and clients of
/// both trust the server.
async fn what_was_put_back_joins_what_is_served(provider: &Provider, earlier: &Secret, ca: &str) -> Result<()> {
    let mut restored = secrets(provider).get(TLS_SECRET).await?;
    restored.data.clone_from(&earlier.data);
    secrets(provider)
        .replace(TLS_SECRET, &PostParams::default(), &restored)
        .await?;
    let bundle = earlier.data.as_ref().and_then(|data| data.get("ca.crt"));
    let earlier_ca = String::from_utf8(bundle.context("no CA")?.0.clone())?;
    eventually_ok("both CAs", SOON, async || {
        let both = stored(provider, "ca.crt").await?.context("no CAs")?;
        ensure!(both == format!("{earlier_ca}{ca}"), "{both}");
        served(&provider.address(), "localhost", &earlier_ca).await?;
        ensure!(provider.servers[0].log().contains("that this replica did not know"));
        Ok(())
    })
    .await
}

/// Changes keys of the Secret; null removes one.
async fn change(provider: &Provider, data: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "data": data }));
    secrets(provider)
        .patch(TLS_SECRET, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

async fn what_was_damaged_is_told_of(provider: &mut Provider, ca: &str) -> Result<()> {
    let key = "tls.key";
    let whole = stored(provider, key).await?.context("no key")?;
    // A serving certificate is made again.
    change(provider, json!({ key: STANDARD.encode("nonsense") })).await?;
    eventually_ok("another serving certificate", SOON, async || {
        let found = stored(provider, key).await?.context("no key")?;
        ensure!(found != "nonsense" && found != whole);
        Ok(())
    })
    .await?;
    served(&provider.address(), "localhost", ca).await?;

    // A CA is not.
    change(provider, json!({ "signing-ca.key": STANDARD.encode("nonsense") })).await?;
    let says = provider.servers[0]
        .wait_for_line("signing-ca.key is not the private key", SOON)
        .await?;
    for word in ["kube-bind/bindery-server-tls", "delete it", "stay in use"] {
        ensure!(says.contains(word), "{says}");
    }
    served(&provider.address(), "localhost", ca).await?;
    // A server that starts now has no CA to go on with, and makes none in secret.
    let says = provider.refused_server().await?;
    for word in [
        "kube-bind/bindery-server-tls",
        "signing-ca.key is not the private key",
        "delete it",
    ] {
        ensure!(says.contains(word), "{says}");
    }
    // The mend.
    secrets(provider).delete(TLS_SECRET, &DeleteParams::default()).await?;
    eventually_ok("the CA to be written back", SOON, async || {
        ensure!(stored(provider, "ca.crt").await?.as_deref() == Some(ca));
        Ok(())
    })
    .await?;
    Ok(())
}

async fn what_is_not_ours_is_left_alone(provider: &Provider, ca: &str) -> Result<()> {
    // As an admin does who gives the name of this Secret to cert-manager.
    let foreign = Secret {
        data: None,
        string_data: Some([("tls.crt".to_owned(), "theirs".to_owned())].into()),
        ..secrets(provider).get(TLS_SECRET).await?
    };
    secrets(provider)
        .replace(TLS_SECRET, &PostParams::default(), &foreign)
        .await?;
    let log = || provider.servers[0].log();
    eventually_ok("a message about the Secret", SOON, async || {
        ensure!(log().contains("holds tls.crt and no CA that signs"));
        Ok(())
    })
    .await?;
    holds_for("the Secret of somebody else", Duration::from_secs(3), async || {
        ensure!(stored(provider, "tls.crt").await?.as_deref() == Some("theirs"));
        served(&provider.address(), "localhost", ca).await.map(drop)
    })
    .await
}
