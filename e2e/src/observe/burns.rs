//! How fast an error budget may be spent before somebody is told.

/// A burn rate that is watched over two windows: the long one says that it matters, the short one that it goes on.
#[derive(Clone, Copy, Debug)]
pub struct Burn {
    /// Name of its values in the chart.
    pub key: &'static str,
    /// How many times as fast as would spend the budget just within its period.
    pub factor: &'static str,
    /// The long window.
    pub long: &'static str,
    /// The short window.
    pub short: &'static str,
    /// How long it must hold.
    pub wait: &'static str,
    /// Who is told: `page` or `ticket`.
    pub severity: &'static str,
}

/// The burn rates, for budgets of 30 days: 2 % of it in an hour, 5 % in six hours, 10 % in a day, and 10 % in three days.
pub const BURNS: [Burn; 4] = [
    Burn {
        key: "fastest",
        factor: "14.4",
        long: "1h",
        short: "5m",
        wait: "2m",
        severity: "page",
    },
    Burn {
        key: "fast",
        factor: "6",
        long: "6h",
        short: "30m",
        wait: "15m",
        severity: "page",
    },
    Burn {
        key: "slow",
        factor: "3",
        long: "1d",
        short: "2h",
        wait: "1h",
        severity: "ticket",
    },
    Burn {
        key: "slowest",
        factor: "1",
        long: "3d",
        short: "6h",
        wait: "3h",
        severity: "ticket",
    },
];
