//! The rules of Prometheus: their syntax, the times at which alerts fire and fall silent, and the faults that they are for.

mod board;
mod faults;

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{binaries, observe::Program};

fn promtool(args: &[&str]) -> Result<()> {
    let promtool = binaries::prometheus()?.join("usr/bin/promtool");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/observe");
    let output = Command::new(promtool).args(args).current_dir(folder).output();
    let output = output.context("cannot run promtool")?;
    ensure!(
        output.status.success(),
        "promtool {}:\n{}{}",
        args.join(" "),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

#[test]
fn rules_are_well_formed() -> Result<()> {
    for program in Program::ALL {
        promtool(&["check", "rules", &format!("rules/{}.yaml", program.name())])?;
    }
    Ok(())
}

#[test]
fn alerts_fire_and_fall_silent() -> Result<()> {
    for program in Program::ALL {
        promtool(&["test", "rules", &format!("tests/{}.yaml", program.name())])?;
    }
    Ok(())
}
