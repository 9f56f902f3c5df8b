//! What the network does to requests.

use super::{CONSUMER, object, with_objects};
use crate::{
    faults::{Disturbance, Fault, ProcessName, Target},
    history::History,
    topology::Cluster,
    users::Action,
};

/// Requests arrive twice, the second time after a later request.
pub(super) fn requests_that_arrive_twice() -> History {
    let (on, object) = (CONSUMER, object(1));
    let doubled = Fault::Disturb {
        process: ProcessName::Konnector { of: on, replica: 1 },
        target: Target::Api(Cluster::Provider(1)),
        how: Disturbance::DoubleRequests,
        percent: 100,
        millis: 20_000,
    };
    (0..50_u64).fold(with_objects(1).fault(5_000, doubled), |history, edit| {
        history.user(6_000 + 30 * edit, Action::Edit { on, object })
    })
}
