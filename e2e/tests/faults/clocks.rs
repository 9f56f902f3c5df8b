//! Clocks that are an hour apart: what is decided by time is decided by durations.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    bound::{Bound, free_lease, names},
    clock,
    lease::PATIENT,
    run,
    wildwest::SOON,
};

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
    let now = jiff::Timestamp::now().as_second();
    let konnectors = bound.consumer.konnectors.last().context("none was started")?;
    for (process, shift) in [(&bound.provider.servers[0], server), (konnectors, konnector)] {
        let log = process.log();
        let written = log.lines().rev().find_map(time_of).context("no line with a time")?;
        let off = (written.as_second() - now - shift).abs();
        let tolerance = i64::try_from(SOON.as_secs())? * 5;
        ensure!(off < tolerance, "{} writes {written}, {off} s off", process.name());
    }
    Ok(())
}

fn time_of(line: &str) -> Option<jiff::Timestamp> {
    let mut words = line.split(|letter: char| letter.is_whitespace() || letter == '"');
    words.find_map(|word| word.parse().ok())
}
