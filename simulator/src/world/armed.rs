//! Crashes and freezes that wait for a moment in the life of a request.

use std::time::Duration;

use super::{RuleNumber, World, process::ProcessId};
use crate::faults::{ProcessName, TriggerPoint};

/// What happens to a process at an armed moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessFault {
    /// It is killed, and starts again after this time.
    Crash(Duration),
    /// It stands still for this long.
    Freeze(Duration),
}

/// A fault of a process that waits for its moment.
#[derive(Debug)]
pub(super) struct Armed {
    rule: RuleNumber,
    process: ProcessName,
    point: TriggerPoint,
    /// How many moments go well before.
    left: u8,
    fault: ProcessFault,
}

impl World {
    /// Arms a fault: it begins when the process comes to this point of a request or watch event, after it came there `after` times
    /// unharmed.
    pub fn arm(&mut self, process: ProcessName, point: TriggerPoint, after: u8, fault: ProcessFault) -> RuleNumber {
        let rule = self.rules.add();
        self.armed.push(Armed {
            rule,
            process,
            point,
            left: after,
            fault,
        });
        rule
    }

    /// Notes that a process has come to a point, and begins the faults that were armed for this moment.
    pub(super) fn reach(&mut self, id: ProcessId, point: TriggerPoint) {
        let slot = &self.processes[id.0];
        let Some(name) = slot.name.filter(|_| slot.running.is_some()) else {
            return;
        };
        let mut due = Vec::new();
        self.armed.retain_mut(|armed| {
            if armed.process != name || armed.point != point {
                return true;
            }
            if let Some(left) = armed.left.checked_sub(1) {
                armed.left = left;
                return true;
            }
            due.push((armed.rule, armed.fault));
            false
        });
        for (rule, fault) in due {
            let has_begun = match fault {
                ProcessFault::Crash(down) => self.crash(name, down),
                ProcessFault::Freeze(time) => self.freeze(name, time),
            };
            if has_begun {
                self.rules.hit(rule);
            }
        }
    }
}
