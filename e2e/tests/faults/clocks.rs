//! Clocks that are an hour apart: what is decided by time is decided by durations.

use anyhow::{Context as _, Result, ensure};
use bindery_api::labels;
use bindery_e2e::{
    Process,
    bound::{Bound, free_lease, names},
    clock, eventually_ok, holds_for,
    lease::PATIENT,
    run,
    wildwest::SOON,
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt, api::ListParams};

const HOUR: i64 = 3600;

/// By how many seconds the clocks of server and konnector are shifted.
const SHIFTS: [(i64, i64); 3] = [(0, HOUR), (0, -HOUR), (HOUR, 0)];

#[test]
fn clocks_are_an_hour_apart() -> Result<()> {
    run(async {
        let mut bound = Bound::prepare("clocks", &PATIENT).await?;
        let shim = clock::shim(bound.provider.plane.workdir()).await?;
        let shim = shim.to_str().context("a path is text")?;
        bound.provider.with_env("LD_PRELOAD", shim);
        bound.consumer.with_env("LD_PRELOAD", shim);
        for (server, konnector) in SHIFTS {
            let told = || format!("server shifted by {server} s, konnector by {konnector} s");
            shifted(&mut bound, server, konnector).await.with_context(told)?;
        }
        Ok(())
    })
}

/// By how much the clock of a server is ahead: more than a credential lives.
const WEEK_AND_DAYS: i64 = 10 * 24 * HOUR;

/// What ends at its time ends by the time of the API server.
#[test]
fn a_server_a_week_ahead_ends_no_credentials() -> Result<()> {
    run(async {
        let mut bound = Bound::prepare("week-ahead", &PATIENT).await?;
        bound.bind(&["cowboys"]).await?;
        bound.create(names("herd", 0..3)).await?;
        bound.converged().await?;
        let provider = &mut bound.provider;
        let anchors: Api<Secret> = Api::all(provider.plane.client());
        let ours = ListParams::default().labels(&format!("{}={}", labels::COMPONENT, labels::TOKEN_ANCHOR));
        let uids = async || -> Result<Vec<_>> {
            let anchors = anchors.list(&ours).await?.items;
            Ok(anchors.iter().filter_map(ResourceExt::uid).collect())
        };
        let before = uids().await?;
        ensure!(!before.is_empty(), "no anchor");
        let shim = clock::shim(provider.plane.workdir()).await?;
        provider.with_env("LD_PRELOAD", shim.to_str().context("a path is text")?);
        provider.with_env(clock::SHIFT, &WEEK_AND_DAYS.to_string());
        provider.servers[0].kill9()?;
        free_lease(provider.plane.client(), "bindery-server").await?;
        provider.restart_server().await?;
        let server = &provider.servers[0];
        eventually_ok("the server to lead", SOON, async || {
            ensure!(server.log().contains("controllers run"), "it does not");
            Ok(())
        })
        .await?;
        is_off(server, WEEK_AND_DAYS)?;
        holds_for("the anchors stay", SOON / 4, async || {
            let now = uids().await?;
            ensure!(before.iter().all(|uid| now.contains(uid)), "{before:?} became {now:?}");
            Ok(())
        })
        .await?;
        // The konnector's token is bound to one of them.
        bound.status_flows("a week ahead").await
    })
}

async fn shifted(bound: &mut Bound, server: i64, konnector: i64) -> Result<()> {
    let (provider, consumer) = (&mut bound.provider, &mut bound.consumer);
    provider.with_env(clock::SHIFT, &server.to_string());
    provider.servers[0].kill9()?;
    free_lease(provider.plane.client(), "bindery-server").await?;
    provider.restart_server().await?;
    consumer.with_env(clock::SHIFT, &konnector.to_string());
    consumer.konnectors.last_mut().context("none was started")?.kill9()?;
    free_lease(consumer.plane.client(), "kube-bind").await?;
    consumer.start_konnector().await?;
    bound.bind(&["cowboys"]).await?;
    bound.create(names("herd", 0..10)).await?;
    bound.converged().await?;
    bound.status_flows("on time").await?;
    bound.bound_once().await?;
    is_shifted(bound, server, konnector)?;
    bound.unbind().await?;
    bound.expected.clear();
    Ok(())
}

/// The logs tell the time of those who write them.
fn is_shifted(bound: &Bound, server: i64, konnector: i64) -> Result<()> {
    let konnectors = bound.consumer.konnectors.last().context("none was started")?;
    is_off(&bound.provider.servers[0], server)?;
    is_off(konnectors, konnector)
}

fn is_off(process: &Process, shift: i64) -> Result<()> {
    let now = jiff::Timestamp::now().as_second();
    let log = process.log();
    let written = log.lines().rev().find_map(time_of).context("no line with a time")?;
    let off = (written.as_second() - now - shift).abs();
    let tolerance = i64::try_from(SOON.as_secs())? * 5;
    ensure!(off < tolerance, "{} writes {written}, {off} s off", process.name());
    Ok(())
}

fn time_of(line: &str) -> Option<jiff::Timestamp> {
    let mut words = line.split(|letter: char| letter.is_whitespace() || letter == '"');
    words.find_map(|word| word.parse().ok())
}
