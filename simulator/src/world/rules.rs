//! What the network does to requests, answers and watches.

use std::time::Duration;

use http::StatusCode;
use rand::RngExt as _;

use super::{World, process::ProcessId};
use crate::{
    faults::{Disturbance, ProcessName, Target},
    topology::Cluster,
};

/// How long it takes until a side notices that the other one is silent.
pub(super) const SILENCE: Duration = Duration::from_secs(20);

/// Disturbances that may be in force.
#[derive(Debug, Default)]
pub(super) struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    process: ProcessName,
    target: Target,
    how: Disturbance,
    percent: u8,
    until: Duration,
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a disturbance that may come with any other"
)]
pub(super) struct Fate {
    /// The request never arrives.
    pub(super) is_lost: bool,
    /// The answer never arrives.
    pub(super) is_answer_lost: bool,
    /// The request arrives twice.
    pub(super) is_doubled: bool,
    /// The API server answers with this status and does nothing.
    pub(super) refused: Option<StatusCode>,
    /// A list that accepts an earlier state gets one.
    pub(super) is_stale: bool,
    /// Request and answer take this much longer.
    pub(super) delay: Duration,
}

impl World {
    /// Disturbs the requests of a process to a target for this long. Of a hundred requests, `percent` are hit.
    pub fn disturb(&mut self, process: ProcessName, target: Target, how: Disturbance, percent: u8, time: Duration) {
        self.trace.line(
            self.now,
            &format!("from {process} to {target}: {how:?} for {percent} % during {time:?}"),
        );
        if let (Disturbance::StaleLists, Target::Api(cluster)) = (how, target)
            && let Some(slot) = self.clusters.get_mut(&cluster)
        {
            let snapshot = slot.api.snapshot();
            slot.stale = Some(super::ApiServer::beside(
                &snapshot,
                bindery_simulator_apiserver::Revisions::Kept,
            ));
        }
        let until = self.now + time;
        self.rules.0.push(Rule {
            process,
            target,
            how,
            percent,
            until,
        });
    }

    /// Ends all disturbances.
    pub fn calm(&mut self) {
        self.rules.0.clear();
        for slot in self.clusters.values_mut() {
            slot.stale = None;
        }
        self.trace.line(self.now, "the network is undisturbed");
    }

    /// Decides what happens to a request of a process.
    pub(super) fn fate(&mut self, process: ProcessId, target: Target) -> Fate {
        let mut fate = Fate::default();
        let Some(name) = self.processes[process.0].name else {
            return fate;
        };
        self.rules.0.retain(|rule| rule.until > self.now);
        for rule in &self.rules.0 {
            if rule.process != name || rule.target != target || self.random.random_range(0..100) >= rule.percent {
                continue;
            }
            match rule.how {
                Disturbance::LoseAnswers => fate.is_answer_lost = true,
                Disturbance::DoubleRequests => fate.is_doubled = true,
                Disturbance::Partition => fate.is_lost = true,
                Disturbance::Slow => fate.delay += Duration::from_millis(self.random.random_range(100..8_000)),
                Disturbance::StallWatches => {}
                Disturbance::StaleLists => fate.is_stale = true,
                Disturbance::Refuse(status) => fate.refused = StatusCode::from_u16(status).ok(),
            }
        }
        fate
    }

    fn in_force(&self, process: ProcessId, target: Target, hows: &[Disturbance]) -> Option<Duration> {
        let name = self.processes[process.0].name?;
        let rules = self.rules.0.iter();
        let hits = |rule: &&Rule| {
            rule.process == name && rule.target == target && rule.until > self.now && hows.contains(&rule.how)
        };
        rules.filter(hits).map(|rule| rule.until).max()
    }

    /// By how much watch events of a cluster reach a process later.
    pub(super) fn rules_delay(&mut self, process: ProcessId, cluster: Cluster) -> Duration {
        match self.in_force(process, Target::Api(cluster), &[Disturbance::Slow]) {
            Some(_) => Duration::from_millis(self.random.random_range(100..8_000)),
            None => Duration::ZERO,
        }
    }

    /// Until when watch events of a cluster do not reach a process.
    pub(super) fn rules_stall(&self, process: ProcessId, cluster: Cluster) -> Option<Duration> {
        let stalls = [Disturbance::StallWatches, Disturbance::Partition];
        self.in_force(process, Target::Api(cluster), &stalls)
    }
}
