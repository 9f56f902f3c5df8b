//! Counts of copies, and of those whose source is missing.

/// How many copies, or mapped namespaces, are known, and of how many the source is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub missing: usize,
    pub known: usize,
    /// A cluster went back in time, so any missing source may be a loss of data.
    pub rewound: bool,
}

// === impl Tally ===

impl Tally {
    /// Adds two counts.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            missing: self.missing + other.missing,
            known: self.known + other.known,
            rewound: self.rewound || other.rewound,
        }
    }
}
