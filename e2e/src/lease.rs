//! How long a leader leads that is not heard of.

/// Flags for suites in which no leader is killed: a busy machine ends no leadership.
pub const PATIENT: [&str; 6] = [
    "--lease-duration",
    "120",
    "--lease-renew-deadline",
    "90",
    "--lease-retry-period",
    "2",
];

/// So that suites which kill a leader need not wait long for the next.
const QUICK: [&str; 6] = [
    "--lease-duration",
    "10",
    "--lease-renew-deadline",
    "8",
    "--lease-retry-period",
    "1",
];

/// What is to be said beside the flags of a suite's own.
pub(crate) fn flags(own: &[String]) -> &'static [&'static str] {
    let says = own.iter().any(|flag| flag.starts_with("--lease-duration"));
    if says { &[] } else { &QUICK }
}
