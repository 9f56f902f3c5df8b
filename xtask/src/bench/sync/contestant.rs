//! Who is measured.

use serde::Serialize;

/// Who does the work of the same binding, with the same credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Contestant {
    /// Ours.
    Konnector,
    /// Is told by the driver what changed, and sends the writes that have to be: the floor of what moves in a burst.
    Floor,
    /// Sends them for each line that a watch brings: the floor of the time from write to write.
    Relay,
}

impl Contestant {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Konnector => "konnector",
            Self::Floor => "floor",
            Self::Relay => "relay",
        }
    }

    /// Ours and another in the order of a round: who is first changes.
    pub(super) fn in_turn(round: u32, beside: Self) -> [Self; 2] {
        if round.is_multiple_of(2) {
            [Self::Konnector, beside]
        } else {
            [beside, Self::Konnector]
        }
    }
}
