//! Who is measured.

use super::Step;

/// Who does the same work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contestant {
    /// Ours.
    Synk,
    /// A program that only sends the writes that synk sends, with the same connections: the floor.
    Bare,
    /// `kubectl apply --server-side`. It keeps no versions, and is told what to delete.
    Kubectl,
}

impl Contestant {
    pub(super) const ALL: [Self; 3] = [Self::Synk, Self::Bare, Self::Kubectl];

    /// In which order they take their turns in a round.
    pub(super) fn in_turn(round: u32) -> [Self; 3] {
        if round.is_multiple_of(2) {
            [Self::Synk, Self::Bare, Self::Kubectl]
        } else {
            [Self::Bare, Self::Synk, Self::Kubectl]
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Synk => "synk",
            Self::Bare => "bare client",
            Self::Kubectl => "kubectl",
        }
    }

    /// Its ServiceAccount. All are of one length, so that what is written is, too.
    pub(super) fn account(self) -> &'static str {
        match self {
            Self::Synk => "synk",
            Self::Bare => "bare",
            Self::Kubectl => "kctl",
        }
    }

    /// Its namespace in a round; also the name of its set.
    pub(super) fn namespace(self, round: u32) -> String {
        format!("{}-{round}", self.account())
    }

    /// Which version of its set a step makes.
    pub(super) fn version(step: Step) -> Option<u32> {
        match step {
            Step::First => Some(1),
            Step::Unchanged => None,
            Step::OneChanged => Some(2),
            Step::HalfPruned => Some(3),
        }
    }
}
