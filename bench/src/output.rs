//! Writes answers for the process that started this program: one JSON document a line.

use std::io::{self, Write as _};

use serde::Serialize;

/// Writes one line to standard output, at once.
pub(crate) fn line(document: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec(document)?;
    text.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&text)?;
    Ok(out.flush()?)
}
