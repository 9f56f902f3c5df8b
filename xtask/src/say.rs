//! Writes to standard output.

use std::io::Write as _;

use anyhow::{Context as _, Result};

/// Writes to standard output at once.
pub(crate) fn show(text: &str) -> Result<()> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write to standard output")
}
