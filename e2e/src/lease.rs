//! Flags that say for how long a Lease holds without being renewed.

/// Flags for suites in which no leader is killed: no leader loses its Lease because the machine is busy.
pub const PATIENT: [&str; 6] = [
    "--lease-duration",
    "120",
    "--lease-renew-deadline",
    "90",
    "--lease-retry-period",
    "2",
];

/// Flags for suites that kill a leader: the next one leads soon.
const QUICK: [&str; 6] = [
    "--lease-duration",
    "10",
    "--lease-renew-deadline",
    "8",
    "--lease-retry-period",
    "1",
];

/// Returns the flags to add to a suite's own: none if those set the duration of the Lease.
pub(crate) fn flags(own: &[String]) -> &'static [&'static str] {
    let says = own.iter().any(|flag| flag.starts_with("--lease-duration"));
    if says { &[] } else { &QUICK }
}
