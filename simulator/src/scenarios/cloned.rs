//! A backup of a consumer that is started beside it.

use super::{CONSUMER, object, with_objects};
use crate::{
    faults::{Fault, RevisionsAfter},
    history::History,
    users::Action,
};

/// Five objects are in the backup. Later there are three more, and one was edited. The clone's konnector has the same identity.
pub(super) fn a_clone_beside_its_origin() -> History {
    let mut history = with_objects(5).fault(10_000, Fault::Backup { of: CONSUMER });
    for name in 6..=8 {
        history = history.user(
            20_000,
            Action::Create {
                on: CONSUMER,
                object: object(name),
            },
        );
    }
    history
        .user(
            21_000,
            Action::Edit {
                on: CONSUMER,
                object: object(1),
            },
        )
        .fault(
            60_000,
            Fault::RestoreBeside {
                consumer: 1,
                revisions: RevisionsAfter::Kept,
            },
        )
        .user(
            120_000,
            Action::Edit {
                on: CONSUMER,
                object: object(2),
            },
        )
}
