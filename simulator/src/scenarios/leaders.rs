//! Konnectors that lead, and those that led.

use super::{CONSUMER, object, with_objects};
use crate::{
    faults::{Fault, ProcessName},
    history::History,
    users::Action,
};

/// Leaders stand still for longer than their Lease lasts. Users work shortly before they go on, so that they have something to write
/// before they hear that they lead no more.
pub(super) fn a_leader_that_stood_still() -> History {
    let (of, on, millis) = (CONSUMER, CONSUMER, 19_500);
    let mut history = with_objects(5);
    history.seed = 2;
    history.topology.consumers[0].replicas = 2;
    for round in 0..6_u8 {
        let at = 20_000 + 40_700 * u64::from(round);
        let replica = 1 + round % 2;
        let process = ProcessName::Konnector { of, replica };
        history = history.fault(at, Fault::Freeze { process, millis });
        for name in 1..=5 {
            let object = object(name);
            history = history.user(at + millis - 400, Action::Edit { on, object });
        }
    }
    history
}

/// The clock of a server goes ahead by more than a week, for which a credential can be renewed. The server starts anew with that clock.
/// The last event, which changes nothing, leaves it a minute.
pub(super) fn a_server_a_week_ahead() -> History {
    let process = ProcessName::Server {
        provider: 1,
        replica: 1,
    };
    let (seconds, millis) = (700_000, 2_000);
    History::pair(1)
        .fault(17_421, Fault::ClockJump { process, seconds })
        .fault(20_000, Fault::Crash { process, millis })
        .user(
            77_656,
            Action::Edit {
                on: CONSUMER,
                object: object(5),
            },
        )
}
