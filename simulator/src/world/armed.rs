//! Crashes and freezes that wait for a moment in the life of a request.

use std::time::Duration;

use super::{RuleNumber, World, process::ProcessId};
use crate::faults::{Point, ProcessName};

/// What happens to a process at an armed moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// It is killed, and starts again after this time.
    Crash(Duration),
    /// It stands still for this long.
    Freeze(Duration),
}

/// A strike that waits for its moment.
#[derive(Debug)]
pub(super) struct Armed {
    rule: RuleNumber,
    process: ProcessName,
    point: Point,
    /// How many moments go well before.
    left: u8,
    strike: Strike,
}

impl World {
    /// Arms a strike: the process is struck when it comes to this point of a request or watch event, after it came there `after`
    /// times unharmed.
    pub fn arm(&mut self, process: ProcessName, point: Point, after: u8, strike: Strike) -> RuleNumber {
        let rule = self.rules.add();
        self.armed.push(Armed {
            rule,
            process,
            point,
            left: after,
            strike,
        });
        rule
    }

    /// Notes that a process has come to a point, and strikes it if a strike was armed for this moment.
    pub(super) fn reach(&mut self, id: ProcessId, point: Point) {
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
            due.push((armed.rule, armed.strike));
            false
        });
        for (rule, strike) in due {
            let has_struck = match strike {
                Strike::Crash(down) => self.crash(name, down),
                Strike::Freeze(time) => self.freeze(name, time),
            };
            if has_struck {
                self.rules.hit(rule);
            }
        }
    }
}
