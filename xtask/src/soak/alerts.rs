//! Every alert is made to fire by its fault, on a real Prometheus.

use anyhow::Result;

use crate::cargo::{TESTED, step};

pub(crate) fn run() -> Result<()> {
    step("programs", &[&["build", "--locked"], &TESTED[..]].concat(), &[])?;
    let test = [
        "test",
        "--locked",
        "--workspace",
        "--test",
        "observe",
        "every_alert_fires_by_its_fault_and_falls_silent_after_the_mend",
        "--",
        "--ignored",
        "--nocapture",
    ];
    step("alerts", &test, &[])
}
