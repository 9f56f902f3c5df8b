//! Certificates that expire within two minutes: they are renewed under open streams, and a konnector that was away while the CA
//! changed comes back.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use bindery_e2e::{Consumer, Provider, bound::Bound, eventually_ok, lease, run, wildwest::SOON};
use bindery_proto::v1alpha2::WatchBindableResourcesRequestsRequest;
use bindery_sdk::{Client, Error, TransportFault, WatchEvent};
use tokio::{
    task::JoinHandle,
    time::{Duration, Instant, sleep},
};

use crate::{
    managed::streams,
    peer::{served, stored},
};

/// A serving certificate is renewed every 27 s. The next CA is published at 80 s and signs at 100 s; the former one expires at 120 s.
const SHORT: [&str; 4] = ["--tls-lifetime", "40s", "--tls-ca-lifetime", "120s"];

/// Pause between two handshakes.
const PAUSE: Duration = Duration::from_millis(200);

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
        let former = stored(&bound.provider, "signing-ca.crt").await?.context("no CA")?;
        a_ca_changes_while_the_konnector_is_away(&mut bound).await?;
        ensure!(!stream.is_finished(), "the stream broke: {:?}", stream.await);
        stream.abort();

        bound.consumer.start_konnector().await?;
        streams(&bound.provider).await?;
        bound.create(["billy".to_owned()]).await?;
        bound.converged().await?;
        bound.status_flows("caught").await?;
        a_client_that_knows_only_a_former_ca_is_told(&bound, &former).await
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

/// Waits until another certificate is served. Each handshake until then must succeed.
async fn a_serving_certificate_is_renewed(provider: &Provider) -> Result<()> {
    let handshake = async || served(&provider.address(), "localhost", &provider.fetch_ca().await?).await;
    let first = handshake().await?;
    let deadline = Instant::now() + SOON;
    while handshake().await? == first {
        ensure!(Instant::now() < deadline, "the serving certificate is not renewed");
        sleep(PAUSE).await;
    }
    Ok(())
}

/// Stops the konnector while it knows the CA that signs and the next one, and waits until the next one signs and the former one
/// is not handed out any more.
async fn a_ca_changes_while_the_konnector_is_away(bound: &mut Bound) -> Result<()> {
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
        return Ok(());
    }
    bail!("the konnector could never be stopped in time")
}

/// A client that was away for too long is told that it does not trust the server, and not that the server is away.
async fn a_client_that_knows_only_a_former_ca_is_told(bound: &Bound, former: &str) -> Result<()> {
    let call = async |ca: &str| {
        let client = Client::builder(bound.provider.address())
            .ca_pem(ca)
            .token_file(&bound.token)
            .build()?;
        Ok::<_, anyhow::Error>(client.get_provider().await)
    };
    call(&bound.provider.fetch_ca().await?).await??;
    match call(former).await? {
        Err(Error::Transport(error)) if error.fault == TransportFault::CertificateUntrusted => Ok(()),
        other => bail!("{other:?}"),
    }
}
