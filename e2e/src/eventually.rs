//! Waits for conditions instead of for fixed times.

use std::{fmt::Display, time::Duration};

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep, timeout_at};

/// The shortest pause between two probes.
const INTERVAL: Duration = Duration::from_millis(50);
/// The longest pause between two probes. A condition that has taken long need not be noticed at once, and probes cost time
/// of the cores.
const INTERVAL_MAX: Duration = Duration::from_millis(500);
/// A pause is this fraction of the time since the first probe, within those bounds.
const PART: u32 = 10;
/// The pause between two probes of a condition that must hold for a while.
const HOLDS_INTERVAL: Duration = Duration::from_millis(200);

/// Polls until `probe` gives a value. Fails after `timeout`, naming what was awaited and how the last probe ended.
pub async fn eventually<T>(
    what: impl Display,
    timeout: Duration,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    let deadline = start + timeout;
    let mut last = "no probe finished".to_owned();
    loop {
        match timeout_at(deadline, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => "not yet so".clone_into(&mut last),
            Ok(Err(error)) => last = format!("{error:#}"),
            Err(_) => {}
        }
        let pause = (start.elapsed() / PART).clamp(INTERVAL, INTERVAL_MAX);
        if Instant::now() + pause >= deadline {
            bail!("waited {timeout:?} for: {what}; last: {last}");
        }
        sleep(pause).await;
    }
}

/// Polls until `probe` succeeds, for probes that assert with `ensure!` or fetch what must exist.
pub async fn eventually_ok<T>(
    what: impl Display,
    timeout: Duration,
    mut probe: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    eventually(what, timeout, async || probe().await.map(Some)).await
}

/// Polls for the whole `duration`, and fails as soon as `probe` fails. For proofs that something does not happen.
pub async fn holds_for(
    what: impl Display,
    duration: Duration,
    mut probe: impl AsyncFnMut() -> Result<()>,
) -> Result<()> {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        probe().await.with_context(|| format!("no longer so: {what}"))?;
        sleep(HOLDS_INTERVAL).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn gives_the_value_once_it_is_there() {
        let mut probes = 0;
        let value = eventually("three probes", Duration::from_secs(5), async || {
            probes += 1;
            Ok((probes == 3).then_some(probes))
        });
        assert_eq!(value.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn names_what_it_waited_for_and_the_last_error() {
        let failed = eventually_ok("the moon to rise", Duration::from_millis(60), async || -> Result<()> {
            bail!("still below")
        });
        let message = failed.await.unwrap_err().to_string();
        assert_eq!(message, "waited 60ms for: the moon to rise; last: still below");
    }

    #[tokio::test]
    async fn a_probe_that_hangs_does_not_hang_the_test() {
        let failed = eventually("an answer", Duration::from_millis(60), async || {
            std::future::pending::<Result<Option<()>>>().await
        });
        let message = failed.await.unwrap_err().to_string();
        assert_eq!(message, "waited 60ms for: an answer; last: no probe finished");
    }

    #[tokio::test]
    async fn notices_what_must_not_happen() {
        let mut probes = 0;
        let failed = holds_for("two at most", Duration::from_secs(5), async || {
            probes += 1;
            anyhow::ensure!(probes <= 2, "saw {probes}");
            Ok(())
        });
        assert_eq!(
            format!("{:#}", failed.await.unwrap_err()),
            "no longer so: two at most: saw 3"
        );
    }
}
