//! The reference of flags is what the programs print.

use std::{fs, path::Path};

use anyhow::{Result, ensure};
use bindery_e2e::flags;

#[test]
fn the_reference_of_flags_is_current() -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(flags::PAGE);
    let known = fs::read_to_string(&path).unwrap_or_default();
    ensure!(
        known == flags::page(flags::help)?,
        "{} is not current: run `cargo xtask gen`",
        flags::PAGE
    );
    Ok(())
}
