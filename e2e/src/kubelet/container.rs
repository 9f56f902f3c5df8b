//! The life of one container: it is created, probed, started again, and ended.

use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    Node,
    board::Board,
    environment::{self, References},
    probe::HttpProbe,
    pull::{self, Pulled},
    status::{Ended, Phase},
    stopped,
};
use crate::{
    NetworkNamespace, Process,
    container::{Container as Command, Mount},
    process::Signal,
};

/// The first and the longest pause before a container is started again.
const BACKOFF: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// How often a container is asked whether it is ready, until it is for the first time: tests wait for it.
const EAGER: Duration = Duration::from_millis(200);
/// How often it is asked whether a process has ended.
const POLL: Duration = Duration::from_millis(50);
/// The exit code of a process that a signal ended is this and the number of the signal.
const SIGNALLED: i32 = 128;

/// What a container needs of its Pod.
pub(super) struct Runner<'a> {
    pub(super) pod: &'a Pod,
    pub(super) container: &'a Container,
    pub(super) network: &'a Arc<NetworkNamespace>,
    pub(super) board: &'a Board,
    /// The files of `/etc` that a kubelet writes.
    pub(super) etc: &'a [Mount],
    /// The folder of each volume.
    pub(super) volumes: &'a BTreeMap<String, PathBuf>,
    pub(super) references: &'a References,
    pub(super) node: &'a Node,
    /// Turns true when the Pod ends.
    pub(super) stop: watch::Receiver<bool>,
    /// How long the process may take after SIGTERM.
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

impl Restart {
    pub(super) fn of(policy: Option<&str>) -> Self {
        match policy {
            Some("OnFailure") => Self::OnFailure,
            Some("Never") => Self::Never,
            _ => Self::Always,
        }
    }

    const fn again(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// The probes of a container.
struct Probes {
    startup: Option<HttpProbe>,
    liveness: Option<HttpProbe>,
    readiness: Option<HttpProbe>,
}

impl Runner<'_> {
    /// Runs the container until it has ended for good, or the Pod ends. Returns whether it has succeeded.
    pub(super) async fn run(&self, restart: Restart) -> bool {
        let mut backoff = BACKOFF;
        loop {
            let outcome = match self.start().await {
                Ok(process) => {
                    let ended = self.watch(process).await;
                    self.board.ended(&self.container.name, ended);
                    Some(ended)
                }
                Err(Failure { reason, error }) => {
                    let waiting = Phase::Waiting {
                        reason: reason.to_owned(),
                        message: format!("{error:#}"),
                    };
                    self.board.set(&self.container.name, waiting);
                    None
                }
            };
            if let Some(ended) = outcome
                && (*self.stop.borrow() || !restart.again(ended.code))
            {
                self.board.set(&self.container.name, Phase::Done(ended));
                return ended.code == 0;
            }
            if outcome.is_some() {
                let waiting = Phase::Waiting {
                    reason: "CrashLoopBackOff".to_owned(),
                    message: format!("back-off {backoff:?} restarting container {}", self.container.name),
                };
                self.board.set(&self.container.name, waiting);
            }
            tokio::select! {
                () = sleep(backoff) => {}
                () = stopped(&self.stop) => return false,
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
            if outcome.is_some() {
                self.board.restarts(&self.container.name);
            }
        }
    }

    async fn start(&self) -> Result<Logged, Failure> {
        let reference = self.container.image.clone().unwrap_or_default();
        let pulled = tokio::task::spawn_blocking(move || pull::pull(&reference)).await;
        let pulled = pulled
            .context("unpacking was cancelled")
            .flatten()
            .map_err(|error| Failure {
                reason: "ErrImagePull",
                error,
            })?;
        self.board.found(&self.container.name, pulled.image.digest());
        let config_error = |error| Failure {
            reason: "CreateContainerConfigError",
            error,
        };
        let command = self.command(&pulled).map_err(config_error)?;
        let probes = self.probes().map_err(config_error)?;
        let log = format!("{}-{}", self.log, self.container.name);
        let spawned = command
            .command()
            .and_then(|command| self.network.run(move || Process::spawn(&log, &command)));
        let process = spawned.map_err(|error| Failure {
            reason: "RunContainerError",
            error,
        })?;
        let process = Logged {
            process,
            is_quiet: Arc::clone(&self.node.is_quiet),
        };
        let running = Phase::Running {
            since: Timestamp::now(),
            has_started: probes.startup.is_none(),
            is_ready: probes.startup.is_none() && probes.readiness.is_none(),
        };
        self.board.set(&self.container.name, running);
        Ok(process)
    }

    /// What runs: the image, and what the container says over it.
    fn command(&self, pulled: &Pulled) -> Result<Command> {
        let container = self.container;
        let mut command = Command::of(&pulled.image, &pulled.root, &[])?;
        let config = pulled.image.configuration().config().as_ref();
        let words = |it: Option<&Option<Vec<String>>>| it.and_then(Clone::clone).unwrap_or_default();
        let (entrypoint, args) = (
            words(config.map(|it| it.entrypoint())),
            words(config.map(|it| it.cmd())),
        );
        command.env.extend(self.node.variables());
        command.env = environment::variables(self.pod, container, command.env, self.references)?;
        command.args = environment::command(container, &entrypoint, &args, &command.env);
        command.user = self.user(command.user)?;
        command.mounts = self.etc.to_vec();
        for mount in container.volume_mounts.iter().flatten() {
            ensure!(mount.sub_path.is_none(), "this kubelet does not know subPath");
            let source = self.volumes.get(&mount.name);
            command.mounts.push(Mount {
                source: source
                    .with_context(|| format!("there is no volume {:?}", mount.name))?
                    .clone(),
                target: mount.mount_path.clone(),
                is_writable: mount.read_only != Some(true),
            });
        }
        if container.working_dir.is_some() || container.lifecycle.is_some() {
            bail!(
                "this kubelet knows neither workingDir nor lifecycle, which container {} has",
                container.name
            );
        }
        Ok(command)
    }

    /// The numbers of user and group: of the container, of the Pod, or of the image.
    fn user(&self, of_image: (u32, u32)) -> Result<(u32, u32)> {
        let own = self.container.security_context.as_ref();
        let pod = self.pod.spec.as_ref().and_then(|it| it.security_context.as_ref());
        let choose = |own: Option<i64>, pod: Option<i64>, image: u32| own.or(pod).map_or(Ok(image), u32::try_from);
        let user = choose(
            own.and_then(|it| it.run_as_user),
            pod.and_then(|it| it.run_as_user),
            of_image.0,
        )?;
        let group = choose(
            own.and_then(|it| it.run_as_group),
            pod.and_then(|it| it.run_as_group),
            of_image.1,
        )?;
        let must_not = own
            .and_then(|it| it.run_as_non_root)
            .or(pod.and_then(|it| it.run_as_non_root));
        ensure!(
            user != 0 || must_not != Some(true),
            "container has runAsNonRoot and image will run as root"
        );
        Ok((user, group))
    }

    fn probes(&self) -> Result<Probes> {
        let read = |probe: &Option<_>| probe.as_ref().map(|it| HttpProbe::read(self.container, it)).transpose();
        Ok(Probes {
            startup: read(&self.container.startup_probe)?,
            liveness: read(&self.container.liveness_probe)?,
            readiness: read(&self.container.readiness_probe)?,
        })
    }

    /// Waits for the end of a run: by itself, by the Pod's end, or because the container is not alive.
    async fn watch(&self, mut logged: Logged) -> Ended {
        let process = &mut logged.process;
        let since = Timestamp::now();
        let by_itself = tokio::select! {
            status = exit(process) => Some(status),
            () = self.probe() => None,
            () = stopped(&self.stop) => None,
        };
        let status = match by_itself {
            Some(status) => status,
            None => self.end(process).await,
        };
        process.hush();
        Ended {
            code: status.map_or(SIGNALLED, code),
            since,
            at: Timestamp::now(),
        }
    }

    /// Ends the process with SIGTERM, and after the grace period with SIGKILL.
    async fn end(&self, process: &mut Process) -> Option<ExitStatus> {
        // A process that has ended meanwhile needs no signal.
        let _ = process.signal(Signal::SIGTERM);
        let end = Instant::now() + self.grace;
        loop {
            match process.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < end => sleep(POLL).await,
                _ => {
                    let _ = process.kill9();
                    return process.try_wait().ok().flatten();
                }
            }
        }
    }

    /// Probes the container, and returns when it is not alive.
    async fn probe(&self) {
        let Ok(probes) = self.probes() else {
            return;
        };
        let name = &self.container.name;
        if let Some(startup) = &probes.startup {
            let mut has_started = false;
            let decided = |is_good| {
                has_started = is_good;
                false
            };
            self.follow(startup, startup.period, decided).await;
            if !has_started {
                return;
            }
            self.board.started(name, probes.readiness.is_none());
        }
        let readiness = async {
            if let Some(probe) = &probes.readiness {
                self.follow(probe, EAGER.min(probe.period), |is_ready| {
                    self.board.ready(name, is_ready);
                    !is_ready
                })
                .await;
                self.follow(probe, probe.period, |is_ready| {
                    self.board.ready(name, is_ready);
                    true
                })
                .await;
            }
            std::future::pending().await
        };
        let liveness = async {
            match &probes.liveness {
                Some(probe) => self.follow(probe, probe.period, |is_alive| is_alive).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = readiness => {}
            () = liveness => {}
        }
    }

    /// Asks once in each period, and tells what enough results in a row say, until `goes_on` returns false.
    async fn follow(&self, probe: &HttpProbe, period: Duration, mut goes_on: impl FnMut(bool) -> bool) {
        sleep(probe.delay).await;
        let mut judge = probe.judge();
        loop {
            let decided = judge.count(probe.succeeds(self.network).await);
            if decided.is_some_and(|is_good| !goes_on(is_good)) {
                return;
            }
            sleep(period).await;
        }
    }
}

/// A process whose log is shown if it is cut off before its end, as by the end of a test that failed.
struct Logged {
    process: Process,
    is_quiet: Arc<AtomicBool>,
}

impl Drop for Logged {
    fn drop(&mut self) {
        if self.is_quiet.load(Ordering::Relaxed) {
            self.process.hush();
        }
    }
}

/// Why a container could not be started, with the reason of its state.
struct Failure {
    reason: &'static str,
    error: anyhow::Error,
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
                (restart.again(0), restart.again(1)),
                (after_success, after_failure),
                "{policy:?}"
            );
        }
    }
}
