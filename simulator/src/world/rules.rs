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

/// Rules that may be in force, and how often each rule of the seed had an effect.
#[derive(Debug, Default)]
pub(super) struct Rules {
    active: Vec<Rule>,
    /// By the number of a rule: how many requests, events or steps it has hit.
    hits: Vec<u32>,
}

/// The number of a rule in its world. It stays valid when the rule has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleNumber(usize);

#[derive(Debug)]
struct Rule {
    number: RuleNumber,
    process: ProcessName,
    target: Target,
    how: Disturbance,
    percent: u8,
    until: Duration,
    /// By how much the watch events of a stale watch come later.
    lag: Duration,
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    /// The request never arrives.
    pub(super) is_lost: bool,
    /// The answer never arrives.
    pub(super) is_answer_lost: bool,
    /// The request arrives twice.
    pub(super) is_doubled: bool,
    /// The API server answers with this status and does nothing.
    pub(super) refused: Option<StatusCode>,
    /// Request and answer take this much longer.
    pub(super) delay: Duration,
}

// === impl Rules ===

impl Rules {
    /// The number of a new rule.
    pub(super) fn add(&mut self) -> RuleNumber {
        self.hits.push(0);
        RuleNumber(self.hits.len() - 1)
    }

    /// Notes that a rule had an effect.
    pub(super) fn hit(&mut self, rule: RuleNumber) {
        if let Some(hits) = self.hits.get_mut(rule.0) {
            *hits += 1;
        }
    }

    /// The rule of one of these kinds that is in force longest between a process and a target.
    fn in_force(&self, now: Duration, name: ProcessName, target: Target, hows: &[Disturbance]) -> Option<&Rule> {
        let rules = self.active.iter();
        let is_in_force = |rule: &&Rule| {
            rule.process == name && rule.target == target && rule.until > now && hows.contains(&rule.how)
        };
        rules.filter(is_in_force).max_by_key(|rule| rule.until)
    }
}

// === impl World ===

impl World {
    /// Disturbs the requests of a process to a target for this long. Of a hundred requests, `percent` are hit.
    pub fn disturb(
        &mut self,
        process: ProcessName,
        target: Target,
        how: Disturbance,
        percent: u8,
        time: Duration,
    ) -> RuleNumber {
        self.trace.line(
            self.now,
            &format!("from {process} to {target}: {how:?} for {percent} % during {time:?}"),
        );
        let lag = match how {
            Disturbance::StaleWatches if self.random.random_bool(0.7) => self.random.random_range(1_000..10_000),
            Disturbance::StaleWatches => self.random.random_range(10_000..120_000),
            _ => 0,
        };
        let number = self.rules.add();
        let until = self.now + time;
        self.rules.active.push(Rule {
            number,
            process,
            target,
            how,
            percent,
            until,
            lag: Duration::from_millis(lag),
        });
        if let (Disturbance::StaleWatches, Target::Api(cluster)) = (how, target) {
            self.schedule_watches(cluster);
        }
        number
    }

    /// How often a rule had an effect: the number of requests, events or steps that it hit.
    pub fn hits(&self, rule: RuleNumber) -> u32 {
        self.rules.hits.get(rule.0).copied().unwrap_or_default()
    }

    /// Ends all disturbances: watch events that were held back are sent soon, and control planes work soon after each write. What is
    /// slow and on its way stays so: see [`Self::late_until`].
    pub fn calm(&mut self) {
        self.rules.active.clear();
        self.armed.clear();
        self.trace.line(self.now, "the network is undisturbed");
        self.hasten_controllers();
        self.release_watches();
    }

    /// Decides what happens to a request of a process.
    pub(super) fn fate(&mut self, process: ProcessId, target: Target) -> Fate {
        let mut fate = Fate::default();
        let Some(name) = self.processes[process.0].name else {
            return fate;
        };
        let Rules { active, hits } = &mut self.rules;
        active.retain(|rule| rule.until > self.now);
        for rule in &*active {
            if rule.process != name || rule.target != target || self.random.random_range(0..100) >= rule.percent {
                continue;
            }
            match rule.how {
                Disturbance::LoseAnswers => fate.is_answer_lost = true,
                Disturbance::DoubleRequests => fate.is_doubled = true,
                Disturbance::Partition => fate.is_lost = true,
                Disturbance::Slow => {
                    // A client gives up after 20 or 30 seconds, so some requests arrive after they were sent again.
                    let millis = if self.random.random_bool(0.05) {
                        self.random.random_range(15_000..60_000)
                    } else {
                        self.random.random_range(100..8_000)
                    };
                    fate.delay += Duration::from_millis(millis);
                }
                // These hit watch events, not requests.
                Disturbance::StallWatches | Disturbance::StaleWatches => continue,
                Disturbance::Refuse(status) => fate.refused = StatusCode::from_u16(status).ok(),
            }
            if let Some(hits) = hits.get_mut(rule.number.0) {
                *hits += 1;
            }
        }
        fate
    }

    /// The number and the end of the rule of one of these kinds that is in force longest between a process and a cluster.
    fn in_force(&self, process: ProcessId, cluster: Cluster, hows: &[Disturbance]) -> Option<(RuleNumber, Duration)> {
        let name = self.processes[process.0].name?;
        let rule = self.rules.in_force(self.now, name, Target::Api(cluster), hows)?;
        Some((rule.number, rule.until))
    }

    /// By how much watch events of a cluster reach a process later.
    pub(super) fn rules_delay(&mut self, process: ProcessId, cluster: Cluster) -> Duration {
        match self.in_force(process, cluster, &[Disturbance::Slow]) {
            Some((rule, _)) => {
                self.rules.hit(rule);
                Duration::from_millis(self.random.random_range(100..8_000))
            }
            None => Duration::ZERO,
        }
    }

    /// Until when watch events of a cluster do not reach a process. To be called when there are such events.
    pub(super) fn rules_stall(&mut self, process: ProcessId, cluster: Cluster) -> Option<Duration> {
        let stalls = [Disturbance::StallWatches, Disturbance::Partition];
        let (rule, until) = self.in_force(process, cluster, &stalls)?;
        self.rules.hit(rule);
        Some(until)
    }

    /// Whether watch events of a cluster do not reach a process.
    pub(super) fn is_stalled(&self, process: ProcessId, cluster: Cluster) -> bool {
        let stalls = [Disturbance::StallWatches, Disturbance::Partition];
        self.in_force(process, cluster, &stalls).is_some()
    }

    /// The rule by which watches of a process at a cluster are stale, and the time at which an event of this moment is sent on them:
    /// with the lag of the rule, but not after the end of the rule.
    pub(super) fn rules_lag(&self, process: ProcessId, cluster: Cluster) -> Option<(RuleNumber, Duration)> {
        let name = self.processes[process.0].name?;
        let target = Target::Api(cluster);
        let rule = self
            .rules
            .in_force(self.now, name, target, &[Disturbance::StaleWatches])?;
        Some((rule.number, rule.until.min(self.now + rule.lag)))
    }

    /// Whether watches of a cluster may be stale now.
    pub(super) fn has_stale_watches(&self, cluster: Cluster) -> bool {
        let target = Target::Api(cluster);
        let is_stale =
            |rule: &Rule| rule.how == Disturbance::StaleWatches && rule.target == target && rule.until > self.now;
        self.rules.active.iter().any(is_stale)
    }
}
