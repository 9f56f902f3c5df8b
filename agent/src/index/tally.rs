//! How many sources of copies are missing.

/// What an engine counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub missing: usize,
    pub known: usize,
    /// The consumer went back in time: whatever is missing may be so for that.
    pub rewound: bool,
}

// === impl Tally ===

impl Tally {
    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            missing: self.missing + other.missing,
            known: self.known + other.known,
            rewound: self.rewound || other.rewound,
        }
    }
}
