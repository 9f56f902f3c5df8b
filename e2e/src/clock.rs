//! Moves the clock of a single process: a library that is loaded into it shifts what it reads as the time.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Context as _, Result};

use crate::{Workdir, process};

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

/// The environment variable that tells the library by how many seconds it shifts. The library itself stands in `LD_PRELOAD`.
pub const SHIFT: &str = "CLOCK_SHIFT_SECONDS";
/// How long the compiler may take, on a busy machine.
const LIMIT: Duration = Duration::from_mins(2);

/// Builds the library in a folder, by the system's compiler, which the project needs anyway.
pub async fn shim(workdir: &Workdir) -> Result<PathBuf> {
    let source = workdir.write("shift.c", SHIM)?;
    let library = workdir.path().join("shift.so");
    let mut command = Command::new("cc");
    command
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(source);
    let output = process::run(command, LIMIT).await?;
    process::stdout(&output).context("cc")?;
    Ok(library)
}
