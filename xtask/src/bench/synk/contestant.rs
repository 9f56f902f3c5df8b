//! The programs that the benchmarks of synk compare.

use super::Step;

/// A program that applies the same manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contestant {
    /// The project's command `synk`.
    Synk,
    /// A program that only sends the writes that synk sends, with the same connections: synk cannot be faster.
    Bare,
    /// `kubectl apply --server-side`. It keeps no versions, and is told what to delete.
    Kubectl,
}

impl Contestant {
    pub(super) const ALL: [Self; 3] = [Self::Synk, Self::Bare, Self::Kubectl];

    /// The contestants in the order in which they run in a round. Synk and the bare client take turns at being first.
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

    /// Name of the contestant's ServiceAccount. All names have four characters, so that the requests have the same
    /// length.
    pub(super) fn account(self) -> &'static str {
        match self {
            Self::Synk => "synk",
            Self::Bare => "bare",
            Self::Kubectl => "kctl",
        }
    }

    /// Namespace of the contestant in a round; also the name of its set.
    pub(super) fn namespace(self, round: u32) -> String {
        format!("{}-{round}", self.account())
    }

    /// The number of the set's version that a step creates; `None` if the step creates none.
    pub(super) fn version(step: Step) -> Option<u32> {
        match step {
            Step::First => Some(1),
            Step::Unchanged => None,
            Step::OneChanged => Some(2),
            Step::HalfPruned => Some(3),
        }
    }
}
