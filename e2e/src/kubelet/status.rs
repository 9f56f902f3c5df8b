//! The status of a Pod, from what is known of its containers. Pure.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
        PodCondition, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

/// What is known of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerView {
    pub(super) name: String,
    /// The image, as the Pod names it.
    pub(super) image: String,
    /// The digest of the image, once it was found.
    pub(super) image_id: String,
    pub(super) phase: Phase,
    /// How the last run ended.
    pub(super) last: Option<Ended>,
    pub(super) restarts: i32,
}

/// Where a container is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It does not run yet, or not again yet.
    Waiting { reason: String, message: String },
    /// It runs.
    Running {
        since: Timestamp,
        /// The startup probe has succeeded, or there is none.
        has_started: bool,
        is_ready: bool,
    },
    /// It has ended and is not started again.
    Done(Ended),
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) since: Timestamp,
    pub(super) at: Timestamp,
    /// The end of the log of a run that has failed, as with `terminationMessagePolicy: FallbackToLogsOnError`.
    pub(super) message: String,
}

impl ContainerView {
    pub(super) fn new(name: &str, image: &str) -> Self {
        Self {
            name: name.to_owned(),
            image: image.to_owned(),
            image_id: String::new(),
            phase: Phase::Waiting {
                reason: "ContainerCreating".to_owned(),
                message: String::new(),
            },
            last: None,
            restarts: 0,
        }
    }

    fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Running { is_ready: true, .. })
    }

    fn has_succeeded(&self) -> bool {
        matches!(self.phase, Phase::Done(Ended { code: 0, .. }))
    }

    fn status(&self, is_init: bool) -> ContainerStatus {
        ContainerStatus {
            name: self.name.clone(),
            image: self.image.clone(),
            image_id: self.image_id.clone(),
            ready: self.is_ready() || (is_init && self.has_succeeded()),
            started: Some(matches!(self.phase, Phase::Running { has_started: true, .. })),
            restart_count: self.restarts,
            state: Some(self.phase.state()),
            last_state: match &self.phase {
                // The state says it.
                Phase::Done(_) => None,
                _ => self.last.as_ref().map(Ended::state),
            },
            ..ContainerStatus::default()
        }
    }
}

impl Phase {
    fn state(&self) -> ContainerState {
        match self {
            Self::Waiting { reason, message } => ContainerState {
                waiting: Some(ContainerStateWaiting {
                    reason: Some(reason.clone()),
                    message: Some(message.clone()).filter(|it| !it.is_empty()),
                }),
                ..ContainerState::default()
            },
            Self::Running { since, .. } => ContainerState {
                running: Some(ContainerStateRunning {
                    started_at: Some(Time(*since)),
                }),
                ..ContainerState::default()
            },
            Self::Done(ended) => ended.state(),
        }
    }
}

impl Ended {
    fn state(&self) -> ContainerState {
        let reason = if self.code == 0 { "Completed" } else { "Error" };
        ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: self.code,
                reason: Some(reason.to_owned()),
                started_at: Some(Time(self.since)),
                finished_at: Some(Time(self.at)),
                message: Some(self.message.clone()).filter(|it| !it.is_empty()),
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        }
    }
}

/// Returns the status of a Pod with these containers. `old` gives the times of conditions that did not change, and the conditions
/// that are not of a kubelet, such as that of an eviction.
pub(super) fn status(old: &PodStatus, init: &[ContainerView], main: &[ContainerView], now: Timestamp) -> PodStatus {
    let is_initialized = init.iter().all(ContainerView::has_succeeded);
    let is_ready = is_initialized && main.iter().all(ContainerView::is_ready);
    let unready = if is_initialized {
        "ContainersNotReady"
    } else {
        "ContainersNotInitialized"
    };
    let phase = phase(init, main);
    let has_ended = matches!(phase, "Succeeded" | "Failed");
    let condition = |name: &str, is_true: bool, reason: &str| {
        let before = old.conditions.iter().flatten().find(|it| it.type_ == name);
        let value = if is_true { "True" } else { "False" };
        let since = before
            .filter(|it| it.status == value)
            .and_then(|it| it.last_transition_time.clone());
        PodCondition {
            type_: name.to_owned(),
            status: value.to_owned(),
            reason: (!is_true).then(|| reason.to_owned()),
            last_transition_time: Some(since.unwrap_or(Time(now))),
            ..PodCondition::default()
        }
    };
    let unready = if has_ended { "PodCompleted" } else { unready };
    let mut conditions = vec![
        condition("PodScheduled", true, ""),
        condition("Initialized", is_initialized, "ContainersNotInitialized"),
        condition("ContainersReady", is_ready, unready),
        condition("Ready", is_ready, unready),
    ];
    let mut others = old.conditions.clone().unwrap_or_default();
    others.retain(|other| conditions.iter().all(|own| own.type_ != other.type_));
    conditions.append(&mut others);
    PodStatus {
        phase: Some(phase.to_owned()),
        conditions: Some(conditions),
        init_container_statuses: (!init.is_empty()).then(|| init.iter().map(|it| it.status(true)).collect()),
        container_statuses: Some(main.iter().map(|it| it.status(false)).collect()),
        start_time: Some(old.start_time.clone().unwrap_or(Time(now))),
        ..PodStatus::default()
    }
}

fn phase(init: &[ContainerView], main: &[ContainerView]) -> &'static str {
    let is_done = |it: &ContainerView| matches!(it.phase, Phase::Done(_));
    let has_run = |it: &ContainerView| it.last.is_some() || !matches!(it.phase, Phase::Waiting { .. });
    if init.iter().any(|it| is_done(it) && !it.has_succeeded()) {
        "Failed"
    } else if main.iter().all(is_done) {
        let is_success = main.iter().all(ContainerView::has_succeeded);
        if is_success { "Succeeded" } else { "Failed" }
    } else if main.iter().all(has_run) {
        "Running"
    } else {
        "Pending"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(phase: Phase) -> ContainerView {
        ContainerView {
            phase,
            ..ContainerView::new("it", "it:1")
        }
    }

    fn waiting() -> ContainerView {
        view(Phase::Waiting {
            reason: "ErrImagePull".to_owned(),
            message: "no such image".to_owned(),
        })
    }

    fn running(is_ready: bool) -> ContainerView {
        view(Phase::Running {
            since: Timestamp::UNIX_EPOCH,
            has_started: true,
            is_ready,
        })
    }

    fn done(code: i32) -> ContainerView {
        view(Phase::Done(ended(code)))
    }

    fn ended(code: i32) -> Ended {
        Ended {
            code,
            since: Timestamp::UNIX_EPOCH,
            at: Timestamp::UNIX_EPOCH,
            message: String::new(),
        }
    }

    #[track_caller]
    fn check(init: &[ContainerView], main: &[ContainerView], phase: &str, is_ready: bool) {
        let status = status(&PodStatus::default(), init, main, Timestamp::UNIX_EPOCH);
        assert_eq!(status.phase.as_deref(), Some(phase));
        let conditions = status.conditions.unwrap();
        let ready = conditions.iter().find(|it| it.type_ == "Ready").unwrap();
        assert_eq!(ready.status == "True", is_ready);
    }

    #[test]
    fn a_pod_is_ready_once_all_its_containers_are() {
        check(&[], &[waiting()], "Pending", false);
        check(&[], &[running(true), waiting()], "Pending", false);
        check(&[], &[running(true), running(false)], "Running", false);
        check(&[], &[running(true), running(true)], "Running", true);
        check(&[running(false)], &[waiting()], "Pending", false);
        check(&[done(0)], &[running(true)], "Running", true);
    }

    #[test]
    fn a_pod_that_has_ended_says_how() {
        check(&[], &[done(0), done(0)], "Succeeded", false);
        check(&[], &[done(0), done(1)], "Failed", false);
        check(&[done(1)], &[waiting()], "Failed", false);
        check(&[], &[done(0), running(true)], "Running", false);
    }

    #[test]
    fn a_container_that_waits_to_be_started_again_has_run() {
        let mut crashed = waiting();
        crashed.last = Some(ended(137));
        crashed.restarts = 3;
        check(&[], std::slice::from_ref(&crashed), "Running", false);
        let status = crashed.status(false);
        assert_eq!(status.restart_count, 3);
        let last = status.last_state.unwrap().terminated.unwrap();
        assert_eq!((last.exit_code, last.reason.as_deref()), (137, Some("Error")));
        let state = status.state.unwrap().waiting.unwrap();
        assert_eq!(state.reason.as_deref(), Some("ErrImagePull"));
    }

    #[test]
    fn conditions_of_others_stay() {
        let evicted = PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            ..PodCondition::default()
        };
        let before = PodStatus {
            conditions: Some(vec![evicted.clone()]),
            ..PodStatus::default()
        };
        let once = status(&before, &[], &[running(true)], Timestamp::UNIX_EPOCH);
        let twice = status(&once, &[], &[running(true)], Timestamp::UNIX_EPOCH);
        let conditions = twice.conditions.unwrap();
        assert_eq!(conditions.len(), 5);
        assert!(conditions.contains(&evicted));
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() {
        let later = Timestamp::from_second(60).unwrap();
        let before = status(&PodStatus::default(), &[], &[running(false)], Timestamp::UNIX_EPOCH);
        let after = status(&before, &[], &[running(true)], later);
        let time = |name: &str| {
            let mut conditions = after.conditions.iter().flatten();
            conditions
                .find(|it| it.type_ == name)
                .unwrap()
                .last_transition_time
                .clone()
                .unwrap()
                .0
        };
        assert_eq!(time("PodScheduled"), Timestamp::UNIX_EPOCH);
        assert_eq!(time("Ready"), later);
        assert_eq!(after.start_time, before.start_time);
    }
}
