//! Certificates that expire within a minute: they are renewed under open streams, and a konnector that was away while the CA
//! changed comes back.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use bindery_e2e::{Consumer, Provider, bound::Bound, eventually_ok, lease, run, wildwest::SOON};
use bindery_proto::v1alpha2::WatchBindableResourcesRequestsRequest;
use bindery_sdk::{Client, Error, TransportFault, WatchEvent};
use futures::StreamExt as _;
use tokio::task::JoinHandle;

use crate::{
    managed::streams,
    peer::{served, stored},
};

/// A serving certificate is renewed every 20 s. The next CA is published at 60 s, and signs at 75 s.
const SHORT: [&str; 4] = ["--tls-lifetime", "30s", "--tls-ca-lifetime", "90s"];

#[test]
fn certificates_change_while_connections_go_on() -> Result<()> {
    run(async {
        let flags = [&SHORT[..], &lease::PATIENT].concat();
        let (provider, consumer) = tokio::try_join!(
            Provider::start_managed("rotation-p", &flags),
            Consumer::start_with("rotation-c", &lease::PATIENT)
        )?;
        let mut bound = Bound::between(provider, consumer).await?;
        bound.provider.fetch_ca().await?;
        bound.bind(&["cowboys"]).await?;
        let stream = open_stream(&bound.provider, &bound.token).await?;

        a_serving_certificate_is_renewed(&bound.provider).await?;
        ensure!(!stream.is_finished(), "the stream broke: {:?}", stream.await);
        let before = bound.provider.fetch_ca().await?;
        let signed = a_ca_changes_while_the_konnector_is_away(&mut bound).await?;
        ensure!(!stream.is_finished(), "the stream broke: {:?}", stream.await);
        stream.abort();

        bound.consumer.start_konnector().await?;
        streams(&bound.provider).await?;
        bound.create(["billy".to_owned()]).await?;
        bound.converged().await?;
        bound.status_flows("caught").await?;
        who_knows_only_a_former_ca_is_told(&bound, &before, &signed).await
    })
}

/// Opens a stream, which ends with what interrupted it.
async fn open_stream(provider: &Provider, token: &Path) -> Result<JoinHandle<String>> {
    let client = Client::builder(provider.address())
        .ca_pem(provider.fetch_ca().await?)
        .token_file(token)
        .build()?;
    let mut watch = client.watch_bindable_resources_requests(WatchBindableResourcesRequestsRequest::default());
    let mut next = async move || {
        watch
            .next()
            .await
            .context("the watch ended")?
            .map_err(anyhow::Error::from)
    };
    loop {
        match next().await? {
            WatchEvent::SnapshotComplete => break,
            WatchEvent::Disconnected { error, .. } => bail!("not connected: {error:?}"),
            _ => {}
        }
    }
    Ok(tokio::spawn(async move {
        loop {
            match next().await {
                Ok(WatchEvent::Disconnected { error, .. }) => return format!("{error:?}"),
                Err(error) => return format!("{error:#}"),
                Ok(_) => {}
            }
        }
    }))
}

async fn a_serving_certificate_is_renewed(provider: &Provider) -> Result<()> {
    let ca = provider.fetch_ca().await?;
    let first = served(&provider.address(), "localhost", &ca).await?;
    eventually_ok("another serving certificate", SOON, async || {
        // Never is there a moment without a valid one.
        let now = served(&provider.address(), "localhost", &provider.fetch_ca().await?).await;
        match now {
            Ok(now) => ensure!(now != first, "the same"),
            Err(error) => panic(&error),
        }
        Ok(())
    })
    .await
}

/// A failed handshake ends the test at once: what is polled for is another certificate, and not a working one.
#[expect(clippy::panic, reason = "ends the test")]
fn panic(error: &anyhow::Error) {
    panic!("a handshake failed: {error:#}");
}

/// Stops the konnector while it knows the CA that signs and the next one, and waits until the next one signs and the former one
/// is not handed out any more. Returns the CA that signs then.
async fn a_ca_changes_while_the_konnector_is_away(bound: &mut Bound) -> Result<String> {
    let provider = &bound.provider;
    for _ in 0..5 {
        let next = eventually_ok("the next CA to be published", SOON, async || {
            stored(provider, "next-ca.crt").await?.context("there is none")
        })
        .await?;
        let ca = provider.fetch_ca().await?;
        bound.bind(&["renew", "cowboys"]).await?;
        bound.consumer.stop_konnectors().await?;
        if stored(provider, "next-ca.crt").await?.as_deref() != Some(&*next) {
            // The machine was too busy: the next CA signed before the konnector was away.
            bound.consumer.start_konnector().await?;
            continue;
        }
        ensure!(ca.contains(next.trim()), "not handed out");
        let former = stored(provider, "signing-ca.crt").await?.context("no CA")?;
        eventually_ok("the next CA to sign, alone", SOON, async || {
            let bundle = stored(provider, "ca.crt").await?.context("no CAs")?;
            ensure!(
                stored(provider, "signing-ca.crt").await?.as_deref() == Some(&*next),
                "not yet"
            );
            ensure!(!bundle.contains(former.trim()), "the former one is handed out");
            Ok(())
        })
        .await?;
        return Ok(next);
    }
    bail!("the konnector could never be stopped in time")
}

/// A client that was away for too long is told that it does not trust the server, and not that the server is away.
async fn who_knows_only_a_former_ca_is_told(bound: &Bound, before: &str, signed: &str) -> Result<()> {
    let call = async |ca: &str| {
        let client = Client::builder(bound.provider.address())
            .ca_pem(ca)
            .token_file(&bound.token)
            .build()?;
        Ok::<_, anyhow::Error>(client.get_provider().await)
    };
    call(&bound.provider.fetch_ca().await?).await??;
    ensure!(!before.contains(signed.trim()), "the same CA");
    match call(before).await? {
        Err(Error::Transport(error)) if error.fault == TransportFault::CertificateUntrusted => Ok(()),
        other => bail!("{other:?}"),
    }
}
