//! The programs that the sync benchmarks compare.

use serde::Serialize;

/// A program that syncs the objects of the binding. All use the same credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Contestant {
    /// The project's agent.
    Konnector,
    /// The same, with traces of a part of all changes.
    Traced,
    /// Keeps the same watches open but ignores their events: the driver tells it each change, and it sends only the
    /// necessary writes. No agent can have a higher throughput in a burst of changes.
    Floor,
    /// Sends the necessary writes for each line of a watch at once. No agent can have a shorter latency from the write
    /// on one cluster to the write on the other.
    Relay,
}

impl Contestant {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Konnector => "konnector",
            Self::Traced => "traced",
            Self::Floor => "floor",
            Self::Relay => "relay",
        }
    }

    /// Both in the order in which they run. Which is first alternates from round to round.
    pub(super) fn in_turn(round: u32, [one, other]: [Self; 2]) -> [Self; 2] {
        if round.is_multiple_of(2) {
            [one, other]
        } else {
            [other, one]
        }
    }
}
