//! What one run of a program costs.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeVal,
};

use super::proc;

/// How often the memory of a program is looked at. What it needs most is kept by the kernel, so that this only has to
/// come once before it ends.
const LOOK: Duration = Duration::from_millis(5);

/// What a run costs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) seconds: f64,
    /// User and system.
    pub(super) cpu_seconds: f64,
    /// 0 where the kernel does not tell.
    pub(super) max_rss_mib: f64,
}

/// Runs programs one after the other, with the output of the last in a file. No other child may end meanwhile: their times
/// are one sum.
pub(super) async fn measure(commands: Vec<Command>, log: &Path) -> Result<Cost> {
    let mut all = Cost::default();
    for command in commands {
        let one = one(command, log).await?;
        all.seconds += one.seconds;
        all.cpu_seconds += one.cpu_seconds;
        all.max_rss_mib = all.max_rss_mib.max(one.max_rss_mib);
    }
    Ok(all)
}

async fn one(command: Command, log: &Path) -> Result<Cost> {
    let name = command.get_program().to_string_lossy().into_owned();
    let file = File::create(log)?;
    let mut command = tokio::process::Command::from(command);
    command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .kill_on_drop(true);
    let cpu_before = cpu_of_children()?;
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot run {name}"))?;
    let pid = child.id().context("it has ended")?;
    let mut looks = tokio::time::interval(LOOK);
    let mut max_rss_mib = 0.0;
    let ended = loop {
        tokio::select! {
            ended = child.wait() => break ended?,
            _ = looks.tick() => max_rss_mib = proc::memory(pid).map_or(max_rss_mib, |memory| memory.peak_mib),
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    let said = || fs::read_to_string(log).unwrap_or_default();
    ensure!(ended.success(), "{name}: {ended}:\n{}", said());
    Ok(Cost {
        seconds,
        cpu_seconds: cpu_of_children()? - cpu_before,
        max_rss_mib,
    })
}

fn cpu_of_children() -> Result<f64> {
    let seconds = |time: TimeVal| {
        let parts = Duration::from_secs(time.tv_sec().unsigned_abs());
        (parts + Duration::from_micros(time.tv_usec().unsigned_abs())).as_secs_f64()
    };
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_program_needs_is_seen_and_what_it_says_where_it_fails() {
        let log = std::env::temp_dir().join(format!("bindery-measure-{}", std::process::id()));
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            vec![command]
        };
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let cost = measure(shell(busy), &log).await.unwrap();
        assert!(cost.seconds > 0.0 && cost.cpu_seconds > 0.0, "{cost:?}");
        let failed = measure(shell("echo so what; exit 3"), &log).await.unwrap_err();
        assert!(failed.to_string().contains("so what"), "{failed}");
        fs::remove_file(&log).unwrap();
    }
}
