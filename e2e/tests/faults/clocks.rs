//! Clocks that are an hour apart: what is decided by time is decided by durations.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    Consumer, Provider,
    bound::{Bound, free_lease, names},
    lease::PATIENT,
    process, run,
    wildwest::SOON,
};

/// Shifts the clock of the process it is loaded into.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long shift(void) {
    const char *text = getenv("CLOCK_SHIFT_SECONDS");
    return text ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int outcome = real(clock, now);
    if (outcome == 0 && clock == CLOCK_REALTIME) now->tv_sec += shift();
    return outcome;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec time;
    int outcome = clock_gettime(CLOCK_REALTIME, &time);
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return outcome;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"#;

const HOUR: i64 = 3600;

#[test]
fn konnector_an_hour_ahead() -> Result<()> {
    shifted("ahead", 0, HOUR)
}

#[test]
fn konnector_an_hour_behind() -> Result<()> {
    shifted("behind", 0, -HOUR)
}

#[test]
fn server_an_hour_ahead() -> Result<()> {
    shifted("server-ahead", HOUR, 0)
}

fn shifted(name: &str, server: i64, konnector: i64) -> Result<()> {
    run(async {
        let (provider, consumer) = (format!("{name}-p"), format!("{name}-c"));
        let (mut provider, mut consumer) = tokio::try_join!(
            Provider::start_with(&provider, &PATIENT),
            Consumer::start_with(&consumer, &PATIENT)
        )?;
        let shim = shim(&provider).await?;
        let shim = shim.to_str().context("a path is text")?;
        if server != 0 {
            provider.with_env("LD_PRELOAD", shim);
            provider.with_env("CLOCK_SHIFT_SECONDS", &server.to_string());
            provider.servers[0].kill9()?;
            free_lease(provider.plane.client(), "bindery-server").await?;
            provider.restart_server().await?;
        }
        if konnector != 0 {
            consumer.with_env("LD_PRELOAD", shim);
            consumer.with_env("CLOCK_SHIFT_SECONDS", &konnector.to_string());
            consumer.konnectors[0].kill9()?;
            free_lease(consumer.plane.client(), "kube-bind").await?;
            consumer.start_konnector().await?;
        }
        let mut bound = Bound::between(provider, consumer).await?;
        bound.bind(&["cowboys"]).await?;
        bound.create(names("herd", 0..10)).await?;
        bound.converged().await?;
        bound.status_flows("on time").await?;
        bound.bound_once().await?;
        is_shifted(&bound, server, konnector)?;
        bound.unbind().await
    })
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

/// The library, built by the system's compiler, which the project needs anyway.
async fn shim(provider: &Provider) -> Result<PathBuf> {
    let workdir = provider.plane.workdir();
    let source = workdir.write("shift.c", SHIM)?;
    let library = workdir.path().join("shift.so");
    let mut command = Command::new("cc");
    command
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(source);
    let output = process::run(command, SOON).await?;
    process::stdout(&output).context("cc")?;
    Ok(library)
}
