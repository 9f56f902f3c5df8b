//! The life of one container: it is created, probed, started again, and ended.

use std::{
    os::unix::process::ExitStatusExt as _,
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use kube::ResourceExt as _;
use nix::{sys::signal::kill, unistd::Pid};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    Stop,
    creation::Surroundings,
    probe::Probes,
    pull::pull,
    sandbox::Sandboxes,
    status::{Ended, Phase},
    status_manager::StatusManager,
    stopped,
};
use crate::{NetworkNamespace, Process, container, process::Signal};

/// The first and the longest pause before a container is started again.
const BACKOFF: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// How often it is asked whether a process has ended.
const POLL: Duration = Duration::from_millis(50);
/// The exit code of a process that a signal ended is this and the number of the signal.
const SIGNALLED: i32 = 128;

/// Runs one container of a Pod.
pub(super) struct ContainerRunner<'a> {
    pub(super) spec: &'a Container,
    pub(super) surroundings: &'a Surroundings<'a>,
    pub(super) network: &'a Arc<NetworkNamespace>,
    pub(super) sandboxes: &'a Sandboxes,
    pub(super) manager: &'a StatusManager,
    pub(super) is_quiet: &'a AtomicBool,
    /// Why containers of the node were started again.
    pub(super) restarts: &'a Mutex<Vec<String>>,
    pub(super) stop: watch::Receiver<Stop>,
    /// How long the process may take after SIGTERM, if it is ended while the Pod stays.
    pub(super) grace: Duration,
    /// The prefix of the name of its log.
    pub(super) log: &'a str,
}

/// Whether a container is started again after it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    Always,
    OnFailure,
    Never,
}

/// Why a container could not be started.
struct StartError {
    /// The reason of its state.
    reason: &'static str,
    error: anyhow::Error,
}

/// A process whose log is shown if it is cut off before its end, as by the end of a test that failed.
struct Logged<'a> {
    process: Process,
    is_quiet: &'a AtomicBool,
}

impl Restart {
    pub(super) fn of(policy: Option<&str>) -> Self {
        match policy {
            Some("OnFailure") => Self::OnFailure,
            Some("Never") => Self::Never,
            _ => Self::Always,
        }
    }

    /// The policy of init containers, which end once they have succeeded.
    pub(super) const fn of_init(self) -> Self {
        match self {
            Self::Always | Self::OnFailure => Self::OnFailure,
            Self::Never => Self::Never,
        }
    }

    const fn is_due(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

impl ContainerRunner<'_> {
    /// Runs the container until it has ended for good, or the Pod ends. Returns whether it has succeeded.
    pub(super) async fn run(&self, restart: Restart) -> bool {
        let name = &self.spec.name;
        let mut backoff = BACKOFF;
        loop {
            match self.run_once().await {
                Ok(ended) => {
                    let code = ended.code;
                    self.manager.set_ended(name, ended.clone());
                    if self.stop.borrow().is_some() || !restart.is_due(code) {
                        self.manager.set_phase(name, Phase::Done(ended));
                        return code == 0;
                    }
                    let why = format!("{}-{name}: exit code {code}: {}", self.log, ended.message);
                    self.restarts.lock().push(why);
                    let message = format!("back-off {backoff:?} restarting failed container={name}");
                    self.manager.set_waiting(name, "CrashLoopBackOff", message);
                    self.manager.count_restart(name);
                }
                Err(StartError { reason, error }) => self.manager.set_waiting(name, reason, format!("{error:#}")),
            }
            tokio::select! {
                () = sleep(backoff) => {}
                () = stopped(&self.stop) => return false,
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Starts the container, and waits until it has ended: by itself, with its Pod, or because a probe says that it is not alive.
    async fn run_once(&self) -> Result<Ended, StartError> {
        let (mut logged, probes) = self.start().await?;
        let name = &self.spec.name;
        let since = Timestamp::now();
        let process = &mut logged.process;
        let program = program(process).await;
        self.note_process(program);
        self.manager.set_phase(name, probes.first_phase());
        let by_itself = tokio::select! {
            status = exit(process) => Some(status),
            () = probes.watch(self.network, self.manager, name) => None,
            () = stopped(&self.stop) => None,
        };
        let status = match by_itself {
            Some(status) => status,
            None => self.end(process, program).await,
        };
        self.note_process(None);
        process.hush();
        let code = status.map_or(SIGNALLED, code);
        Ok(Ended {
            code,
            since,
            at: Timestamp::now(),
            message: if code == 0 { String::new() } else { process.tail() },
        })
    }

    async fn start(&self) -> Result<(Logged<'_>, Probes), StartError> {
        let because = |reason| move |error| StartError { reason, error };
        let reference = self.spec.image.clone().unwrap_or_default();
        let pulled = tokio::task::spawn_blocking(move || pull(&reference)).await;
        let pulled = pulled
            .context("unpacking was cancelled")
            .flatten()
            .map_err(because("ErrImagePull"))?;
        self.manager.set_image(&self.spec.name, pulled.image.digest());
        let container = self.surroundings.create(self.spec, &pulled).await;
        let container = container.map_err(because("CreateContainerConfigError"))?;
        let probes = Probes::read(self.spec).map_err(because("CreateContainerConfigError"))?;
        let log = format!("{}-{}", self.log, self.spec.name);
        let process = container
            .command()
            .and_then(|command| self.network.run(move || Process::spawn(&log, &command)));
        let process = process.map_err(because("RunContainerError"))?;
        let is_quiet = self.is_quiet;
        Ok((Logged { process, is_quiet }, probes))
    }

    fn note_process(&self, id: Option<u32>) {
        let pod = self.surroundings.pod.uid().unwrap_or_default();
        self.sandboxes.set_process(&pod, &self.spec.name, id);
    }

    /// Ends the process with SIGTERM, and after the grace period with SIGKILL. A second deletion of the Pod may shorten the period.
    async fn end(&self, process: &mut Process, program: Option<u32>) -> Option<ExitStatus> {
        let start = Instant::now();
        let grace = || self.stop.borrow().unwrap_or(self.grace);
        if !grace().is_zero() && process.is_running() {
            signal(program, Signal::SIGTERM);
        }
        loop {
            match process.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if start.elapsed() < grace() => sleep(POLL).await,
                Ok(None) if program.is_some() => {
                    signal(program, Signal::SIGKILL);
                    return exit(process).await;
                }
                _ => {
                    let _ = process.kill9();
                    return process.try_wait().ok().flatten();
                }
            }
        }
    }
}

impl Drop for Logged<'_> {
    fn drop(&mut self) {
        if self.is_quiet.load(Ordering::Relaxed) {
            self.process.hush();
        }
    }
}

async fn exit(process: &mut Process) -> Option<ExitStatus> {
    loop {
        match process.try_wait() {
            Ok(None) => sleep(POLL).await,
            Ok(status) => return status,
            Err(_) => return None,
        }
    }
}

/// Waits until the process of the program is there. Returns none if the command has ended before, such as by a mount that failed.
async fn program(process: &mut Process) -> Option<u32> {
    while process.is_running() {
        if let Some(program) = container::program(process.id()) {
            return Some(program);
        }
        sleep(POLL).await;
    }
    None
}

/// Sends a signal to a program. One that has ended meanwhile needs none.
fn signal(program: Option<u32>, signal: Signal) {
    if let Some(id) = program {
        let _ = kill(Pid::from_raw(id.cast_signed()), signal);
    }
}

fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| SIGNALLED + status.signal().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_decides_about_a_restart() {
        for (policy, after_success, after_failure) in [
            (None, true, true),
            (Some("Always"), true, true),
            (Some("OnFailure"), false, true),
            (Some("Never"), false, false),
        ] {
            let restart = Restart::of(policy);
            assert_eq!(
                (restart.is_due(0), restart.is_due(1)),
                (after_success, after_failure),
                "{policy:?}"
            );
        }
    }
}
